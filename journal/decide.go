package journal

import "time"

// StepKind is what the shell does next for an effect that is due.
type StepKind string

// The steps.
const (
	StepNone     StepKind = ""         // nothing is owed; a person or new evidence moves it
	StepWait     StepKind = "wait"     // until At
	StepApply    StepKind = "apply"    // apply Event, then decide again
	StepDispatch StepKind = "dispatch" // prepare, pass the gate, call
	StepRead     StepKind = "read"     // take the lease where one is needed, read, apply ReadDone
	StepFence    StepKind = "fence"
	StepReplay   StepKind = "replay"
)

// Step is a decision: what to do, when, with which event.
type Step struct {
	Do    StepKind
	At    time.Time
	Event Event
}

// Decide says what is owed to an effect now. It is a pure function of the
// effect, the time and the policy; heldBy names a hold that covers the effect.
func Decide(e Effect, env Env, heldBy string) Step {
	switch e.Phase {
	case Prepared:
		if !env.Now.Before(e.Deadline) {
			return apply(Expire{Reason: "deadline passed while it waited for " + e.WaitingFor})
		}
		return Step{Do: StepWait, At: e.Deadline}
	case Authorized:
		return decideAuthorized(e, env)
	case Acknowledged:
		if !env.Now.Before(e.Ack.Deadline) {
			return apply(Overdue{})
		}
		return readAt(e.Ack.NextRead, env)
	case Verifying:
		if !env.Now.Before(e.Verify.Deadline) {
			return apply(Overdue{})
		}
		return readAt(e.Verify.NextRead, env)
	case Unknown:
		return decideUnknown(e, env)
	case Reconciling:
		if !env.Now.Before(e.Doubt.LeaseUntil) {
			return apply(LeaseEnd{})
		}
		return Step{Do: StepWait, At: e.Doubt.LeaseUntil}
	case ConfirmedAbsent:
		return decideAbsent(e, env, heldBy)
	case NeedsHuman, Failed:
		return decideReviewed(e, env)
	}
	return Step{}
}

func apply(ev Event) Step { return Step{Do: StepApply, Event: ev} }

func readAt(t time.Time, env Env) Step {
	if t.After(env.Now) {
		return Step{Do: StepWait, At: t}
	}
	return Step{Do: StepRead}
}

func decideAuthorized(e Effect, env Env) Step {
	if why := spent(e, env); why != "" {
		return apply(Expire{Reason: why})
	}
	if e.lastSettled() != nil && (e.Absence == nil || (!e.Absence.Final && !env.Now.Before(e.Absence.ValidUntil))) {
		return apply(DoubtAbsence{Reason: "the evidence of absence expired before the next send"})
	}
	if e.Authority != nil && !e.Authority.ExpiresAt.After(env.Now.Add(env.Policy.Timeout)) {
		return apply(Withdraw{Reason: "authority expired"})
	}
	if t := later(e.NextSend, e.NotBefore); t.After(env.Now) {
		return Step{Do: StepWait, At: t}
	}
	return Step{Do: StepDispatch}
}

func decideUnknown(e Effect, env Env) Step {
	p, d := env.Policy, e.Doubt
	if !p.HasRead {
		return apply(Escalate{Reason: "no authoritative read exists for this operation"})
	}
	if closing := dedupeClosing(d, p); !closing.IsZero() && !env.Now.Before(closing) {
		return apply(Escalate{Reason: "the destination's dedupe window is about to close"})
	}
	if t := d.NextReadAt; t.After(env.Now) {
		return Step{Do: StepWait, At: t}
	}
	if p.Settle == SettleFence && allClosed(e) {
		return Step{Do: StepFence}
	}
	if p.Settle == SettleReplay && allClosed(e) && d.Reads > 0 {
		return Step{Do: StepReplay}
	}
	return Step{Do: StepRead}
}

// dedupeClosing is when a replay would no longer be safe; zero where replays do not matter.
func dedupeClosing(d *Doubt, p Policy) time.Time {
	if p.Settle != SettleReplay || d.DedupeExpiresAt.IsZero() {
		return time.Time{}
	}
	margin := p.Timeout + p.Grace.Skew
	if p.Grace.MaxProcessing != nil {
		margin += *p.Grace.MaxProcessing
	}
	return d.DedupeExpiresAt.Add(-margin)
}

func decideAbsent(e Effect, env Env, heldBy string) Step {
	switch {
	case !e.Absence.Final && !env.Now.Before(e.Absence.ValidUntil):
		return apply(DoubtAbsence{Reason: "the evidence of absence expired"})
	case absenceSpent(e, env) != "":
		return apply(GiveUp{Reason: "absent; " + absenceSpent(e, env)})
	case heldBy != "":
		return apply(Defer{Until: e.Absence.ValidUntil})
	}
	return apply(Resend{})
}

func decideReviewed(e Effect, env Env) Step {
	if e.Review.Live() && !e.Review.Overdue && !env.Now.Before(e.Review.DueAt) {
		return apply(ReviewLate{})
	}
	if e.Due == DueRead && env.Policy.HasRead {
		return readAt(e.DueAt, env)
	}
	if !e.DueAt.IsZero() {
		return Step{Do: StepWait, At: e.DueAt}
	}
	return Step{}
}
