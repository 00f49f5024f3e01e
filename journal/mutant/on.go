//go:build mutants

package mutant

import "os"

// The mutants of a build with the tag `mutants`; at most one is true, and it
// never changes while the process lives.
var (
	NoGrace             = selected("noGrace")
	UnknownToAuthorized = selected("unknownToAuthorized")
	OrphanNotKilled     = selected("orphanNotKilled")
	SentAfterCall       = selected("sentAfterCall")
)

func selected(name string) bool { return os.Getenv("SETTLED_MUTANT") == name }
