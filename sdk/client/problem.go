package client

import (
	"fmt"
	"strings"
)

// The codes of problems that programs tell apart.
const (
	CodeKeyConflict       = "key-conflict"       // 409: the key is bound to another request
	CodePhaseRefused      = "phase-refused"      // 409: not possible in the effect's phase
	CodeInvalid           = "invalid"            // 422: every fault is listed
	CodeStale             = "stale"              // 412: the effect changed since it was looked at
	CodeNotFound          = "not-found"          // 404
	CodeTooLarge          = "too-large"          // 413
	CodeBusy              = "busy"               // 429: a limit is reached; Retry-After says when
	CodeOutage            = "outage"             // 503: the destination is down and takes nothing; Retry-After
	CodeDraining          = "draining"           // 503: the daemon is stopping
	CodeSubmissionUnknown = "submission-unknown" // 503: may be recorded: send again with the same key
	CodeJournalFull       = "journal-full"       // 507: nothing was recorded
	CodeNotBuilt          = "not-built"          // 501
	CodeForbidden         = "forbidden"          // 403
	CodeUnauthenticated   = "unauthenticated"    // 401
	CodeMethod            = "method-not-allowed" // 405
	CodeInternal          = "internal"           // 500
	CodeNotReady          = "not-ready"          // 503 of /readyz and /healthz
)

// Problem is an RFC 9457 answer. It is an error.
type Problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`
	Code     string `json:"code"`

	Faults []string `json:"faults,omitempty"` // invalid: every fault with its place

	Key              string `json:"key,omitempty"`
	BoundFingerprint string `json:"bound_fingerprint,omitempty"` // key-conflict
	GivenFingerprint string `json:"given_fingerprint,omitempty"` // key-conflict

	Phase           string `json:"phase,omitempty"` // stale and phase-refused: as it is now
	Seq             int64  `json:"seq,omitempty"`
	Words           string `json:"words,omitempty"`
	MayHaveBeenSent bool   `json:"may_have_been_sent,omitempty"`

	RetryAfterSeconds int `json:"retry_after_s,omitempty"` // as the Retry-After header
}

func (p *Problem) Error() string {
	if len(p.Faults) > 0 {
		return strings.Join(p.Faults, "; ")
	}
	if p.Detail != "" {
		return p.Detail
	}
	return fmt.Sprintf("%s (HTTP %d)", p.Title, p.Status)
}

// UnreachableError says that no connection to the daemon could be made; nothing was sent.
type UnreachableError struct {
	Socket string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach the daemon at %s: %v", e.Socket, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// LostError says that the connection broke after the request may have arrived:
// what was asked for may have been recorded.
type LostError struct{ Err error }

func (e *LostError) Error() string {
	return fmt.Sprintf("the connection to the daemon broke: %v; what was asked may have been recorded", e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }
