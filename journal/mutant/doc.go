// Package mutant names four ways of being wrong. Each of them, let into the
// product, makes it possible that a destination holds an effect twice; the test
// suite has to notice every one.
//
// In a normal build the four names are untyped constants equal to false, so the
// compiler removes every branch that asks for them: no environment variable and
// no configuration can bring them back. Only a build with the tag `mutants`
// turns them into values, of which the environment variable SETTLED_MUTANT
// selects one:
//
//		go test -tags mutants ./journal/                                  # none selected: all must pass
//		SETTLED_MUTANT=noGrace go test -tags mutants -run Mutant ./journal/
//
//	  - noGrace: settle_not_before and max_processing are taken as 0, so an early
//	    empty read is believed against a late committer.
//	  - unknownToAuthorized: an effect that is unknown may be sent again.
//	  - orphanNotKilled: recovery does not make sure that the old adapter process
//	    is dead before it counts from its death. Consulted by the host and the daemon.
//	  - sentAfterCall: the `sent` row is written after the call. Consulted by the daemon.
//
// Nothing here guarantees anything, and a crash leaves nothing behind.
package mutant
