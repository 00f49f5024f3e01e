// Package stage sets up a whole settled in one directory: a daemon, a ticket
// desk and a git repository, each in processes of its own, which can be killed
// and started again. The demonstration and the end-to-end tests act on it.
//
// Guarantees, in this order:
//
//   - What a destination holds is asked of the destination's own ledger, never
//     of the journal: [Stage.Truth].
//   - [Stage.Kill] is SIGKILL and returns when the process is reaped. What it
//     had started may live a moment longer, as after a real crash.
//   - [Stage.Close] returns when no process of the stage lives, adapters and
//     their commands included. The directory is the caller's to remove.
//
// A caller that dies takes the daemon and the desk with it, unless it asked for
// [Options.Outlive].
package stage
