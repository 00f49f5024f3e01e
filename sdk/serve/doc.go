// Package serve runs an adapter as a program of its own: [Main] is the whole
// main function of an adapter.
//
// Started by the daemon it speaks gRPC over a private socket with mutual TLS.
// What it guarantees there:
//   - File descriptor 1 carries the handshake line and nothing else. It is put
//     aside before any code of the adapter can run, so a stray print, of the
//     adapter or of a program that it starts, goes to standard error.
//   - The program lives exactly as long as its standard input, a pipe that the
//     daemon holds: at its end running calls are cancelled, and within a second
//     the program is gone. SIGTERM and SIGINT do nothing until then, so that a
//     stop of the service cannot cut a call that the daemon still waits for.
//   - A crash leaves nothing behind but an unanswered call, which is unknown.
//
// Run by hand it prints help; "describe" prints its description as JSON and
// "docs" as Markdown, "call" makes one call to the real destination, and "dev"
// answers a request a line from one process that a debugger can hold.
package serve
