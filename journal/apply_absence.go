package journal

import (
	"time"

	"github.com/settled-dev/settled/journal/mutant"
)

// absent is the proof that nothing happened. Only now may another attempt be thought of.
func (b *builder) absent(n int, evidence, how string, observed time.Time) error {
	paused := time.Duration(0)
	if b.e.Doubt != nil {
		paused = b.e.Doubt.Paused
	}
	if err := b.move(n, ConfirmedAbsent); err != nil {
		return err
	}
	b.about("", evidence)
	b.e.Finding = FindingAbsent
	b.rebut(orElse(evidence, how))
	b.settle(AttemptSettledAbsent, evidence)
	b.e.Absence = &Absence{
		Ref: orElse(evidence, how), How: how, ObservedAt: observed, Paused: paused,
		ValidUntil: observed.Add(b.env.Policy.Grace.AbsenceValid),
	}
	b.setOutcome(func(o *Outcome) { *o = Outcome{Version: o.Version} })
	b.closeReview(DecideDidNotHappen)
	return nil
}

// rebut marks older positive evidence as answered. It is kept: after an
// acceptance no empty read is ever believed.
func (b *builder) rebut(by string) {
	if p := b.e.Positive; p.stands() {
		p.RebuttedAt, p.RebuttedBy = later(b.env.Now, p.At), by
	}
}

func (ev Resend) apply(b *builder) error {
	if mutant.UnknownToAuthorized && b.from.Phase == Unknown {
		b.settle(AttemptSettledAbsent, "mutant")
		b.rebut("mutant")
		b.e.Absence = &Absence{Ref: "mutant", How: "mutant", Final: true}
		return b.resend(true)
	}
	if b.from.Phase != ConfirmedAbsent {
		return b.illegal("")
	}
	if ev.HeldBy != "" {
		return b.illegal("held by " + ev.HeldBy)
	}
	return b.resend(b.env.By.Kind == Human)
}

// resend is transition 24. A person may go past the attempt limits, never past the evidence.
func (b *builder) resend(byPerson bool) error {
	if !b.e.Absence.Final && !b.env.Now.Before(b.e.Absence.ValidUntil) {
		return b.illegal("the evidence of absence has expired")
	}
	if why := absenceSpent(b.e, b.env); why != "" && !byPerson {
		return b.illegal(why)
	}
	if !authorityHolds(b.e, b.env) {
		return b.illegal("the authority has expired; a new one is needed")
	}
	if b.e.MayHaveBeenSent() {
		return b.illegal("an attempt is not settled")
	}
	if b.e.Positive.stands() {
		return b.illegal("there is evidence that it happened (" + b.e.Positive.What + ")")
	}
	absence := b.e.Absence
	if err := b.move(24, Authorized); err != nil {
		return err
	}
	b.e.Absence = absence
	b.e.NextSend = b.env.Now.Add(Backoff(b.env.Policy.Retry, b.e.Budget.Attempts, b.env.Jitter))
	b.e.Budget.ElapsedFrom, b.e.Budget.Paused = time.Time{}, 0
	if byPerson {
		b.e.Budget = Budget{}
	}
	return nil
}

func (ev GiveUp) apply(b *builder) error {
	if b.from.Phase != ConfirmedAbsent {
		return b.illegal("")
	}
	return b.fail(25, orElse(ev.Reason, "absent, and no attempt left"), true, "")
}

func (ev DoubtAbsence) apply(b *builder) error {
	if !b.in(ConfirmedAbsent, Prepared, Authorized) {
		return b.illegal("")
	}
	if b.e.lastSettled() == nil {
		return b.illegal("there is no absence to doubt")
	}
	last, paused := b.e.Phase, time.Duration(0)
	if b.e.Absence != nil {
		paused = b.e.Absence.Paused
	}
	b.reopenAbsent()
	if err := b.move(26, Unknown); err != nil {
		return err
	}
	b.why(ev.Reason)
	b.e.WaitingFor = ""
	b.beginDoubt(doubting{
		cause: "absence_expired", missing: orElse(ev.Reason, "fresh evidence of absence"), readNow: true, last: last, paused: paused,
	})
	return b.orPerson()
}

// reopenAbsent takes back what absence had settled: those calls are in doubt
// again. What had released them stays noted.
func (b *builder) reopenAbsent() {
	for i := range b.e.Attempts {
		if b.e.Attempts[i].State == AttemptSettledAbsent {
			b.touch(i)
			b.e.Attempts[i].State = AttemptTimedOut
		}
	}
}
