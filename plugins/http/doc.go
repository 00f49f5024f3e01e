// Package http is the built-in adapter for any JSON API that can be described by
// configuration: which request writes, which answer means what, and which read
// tells what the destination holds.
//
// # Guarantees
//
// A Dispatch evaluates every program and string it needs first; a fault there
// rejects the operation and nothing is sent. Then it makes exactly one request
// over a fresh connection: no retry, no redirect. An error before a connection
// stood is proof that nothing was sent; everything after is unknown until an
// answer is whole and a rule names it. A program that errs after the call leaves
// the outcome unknown.
//
// A Read counts only if every page is 2xx, items gives a list and no program
// errs; otherwise it is indeterminate, never an empty list. The marker of every
// returned object is compared byte for byte, so a filter that the server does
// not know cannot produce a false match. Absence is never concluded here: the
// View says what was seen and the daemon decides.
//
// # State
//
// An [Adapter] keeps nothing between calls but its configuration. A crash leaves
// nothing behind; what must survive (the prior state, the identities seen before
// the write) is in the baseline, which the daemon journals before Dispatch. For
// the dispatch of NAME.undo the daemon passes the baseline of the effect that is
// undone: its programs see the stored prior state as $snapshot.
package http
