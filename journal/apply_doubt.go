package journal

import "time"

func (ev Overdue) apply(b *builder) error {
	switch {
	case b.from.Phase == Acknowledged && !b.env.Now.Before(b.e.Ack.Deadline):
		return b.doubtAgain(13, "ack_deadline", "the result that the destination promised by "+clock(b.e.Ack.Deadline))
	case b.from.Phase == Verifying && !b.env.Now.Before(b.e.Verify.Deadline):
		return b.doubtAgain(16, "verify_deadline", "a read that shows the object and its postcondition")
	}
	return b.illegal("no deadline of this phase has passed")
}

// doubtAgain goes back to unknown from a phase that had hope.
func (b *builder) doubtAgain(n int, cause, missing string) error {
	last := b.e.Phase
	if err := b.move(n, Unknown); err != nil {
		return err
	}
	b.why(cause)
	b.beginDoubt(doubting{cause: cause, missing: missing, last: last})
	return b.orPerson()
}

func (ev ReadBegin) apply(b *builder) error {
	n := 18
	switch b.from.Phase {
	case Unknown:
	case NeedsHuman:
		n = 28
		if !b.env.Policy.HasRead {
			return b.illegal("no authoritative read exists for this operation")
		}
	default:
		return b.illegal("no lease is needed to read in this phase")
	}
	d := b.e.Doubt
	if d == nil { // a person asks to read what was contradicted
		d = &Doubt{Since: b.env.Now, ReadsFrom: b.env.Now, Cause: "read again", LastTransition: b.e.Phase, ResolveBy: b.env.Now.Add(b.env.Policy.ReconcileBudget)}
		d.SettleNotBefore, _ = SettleNotBefore(b.e, b.env.Policy)
		b.e.Doubt = d
	}
	d.Taken = d.Taken || n == 28
	if err := b.move(n, Reconciling); err != nil {
		return err
	}
	b.e.Doubt.LeaseUntil = b.env.Now.Add(ev.Lease)
	return nil
}

func (ev LeaseEnd) apply(b *builder) error {
	if b.from.Phase != Reconciling {
		return b.illegal("")
	}
	if a := b.e.Last(); a != nil && a.Replay && a.State == AttemptSent { // the lease was that of a replay
		b.touch(len(b.e.Attempts) - 1)
		return b.replayed(a, Answer{Attempt: a.ID, Class: AnswerUnknown, At: b.env.Now, Open: true, Cause: "timeout"})
	}
	return b.backToDoubt("the read was not recorded before its lease ended", nil)
}

// backToDoubt is 19, or 22 when a person has the effect already or the budget is spent.
func (b *builder) backToDoubt(why string, seen []Match) error {
	d := b.e.Doubt
	d.LeaseUntil = time.Time{}
	over := !b.env.Now.Before(d.ResolveBy) // 22 wins over 19
	if d.Taken || over {
		if err := b.move(22, NeedsHuman); err != nil {
			return err
		}
		b.why(why)
		d.Taken = true
		d.ResolveBy = later(d.ResolveBy, b.env.Now)
		b.keepReading()
		if !b.e.Finding.Contradicted() && len(b.e.Attempts) > 0 {
			b.e.Finding = FindingUnknown
		}
		missing := d.Missing
		if over && len(missing) == 0 {
			missing = []string{"reads could not settle it within the reconcile budget"}
		}
		kind := ReviewAmbiguity
		if b.e.Finding.Contradicted() {
			kind = ReviewContradiction
		}
		b.openReview(kind, "", missing, seen)
		return nil
	}
	if err := b.move(19, Unknown); err != nil {
		return err
	}
	b.why(why)
	b.e.Doubt = d
	d.NextReadAt = nextRead(*d, b.env.Policy, b.env.Now, b.env.Jitter)
	return nil
}

// keepReading leaves the timetable running while a person has the effect, where there is something to read.
func (b *builder) keepReading() {
	d := b.e.Doubt
	d.NextReadAt = time.Time{}
	if b.env.Policy.HasRead {
		d.NextReadAt = nextRead(*d, b.env.Policy, b.env.Now, b.env.Jitter)
	}
}

func (ev Escalate) apply(b *builder) error {
	if b.from.Phase != Unknown {
		return b.illegal("")
	}
	return b.escalate(ev.Reason)
}

func (b *builder) escalate(reason string) error {
	d := *b.e.Doubt
	if err := b.move(23, NeedsHuman); err != nil {
		return err
	}
	b.why(reason)
	d.Taken = true
	b.e.Doubt = &d
	b.keepReading()
	b.e.Finding = FindingUnknown
	b.openReview(ReviewAmbiguity, "", append([]string{reason}, d.Missing...), nil)
	return nil
}

func (ev ReadAgain) apply(b *builder) error {
	d := b.e.Doubt
	switch {
	case b.in(Unknown, NeedsHuman) && d != nil && !d.NextReadAt.IsZero():
		d.ReadsFrom, d.Reads = b.env.Now, 0
		b.refreshSettle()
		d.NextReadAt = earliest(d.NextReadAt, ev.At)
	case b.from.Phase == Verifying && b.env.Policy.HasRead:
		b.e.Verify.NextRead = earliest(b.e.Verify.NextRead, later(ev.At, b.env.Now))
	case b.from.Phase == Acknowledged && b.env.Policy.HasRead:
		b.e.Ack.NextRead = earliest(b.e.Ack.NextRead, later(ev.At, b.env.Now))
	default:
		return b.illegal("nothing is being read")
	}
	return nil
}

// inPlace lets one handler continue as another event on what is built so far.
func (b *builder) inPlace() *builder {
	b.from.Phase = b.e.Phase
	return b
}

func (b *builder) doubtAgainQuietly(n int, cause string) error {
	last := b.e.Phase
	if err := b.move(n, Unknown); err != nil {
		return err
	}
	b.why(cause)
	b.beginDoubt(doubting{cause: cause, missing: cause, last: last})
	return nil
}

// doubting says how an effect came into doubt.
type doubting struct {
	cause, missing string
	readNow        bool
	last           Phase
	paused         time.Duration // of after_absence, before the evidence was doubted
}

// beginDoubt fills what an unknown effect must carry.
func (b *builder) beginDoubt(d doubting) {
	p, now := b.env.Policy, b.env.Now
	b.e.Finding = FindingUnknown
	doubt := Doubt{
		Since: now, ReadsFrom: now, LastTransition: d.last, Cause: d.cause, Missing: []string{d.missing},
		ResolveBy: now.Add(p.ReconcileBudget), Paused: d.paused, Taken: b.e.Review.Live(),
	}
	if old := b.e.Doubt; old != nil && d.last == Verifying && d.cause != "restore" { // hope failed: the same doubt goes on
		doubt.Since, doubt.ResolveBy, doubt.Paused, doubt.Fence = old.Since, old.ResolveBy, old.Paused, old.Fence
	}
	if p.DedupeWindow != nil && p.ReplaysFirst {
		if first := b.e.FirstSent(); !first.IsZero() {
			doubt.DedupeExpiresAt = first.Add(*p.DedupeWindow)
		}
	}
	b.e.Doubt = &doubt
	b.refreshSettle()
	if d.readNow {
		doubt.NextReadAt = now
	}
}

// refreshSettle recomputes the bounds of the doubt after an attempt changed.
func (b *builder) refreshSettle() {
	if b.e.Doubt == nil {
		return
	}
	d := b.e.Doubt
	d.SettleNotBefore, _ = SettleNotBefore(b.e, b.env.Policy)
	// Only bring reads forward. A person's effect is read while nothing is known and a view exists.
	if b.in(Unknown) || (b.in(NeedsHuman) && b.e.Finding == FindingUnknown && b.env.Policy.HasRead) {
		d.NextReadAt = earliest(d.NextReadAt, nextRead(*d, b.env.Policy, b.env.Now, b.env.Jitter))
	}
}

// orPerson is transition 23 at once when no read could ever settle the doubt.
func (b *builder) orPerson() error {
	if b.env.Policy.HasRead {
		return nil
	}
	return b.escalate("no authoritative read exists for this operation")
}
