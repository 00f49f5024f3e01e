package journal

import "time"

func (ev Submit) apply(b *builder) error {
	if b.from.Phase != New {
		return b.illegal("the key is in use")
	}
	b.e.Intent = ev.Intent
	b.e.Finding = FindingNone
	b.e.Owner, b.e.Severity = b.env.Policy.Owner, b.env.Policy.Severity
	if b.e.Severity == "" {
		b.e.Severity = SeverityNormal
	}
	if ev.Restored {
		if err := b.move(42, Unknown); err != nil {
			return err
		}
		b.why("the journal was restored from a backup and does not know this key")
		b.e.Authority = ptrCopy(ev.Authority)
		b.presume(ev.Attempt, later(ev.DeadAt, ev.Attempt.ClosedAt))
		b.beginDoubt(doubting{cause: "restore", missing: "whether a lost journal had already sent this", readNow: true, last: New})
		return b.orPerson()
	}
	if err := b.move(1, Prepared); err != nil {
		return err
	}
	b.e.WaitingFor = "authority"
	return nil
}

func (ev Authorize) apply(b *builder) error {
	a := ev.Authority
	if b.from.Phase != Prepared {
		return b.illegal("")
	}
	if a.Ref == "" || !a.ExpiresAt.After(b.env.Now) {
		return b.illegal("the authority is empty or expired")
	}
	if err := b.move(2, Authorized); err != nil {
		return err
	}
	b.why(a.Ref)
	b.e.WaitingFor = ""
	b.e.Authority = &a
	b.e.Budget.ElapsedFrom, b.e.Budget.Paused = time.Time{}, 0
	return nil
}

func (ev Refuse) apply(b *builder) error {
	if b.from.Phase != Prepared {
		return b.illegal("")
	}
	if ev.Human && b.env.By.Kind != Human {
		return b.illegal("only a person rejects; an invalid effect gets an owner")
	}
	return b.fail(3, ev.Reason, !ev.Human, "")
}

func (ev Withdraw) apply(b *builder) error {
	if b.from.Phase != Authorized {
		return b.illegal("")
	}
	if err := b.move(5, Prepared); err != nil {
		return err
	}
	b.why(ev.Reason)
	b.e.Authority = nil
	b.e.WaitingFor = "authority: " + ev.Reason
	return nil
}

func (ev Expire) apply(b *builder) error {
	if !b.in(Prepared, Authorized) {
		return b.illegal("")
	}
	if b.e.MayHaveBeenSent() {
		return b.illegal("an attempt is not settled")
	}
	return b.fail(6, ev.Reason, true, "")
}

func (ev Cancel) apply(b *builder) error {
	if !b.in(Prepared, Authorized) {
		return b.illegal("only an effect that has not been sent, or whose every attempt is settled, can be cancelled")
	}
	if b.e.MayHaveBeenSent() {
		return b.illegal("an attempt is not settled")
	}
	return b.fail(36, "cancelled", false, "")
}

func (ev Outage) apply(b *builder) error {
	if b.from.Phase != Authorized || b.e.MayHaveBeenSent() {
		return b.illegal("")
	}
	if err := b.move(38, NeedsHuman); err != nil {
		return err
	}
	b.why(ev.Reason)
	b.e.Authority = nil // nothing is sent afterwards unless a person grants it anew
	b.openReview(ReviewException, "", []string{"the destination is down: do it by hand and record it (complete), or wait"}, nil)
	return nil
}

func (ev Defer) apply(b *builder) error {
	switch b.from.Phase {
	case Authorized, ConfirmedAbsent:
		b.put = &ev
	case NeedsHuman: // the read that was due cannot be made: the review's own clock remains
		d := b.e.Doubt
		if b.env.Policy.HasRead || d == nil || d.NextReadAt.IsZero() {
			return b.illegal("no read is to be put off")
		}
		d.NextReadAt = time.Time{}
	default:
		return b.illegal("")
	}
	return nil
}

// soonest is the shortest time for which work is put off, so that nothing spins.
const soonest = 100 * time.Millisecond

// place says when to look again: at the given time, and at the latest when the
// deadline passes or the evidence of absence expires. It is never in the past.
func (ev Defer) place(e Effect, now time.Time) (time.Time, DueKind) {
	until, kind := earliest(ev.Until, e.Deadline), DueDispatch
	switch {
	case e.Phase == ConfirmedAbsent:
		kind = DueResend
		if !e.Absence.Final {
			until = earliest(until, e.Absence.ValidUntil)
		}
	case ev.Held:
		kind = DueHeld
	}
	return later(until, now.Add(soonest)), kind
}

// fail ends the effect as known to have had no effect. Unless a person chose
// that end, one review of kind exception gives it an owner.
func (b *builder) fail(n int, reason string, owned bool, owner string) error {
	b.e.Reason = reason
	if err := b.move(n, Failed); err != nil {
		return err
	}
	b.why(reason)
	b.e.Authority = nil
	if b.e.Review.Live() {
		b.closeReview(DecideClose)
	}
	if owned {
		b.openReview(ReviewException, owner, []string{"it did not happen: " + reason}, nil)
	}
	return nil
}
