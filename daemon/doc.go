// Package daemon is the shell around the pure core: it takes intents, sends
// them once, reads what became of them and asks people where nothing else helps.
//
// # What is guaranteed
//
// An intent is acknowledged after the COMMIT that recorded it. A call is made
// after the COMMIT of its `sent` row, by the goroutine that waited for it. No
// transaction is open while a call is made. What a call or a read showed is
// recorded together with the phase that follows from it. An answer that is
// missing, late or unreadable makes the outcome unknown, and then nothing is
// written to the destination until a read or a person has settled it; the rules
// are in package journal and nowhere else.
//
// # The way of one effect
//
//	submit.go     intent, authority and, with a free slot, the `sent` row: one commit
//	dispatch.go   due → Prepare → write gate → COMMIT → call → answer recorded
//	reconcile.go  due → lease → read → verdict, evidence and phase recorded
//	job.go        one run of a schedule, resumable: sweep.go, audit.go, upkeep.go
//	settle.go     a fence or a replay, where opted in
//	hook.go       a signed message of the destination: evidence, then what it means
//	review.go     a person decides
//	recover.go    what an earlier daemon left half-way
//
// Each destination has two loops (destination.go), one that sends and one that
// reads and decides; both sleep until the next due time in the journal's index
// or a poke. breaker.go holds the breaker and the retry tokens.
//
// # What a crash leaves behind
//
//	before the intake commit           nothing; the source submits again
//	after it, before the `sent` row    the effect, queued
//	after the `sent` row               an open attempt: lost at the next start, the effect unknown
//	answer in memory, not recorded     the same; the answer is read again from the destination
//	read done, not recorded            a lease that ends; the read is repeated
//
// At a stop nothing new is taken, calls in flight may end within the stop
// budget, and what is left is recorded as unknown before its adapter is killed.
package daemon
