// Package faultproxy stands between an adapter and its destination, and loses,
// holds, doubles and falsifies on purpose. It is test equipment.
//
// An HTTP [Proxy] knows when a request is complete, so it knows what the caller
// cannot know: whether the destination ever saw it, and what it answered. It
// writes that into a ledger, the ground truth of a test. It works as the
// destination itself (its URL stands for the destination's), as a forward proxy,
// and inside TLS by a certificate authority of its own. A [Relay] does the same
// for any TCP protocol, by triggers on bytes.
//
// Requests and answers are held whole in memory. Nothing is sent twice unless
// the fault says so. Close cuts every connection, loses what is held, and
// returns when nothing of the proxy runs.
package faultproxy
