// Package api serves the daemon over HTTP on its socket.
//
// Guarantees, in the order in which a request meets them:
//
//   - Who acts is what the kernel says of the socket's other end. A request
//     whose sender is not known is refused before anything is read from it.
//   - Bodies are bounded and strict: an unknown, repeated or ill-typed member is
//     a fault that is named, and all faults of a body are answered at once.
//   - An answer of success is written after the service has returned, and the
//     service returns after its commit. A crash between the two leaves a client
//     without an answer; the same request with the same key finds the effect.
//   - Every refusal is an RFC 9457 problem with a code. No problem carries a
//     payload. A panic becomes a problem of one request and is logged.
//   - Streams (batch, events, sweeps) hold one page or a fixed number of
//     requests in memory; a slow client slows its own stream only.
//
// The routes stand in one table (routes.go). The mux, the OpenAPI document and
// the test that compares them are made from it.
package api
