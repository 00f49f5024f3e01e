package http

import (
	"github.com/settled-dev/settled/plugins/internal/card"
	"github.com/settled-dev/settled/sdk"
)

// operation is one compiled entry of with.operations.
type operation struct {
	name, summary string
	dispatch      *write
	undo          *write
	verify        *test // of undo
	read          *read
	handle        *program
	poll          *poll
	snapshot      *snapshot
	postcondition *test
	precondition  *precondition
	reversal      sdk.ReversalKind
	dedupe        sdk.Idempotency
	consequences  []sdk.Consequence
	sensitive     []string
	humanOnly     bool
}

// request is a request before its values are known.
type request struct {
	method  string
	path    *template
	headers []header // with.headers and the request's own, which win
	body    *program
}

type header struct {
	name  string
	value *template
}

// write is a request that has an effect, and what its answers mean.
type write struct {
	request
	target                              *program
	done, accepted, objectID, requestID *program
	retryable, final                    []int
}

// test is a read whose answer must satisfy a program.
type test struct {
	request
	when *program
}

// identify is how a read tells ours from others.
type identify string

const (
	byMarker   identify = "marker"
	byNatural  identify = "natural"
	bySnapshot identify = "snapshot"
)

// read is the authoritative read of an operation.
type read struct {
	request
	identify                           identify
	items, next, none, complete        *program
	marker, digest, match, objectID    *program
	state, account, createdAt, partial *program
	guard                              *test
	terms                              card.ReadTerms
}

// poll asks what became of an accepted operation.
type poll struct {
	request
	done, failed *program
}

// snapshot reads the prior state before the write.
type snapshot struct {
	request
	items, none *program // items: what is kept; the whole body when nil
}

// precondition is what must still hold just before the write.
type precondition struct {
	request
	value, etag *program
}

// needsPrepare reports whether something must be read or known before the write.
func (o *operation) needsPrepare() bool {
	return o.dispatch.target != nil || o.snapshot != nil || o.precondition != nil ||
		(o.read != nil && o.read.identify == bySnapshot)
}
