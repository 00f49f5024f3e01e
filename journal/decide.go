package journal

import (
	"time"

	"github.com/settled-dev/settled/journal/mutant"
)

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
	StepReplay   StepKind = "replay" // where the gate refuses it: read instead
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
	e = e.whole()
	switch e.Phase {
	case Prepared:
		if !env.Now.Before(e.Deadline) {
			return apply(Expire{Reason: "deadline passed while it waited for " + e.WaitingFor})
		}
		return Step{Do: StepWait, At: e.Deadline}
	case Authorized:
		return decideAuthorized(e, env)
	case Dispatching:
		return decideDispatching(e, env)
	case Acknowledged:
		return decidePending(e.Ack.NextRead, e.Ack.Deadline, env)
	case Verifying:
		return decidePending(e.Verify.NextRead, e.Verify.Deadline, env)
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

// decideDispatching gives up a call that is open for longer than any may be. It
// stays open until its process is known dead, so nothing is concluded from that.
func decideDispatching(e Effect, env Env) Step {
	over, a := callOver(e, env), e.Last()
	switch {
	case a == nil || a.State != AttemptSent:
		return Step{}
	case env.Now.Before(over):
		return Step{Do: StepWait, At: over}
	}
	return apply(Answer{Attempt: a.ID, Class: AnswerUnknown, At: env.Now, Open: true, Cause: "timeout"})
}

// decidePending reads while a promise runs, where there is something to read.
func decidePending(next, deadline time.Time, env Env) Step {
	if !env.Now.Before(deadline) {
		return apply(Overdue{})
	}
	if next.IsZero() || !env.Policy.HasRead {
		return Step{Do: StepWait, At: deadline}
	}
	return readAt(next, env)
}

func decideAuthorized(e Effect, env Env) Step {
	if why := spent(e, env); why != "" {
		return apply(Expire{Reason: why})
	}
	if e.lastSettled() != nil && (e.Absence == nil || (!e.Absence.Final && !env.Now.Before(e.Absence.ValidUntil))) {
		return apply(DoubtAbsence{Reason: "the evidence of absence expired before the next send"})
	}
	if !authorityHolds(e, env) {
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
	if mutant.UnknownToAuthorized {
		return apply(Resend{})
	}
	if t := d.NextReadAt; t.After(env.Now) {
		return Step{Do: StepWait, At: t}
	}
	if p.Settle == SettleFence && allClosed(e) && d.Fence != fenceIntended {
		return Step{Do: StepFence}
	}
	if p.Settle == SettleReplay && replayable(e, env) {
		return Step{Do: StepReplay}
	}
	return Step{Do: StepRead}
}

// replayable reports whether a replay is worth trying: reading comes first, after
// every replay again, and what the gate is sure to refuse is not asked of it.
func replayable(e Effect, env Env) bool {
	last := e.Last()
	return last != nil && allClosed(e) && e.Doubt.LastRead.After(last.ClosedAt) && !e.Positive.stands() &&
		spent(e, env) == "" && authorityHolds(e, env)
}

// dedupeClosing is when the destination's dedupe can no longer be counted on;
// zero where it promises no first-response replay.
func dedupeClosing(d *Doubt, p Policy) time.Time {
	if d.DedupeExpiresAt.IsZero() {
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
		if e.Absence.Final {
			return apply(Defer{Until: env.Now.Add(time.Minute)})
		}
		return apply(Defer{Until: e.Absence.ValidUntil})
	}
	return apply(Resend{})
}

func decideReviewed(e Effect, env Env) Step {
	if e.Review.Live() && !e.Review.Overdue && !env.Now.Before(e.Review.DueAt) {
		return apply(ReviewLate{})
	}
	if e.Due == DueRead {
		if !env.Policy.HasRead {
			return apply(Defer{})
		}
		return readAt(e.DueAt, env)
	}
	if !e.DueAt.IsZero() {
		return Step{Do: StepWait, At: e.DueAt}
	}
	return Step{}
}
