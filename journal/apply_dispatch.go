package journal

import "time"

func (ev Send) apply(b *builder) error {
	if b.from.Phase != Authorized {
		return b.illegal("only an authorized effect may be sent")
	}
	if ev.Target != "" {
		b.e.Target = ev.Target
	}
	if refused := Gate(b.e, ev.Ask, b.env); len(refused) > 0 {
		return &GateError{Key: b.e.Key, Refusals: refused}
	}
	if err := b.record(4, Dispatching, ev.Attempt); err != nil {
		return err
	}
	return nil
}

// record makes the attempt row that must be durable before the call.
func (b *builder) record(n int, to Phase, a Attempt) error {
	prev := b.e.Last()
	waited := b.e.waited(b.env.Now)
	if err := b.move(n, to); err != nil {
		return err
	}
	a.State = AttemptSent
	a.SentAt = b.env.Now
	a.Number = len(b.e.Attempts) + 1
	a.Target = b.e.Target
	if a.Deadline.IsZero() {
		a.Deadline = b.env.Now.Add(b.env.Policy.Timeout)
	}
	if b.e.Authority != nil {
		a.Authority = b.e.Authority.Ref
	}
	a.Reason = "first attempt"
	if prev != nil {
		a.Follows, a.Reason = prev.ID, "retry after "+string(prev.State)
	}
	b.e.Attempts = append(b.e.Attempts, a)
	b.touch(len(b.e.Attempts) - 1)
	b.about(a.ID, "")
	b.e.Budget.Attempts++
	b.e.Budget.Paused += waited
	if b.e.Budget.ElapsedFrom.IsZero() {
		b.e.Budget.ElapsedFrom = b.env.Now
	}
	if n == 4 && !b.e.Positive.stands() {
		b.e.Positive = nil // what was rebutted spoke of an earlier call
	}
	b.e.Finding = FindingUnknown
	return nil
}

func (ev Answer) apply(b *builder) error {
	a := b.attempt(ev.Attempt)
	if a == nil {
		return b.illegal("no attempt " + ev.Attempt)
	}
	ev = ev.whole(b.env.Now)
	wasSent := a.State == AttemptSent
	switch a.State {
	case AttemptSent:
		if b.from.Phase == Dispatching {
			return b.answered(a, ev)
		}
		if b.from.Phase == Reconciling && a.Replay {
			return b.replayed(a, ev)
		}
		// settled by other evidence while the call was under way
		a.State = AttemptTimedOut
		return b.lateAnswer(a, ev, wasSent)
	case AttemptTimedOut, AttemptLost, AttemptSettledAbsent, AttemptSettledPresent:
		return b.lateAnswer(a, ev, wasSent)
	}
	return b.illegal("the attempt is " + string(a.State))
}

// whole makes an answer say one thing: what was answered is not open and is no
// death; a death without a time is a call that may still be open.
func (ev Answer) whole(now time.Time) Answer {
	if ev.Class != AnswerUnknown {
		ev.Open, ev.Death = false, false
	}
	if ev.At.IsZero() {
		ev.Open = ev.Open || ev.Death
		ev.At = now
	}
	return ev
}

// answered maps an answer to its transition. One exhaustive switch; anything
// that proves nothing is unknown.
func (b *builder) answered(a *Attempt, ev Answer) error {
	closeAttempt(a, ev)
	switch ev.Class {
	case AnswerCommitted:
		return b.committed(a, ev)
	case AnswerAccepted:
		return b.accepted(a, ev)
	case AnswerRejected, AnswerNotExecuted, AnswerNotSent:
		switch {
		case ev.Conflict:
			return b.unanswered(a, ev, "conflict", "the destination says the place is taken; it may be our own earlier send", true)
		case b.e.Positive.stands() || b.earlierUnsettled(a): // an earlier send turned out differently meanwhile
			return b.unanswered(a, ev, "contradiction", "this call had no effect, but there is evidence that an earlier one had", true)
		}
	}
	switch ev.Class {
	case AnswerRejected:
		a.State = AttemptRejected
		b.e.Finding = FindingRejected
		owner := ""
		if ev.Denied {
			owner = b.env.Policy.AuthorityOwner
		}
		return b.fail(8, reasonOf(ev), true, owner)
	case AnswerNotSent:
		a.State = AttemptNotSent
		b.e.Budget.Attempts--
		b.e.Finding = FindingNotSent
		return b.again(a, ev)
	case AnswerNotExecuted:
		a.State = AttemptNotExecuted
		b.e.Finding = FindingNotSent
		return b.again(a, ev)
	}
	return b.unanswered(a, ev, orElse(ev.Cause, "no_answer"), missingOf(ev), false)
}

// earlierUnsettled reports whether another attempt may have had an effect (8: every earlier attempt is settled).
func (b *builder) earlierUnsettled(a *Attempt) bool {
	for i := range b.e.Attempts {
		if x := &b.e.Attempts[i]; x != a && !x.State.NoEffect() {
			return true
		}
	}
	return false
}

func closeAttempt(a *Attempt, ev Answer) {
	a.ProviderRequestID = orElse(ev.ProviderRequestID, a.ProviderRequestID)
	a.ResponseClass = string(ev.Class)
	a.Cause, a.Message = ev.Cause, ev.Message
	if !ev.Open {
		a.ClosedAt, a.Death = ev.At, ev.Death
	}
}

func reasonOf(ev Answer) string {
	r := "rejected"
	if ev.Denied {
		r = "denied"
	}
	if ev.Reason != "" {
		r += " (" + ev.Reason + ")"
	}
	if ev.Message != "" {
		r += ": " + ev.Message
	}
	return r
}

func missingOf(ev Answer) string {
	switch {
	case ev.Open:
		return "the answer: the call is overdue and its process may still send"
	case ev.Message != "":
		return "a usable answer: " + ev.Message
	}
	return "the answer (" + orElse(ev.Cause, "none came") + ")"
}

func (b *builder) committed(a *Attempt, ev Answer) error {
	a.State = AttemptCommitted
	if err := b.move(10, Verifying); err != nil {
		return err
	}
	b.about(a.ID, ev.Evidence)
	b.e.Finding = FindingAccepted
	b.e.Positive = &Positive{At: ev.At, What: "committed"}
	b.setOutcome(func(o *Outcome) {
		o.Acknowledgement, o.Source, o.Evidence = "committed", "dispatch", ev.Evidence
		o.ObjectID, o.ObjectType, o.URL, o.ProviderState = ev.ObjectID, ev.ObjectType, ev.URL, ev.State
	})
	b.beginVerify(ev.ObjectID)
	if b.env.Policy.Proof == ProofAck {
		b.setOutcome(func(o *Outcome) { o.Waived = true })
		return b.succeed(15, ev.Evidence)
	}
	return nil
}

func (b *builder) accepted(a *Attempt, ev Answer) error {
	a.State = AttemptAccepted
	if err := b.move(9, Acknowledged); err != nil {
		return err
	}
	b.about(a.ID, ev.Evidence)
	b.e.Finding = FindingAccepted
	b.e.Positive = &Positive{At: ev.At, What: "accepted", Accepted: true}
	b.setOutcome(func(o *Outcome) {
		o.Acknowledgement, o.Source, o.Evidence = "accepted", "dispatch", ev.Evidence
		o.ObjectID, o.ObjectType, o.URL, o.ProviderState = ev.ObjectID, ev.ObjectType, ev.URL, ev.State
	})
	deadline := b.env.Now.Add(b.env.Policy.AckDeadline)
	if !ev.ExpiresAt.IsZero() && ev.ExpiresAt.Before(deadline) {
		deadline = ev.ExpiresAt
	}
	next := time.Time{} // only the deadline or a webhook, where nothing can be polled
	switch {
	case !b.env.Policy.HasRead:
	case ev.PollAfter > 0:
		next = b.env.Now.Add(ev.PollAfter)
	default:
		next = timetable(b.env.Now, b.env.Policy.Grace.Reads, b.env.Now, b.env.Jitter)
	}
	b.e.Ack = &Acknowledgement{Handle: ev.Handle, At: b.env.Now, Deadline: deadline, NextRead: next}
	return nil
}

// again is transition 7 while budget is left, else 8.
func (b *builder) again(a *Attempt, ev Answer) error {
	backoff := Backoff(b.env.Policy.Retry, b.e.Budget.Attempts, b.env.Jitter)
	wait := max(backoff, ev.RetryAfter)
	next := b.env
	next.Now = b.env.Now.Add(backoff)
	if why := spent(b.e, next); why != "" {
		return b.fail(8, why+" after "+string(a.State)+detail(ev), true, "")
	}
	if !b.e.Deadline.IsZero() && !b.env.Now.Add(wait+b.env.Policy.Timeout+b.env.Policy.RecordReserve).Before(b.e.Deadline) {
		return b.fail(8, "the destination asks to wait past the deadline"+detail(ev), true, "")
	}
	if err := b.move(7, Authorized); err != nil {
		return err
	}
	b.why(string(a.State) + detail(ev))
	b.about(a.ID, ev.Evidence)
	b.e.NextSend = b.env.Now.Add(wait)
	b.e.Budget.Paused += wait - backoff
	return nil
}

func detail(ev Answer) string {
	if ev.Message == "" {
		return ""
	}
	return ": " + ev.Message
}

// unanswered is transition 11: nothing proves either way.
func (b *builder) unanswered(a *Attempt, ev Answer, cause, missing string, readNow bool) error {
	a.State = AttemptTimedOut
	if ev.Death {
		a.State = AttemptLost
	}
	a.Cause = cause
	last := b.e.Phase
	if err := b.move(11, Unknown); err != nil {
		return err
	}
	b.why(cause)
	b.about(a.ID, ev.Evidence)
	b.beginDoubt(doubting{cause: cause, missing: missing, readNow: readNow, last: last})
	return b.orPerson()
}

// lateAnswer records an answer that came after its call was given up. It
// changes the attempt and the finding; by itself it never re-opens writing.
func (b *builder) lateAnswer(a *Attempt, ev Answer, wasSent bool) error {
	if ev.Class == AnswerUnknown && (ev.Open || !a.ClosedAt.IsZero()) {
		if wasSent { // at least its call is given up now
			b.entry("late_answer", func(x *Entry) { x.Attempt, x.Because = a.ID, "no answer, and the effect was settled by other evidence" })
			return nil
		}
		return b.illegal("nothing new")
	}
	death := ev.Death
	if a.Death && !a.ClosedAt.IsZero() {
		ev.At, death = earliest(a.ClosedAt, ev.At), true // it was on its way when the process died
	}
	closeAttempt(a, ev)
	a.Death = death
	b.entry("late_answer", func(x *Entry) {
		x.Attempt, x.Evidence, x.Because = a.ID, ev.Evidence, lateSaid(ev.Class)
	})
	switch ev.Class {
	case AnswerCommitted, AnswerAccepted:
		return b.lateSuccess(a, ev)
	case AnswerRejected:
		if b.in(Unknown, Reconciling) && !ev.Conflict {
			b.e.Finding = FindingRejected
		}
	case AnswerNotExecuted, AnswerNotSent:
		if b.in(Unknown, Reconciling) {
			b.e.Finding = FindingNotSent
		}
	}
	b.refreshSettle()
	return nil
}

// lateSuccess takes a positive answer that came late. What absence had settled
// of this attempt is in doubt again.
func (b *builder) lateSuccess(a *Attempt, ev Answer) error {
	if a.State == AttemptSettledAbsent {
		a.State = AttemptTimedOut
	}
	err := b.witness(Witness{What: "late " + string(ev.Class), ObjectID: ev.ObjectID, Source: FromAdapter, Evidence: ev.Evidence})
	if err != nil || ev.Class == AnswerAccepted {
		if p := b.e.Positive; p != nil {
			p.Accepted = true
		}
		return err
	}
	if b.e.Phase == Verifying && b.from.Phase != Verifying && b.env.Policy.Proof == ProofAck {
		b.setOutcome(func(o *Outcome) { o.Acknowledgement, o.Waived = "committed", true })
		return b.succeed(15, ev.Evidence)
	}
	return nil
}

func (ev Lost) apply(b *builder) error {
	a := b.attempt(ev.Attempt)
	if a == nil || a.State != AttemptSent {
		return b.illegal("no open attempt " + ev.Attempt)
	}
	gone := Answer{Attempt: a.ID, Class: AnswerUnknown, Cause: orElse(ev.Cause, "crash"), At: ev.DeadAt, Death: true, Open: ev.DeadAt.IsZero()}
	closeAttempt(a, gone)
	a.ResponseClass, a.Death = "none", true
	switch {
	case b.from.Phase == Dispatching:
		return b.unanswered(a, gone, gone.Cause, "the answer: the daemon stopped before it was recorded", false)
	case b.from.Phase == Reconciling && a.Replay:
		return b.replayed(a, gone)
	}
	a.State = AttemptLost // settled by other evidence before it was answered
	b.entry("call_ended", func(x *Entry) { x.Attempt, x.Because = a.ID, gone.Cause })
	b.refreshSettle()
	return nil
}

func (ev CallEnded) apply(b *builder) error {
	a := b.attempt(ev.Attempt)
	if a == nil || !a.ClosedAt.IsZero() || a.State == AttemptSent || ev.At.IsZero() {
		return b.illegal("no overdue call " + ev.Attempt)
	}
	a.ClosedAt, a.Death = ev.At, true
	b.entry("call_ended", func(x *Entry) { x.Attempt = a.ID })
	b.refreshSettle()
	return nil
}
