// Package exec is the built-in adapter for commands of your own: one writes,
// another reads back, a third undoes. Each call is one process that gets a
// request as JSON on standard input and answers as JSON on standard output.
//
// # Guarantees
//
// A Dispatch starts at most one process. A command that cannot be started is
// proof that nothing was sent; once it runs, only its own answer says otherwise
// than unknown. A signal and the time limit are unknown whatever was printed.
// The command runs in its own process group; before an answer is given the
// group is killed and known to be dead, so that nothing of it can still act.
// After any answer but done and accepted that holds for what left the group with
// setsid too, found by the SETTLED_ATTEMPT in its environment. (What leaves the
// group and empties its environment escapes this; the daemon's cgroup holds it.) Secrets are on standard input only, never in arguments or
// environment.
//
// A Read counts only with a whole JSON answer that has items; objects whose key
// is not ours byte for byte are ignored.
//
// An answer of dispatch may give a reason: with "rejected" one of
// authentication, permission, not_found, conflict, precondition, quota, policy,
// key_reused, unsupported and validation (the default), with "not_executed" the
// word not_sent when no byte left.
//
// # State
//
// Nothing is kept between calls. A crash of the adapter leaves a running command
// to the host, which finds it by its cgroup or by the mark of the adapter's run
// in its environment.
package exec
