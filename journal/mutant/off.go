//go:build !mutants

package mutant

// The mutants of a normal build: constants, so that their branches do not exist.
const (
	NoGrace             = false
	UnknownToAuthorized = false
	OrphanNotKilled     = false
	SentAfterCall       = false
)
