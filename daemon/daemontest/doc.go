// Package daemontest runs whole daemons against a world of memory: a
// destination that keeps the ground truth, a real journal on disk, a fake clock
// and crashes at named moments. Everything runs in a testing/synctest bubble.
//
// # What is guaranteed
//
// The [World] is the ground truth. It counts every call and every commit by key
// with its time, and it looks at each call whether the journal already holds a
// `sent` attempt with that id. What the destination shows and what it answers
// may lie, be late or be lost, as a [Fault] says; the ledger never does.
//
// # What a crash leaves behind
//
// A crash ([Running.Crash], [Rig.CrashAt]) copies the files of the journal at
// that instant, and from then on the journal of the old daemon refuses
// everything. Calls that had left the adapter still reach the world and take
// effect there later; calls that had not are gone with the adapter's process.
// The next daemon opens the copy.
//
// # Determinism
//
// Nothing shares a stream of random numbers, and no two things wake at the
// same instant: every latency has its own offset of a few microseconds.
package daemontest
