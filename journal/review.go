package journal

import "time"

// ReviewKind says what a person is asked about.
type ReviewKind string

// The kinds of review.
const (
	ReviewAmbiguity     ReviewKind = "ambiguity"     // nothing proves either way
	ReviewContradiction ReviewKind = "contradiction" // the destination holds something wrong
	ReviewException     ReviewKind = "exception"     // a failed effect that needs an owner
)

// ReviewState is open until a decision is recorded.
type ReviewState string

// The states of a review.
const (
	ReviewOpen    ReviewState = "open"
	ReviewClaimed ReviewState = "claimed"
	ReviewDecided ReviewState = "decided"
)

// Review is one question to one owner. An effect has at most one that is not decided.
type Review struct {
	Kind       ReviewKind
	State      ReviewState
	Owner      string
	Severity   Severity
	OpenedAt   time.Time
	DueAt      time.Time
	Finding    Finding
	Missing    []string
	Candidates []Match
	Allowed    []DecisionKind
	Group      string // destination and reason: exceptions of one cause are shown together
	Overdue    bool
	Decision   DecisionKind
	DecidedBy  string
	DecidedAt  time.Time
	Because    string
}

// Live reports whether the review still waits for a decision.
func (r *Review) Live() bool { return r != nil && r.State != ReviewDecided }

// DecisionKind names what a person decides.
type DecisionKind string

// The decisions.
const (
	DecideRead         DecisionKind = "read"           // read again now
	DecideHappened     DecisionKind = "happened"       // names the object
	DecideDidNotHappen DecisionKind = "did-not-happen" // attests absence, with evidence
	DecideComplete     DecisionKind = "complete"       // done by hand
	DecideRollback     DecisionKind = "rollback"
	DecideCompensate   DecisionKind = "compensate"
	DecideFix          DecisionKind = "fix"
	DecideRetire       DecisionKind = "retire"
	DecideRetry        DecisionKind = "retry" // of a failed effect
	DecideClose        DecisionKind = "close" // of a failed effect
	DecideAbandon      DecisionKind = "abandon"
	DecideAssign       DecisionKind = "assign"
	DecideKeepWaiting  DecisionKind = "keep-waiting"
	DecideClaim        DecisionKind = "claim"
)

// allowed lists what may be decided in a phase with a finding, for display and for the guard.
func allowed(e Effect, p Policy) []DecisionKind {
	var out []DecisionKind
	switch e.Phase {
	case Unknown, Reconciling:
		out = append(out, DecideHappened, DecideDidNotHappen, DecideComplete, DecideAbandon)
	case NeedsHuman:
		out = append(out, DecideHappened, DecideDidNotHappen, DecideComplete)
		out = append(out, repairsFor(e, p)...)
		out = append(out, DecideAbandon)
	case Failed:
		return []DecisionKind{DecideRetry, DecideClose, DecideAssign, DecideKeepWaiting}
	case ConfirmedAbsent:
		return []DecisionKind{DecideRetry, DecideClose}
	default:
		return nil
	}
	if p.HasRead {
		out = append([]DecisionKind{DecideRead}, out...)
	}
	return append(out, DecideAssign, DecideKeepWaiting)
}

// repairsFor lists the repairs that the finding allows: never without a proved finding and a named object.
func repairsFor(e Effect, p Policy) []DecisionKind {
	if e.Outcome.ObjectID == "" && len(candidates(e)) == 0 {
		return nil
	}
	var out []DecisionKind
	switch e.Finding {
	case FindingNone, FindingUnknown, FindingAbsent, FindingNotSent, FindingRejected:
		return nil
	case FindingDuplicate:
		out = append(out, DecideRetire)
	}
	switch p.Reversibility {
	case ReversibleOp:
		out = append(out, DecideRollback)
	case CompensatableOp:
		out = append(out, DecideCompensate)
	}
	return append(out, DecideFix)
}

func candidates(e Effect) []Match {
	if e.Review == nil {
		return nil
	}
	return e.Review.Candidates
}

// openReview opens the effect's one review, or brings the open one up to date.
func (b *builder) openReview(kind ReviewKind, owner string, missing []string, seen []Match) {
	e := &b.e
	r := Review{
		Kind: kind, State: ReviewOpen, Owner: orElse(owner, b.env.Policy.Owner), Severity: e.Severity,
		OpenedAt: b.env.Now, DueAt: b.env.Now.Add(b.env.Policy.reviewWithin(e.Severity)),
		Group: e.Destination + ": " + orElse(e.Reason, string(e.Finding)),
	}
	if e.Review.Live() { // the same question, still open: keep who has it and when it is due
		old := e.Review
		r.State, r.Owner, r.OpenedAt, r.DueAt, r.Overdue = old.State, old.Owner, old.OpenedAt, old.DueAt, old.Overdue
		if len(seen) == 0 {
			seen = old.Candidates
		}
	}
	r.Finding, r.Missing, r.Candidates = e.Finding, missing, seen
	e.Review = &r
	r.Allowed = allowed(*e, b.env.Policy)
}

// closeReview records that the question was answered, by a person or by evidence.
func (b *builder) closeReview(decision DecisionKind) {
	if !b.e.Review.Live() {
		return
	}
	b.e.Review.State = ReviewDecided
	b.e.Review.Decision = decision
	b.e.Review.DecidedBy = b.env.By.Actor
	b.e.Review.DecidedAt = b.env.Now
	b.e.Review.Because = b.env.By.Because
}
