// Package gitdest makes a git repository a destination of the exec adapter: an
// effect is a release tag. Each call is one process that reads a request as
// JSON on standard input and answers as JSON on standard output.
//
// An effect with the key K and the tag T is one annotated tag object under two
// refs, refs/settled/K (escaped) and refs/tags/T, pushed in one atomic,
// create-only push. The tag object's message ends with K, the payload's digest,
// the attempt and the time, so a read finds the object by its ref and proves
// by its content that it is ours and whole.
//
// Guarantees, in this order:
//
//   - dispatch pushes at most once, and never over an existing ref. If the push
//     ends in any way that does not say what happened, the outcome is unknown.
//   - read answers only when the repository was seen whole: its branch main is
//     the guard that tells an empty answer from a wrong or hidden repository.
//     A failed read prints no answer and exits 1.
//   - A process that dies leaves scratch files in the state or temporary
//     directory and nothing else; the repository holds both refs or neither.
//
// No git configuration of the user or the machine is read, and no identity but
// the one set here is used. It works for root and for ordinary users, also on
// a repository that another user owns.
package gitdest
