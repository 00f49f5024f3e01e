package sdk

import (
	"errors"
	"fmt"
	"time"
)

// Done is the outcome of a write that the destination confirmed, with the
// object it made. Say it only for an answer that proves it.
func Done(objectType, id string) Outcome {
	return &Committed{Object: ObjectRef{Type: objectType, ID: id}, At: time.Now().UTC()}
}

// Reject is the outcome of a write that did not and will not happen: the same
// request would fail again. code is the destination's own word for it.
func Reject(reason RejectReason, code, message string) Outcome {
	return &Rejected{Reason: reason, Code: code, Message: message}
}

// Refused is the outcome of a write that did not happen because the destination
// said "not now"; the same request may be sent after the given time (0 = the
// daemon's own back-off).
func Refused(after time.Duration) Outcome {
	return &NotExecuted{Basis: BasisRefused, RetryAfter: min(max(after, 0), MaxRetryAfter), Message: "refused for now"}
}

// Uncertain is the outcome of a write that may have happened. Returning the
// error from the write function says the same, and keeps the proof of the wire.
func Uncertain(err error) Outcome {
	if err == nil {
		err = errors.New("it is not known whether it happened")
	}
	var wire *WireError
	if errors.As(err, &wire) {
		return &Unknown{Cause: wire.Cause, Message: err.Error()}
	}
	return &Unknown{Cause: CauseAdapterError, Message: err.Error()}
}

// FoundAll is what a read saw. complete says that nothing was left out: no
// further page, no time limit, no filter that the server may have dropped. No
// match means none seen, which proves absence only if the read was complete and
// the adapter's Guard shows that objects are visible.
func FoundAll(complete bool, matches ...Match) *ReadResponse {
	r := &ReadResponse{Coverage: CoverageTruncated, Finding: &NoneSeen{}}
	if complete {
		r.Coverage = CoverageComplete
	}
	if len(matches) > 0 {
		r.Finding = &Found{Matches: matches}
	}
	return r
}

// Hit is one object that a read found: how it was recognised, and whether its
// content is what the payload asked for.
func Hit(by MatchStrength, objectType, id string, same bool) Match {
	m := Match{Object: ObjectRef{Type: objectType, ID: id}, Strength: by, Agreement: AgreementDiffers}
	if same {
		m.Agreement = AgreementSame
	}
	return m
}

// StillRunning answers a poll of an accepted operation that has not ended.
func StillRunning(pollAfter time.Duration) *ReadResponse {
	return &ReadResponse{Finding: &Pending{PollAfter: pollAfter}, Coverage: CoverageComplete}
}

// ByKey is a destination that deduplicates by an idempotency key for the given
// time (0 = for an unknown time) and answers the same key with another payload as told.
func ByKey(retention time.Duration, other Mismatch) Idempotency {
	i := Idempotency{Mode: IdempotencyKey, SameKeyOtherPayload: other, Replay: ReplayFirstResponse}
	if retention > 0 {
		i.Retention = &retention
	}
	return i
}

// StrongRead is a read that sees every effect at once and may prove absence.
func StrongRead(by Lookup, permissions ...string) ReadSpec {
	return ReadSpec{Lookup: by, Authority: Authoritative, Permissions: permissions, ProvesAbsence: true}
}

// LaggingRead is a read that sees an effect no later than lag.
func LaggingRead(by Lookup, lag time.Duration, permissions ...string) ReadSpec {
	return ReadSpec{Lookup: by, Authority: Eventual, MaxLag: &lag, Permissions: permissions, ProvesAbsence: true}
}

// noOutcome is what a write function says by saying nothing.
func noOutcome(action string) Outcome {
	return &Unknown{Cause: CauseAdapterError, Message: fmt.Sprintf("the write function of %s returned neither an outcome nor an error", action)}
}
