// Package sqlite keeps the journal in one SQLite file. It is the only package
// that knows SQL.
//
// # What is guaranteed, and in which order
//
// [DB.Write] returns nil only after COMMIT has returned with synchronous=FULL:
// what it wrote survives a crash of the process, of the kernel and of the
// power. A call to a destination is made only after that return, so every call
// has its `sent` row on disk first.
//
// Every write goes through one goroutine, the committer, on one connection. It
// takes one operation, adds what queued meanwhile, opens one transaction, runs
// each operation under its own savepoint, commits once and then answers all of
// them. It never waits for more work: while one fsync runs, the next batch
// collects. An operation that fails is rolled back to its savepoint and harms
// no other. Reads use other connections that cannot write.
//
// An effect, its attempts, its reads, its review, its hold, its counters and
// the lines of the audit chain that say so are written in one transaction, and
// only if the effect still has the sequence number that the change was made
// from. The database itself refuses a second open attempt, a move of the phase
// that the model does not list, a changed intent and an edited or deleted line
// of the chain, whoever tries.
//
// # What a crash leaves behind
//
// A batch is there whole or not at all. After an unclean stop [Open] finds the
// flag still set, raises the epoch, closes sweeps that were running and looks
// for damage. Attempts that were `sent` are found by [DB.OpenAttempts]; what
// they mean is the daemon's to say.
//
// # When the disk fails
//
// A full disk is an answer: nothing of the batch was recorded ([ErrFull]), and
// the next write may succeed. An I/O error from COMMIT is not: the rows may or
// may not be there after a restart ([ErrCommitUnknown]). The journal then
// refuses everything and reports on [DB.Fatal]; the process must exit and
// believe the disk.
//
// A file of the journal is never opened by this package except through SQLite:
// closing any other descriptor of it would drop SQLite's locks.
package sqlite
