// Package host starts adapters as child processes and keeps them: the only
// package that starts processes for the daemon.
//
// [Start] gives one [Process]: a child that has shaken hands, described itself
// and accepted its configuration. A [Supervisor] keeps one live process for one
// destination. Both are a [sdk.Adapter].
//
// # What is guaranteed
//
// What runs is what was hashed: the file is opened once, checked, hashed and
// executed by that descriptor. A program that is not our own must be pinned by
// its SHA-256, and every component of its path must be safe from others.
//
// A child never outlives the daemon. It dies with the thread that made it
// (PDEATHSIG), it ends itself when its standard input ends, and [ReapOrphans]
// at the next start proves it dead before anything is concluded.
//
// Dead means proven dead: the leader is reaped, its process group (and its
// cgroup, where one could be made) is empty, and no process carries the run's
// mark in its environment. Only then is Done closed and the time noted. Killing
// is bounded in time; when the kernel does not let go of a process, Kill says so
// and Done stays open.
//
// # A call that overruns its deadline
//
// Our deadline does not stop a handler. A dispatch is therefore open in four steps:
//
//	0            deadline−margin    deadline       deadline+linger      proven dead
//	├── adapter works ──┼── answers a class ──┼── late answer ──┼── retired, killed ──┤
//
// The adapter's own context ends a margin before the deadline, so that it can
// answer with a class. The call stays open for the linger; an answer in it is
// the answer. After that, [Process.Dispatch] returns an [Unanswered]: the process gets no
// new calls, those that run may end within their own deadline and linger, then
// it is killed. Unanswered.Ended is closed once it is proven dead, and no earlier
// may the attempt be closed: until then a request may still leave.
//
// The same holds for every other way to lose the answer: a broken connection, an
// answer that is too large, an adapter that dies. If the adapter is dead already, Ended
// follows at once.
//
// Cancelling the caller's context stops the waiting and nothing else.
//
// # Crashes
//
// A crash of the daemon leaves a run file per child in the runtime directory,
// written before the child exists. A crash of a child leaves nothing; its
// directory for sockets and its run file are removed by the daemon.
package host
