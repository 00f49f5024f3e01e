package journal

import (
	"fmt"
	"time"
)

// Reading is one authoritative read as the shell observed it. The core judges it.
type Reading struct {
	Source  string    // timer, sweep, operator, webhook, recovery, audit
	BegunAt time.Time // before the read's first request: the observed_at of the model
	EndedAt time.Time

	View             string
	FilterSHA256     string
	Principal        string
	ScannedFrom      time.Time
	ScannedTo        time.Time
	Complete         bool
	VisibilityProven bool
	How              string // how visibility was proven; "assumed" when no guard is configured
	Consistency      Consistency
	Lag              *time.Duration // of this answer; nil = as the policy says
	Outage           bool
	ScopesSearched   []string

	Matches []Match
	Near    []Match // unmatched look-alikes in the window

	Pending       bool // still running at the destination
	PollAfter     time.Duration
	Ended         *OperationEnd // the destination's own operation record
	Failed        string        // the read itself failed: no evidence
	RetryAfter    time.Duration
	Postcondition PostconditionState
	Seen          string // the observed postcondition
	Evidence      string // digest
}

// OperationEnd is the destination's own word that the operation ran and ended without effect.
type OperationEnd struct {
	Code, Message string
	MayResend     bool
}

// PostconditionState says whether what must be true afterwards is true.
type PostconditionState string

// The states; the zero value means that none is declared and the match itself suffices.
const (
	PostconditionNone    PostconditionState = ""
	PostconditionHolds   PostconditionState = "holds"
	PostconditionFails   PostconditionState = "fails"
	PostconditionPending PostconditionState = "pending"
)

// Strength is what tied an object to the effect.
type Strength string

// The strengths.
const (
	StrengthSimilar  Strength = "similar"
	StrengthNatural  Strength = "natural_id"
	StrengthMarker   Strength = "marker"
	StrengthKey      Strength = "key"
	StrengthHandle   Strength = "handle"
	StrengthSnapshot Strength = "snapshot_diff"
)

// Agreement says whether the object's content is ours. The zero value is "differs".
type Agreement string

// The agreements.
const (
	AgreementSame        Agreement = "same"
	AgreementDiffers     Agreement = "differs"
	AgreementNotCompared Agreement = "not_compared"
	AgreementPartial     Agreement = "partial"
)

// Match is one object seen by a read.
type Match struct {
	ObjectID, ObjectType, URL, State string
	Strength                         Strength
	Agreement                        Agreement
	Differences                      []string
	CreatedAt                        time.Time // zero: not configured
	Account                          string    // empty: not configured
	Target                           string
	Observed                         []byte
	Void                             bool // our own fence mark
}

// Verdict is what a reading amounts to under the settle table and the absence guard.
type Verdict string

// The verdicts of a reconciliation. ReadFailed is not evidence.
const (
	VerdictAbsent     Verdict = "absent"
	VerdictMatches    Verdict = "matches"
	VerdictPartial    Verdict = "partial"
	VerdictDuplicate  Verdict = "duplicate"
	VerdictConflicts  Verdict = "conflicts"
	VerdictUnknown    Verdict = "unknown"
	VerdictReadFailed Verdict = "read_failed"
	VerdictEnded      Verdict = "ended" // the destination's operation record: no effect; stored as absent
)

// Reconciliation is the record of one read and its verdict.
type Reconciliation struct {
	Key         string
	Number      int
	Verdict     Verdict
	View        string
	Complete    bool
	Permission  string // proven, assumed, unproven
	Consistency Consistency
	Objects     int
	BegunAt     time.Time
	ObservedAt  time.Time
	Source      string
	Evidence    string
	Missing     []string
	Candidates  []Match
}

// Judgement is a verdict with what it rests on.
type Judgement struct {
	Verdict    Verdict
	Match      *Match   // the one match, when there is one
	Missing    []string // what was not proved, in words for a person
	Candidates []Match
	// Supports says that the reading saw nothing where absence would show: the
	// guard lacks at most a second agreeing read and the rebuttal of positive evidence.
	Supports bool
	// NoneSeen says that a complete, permitted read past settle_not_before saw nothing of ours.
	NoneSeen bool
	// Agreed says that two such reads agree.
	Agreed bool
	Note   string
}

// Judge applies the settle table to one reading. It never concludes more than
// the reading shows: an empty read is absence only under [ProveAbsence].
func Judge(e Effect, r Reading, p Policy) Judgement {
	switch {
	case r.Failed != "":
		return Judgement{Verdict: VerdictReadFailed, Missing: []string{"the read failed: " + r.Failed}}
	}
	exact, similar := split(r.Matches, p)
	switch {
	case len(exact) > 1:
		return Judgement{Verdict: VerdictDuplicate, Candidates: exact, Missing: []string{fmt.Sprintf("%d objects carry this key; which one is kept", len(exact))}}
	case r.Pending:
		return Judgement{Verdict: VerdictUnknown, Missing: []string{"the destination says the operation is still running"}}
	case r.Ended != nil && len(exact) == 0:
		return Judgement{Verdict: VerdictEnded, Note: r.Ended.Message}
	case len(exact) == 1:
		return judgeOne(e, r, exact[0], p)
	case len(similar) > 0:
		return Judgement{
			Verdict: VerdictUnknown, Candidates: similar,
			Missing: []string{fmt.Sprintf("%d similar object(s) seen, none tied to this key", len(similar))},
		}
	}
	return judgeNone(e, r, p)
}

// split separates the matches that identify the effect from look-alikes. Our own fence marks are neither.
func split(ms []Match, p Policy) (exact, similar []Match) {
	for _, m := range ms {
		switch {
		case m.Void:
		case m.Strength == StrengthMarker, m.Strength == StrengthKey, m.Strength == StrengthHandle,
			m.Strength == StrengthNatural && p.NaturalID,
			m.Strength == StrengthSnapshot && p.SnapshotDiff:
			exact = append(exact, m)
		default:
			similar = append(similar, m)
		}
	}
	return exact, similar
}

func judgeOne(e Effect, r Reading, m Match, p Policy) Judgement {
	conflict := func(why string) Judgement {
		return Judgement{Verdict: VerdictConflicts, Match: &m, Candidates: []Match{m}, Missing: []string{why}}
	}
	if m.Account != "" && e.Account != "" && m.Account != e.Account {
		return conflict(fmt.Sprintf("object %s belongs to account %q, not %q", m.ObjectID, m.Account, e.Account))
	}
	if first := e.FirstSent(); !m.CreatedAt.IsZero() && !first.IsZero() && m.CreatedAt.Before(first.Add(-p.Grace.Skew)) {
		return conflict(fmt.Sprintf("object %s was created %s, before the first send", m.ObjectID, m.CreatedAt.UTC().Format(time.RFC3339)))
	}
	early := !pastLag(e, r, p)
	switch m.Agreement {
	case AgreementSame:
	case AgreementNotCompared:
		if m.Strength != StrengthKey && m.Strength != StrengthMarker {
			return conflict("content was not compared and the object is not tied by key or marker")
		}
	case AgreementPartial:
		if early {
			return Judgement{Verdict: VerdictUnknown, Match: &m, Missing: []string{"object " + m.ObjectID + " is not whole yet; the view may still lag"}}
		}
		return Judgement{Verdict: VerdictPartial, Match: &m, Candidates: []Match{m}, Missing: prefixed("missing: ", m.Differences)}
	default:
		return conflict(fmt.Sprintf("object %s carries this key with other content", m.ObjectID))
	}
	j := Judgement{Verdict: VerdictMatches, Match: &m}
	if m.Agreement == AgreementNotCompared {
		j.Note = "content not compared"
	}
	return j
}

// pastLag reports whether the view must show by now all that the last call can have written.
func pastLag(e Effect, r Reading, p Policy) bool {
	lag := lagOf(r, p)
	var last time.Time
	if !allClosed(e) {
		return false // it may still be writing
	}
	for _, a := range e.Attempts {
		if t := a.ClosedAt; t.After(last) {
			last = t
		}
	}
	return !r.BegunAt.Before(last.Add(lag))
}

func judgeNone(e Effect, r Reading, p Policy) Judgement {
	missing := ProveAbsence(e, r, p)
	if len(missing) == 0 {
		return Judgement{Verdict: VerdictAbsent, NoneSeen: true, Agreed: true}
	}
	j := Judgement{Verdict: VerdictUnknown, Missing: missing.words()}
	j.Supports = missing.only(ClauseAgree, ClausePositive)
	j.NoneSeen, j.Agreed = j.Supports, missing.only(ClausePositive)
	return j
}

func prefixed(prefix string, list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, prefix+s)
	}
	if len(out) == 0 {
		out = append(out, prefix+"unnamed part")
	}
	return out
}
