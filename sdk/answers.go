package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Done is the outcome of a write that the destination confirmed, with the
// object it made. Say it only for an answer that proves it: an answer without
// the object's id proves nothing, and Done makes it unknown.
func Done(objectType, id string) Outcome {
	if id == "" {
		return &Unknown{Cause: CauseBadResponse, Message: "the answer says done, and does not say which " + objectType}
	}
	return &Committed{Object: ObjectRef{Type: objectType, ID: id}, At: time.Now().UTC()}
}

// DoneWithoutObject is [Done] for a destination that names no object.
func DoneWithoutObject() Outcome { return &Committed{At: time.Now().UTC()} }

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

// Hit is one object that a read found: how it was recognised, and in what its
// content differs from what the payload asked for, as JSON pointers (see
// [Differences]); none means that it is the same.
func Hit(by MatchStrength, objectType, id string, differences ...string) Match {
	m := Match{Object: ObjectRef{Type: objectType, ID: id}, Strength: by, Agreement: AgreementSame}
	if len(differences) > 0 {
		m.Agreement, m.Differences = AgreementDiffers, differences
	}
	return m
}

// Differences compares two values as JSON and returns the pointers of what want
// has and got has not, or has otherwise. What only got has (an id, a time) does
// not count. Values that JSON cannot carry differ as a whole.
func Differences(want, got any) []string {
	a, errA := asJSON(want)
	b, errB := asJSON(got)
	if errA != nil || errB != nil {
		return []string{""}
	}
	return differences(a, b, "", nil)
}

func asJSON(v any) (any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // an int64 must not become a float
	var out any
	err = d.Decode(&out)
	return out, err
}

func differences(want, got any, at string, out []string) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return append(out, at)
		}
		for _, name := range sorted(w) {
			inner, there := g[name]
			if !there {
				out = append(out, at+"/"+escape(name))
				continue
			}
			out = differences(w[name], inner, at+"/"+escape(name), out)
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return append(out, at)
		}
		for i := range w {
			out = differences(w[i], g[i], at+"/"+strconv.Itoa(i), out)
		}
	default:
		if want != got {
			out = append(out, at)
		}
	}
	return out
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
