// Package wire carries the adapter contract over gRPC: the mapping between the
// Go values of package sdk and the messages of adapterv1, a server that serves
// a [sdk.Adapter], and a client that is one.
//
// What it guarantees, on the adapter's side ([Server]):
//   - An answer always reaches the host as a class of knowledge. A panic, a
//     plain error and a deadline become fields of an answer, never a gRPC status.
//   - An answer is made to fit, never failed: text is made valid UTF-8, known
//     secrets are blanked, and what is longer than the contract allows is cut.
//   - Before Configure nothing is dispatched.
//
// And on the host's side ([Client]):
//   - A call that was never written to the stream is not executed. Every error
//     after that is an error, whatever its status code, and means unknown.
//   - An answer that breaks the contract is unknown and is counted. An unset
//     oneof, or an arm from a later version, is unknown or indeterminate.
//
// The package starts no process and keeps nothing on disk; a crash on either
// side leaves the other with a gRPC error, which is unknown.
package wire
