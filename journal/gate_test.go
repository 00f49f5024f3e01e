package journal

import (
	"testing"
	"time"
)

// Every clause of the write gate shuts it by itself, and says so by its name.
func TestEveryClauseOfTheGateShutsIt(t *testing.T) {
	settled := func(s *story) { // after a proved absence
		*s = *unknownEffect(s.t, s.policy).absent().do(Resend{}).wait(time.Minute)
	}
	for _, c := range []struct {
		clause, why string
		prepare     func(*story)
		spoil       func(*Effect, *Ask, *Env)
	}{
		{GatePhase, "not authorized", nil, func(e *Effect, _ *Ask, _ *Env) { e.Phase = Prepared }},
		{GateSeq, "changed meanwhile", nil, func(_ *Effect, a *Ask, _ *Env) { a.Seq-- }},
		{GateFingerprint, "changed payload", nil, func(_ *Effect, a *Ask, _ *Env) { a.Fingerprint = "x" }},
		{GateUnsettled, "timed out", settled, func(e *Effect, _ *Ask, _ *Env) { e.Attempts[0].State = AttemptTimedOut }},
		{GateUnsettled, "lost", settled, func(e *Effect, _ *Ask, _ *Env) { e.Attempts[0].State = AttemptLost }},
		{GateUnsettled, "sent", settled, func(e *Effect, _ *Ask, _ *Env) { e.Attempts[0].State = AttemptSent }},
		{GateUnsettled, "accepted", settled, func(e *Effect, _ *Ask, _ *Env) { e.Attempts[0].State = AttemptAccepted }},
		{GateUnsettled, "committed", settled, func(e *Effect, _ *Ask, _ *Env) { e.Attempts[0].State = AttemptCommitted }},
		{GateAbsence, "no evidence", settled, func(e *Effect, _ *Ask, _ *Env) { e.Absence = nil }},
		{GateAbsence, "expired", settled, func(e *Effect, _ *Ask, v *Env) { e.Absence.ValidUntil = v.Now }},
		{GatePositive, "it may have happened", settled, func(e *Effect, _ *Ask, v *Env) { e.Positive = &Positive{At: v.Now, What: "webhook"} }},
		{GateAuthority, "none", nil, func(e *Effect, _ *Ask, _ *Env) { e.Authority = nil }},
		{GateAuthority, "ends during the call", nil, func(e *Effect, _ *Ask, v *Env) { e.Authority.ExpiresAt = v.Now.Add(v.Policy.Timeout) }},
		{GateContract, "another adapter", nil, func(_ *Effect, a *Ask, _ *Env) { a.Contract = "x" }},
		{GateHuman, "policy now wants a person", nil, func(_ *Effect, _ *Ask, v *Env) { v.Policy.HumanOnly = true }},
		{GatePrecondition, "never read", nil, func(_ *Effect, _ *Ask, v *Env) { v.Policy.WantPrecondition = true }},
		{GateDeadline, "no room for one call", nil, func(e *Effect, _ *Ask, v *Env) { e.Deadline = v.Now.Add(v.Policy.Timeout + v.Policy.RecordReserve) }},
		{GateBudget, "attempts", nil, func(e *Effect, _ *Ask, v *Env) { e.Budget.Attempts = v.Policy.Retry.Attempts }},
		{GateBudget, "elapsed", nil, func(e *Effect, _ *Ask, v *Env) { e.Budget.ElapsedFrom = v.Now.Add(-v.Policy.Retry.Elapsed) }},
		{GateBudget, "retry token", settled, func(_ *Effect, a *Ask, _ *Env) { a.RetryToken = false }},
		{GateNotBefore, "back-off", nil, func(e *Effect, _ *Ask, v *Env) { e.NextSend = v.Now.Add(1) }},
		{GateNotBefore, "the submitter's", nil, func(e *Effect, _ *Ask, v *Env) { e.NotBefore = v.Now.Add(1) }},
		{GateSlot, "slot", nil, func(_ *Effect, a *Ask, _ *Env) { a.SlotHeld = false }},
		{GateSlot, "token", nil, func(_ *Effect, a *Ask, _ *Env) { a.TokenHeld = false }},
		{GateHold, "held", nil, func(_ *Effect, a *Ask, _ *Env) { a.HeldBy = "all" }},
		{GateBreaker, "open", nil, func(_ *Effect, a *Ask, _ *Env) { a.BreakerOpen = true }},
		{GateEpoch, "a newer daemon", nil, func(_ *Effect, a *Ask, _ *Env) { a.CurrentEpoch++ }},
		{GateDispatch, "off", nil, func(_ *Effect, a *Ask, _ *Env) { a.Dispatch = "restored" }},
		{GateSnapshot, "none stored", nil, func(_ *Effect, a *Ask, v *Env) { v.Policy.WantsSnapshot = true; a.SnapshotStored = false }},
	} {
		t.Run(c.clause+" "+c.why, func(t *testing.T) {
			s := begin(t, strict()).authorized()
			if c.prepare != nil {
				c.prepare(s)
			}
			e, a, env := s.e.clone(), ask(s.e), s.env()
			if got := Gate(e, a, env); len(got) != 0 {
				t.Fatalf("the unspoiled gate is shut: %v", got)
			}
			c.spoil(&e, &a, &env)
			got := Gate(e, a, env)
			if len(got) != 1 || got[0].Clause != c.clause {
				t.Errorf("refused by %v, want by %q alone", got, c.clause)
			}
			_, err := Apply(e, Send{Ask: a, Attempt: Attempt{ID: "x"}}, env)
			if err == nil {
				t.Error("it was sent")
			}
		})
	}
}

func TestAFinalAbsenceDoesNotExpire(t *testing.T) {
	s := unknownEffect(t, fencing()).do(FenceBegin{Lease: time.Minute}, FenceDone{Fenced: true}).do(Resend{}).wait(time.Hour)
	if got := Gate(s.e, ask(s.e), s.env()); len(got) != 0 {
		t.Errorf("refused: %v", got)
	}
}

// settle_not_before counts from the last moment at which the call can have put bytes on the wire.
func TestGraceCountsFromTheLastPossibleSend(t *testing.T) {
	const rest = 22 * time.Second // 5 processing + 2 lag + 5 skew + 10 safety
	sent := func() *story { return dispatching(t, strict()) }
	for name, c := range map[string]struct {
		s    *story
		want time.Time
	}{
		"the adapter's own answer before the deadline": {sent().wait(3 * time.Second).timeout(), noon.Add(10 * time.Second)},
		"the adapter's own answer after the deadline":  {sent().wait(13 * time.Second).timeout(), noon.Add(13 * time.Second)},
		"its process dead before the deadline":         {sent().wait(3 * time.Second).do(Lost{Attempt: "a1", DeadAt: noon.Add(3 * time.Second)}), noon.Add(3 * time.Second)},
		"its process killed after the linger": {
			sent().wait(10*time.Second).do(Answer{Attempt: "a1", Class: AnswerUnknown, Open: true}, CallEnded{Attempt: "a1", At: noon.Add(18 * time.Second)}), noon.Add(18 * time.Second),
		},
	} {
		if got := c.s.e.Doubt.SettleNotBefore; !got.Equal(c.want.Add(rest)) {
			t.Errorf("%s: %s, want %s", name, got, c.want.Add(rest))
		}
	}
	if open := sent().do(Answer{Attempt: "a1", Class: AnswerUnknown, Open: true}); !open.e.Doubt.SettleNotBefore.IsZero() {
		t.Error("an open call has a bound")
	}
	if dead := sent().do(Lost{Attempt: "a1"}); !dead.e.Doubt.SettleNotBefore.IsZero() {
		t.Error("a death without a time has a bound")
	}
	p := strict()
	p.Grace.Safety, p.Grace.Lag = 0, span(time.Minute)
	if s := unknownEffect(t, p); s.e.Doubt.SettleNotBefore.Sub(noon) != (10+5+60+5+30)*time.Second {
		t.Errorf("safety does not follow the lag: %s", s.e.Doubt.SettleNotBefore.Sub(noon))
	}
}

// The first reads come early, then at 15 s, 1 m, 5 m, 15 m and every hour, each
// moved by at most a fifth; after a restart the table begins anew.
func TestTheReadTimetable(t *testing.T) {
	for _, jitter := range []float64{0, 0.5, 0.999} {
		s := unknownEffect(t, strict())
		s.policy.Grace.MaxProcessing, s.jitter = nil, jitter
		s.do(ReadAgain{})
		from := s.now
		want := []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}
		for i, w := range want {
			at := timetable(from, s.policy.Grace.Reads, s.now, jitter)
			if off := at.Sub(from); off < w*8/10 || off > w*12/10 {
				t.Errorf("read %d comes after %s, want %s ± 20 %%", i+1, off, w)
			}
			s.now = at
		}
		for range 3 {
			at := timetable(from, s.policy.Grace.Reads, s.now, jitter)
			if gap := at.Sub(s.now); gap < 48*time.Minute || gap > 72*time.Minute {
				t.Errorf("the last offset repeats after %s", gap)
			}
			s.now = at
		}
	}
	s := unknownEffect(t, strict()).wait(2 * time.Hour).do(ReadAgain{})
	if gap := s.e.Doubt.NextReadAt.Sub(s.now); gap > 18*time.Second {
		t.Errorf("after a restart the first read comes %s later", gap)
	}
}

// An answer that says its view lags by an hour must not be asked for every second.
func TestAnUndeclaredLagOfOneAnswerDoesNotSpin(t *testing.T) {
	s := unknownEffect(t, strict())
	s.policy.Consistency = ConsistencyStrong
	s.now = s.e.Doubt.SettleNotBefore.Add(2 * time.Hour)
	r := empty(s.now)
	r.Lag = span(time.Hour)
	n := 0
	for ; s.e.Phase == Unknown && n < 200; n++ {
		r.BegunAt, r.EndedAt, r.ScannedTo = s.now, s.now, s.now
		s.read(r)
		if s.e.Phase == Unknown {
			s.now = s.e.Doubt.NextReadAt
		}
	}
	if n > 40 {
		t.Errorf("%d reads", n)
	}
}

// Two reads agree only if both were begun after everything could have landed, as it is known now.
func TestAFirstReadFromBeforeTheGraceDoesNotAgree(t *testing.T) {
	s := unknownEffect(t, strict())
	s.now = s.e.Doubt.SettleNotBefore
	s.read(empty(s.now))
	s.do(Answer{Attempt: "a1", Class: AnswerNotExecuted, At: s.now}) // late: the call had lived until now
	s.wait(10 * time.Second).read(empty(s.now))
	if s.e.Phase != Unknown {
		t.Fatalf("%s, although the call ended 10 s ago", s.e.Phase)
	}
	s.now = later(s.now, s.e.Doubt.SettleNotBefore)
	s.read(empty(s.now)).wait(2*time.Second).read(empty(s.now)).is(ConfirmedAbsent, FindingAbsent)
}

// An acceptance bars empty reads even when its evidence was rebutted and the proof expired.
func TestAnAcceptanceIsRemembered(t *testing.T) {
	s := dispatching(t, strict())
	s.do(s.answer(AnswerAccepted))
	r := empty(s.now)
	r.Ended = &OperationEnd{Code: "rolled back", MayResend: true}
	s.wait(time.Minute).read(r).is(ConfirmedAbsent, FindingAbsent)
	s.do(DoubtAbsence{Reason: "expired"}).is(Unknown, FindingUnknown)
	s.now = later(s.now, s.e.Doubt.SettleNotBefore)
	for range 4 {
		s.wait(time.Minute).read(empty(s.now)).is(Unknown, FindingUnknown)
	}
	s.read(r).is(ConfirmedAbsent, FindingAbsent)
}

// 14 settles the calls: a person may then retry, which 37 otherwise forbids.
func TestAnEndedOperationCanBeRetried(t *testing.T) {
	s := dispatching(t, strict())
	s.do(s.answer(AnswerAccepted))
	r := empty(s.now)
	r.Ended = &OperationEnd{Message: "quota"}
	s.read(r).is(Failed, FindingRejected)
	s.person().do(Decision{Decision: DecideRetry}).is(Prepared, FindingNone)
	u := unknownEffect(t, strict())
	u.do(ReadDone{Reading: r}).is(Failed, FindingRejected) // told by webhook, unasked
	o := dispatching(t, strict()).do(Answer{Attempt: "a1", Class: AnswerUnknown, Open: true})
	o.read(r).is(Unknown, FindingUnknown) // the call may still land
	both := r
	both.Matches = []Match{ours("obj-1")}
	m := unknownEffect(t, strict()).wait(time.Minute)
	m.read(both).is(Succeeded, FindingMatches) // an object that is there outweighs a record that says it is not
}

// A retry by a person begins a new budget: it is not ended by the age of the first attempt.
func TestARetriedEffectIsNotTooOldAtOnce(t *testing.T) {
	s := unknownEffect(t, strict()).absent().do(GiveUp{Reason: "x"}).wait(5 * time.Hour).person()
	s.do(Decision{Decision: DecideRetry, NewExpires: s.now.Add(6 * time.Hour)}).engine().authorized()
	step := Decide(s.e, s.env(), "")
	s.do(step.Event).is(Unknown, FindingUnknown) // the proof is old: read again first
	s.now = later(s.now, s.e.Doubt.SettleNotBefore)
	s.read(empty(s.now)).wait(2*time.Second).read(empty(s.now)).is(ConfirmedAbsent, FindingAbsent)
	if step := Decide(s.e, s.env(), ""); step.Event.Kind() != KindResend {
		t.Errorf("decided %+v", step)
	}
}

// What waits behind a hold is put off, never into the past.
func TestDeferIsNeverInThePast(t *testing.T) {
	s := begin(t, strict()).authorized().wait(time.Minute)
	for _, ev := range []Defer{{}, {Held: true}, {Until: noon}, {Until: noon.Add(100 * time.Hour)}, {Until: s.now.Add(time.Second), Held: true}} {
		c, err := Apply(s.e, ev, s.env())
		if err != nil {
			t.Fatal(err)
		}
		if at := c.Effect.DueAt; !at.After(s.now) || at.After(s.e.Deadline) {
			t.Errorf("%+v: due at %s", ev, at)
		}
	}
	f := unknownEffect(t, fencing()).do(FenceBegin{Lease: time.Minute}, FenceDone{Fenced: true}).wait(time.Hour)
	f.do(Decide(f.e, f.env(), "all").Event)
	if !f.e.DueAt.After(f.now) {
		t.Error("a final absence behind a hold spins")
	}
}

// A person's effect whose view has gone is left to the clock of its review.
func TestNeedsHumanDoesNotSpinWithoutAView(t *testing.T) {
	s := unknownEffect(t, strict()).do(Escalate{Reason: "x"}).wait(time.Hour)
	s.policy.HasRead = false
	s.do(Decide(s.e, s.env(), "").Event)
	if s.e.Due != DueEscalate || !s.e.DueAt.After(s.now) {
		t.Errorf("due %s at %s", s.e.Due, s.e.DueAt)
	}
	v := dispatching(t, blind())
	v.do(v.answer(AnswerCommitted))
	if step := Decide(v.e, v.env(), ""); step.Do != StepWait || !v.e.DueAt.Equal(v.e.Verify.Deadline) {
		t.Errorf("verifying without a view: %+v, due %s", step, v.e.DueAt)
	}
}

func TestACallThatNobodyEndsIsGivenUp(t *testing.T) {
	s := dispatching(t, strict())
	s.now = s.e.DueAt
	s.do(Decide(s.e, s.env(), "").Event).is(Unknown, FindingUnknown)
	if !s.e.Attempts[0].ClosedAt.IsZero() {
		t.Error("giving up closed a call whose process may live")
	}
}
