package journal

// Phase is the only field of an effect with transitions: it says what may
// happen next. The values are the words used in SQL, JSON and documentation.
type Phase string

// The fifteen phases. New is the state before the intake commit; it is never stored.
const (
	New             Phase = ""
	Prepared        Phase = "prepared"         // recorded; waits for authority
	Authorized      Phase = "authorized"       // the only phase that may open the write gate
	Dispatching     Phase = "dispatching"      // attempt row `sent` is on disk; the call may have left
	Acknowledged    Phase = "acknowledged"     // accepted by the destination, result comes later
	Verifying       Phase = "verifying"        // object named, postcondition pending
	Unknown         Phase = "unknown"          // nothing proves either way; writing is forbidden
	Reconciling     Phase = "reconciling"      // a lease on one authoritative read
	ConfirmedAbsent Phase = "confirmed_absent" // proved not to have happened
	NeedsHuman      Phase = "needs_human"      // one open review
	Repairing       Phase = "repairing"        // an approved repair is open
	Succeeded       Phase = "succeeded"
	Failed          Phase = "failed" // known to have had no effect
	RolledBack      Phase = "rolled_back"
	Compensated     Phase = "compensated"
	Abandoned       Phase = "abandoned" // closed by a person with a residual finding
)

// Phases lists the stored phases in the order of the model.
func Phases() []Phase {
	return []Phase{
		Prepared, Authorized, Dispatching, Acknowledged, Verifying, Unknown, Reconciling,
		ConfirmedAbsent, NeedsHuman, Repairing, Succeeded, Failed, RolledBack, Compensated, Abandoned,
	}
}

// Closed reports whether nothing happens any more without new evidence or a person.
func (p Phase) Closed() bool {
	switch p {
	case Succeeded, Failed, RolledBack, Compensated, Abandoned:
		return true
	}
	return false
}

// HoldsKey reports whether an effect in this phase forbids other work on its key.
func (p Phase) HoldsKey() bool {
	return p == Unknown || p == Reconciling || p == NeedsHuman || p == Repairing
}

// Finding is what evidence has proved so far: what the destination holds.
type Finding string

// The findings of the model.
const (
	FindingNone                Finding = "none"
	FindingNotSent             Finding = "not_sent"
	FindingRejected            Finding = "rejected"
	FindingAccepted            Finding = "accepted"
	FindingMatches             Finding = "matches"
	FindingPartial             Finding = "partial"
	FindingDuplicate           Finding = "duplicate"
	FindingConflicts           Finding = "conflicts"
	FindingPostconditionFailed Finding = "postcondition_failed"
	FindingAbsent              Finding = "absent"
	FindingUnknown             Finding = "unknown"
)

// Contradicted reports whether the finding says that the destination holds something wrong.
func (f Finding) Contradicted() bool {
	switch f {
	case FindingPartial, FindingDuplicate, FindingConflicts, FindingPostconditionFailed:
		return true
	}
	return false
}

// Standing is the four-word answer for people and machines. It is derived, never stored.
type Standing string

// The standings.
const (
	NotStarted   Standing = "not_started"
	InFlight     Standing = "in_flight"
	Committed    Standing = "committed"
	Contradicted Standing = "contradicted"
)

// StandingOf derives the standing from phase and finding.
func StandingOf(p Phase, f Finding) Standing {
	switch p {
	case New, Prepared, Authorized, ConfirmedAbsent, Failed, RolledBack:
		return NotStarted
	case Dispatching, Acknowledged, Verifying, Unknown, Reconciling:
		return InFlight
	case Succeeded, Compensated:
		return Committed
	}
	switch f { // needs_human, repairing, abandoned
	case FindingMatches:
		return Committed
	case FindingUnknown, FindingAccepted:
		return InFlight
	case FindingPartial, FindingDuplicate, FindingConflicts, FindingPostconditionFailed:
		return Contradicted
	}
	return NotStarted
}

// Class is the recovery class of an effect.
type Class string

// The five recovery classes.
const (
	ClassNoEffect          Class = "no_effect"
	ClassConfirmed         Class = "confirmed"
	ClassAmbiguous         Class = "ambiguous"
	ClassWrongReversible   Class = "wrong_reversible"
	ClassWrongIrreversible Class = "wrong_irreversible"
)

// ClassOf derives the recovery class from the standing and the operation's declared reversibility.
func ClassOf(s Standing, r Reversibility) Class {
	switch s {
	case NotStarted:
		return ClassNoEffect
	case Committed:
		return ClassConfirmed
	case InFlight:
		return ClassAmbiguous
	}
	if r == IrreversibleOp {
		return ClassWrongIrreversible
	}
	return ClassWrongReversible
}

// Reversibility is declared per operation; the zero value is irreversible.
type Reversibility string

// The reversibilities.
const (
	IrreversibleOp  Reversibility = ""
	ReversibleOp    Reversibility = "reversible"
	CompensatableOp Reversibility = "compensatable"
)

// Words returns the sentence shown to a person. It never says "failed" of an
// effect whose outcome is not known.
func Words(e Effect) string {
	switch e.Phase {
	case Prepared:
		return "recorded, waiting for " + orElse(e.WaitingFor, "authority")
	case Authorized:
		return "queued"
	case Dispatching:
		return "sending"
	case Acknowledged:
		return "accepted, waiting for confirmation"
	case Verifying:
		return "done by the destination's word, being verified"
	case Unknown, Reconciling:
		return "confirmation unavailable; checking the original request, will not send again"
	case ConfirmedAbsent:
		return "confirmed not executed"
	case NeedsHuman:
		return needsWords(e)
	case Repairing:
		return "a repair is under way"
	case Succeeded:
		if e.Outcome.Attested {
			return "done, attested by a person"
		}
		if e.Outcome.Waived {
			return "done: acknowledged, not verified"
		}
		return "done, verified"
	case Failed:
		return "did not happen: " + orElse(e.Reason, "see the attempts")
	case RolledBack:
		return "rolled back, verified"
	case Compensated:
		return "compensated, verified"
	case Abandoned:
		return "closed by a person; residual finding: " + string(e.Finding)
	}
	return string(e.Phase)
}

func needsWords(e Effect) string {
	if e.Review == nil {
		return "needs a person"
	}
	w := "needs " + e.Review.Owner
	if !e.Review.DueAt.IsZero() {
		w += " by " + e.Review.DueAt.UTC().Format("2006-01-02 15:04 MST")
	}
	if len(e.Review.Missing) > 0 {
		w += ": " + e.Review.Missing[0]
	}
	return w
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
