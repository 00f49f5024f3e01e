// Package client talks to a settled daemon over its Unix socket.
//
// The types are the JSON of the HTTP API and of `settled … --json`, field by
// field; a field that is not known yet is null and never left out, except where
// its comment says so. Fields may be added, none is renamed or removed.
//
// Guarantees, in this order:
//
//   - [Client.Submit] returns only after the daemon has committed the intent, or
//     with an error that says whether it may have been committed. Sending the
//     same request again with the same key is always safe.
//   - [Client.Do] submits and waits. Its [Result] is read with [Result.Match],
//     which asks for all three cases: done, not done, and unknown. A lost
//     connection or an ended context is never reported as "not done".
//   - A crash of the caller leaves the effect with the daemon; the same key finds
//     it again.
//
// The package imports only the standard library.
package client
