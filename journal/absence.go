package journal

import (
	"fmt"
	"time"

	"github.com/settled-dev/settled/journal/mutant"
)

// Clause is one condition of the absence guard.
type Clause string

// The eight clauses, in the order of the model.
const (
	ClauseProves     Clause = "view_can_prove_absence"
	ClauseCoverage   Clause = "coverage_complete"
	ClauseVisibility Clause = "visibility_checked"
	ClauseSettled    Clause = "past_settle_not_before"
	ClauseAgree      Clause = "two_agreeing_reads"
	ClauseQuiet      Clause = "nothing_pending_or_near"
	ClauseClosed     Clause = "every_call_closed"
	ClausePositive   Clause = "no_positive_evidence"
)

// Lacking is one clause that does not hold, in words for a person.
type Lacking struct {
	Clause Clause
	Why    string
}

// Lackings is what an empty reading lacks before it may be called absence.
type Lackings []Lacking

func (l Lackings) words() []string {
	out := make([]string, len(l))
	for i, x := range l {
		out[i] = x.Why
	}
	return out
}

// only reports whether nothing but the named clauses is lacking.
func (l Lackings) only(cs ...Clause) bool {
	for _, x := range l {
		found := false
		for _, c := range cs {
			found = found || c == x.Clause
		}
		if !found {
			return false
		}
	}
	return true
}

// ProveAbsence is the absence guard. An adapter may only say "none seen"; an
// empty result here, and nothing else, turns that into "absent". The returned
// list says why this read is not believed, and thereby what would be.
//
// The caller has already made sure that the reading saw no exact match.
func ProveAbsence(e Effect, r Reading, p Policy) Lackings {
	var l Lackings
	lack := func(c Clause, format string, args ...any) { l = append(l, Lacking{c, fmt.Sprintf(format, args...)}) }

	if why := cannotProve(e, r, p); why != "" {
		lack(ClauseProves, "%s", why)
	}
	if why := notCovered(e, r, p); why != "" {
		lack(ClauseCoverage, "%s", why)
	}
	if !r.VisibilityProven {
		lack(ClauseVisibility, "the read did not prove that these credentials would see the object")
	}
	settle, bounded := SettleNotBefore(e, p)
	strong := isStrong(r, p)
	closed := allClosed(e)
	switch {
	case !closed:
		lack(ClauseClosed, "a call is still open on our side")
	case !bounded:
		lack(ClauseClosed, "nobody declared how late an unanswered request can take effect (grace.max_processing)")
	case r.BegunAt.Before(processingOver(e, p)):
		lack(ClauseClosed, "an unanswered request may still take effect until %s", clock(processingOver(e, p)))
	}
	if settle = settle.Add(extraLag(r, p)); !strong && closed && bounded && r.BegunAt.Before(settle) {
		lack(ClauseSettled, "seen before %s, when the view may still lag", clock(settle))
	}
	if r.Outage {
		lack(ClauseQuiet, "the destination reports an outage of its index")
	}
	if n := len(r.Near); n > 0 {
		lack(ClauseQuiet, "%d look-alike(s) in the window are not explained", n)
	}
	if e.Positive.stands() {
		lack(ClausePositive, "there is evidence that it happened (%s at %s)", e.Positive.What, clock(e.Positive.At))
	} else if e.Positive != nil && e.Positive.Accepted {
		lack(ClausePositive, "it was accepted once: only the destination's own record of the operation proves absence")
	}
	if !agree(e, r, p, strong, settle) {
		lack(ClauseAgree, "a second agreeing read is needed")
	}
	return l
}

// isStrong reports whether this answer shows the destination's truth at once.
func isStrong(r Reading, p Policy) bool {
	return r.Consistency == ConsistencyStrong && p.Consistency == ConsistencyStrong
}

func cannotProve(e Effect, r Reading, p Policy) string {
	switch {
	case !p.HasRead:
		return "no authoritative read exists for this operation"
	case !p.ProvesAbsence:
		return "this view is not declared able to prove absence (proves_absence)"
	case p.Consistency == ConsistencyNone || r.Consistency == ConsistencyNone:
		return "the view is advisory"
	case (p.Consistency != ConsistencyStrong || r.Consistency == ConsistencyEventual) && p.Grace.Lag == nil:
		return "the view may lag and nobody declared by how much (grace.lag)"
	case r.View == "":
		return "the read did not name its view"
	case !p.KeyedLookup && !p.SnapshotDiff:
		return "the lookup is neither by key nor compared with a snapshot"
	}
	return ""
}

// notCovered is clause 2. A read that does not say what it scanned proves nothing.
func notCovered(e Effect, r Reading, p Policy) string {
	first := e.FirstSent()
	from := first.Add(-p.Grace.Skew)
	switch {
	case !r.Complete:
		return "the read did not reach the last page, or was limited"
	case r.ScannedTo.IsZero() || r.ScannedTo.Before(r.BegunAt):
		return "the read does not cover the time up to now"
	case first.IsZero() && !r.ScannedFrom.IsZero():
		return "nobody knows when the first send was, and the read does not cover all time"
	case !first.IsZero() && r.ScannedFrom.After(from):
		return "the read starts after the first send (" + clock(from) + ")"
	}
	return ""
}

// agree is clause 5. The remembered first read already met every other clause
// when it was made; here it is held against the grace as it is now, which an
// answer that came late may have moved.
func agree(e Effect, r Reading, p Policy, strong bool, settle time.Time) bool {
	if strong && p.Grace.MaxProcessing != nil && (*p.Grace.MaxProcessing == 0 || mutant.NoGrace) {
		return true
	}
	if e.Doubt == nil || e.Doubt.FirstAbsent == nil {
		return false
	}
	f := e.Doubt.FirstAbsent
	if beforeGrace(*f, e, p, strong, settle) {
		return false
	}
	return agreesWith(*f, r) && !r.BegunAt.Before(later(f.BegunAt, f.EndedAt).Add(lagOf(r, p)))
}

// beforeGrace reports whether a read was begun before everything that may have been sent could have landed and be seen.
func beforeGrace(f AbsentRead, e Effect, p Policy, strong bool, settle time.Time) bool {
	return f.BegunAt.Before(processingOver(e, p)) || (!strong && f.BegunAt.Before(settle))
}

// lastClosed is when the last call of the effect ended on our side; zero when none was made.
func lastClosed(e Effect) time.Time {
	var last time.Time
	for _, a := range e.Attempts {
		last = later(last, a.ClosedAt)
	}
	return last
}

// extraLag is by how much an answer says that its view lags more than the policy declares.
func extraLag(r Reading, p Policy) time.Duration {
	return max(0, lagOf(r, p)-declaredLag(p))
}

func allClosed(e Effect) bool {
	for _, a := range e.Attempts {
		if !a.State.NoEffect() && a.ClosedAt.IsZero() {
			return false
		}
	}
	return true
}

func lagOf(r Reading, p Policy) time.Duration {
	lag := declaredLag(p)
	if r.Lag != nil && *r.Lag > lag {
		lag = *r.Lag
	}
	return lag
}

// declaredLag is the lag of the policy, or the floor of a view that lags by an undeclared time.
func declaredLag(p Policy) time.Duration {
	switch {
	case p.Grace.Lag != nil:
		return *p.Grace.Lag
	case p.Consistency != ConsistencyStrong:
		return 5 * time.Minute // it cannot prove absence anyway
	}
	return 0
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000Z") }
