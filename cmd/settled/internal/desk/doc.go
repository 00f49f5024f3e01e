// Package desk is a small ticket desk that misbehaves on demand: the
// destination of the demonstration and of the end-to-end tests.
//
// It is a real HTTP server. It commits a ticket first and answers afterwards,
// and between the two it can do what real services do: lose the answer, lose
// the request, commit long after the connection died, answer 500 for what it
// did, cut or garble its answer, drop a field, show a ticket late, hide what
// the caller may not see.
//
// Guarantees, in this order:
//
//   - A request is counted in the ledger before anything else happens to it.
//   - A ticket is written to the journal and synced before it exists for any
//     reader and before any answer leaves, so a killed desk restarts with
//     every ticket that it ever showed. A torn last line is cut off: it was
//     never shown.
//   - The ledger is the ground truth. Each commit counts, also the second one
//     for the same reference. Nothing is deduplicated unless Config asks for it.
//
// A late commit that is pending when the desk dies is lost, as it would be in
// a real service that died with the work in memory.
package desk
