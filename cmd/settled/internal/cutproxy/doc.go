// Package cutproxy is a TCP proxy that loses requests and answers on purpose.
// It is test equipment.
//
// In HTTP mode it knows when a request is complete: a request that was cut
// before forwarding never reached the server, not even in part, and one that
// was cut after forwarding was answered by the server before the caller lost
// its connection. So what the caller cannot know, the test does. Requests and
// answers are held whole in memory; streams and HTTP/2 are not for it.
//
// In raw mode the first bytes that the caller sends count as the request, and
// the first bytes that come back after them as the answer.
//
// The proxy never sends anything twice. A late request that is pending when
// the proxy closes is lost.
package cutproxy
