package journal

import (
	"strings"
	"testing"
	"time"
)

func TestScenario01_AnswerLostAfterCommit(t *testing.T) {
	s := unknownEffect(t, strict()).is(Unknown, FindingUnknown)
	if s.e.Doubt.NextReadAt.IsZero() || s.e.Doubt.ResolveBy.IsZero() || s.e.Doubt.SettleNotBefore.IsZero() {
		t.Fatalf("the doubt carries too little: %+v", s.e.Doubt)
	}
	s.now = s.e.Doubt.NextReadAt
	s.read(sees(s.now, ours("obj-1"))).is(Succeeded, FindingMatches)
	if s.e.Attempts[0].State != AttemptSettledPresent || s.e.Outcome.ObjectID != "obj-1" || s.last.Checkpoint == nil {
		t.Errorf("settled as %s, outcome %+v, checkpoint %v", s.e.Attempts[0].State, s.e.Outcome, s.last.Checkpoint)
	}
}

func TestScenario02_RequestLostBeforeCommit(t *testing.T) {
	s := unknownEffect(t, strict())
	first := s.e.Attempts[0]
	s.now = s.e.Doubt.NextReadAt
	early := s.now
	if !early.Before(s.e.Doubt.SettleNotBefore) {
		t.Fatal("the first read is not early")
	}
	s.read(empty(s.now)).is(Unknown, FindingUnknown)
	if !s.e.Doubt.NextReadAt.Equal(s.e.Doubt.SettleNotBefore) {
		t.Errorf("next read at %s, want one exactly at settle_not_before %s", s.e.Doubt.NextReadAt, s.e.Doubt.SettleNotBefore)
	}
	s.now = s.e.Doubt.NextReadAt
	s.read(empty(s.now)).is(Unknown, FindingUnknown)
	if got := s.e.Doubt.NextReadAt.Sub(s.now); got != 2*time.Second {
		t.Errorf("the second read comes %s later, want one lag", got)
	}
	s.now = s.e.Doubt.NextReadAt
	s.read(empty(s.now)).is(ConfirmedAbsent, FindingAbsent)
	s.do(Resend{}).is(Authorized, FindingAbsent)
	s.now = s.e.NextSend
	s.sent()
	second := s.e.Attempts[1]
	if second.ID == first.ID || second.Follows != first.ID || s.e.Attempts[0].State != AttemptSettledAbsent || s.e.Attempts[0].ReleasedBy == "" {
		t.Errorf("attempts %+v", s.e.Attempts)
	}
	s.do(s.answer(AnswerCommitted)).read(sees(s.now, ours("obj-1"))).is(Succeeded, FindingMatches)
	if v := Check(s.history()); len(v) != 0 {
		t.Error(v)
	}
}

func TestScenario03_AnEarlyEmptyReadReleasesNothing(t *testing.T) {
	s := unknownEffect(t, strict())
	for range 3 { // the destination is still about to commit
		s.wait(2*time.Second).read(empty(s.now)).is(Unknown, FindingUnknown)
		illegal(t, s.refuses(Resend{}))
		illegal(t, s.refuses(s.sendEvent()))
	}
	s.now = s.e.Doubt.NextReadAt
	s.read(sees(s.now, ours("late"))).is(Succeeded, FindingMatches)
	if len(s.e.Attempts) != 1 {
		t.Errorf("%d attempts", len(s.e.Attempts))
	}
}

func TestScenario04_RestartFindsSent(t *testing.T) {
	s := dispatching(t, strict()).wait(3 * time.Second)
	s.do(Lost{Attempt: "a1", DeadAt: s.now, Cause: "crash"}).is(Unknown, FindingUnknown)
	if a := s.e.Attempts[0]; a.State != AttemptLost || !a.Death {
		t.Fatalf("attempt %+v", a)
	}
	if want := s.now.Add(22 * time.Second); !s.e.Doubt.SettleNotBefore.Equal(want) { // 5 processing + 2 lag + 5 skew + 10 safety
		t.Errorf("settle_not_before %s, want %s, counted from the death", s.e.Doubt.SettleNotBefore, want)
	}
	s.now = s.e.Doubt.NextReadAt
	s.read(sees(s.now, ours("obj-1"))).is(Succeeded, FindingMatches)
}

func TestScenario05_RejectedBeforeCommit(t *testing.T) {
	s := dispatching(t, strict())
	s.do(s.answer(AnswerRejected)).is(Failed, FindingRejected)
	if !s.e.Review.Live() || s.e.Review.Kind != ReviewException || s.e.Review.Owner != "desk" {
		t.Errorf("review %+v", s.e.Review)
	}
	illegal(t, s.refuses(Send{Ask: ask(s.e), Attempt: Attempt{ID: "a2"}}))
}

func TestScenario06_PostconditionFalse(t *testing.T) {
	s := dispatching(t, strict())
	s.do(s.answer(AnswerCommitted)).is(Verifying, FindingAccepted)
	r := sees(s.now, ours("obj-1"))
	r.Postcondition = PostconditionFails
	s.read(r).is(Verifying, FindingMatches) // too early: the view may lag
	s.wait(3 * time.Second)
	r.BegunAt = s.now
	s.read(r).is(NeedsHuman, FindingPostconditionFailed)
	if s.e.Standing() != Contradicted {
		t.Errorf("standing %s", s.e.Standing())
	}
}

func TestScenario07_NeverGuessed(t *testing.T) {
	similar := Match{ObjectID: "x", Strength: StrengthSimilar, Agreement: AgreementSame}
	s := unknownEffect(t, strict()).wait(time.Minute)
	s.read(sees(s.now, similar)).is(Unknown, FindingUnknown)
	s.wait(time.Minute)
	other := similar
	other.ObjectID = "y"
	s.read(sees(s.now, similar, other)).is(NeedsHuman, FindingUnknown)
	if len(s.e.Review.Candidates) != 2 {
		t.Errorf("candidates %+v", s.e.Review.Candidates)
	}
	d := unknownEffect(t, strict()).wait(time.Second)
	d.read(sees(d.now, ours("1"), ours("2"))).is(NeedsHuman, FindingDuplicate) // needs no grace
}

// 8: whatever a read leaves open, absence is not concluded.
func TestScenario08_AbsenceNeedsEveryClause(t *testing.T) {
	for _, c := range []struct {
		clause Clause
		why    string
		spoil  func(*Reading, *Policy)
	}{
		{ClauseProves, "no read", func(_ *Reading, p *Policy) { p.HasRead = false }},
		{ClauseProves, "not declared", func(_ *Reading, p *Policy) { p.ProvesAbsence = false }},
		{ClauseProves, "advisory answer", func(r *Reading, _ *Policy) { r.Consistency = ConsistencyNone }},
		{ClauseProves, "lag of nobody", func(_ *Reading, p *Policy) { p.Grace.Lag = nil }},
		{ClauseProves, "bounded by nobody", func(_ *Reading, p *Policy) { p.Grace.Lag = nil; p.Consistency = ConsistencyBounded }},
		{ClauseProves, "no name of the view", func(r *Reading, _ *Policy) { r.View = "" }},
		{ClauseProves, "by a window alone", func(_ *Reading, p *Policy) { p.KeyedLookup = false }},
		{ClauseCoverage, "not the last page", func(r *Reading, _ *Policy) { r.Complete = false }},
		{ClauseCoverage, "scanned to nowhere", func(r *Reading, _ *Policy) { r.ScannedTo = time.Time{} }},
		{ClauseCoverage, "not up to now", func(r *Reading, _ *Policy) { r.ScannedTo = r.BegunAt.Add(-time.Second) }},
		{ClauseCoverage, "begun too late", func(r *Reading, _ *Policy) { r.ScannedFrom = noon }},
		{ClauseVisibility, "200 with an empty list", func(r *Reading, _ *Policy) { r.VisibilityProven = false }},
		{ClauseSettled, "the answer lags more than declared", func(r *Reading, _ *Policy) { r.Lag = span(time.Hour) }},
		{ClauseAgree, "other view", func(r *Reading, _ *Policy) { r.View = "search" }},
		{ClauseAgree, "other filter", func(r *Reading, _ *Policy) { r.FilterSHA256 = "x" }},
		{ClauseAgree, "other principal", func(r *Reading, _ *Policy) { r.Principal = "root" }},
		{ClauseQuiet, "an outage of the index", func(r *Reading, _ *Policy) { r.Outage = true }},
		{ClauseQuiet, "a near candidate", func(r *Reading, _ *Policy) { r.Near = []Match{{ObjectID: "z"}} }},
		{ClauseClosed, "nobody knows how late it lands", func(_ *Reading, p *Policy) { p.Grace.MaxProcessing = nil }},
		{ClauseClosed, "it may land in an hour", func(_ *Reading, p *Policy) { p.Grace.MaxProcessing = span(time.Hour) }},
	} {
		t.Run(string(c.clause)+" "+c.why, func(t *testing.T) {
			s := unknownEffect(t, strict())
			s.now = s.e.Doubt.SettleNotBefore
			s.read(empty(s.now)).wait(2 * time.Second)
			good, r, p := empty(s.now), empty(s.now), s.policy
			if l := ProveAbsence(s.e, good, s.policy); len(l) != 0 {
				t.Fatalf("the unspoiled read lacks %v", l.words())
			}
			c.spoil(&r, &p)
			l := ProveAbsence(s.e, r, p)
			found := false
			for _, x := range l {
				found = found || x.Clause == c.clause
			}
			if !found {
				t.Errorf("%q is not among %v", c.clause, l)
			}
			s.policy = p
			s.read(r)
			if s.e.Phase == ConfirmedAbsent {
				t.Error("it was believed")
			}
		})
	}
}

func TestScenario08_OpenCallAndPositiveEvidenceBarAbsence(t *testing.T) {
	s := dispatching(t, strict()).wait(10 * time.Second)
	s.do(Answer{Attempt: "a1", Class: AnswerUnknown, Open: true, Cause: "timeout"})
	if !s.e.Doubt.SettleNotBefore.IsZero() {
		t.Error("a bound while the call is open")
	}
	s.wait(10*time.Hour).read(empty(s.now)).wait(time.Hour).read(empty(s.now)).is(Unknown, FindingUnknown)
	s.do(CallEnded{Attempt: "a1", At: s.now})
	if want := s.now.Add(22 * time.Second); !s.e.Doubt.SettleNotBefore.Equal(want) {
		t.Errorf("settle_not_before %s, want %s", s.e.Doubt.SettleNotBefore, want)
	}
	w := dispatching(t, strict())
	w.do(w.answer(AnswerAccepted)).wait(10*time.Minute).do(Overdue{}).is(Unknown, FindingUnknown)
	w.now = later(w.now, w.e.Doubt.SettleNotBefore)
	w.read(empty(w.now)).is(Unknown, FindingUnknown)
	w.wait(2*time.Second).read(empty(w.now)).is(NeedsHuman, FindingConflicts)
}

func TestScenario09_NoSecondSendWhileUnknown(t *testing.T) {
	s := unknownEffect(t, strict())
	illegal(t, s.refuses(s.sendEvent()))
	illegal(t, s.refuses(Resend{}))
	illegal(t, s.refuses(grant(s.now)))
	illegal(t, s.person().refuses(Decision{Decision: DecideRetry}))
	illegal(t, s.refuses(Cancel{}))
	e := s.e
	e.Phase = Authorized // whatever led here, the gate looks at the attempts themselves
	if got := Gate(e, ask(e), s.env()); len(got) == 0 || !(&GateError{Refusals: got}).Has(GateUnsettled) {
		t.Errorf("the gate says %v", got)
	}
}

func TestScenario10_LyingLagIsFoundByTheAudit(t *testing.T) {
	s := unknownEffect(t, strict()).absent().do(Resend{}).wait(time.Minute).sent()
	s.do(s.answer(AnswerCommitted)).wait(3*time.Second).read(sees(s.now, ours("2"))).is(Succeeded, FindingMatches)
	s.wait(time.Hour).do(ReadDone{Reading: sees(s.now, ours("1"), ours("2"))}).is(NeedsHuman, FindingDuplicate)
	if s.e.Standing() != Contradicted || !s.e.Review.Live() {
		t.Errorf("standing %s, review %+v", s.e.Standing(), s.e.Review)
	}
}

// 11: a late answer, before and after the reconciliation, before the second send and after it.
func TestScenario11_LateAnswers(t *testing.T) {
	late := func(s *story, c AnswerClass) Answer {
		return Answer{Attempt: "a1", Class: c, At: s.now, ObjectID: "obj-1"}
	}
	open := func() *story {
		s := dispatching(t, strict()).wait(10 * time.Second)
		return s.do(Answer{Attempt: "a1", Class: AnswerUnknown, Open: true, Cause: "timeout"}).wait(time.Second)
	}
	t.Run("in the linger", func(t *testing.T) {
		s := open()
		s.do(late(s, AnswerCommitted)).is(Verifying, FindingAccepted)
	})
	t.Run("that proves nothing closes the call", func(t *testing.T) {
		s := open()
		s.do(late(s, AnswerUnknown)).is(Unknown, FindingUnknown)
		if s.e.Attempts[0].ClosedAt.IsZero() || s.e.Doubt.SettleNotBefore.IsZero() {
			t.Error("the call is still open")
		}
		illegal(t, s.refuses(late(s, AnswerUnknown)))
	})
	t.Run("saying no never re-opens writing", func(t *testing.T) {
		s := open()
		s.do(late(s, AnswerNotExecuted)).is(Unknown, FindingNotSent)
		if s.e.Attempts[0].State.NoEffect() {
			t.Error("it settled the attempt")
		}
	})
	t.Run("after absence, before the second send", func(t *testing.T) {
		s := unknownEffect(t, strict()).absent()
		s.do(late(s, AnswerCommitted)).is(Verifying, FindingAccepted)
		s = unknownEffect(t, strict()).absent().do(Resend{})
		s.do(late(s, AnswerCommitted)).is(Verifying, FindingAccepted)
		if !s.e.MayHaveBeenSent() {
			t.Error("the first call is still settled as absent")
		}
	})
	t.Run("after the second send", func(t *testing.T) {
		for _, c := range []AnswerClass{AnswerNotExecuted, AnswerNotSent, AnswerRejected} {
			s := unknownEffect(t, strict()).absent().do(Resend{}).wait(time.Minute).sent()
			s.do(late(s, AnswerCommitted)).is(Dispatching, FindingUnknown)
			s.do(Answer{Attempt: "a2", Class: c, At: s.now}).is(Unknown, FindingUnknown)
			s.wait(time.Second).read(sees(s.now, ours("obj-1"))).is(Succeeded, FindingMatches)
		}
	})
	t.Run("after it succeeded, with another object", func(t *testing.T) {
		s := unknownEffect(t, strict()).wait(time.Minute)
		s.read(sees(s.now, ours("obj-1"))).is(Succeeded, FindingMatches)
		s.do(late(s, AnswerCommitted)).is(Succeeded, FindingMatches)
		s.do(Answer{Attempt: "a1", Class: AnswerCommitted, At: s.now, ObjectID: "obj-2"}).is(NeedsHuman, FindingDuplicate)
	})
	t.Run("webhook after it failed", func(t *testing.T) {
		s := unknownEffect(t, strict()).absent().do(GiveUp{}).is(Failed, FindingAbsent)
		s.do(Witness{What: "webhook", ObjectID: "obj-1", Source: FromWebhook}).is(NeedsHuman, FindingConflicts)
		if !s.e.MayHaveBeenSent() {
			t.Error("the call counts as settled although it is contradicted")
		}
	})
}

func TestScenario12_UnlistedAnswersAreUnknown(t *testing.T) {
	for _, c := range []AnswerClass{AnswerUnknown, "", "5xx", "garbled"} {
		s := dispatching(t, strict())
		s.do(s.answer(c)).is(Unknown, FindingUnknown)
	}
}

func TestScenario14_ConflictMeansRead(t *testing.T) {
	for _, c := range []AnswerClass{AnswerRejected, AnswerNotExecuted} {
		s := dispatching(t, strict())
		a := s.answer(c)
		a.Conflict = true
		s.do(a).is(Unknown, FindingUnknown)
		if !s.e.Doubt.NextReadAt.Equal(s.now) || s.e.Due != DueRead {
			t.Errorf("%s with a conflict is read at %s, now is %s", c, s.e.Doubt.NextReadAt, s.now)
		}
	}
}

func TestScenario19_DedupeWindowEndsBeforeTheRetry(t *testing.T) {
	p := strict()
	p.ReplaysFirst, p.DedupeWindow = true, span(2*time.Minute)
	s := unknownEffect(t, p).absent().wait(2 * time.Minute)
	if step := Decide(s.e, s.env(), ""); step.Event != nil && step.Event.Kind() != KindGiveUp {
		t.Errorf("decided %+v", step)
	}
	illegal(t, s.refuses(Resend{}))
	u := unknownEffect(t, p).wait(2 * time.Minute)
	step := Decide(u.e, u.env(), "")
	u.do(step.Event).is(NeedsHuman, FindingUnknown)
}

func TestScenario20_RetryAfterWins(t *testing.T) {
	s := dispatching(t, strict())
	a := s.answer(AnswerNotExecuted)
	a.RetryAfter = 5 * time.Minute
	s.do(a).is(Authorized, FindingNotSent)
	if want := s.now.Add(5 * time.Minute); !s.e.NextSend.Equal(want) {
		t.Errorf("next send %s, want %s", s.e.NextSend, want)
	}
	shut(t, s.refuses(s.sendEvent()), GateNotBefore)
	s.now = s.e.NextSend
	s.sent() // Retry-After does not eat the elapsed budget
	if used := s.e.Budget.Elapsed(s.now); used > 2*time.Second {
		t.Errorf("elapsed %s", used)
	}
}

func TestScenario20_AttemptsElapsedAndTokensCap(t *testing.T) {
	s := dispatching(t, strict())
	for range 2 {
		s.do(s.answer(AnswerNotExecuted)).is(Authorized, FindingNotSent)
		s.now = s.e.NextSend
		none := s.sendEvent()
		none.Ask.RetryToken = false
		shut(t, s.refuses(none), GateBudget)
		s.sent()
	}
	s.do(s.answer(AnswerNotExecuted)).is(Failed, FindingNotSent)
	if !strings.Contains(s.e.Reason, "attempts spent") || !s.e.Review.Live() {
		t.Errorf("reason %q, review %+v", s.e.Reason, s.e.Review)
	}
	l := dispatching(t, strict()).wait(2 * time.Minute)
	l.do(l.answer(AnswerNotSent)).is(Failed, FindingNotSent)
	if !strings.Contains(l.e.Reason, "retry time spent") {
		t.Errorf("reason %q", l.e.Reason)
	}
	n := dispatching(t, strict())
	n.do(n.answer(AnswerNotSent))
	if n.e.Budget.Attempts != 0 {
		t.Errorf("not_sent spent %d attempts", n.e.Budget.Attempts)
	}
}

func TestScenario20_FullJitterSpreadsAThousand(t *testing.T) {
	r := strict().Retry
	var bucket [10]int
	for i := range 1000 {
		d := Backoff(r, 3, float64(i)/1000)
		if d < 0 || d >= 4*time.Second {
			t.Fatalf("wait %s is outside [0, 4s)", d)
		}
		bucket[int(d*10/(4*time.Second))]++
	}
	for i, n := range bucket {
		if n < 90 || n > 110 {
			t.Errorf("a tenth of the time gets %d of 1000 (bucket %d)", n, i)
		}
	}
	if d := Backoff(r, 500, 0.999); d > r.BackoffMax {
		t.Errorf("%s is past the cap", d)
	}
}

func TestScenario21_DeniedGoesToTheOwnerOfTheAuthority(t *testing.T) {
	s := dispatching(t, strict())
	a := s.answer(AnswerRejected)
	a.Denied = true
	s.do(a).is(Failed, FindingRejected)
	if s.e.Review.Owner != "keys" || !strings.HasPrefix(s.e.Reason, "denied") {
		t.Errorf("owner %s, reason %q", s.e.Review.Owner, s.e.Reason)
	}
}

func TestScenario22_AFailedReadSpendsNothing(t *testing.T) {
	s := unknownEffect(t, strict())
	s.now = s.e.Doubt.SettleNotBefore
	s.read(empty(s.now)).wait(2 * time.Second)
	f := empty(s.now)
	f.Failed, f.RetryAfter = "timeout", 20*time.Second
	s.read(f).is(Unknown, FindingUnknown)
	if s.e.Budget.Attempts != 1 || s.e.Doubt.ReadFailed != 1 || s.e.Doubt.FirstAbsent == nil {
		t.Errorf("budget %+v, doubt %+v", s.e.Budget, s.e.Doubt)
	}
	if s.e.Doubt.NextReadAt.Before(s.now.Add(20 * time.Second)) {
		t.Error("the read comes back before the destination wants it")
	}
	if s.reads[len(s.reads)-1].Verdict != VerdictReadFailed {
		t.Error("a failed read was recorded as evidence")
	}
	s.wait(time.Minute).read(empty(s.now)).is(ConfirmedAbsent, FindingAbsent)
	if s.e.Absence.Paused == 0 {
		t.Error("the time in which reads failed counts")
	}
}

func TestScenario25_ADeadlineEndsOnlyWhatWasNotSent(t *testing.T) {
	s := begin(t, strict()).authorized().wait(7 * time.Hour)
	step := Decide(s.e, s.env(), "")
	s.do(step.Event).is(Failed, FindingNone)
	u := unknownEffect(t, strict()).wait(7 * time.Hour)
	illegal(t, u.refuses(Expire{Reason: "deadline"}))
	if step := Decide(u.e, u.env(), ""); step.Do != StepRead {
		t.Errorf("a deadline led to %+v", step)
	}
}

func TestScenario26_ApprovalsAtTheGate(t *testing.T) {
	good := Approval{ID: "ap1", Fingerprint: "sha256:f", Destination: "desk", Action: "create", State: ApprovalGranted, ExpiresAt: noon.Add(time.Hour), Uses: 1}
	for name, spoil := range map[string]func(*Approval){
		"changed payload": func(a *Approval) { a.Fingerprint = "x" }, "other destination": func(a *Approval) { a.Destination = "x" },
		"other action": func(a *Approval) { a.Action = "x" }, "expired": func(a *Approval) { a.ExpiresAt = noon.Add(5 * time.Second) },
		"used up": func(a *Approval) { a.Used = 1 }, "revoked": func(a *Approval) { a.State = ApprovalRevoked },
	} {
		s := begin(t, strict())
		g := grant(s.now)
		g.Authority.Ref = "approval:ap1"
		s.do(g)
		send, a := s.sendEvent(), good
		spoil(&a)
		send.Ask.Approval = &a
		if err := s.refuses(send); err != nil {
			shut(t, err, GateAuthority)
			t.Log(name)
		}
		send.Ask.Approval = nil
		shut(t, s.refuses(send), GateAuthority)
		send.Ask.Approval = &good
		s.do(send)
	}
}

func TestScenario27_AHumanRejectionEndsIt(t *testing.T) {
	s := begin(t, strict()).person().do(Refuse{Reason: "no", Human: true}).is(Failed, FindingNone)
	if s.e.Review != nil {
		t.Error("a rejection got an owner")
	}
	illegal(t, s.refuses(Decision{Decision: DecideRetry}))
	illegal(t, begin(t, strict()).refuses(Refuse{Human: true}))
	if i := begin(t, strict()).do(Refuse{Reason: "schema"}); !i.e.Review.Live() {
		t.Error("an invalid effect has no owner")
	}
}

func TestScenario28_AuthorityExpiresInTheQueue(t *testing.T) {
	s := begin(t, strict())
	g := grant(s.now)
	g.Authority.ExpiresAt = s.now.Add(time.Minute)
	s.do(g).wait(55 * time.Second)
	shut(t, s.refuses(s.sendEvent()), GateAuthority)
	s.do(Decide(s.e, s.env(), "").Event).is(Prepared, FindingNone)
	if s.e.Authority != nil || s.e.WaitingFor == "" {
		t.Errorf("authority %v, waiting for %q", s.e.Authority, s.e.WaitingFor)
	}
}

func TestScenario29_ThePreconditionStopsTheWrite(t *testing.T) {
	p := strict()
	p.WantPrecondition, p.MaxAge = true, 30*time.Second
	s := begin(t, p).authorized()
	shut(t, s.refuses(s.sendEvent()), GatePrecondition)
	send := s.sendEvent()
	send.Ask.PreconditionReadAt = s.now.Add(-time.Minute)
	shut(t, s.refuses(send), GatePrecondition)
	send.Ask.PreconditionReadAt, send.Ask.PreconditionHolds = s.now, false
	shut(t, s.refuses(send), GatePrecondition)
	send.Ask.PreconditionHolds = true
	s.do(send)
}

func TestScenario30_TheBudgetEndsAtAPerson(t *testing.T) {
	s := unknownEffect(t, strict())
	resolve := s.e.Doubt.ResolveBy
	f := empty(s.now)
	f.Failed = "503"
	for i := 0; s.e.Phase == Unknown && i < 100; i++ {
		s.now = s.e.Doubt.NextReadAt
		s.read(f)
	}
	s.is(NeedsHuman, FindingUnknown)
	if s.now.Before(resolve) || s.now.After(resolve.Add(time.Second)) {
		t.Errorf("handed over at %s, the budget ended at %s", s.now, resolve)
	}
	r := s.e.Review
	if r.Owner == "" || r.DueAt.IsZero() || len(r.Missing) == 0 || s.e.Severity == "" {
		t.Errorf("review %+v", r)
	}
	s.now = r.DueAt
	s.e.Due, s.e.DueAt = DueEscalate, r.DueAt
	s.do(ReviewLate{Second: "boss"})
	if s.e.Review.Owner != "boss" || !s.e.Review.Overdue {
		t.Errorf("review %+v", s.e.Review)
	}
	unknownEffect(t, blind()).is(NeedsHuman, FindingUnknown)
}

// A hope that fails does not renew the budget: nothing stays unknown for ever.
func TestScenario30_TheBudgetSurvivesAFailedHope(t *testing.T) {
	s := unknownEffect(t, strict())
	resolve := s.e.Doubt.ResolveBy
	pending := sees(s.now, ours("obj-1"))
	pending.Postcondition = PostconditionPending
	for i := 0; s.e.Phase != NeedsHuman && i < 5000; i++ {
		if s.e.Phase == Verifying {
			s.now = s.e.Verify.Deadline
			s.do(Overdue{}).is(Unknown, FindingUnknown)
		}
		s.now = later(s.now, s.e.Doubt.NextReadAt)
		if s.now.After(resolve) {
			f := empty(s.now)
			f.Failed = "x"
			s.read(f)
			break
		}
		s.read(pending)
	}
	s.is(NeedsHuman, FindingUnknown)
}

func TestScenario31_Decisions(t *testing.T) {
	absent := Decision{Decision: DecideDidNotHappen, Then: "retry", Evidence: "sha256:photo"}
	t.Run("an attestation meets the clock of the machine", func(t *testing.T) {
		s := unknownEffect(t, strict()).person()
		illegal(t, s.refuses(absent))
		future := absent
		future.LookedAt = s.now.Add(time.Hour)
		illegal(t, s.refuses(future))
		s.now = s.e.Doubt.SettleNotBefore
		s.do(absent).is(Authorized, FindingAbsent)
	})
	t.Run("a second person for what cannot be undone, whatever follows", func(t *testing.T) {
		p := strict()
		p.Reversibility = IrreversibleOp
		for _, then := range []string{"retry", "close"} {
			s := unknownEffect(t, p).wait(time.Hour).person()
			d := absent
			d.Then = then
			illegal(t, s.refuses(d))
			d.Approver = "ada"
			illegal(t, s.refuses(d))
			d.Approver = "eve"
			s.do(d)
		}
	})
	t.Run("evidence, what follows and a reason", func(t *testing.T) {
		s := unknownEffect(t, strict()).wait(time.Hour).person()
		illegal(t, s.refuses(Decision{Decision: DecideDidNotHappen, Then: "retry"}))
		illegal(t, s.refuses(Decision{Decision: DecideDidNotHappen, Evidence: "x"}))
		s.by.Because = ""
		illegal(t, s.refuses(absent))
		s.by = By{Actor: "ci", Kind: Service, Because: "x"}
		illegal(t, s.refuses(absent))
	})
	t.Run("no bound wants words", func(t *testing.T) {
		p := strict()
		p.Grace.MaxProcessing = nil
		s := unknownEffect(t, p).wait(time.Hour).person()
		illegal(t, s.refuses(absent))
		d := absent
		d.NoBound = "the host was wiped"
		s.do(d).is(Authorized, FindingAbsent)
	})
	t.Run("after an acceptance the record, and newer evidence wins", func(t *testing.T) {
		s := dispatching(t, strict())
		s.do(s.answer(AnswerAccepted)).wait(10 * time.Minute).do(Overdue{}).wait(time.Hour).person()
		illegal(t, s.refuses(absent))
		d := absent
		d.Record, d.LookedAt = "op-1: failed", s.now
		s.do(d).is(Authorized, FindingAbsent)
		if s.e.Positive.stands() || s.e.Positive.RebuttedBy == "" {
			t.Errorf("positive evidence %+v", s.e.Positive)
		}
		w := unknownEffect(t, strict()).do(Escalate{Reason: "x"}).wait(time.Hour).do(Witness{What: "webhook"})
		w.wait(5 * time.Minute).do(Overdue{}).person()
		d = absent
		d.LookedAt = w.now.Add(-10 * time.Minute)
		illegal(t, w.refuses(d))
	})
	t.Run("closing leaves an owner, retry needs a living authority", func(t *testing.T) {
		s := unknownEffect(t, strict()).wait(time.Hour).person()
		d := absent
		d.Then = "close"
		s.do(d).is(Failed, FindingAbsent)
		if !s.e.Review.Live() {
			t.Error("nobody owns it")
		}
		s.do(Decision{Decision: DecideRetry}).is(Prepared, FindingNone)
		o := unknownEffect(t, strict()).wait(7 * time.Hour).person()
		illegal(t, o.refuses(absent))
		a := grant(o.now).Authority
		d = absent
		d.Authority, d.NewExpires = &a, o.now.Add(time.Hour)
		o.do(d).is(Authorized, FindingAbsent)
	})
	t.Run("happened is read back, or flagged", func(t *testing.T) {
		s := unknownEffect(t, strict()).person()
		illegal(t, s.refuses(Decision{Decision: DecideHappened}))
		s.do(Decision{Decision: DecideHappened, Object: "obj-1"}).is(Verifying, FindingAccepted)
		if !s.e.Review.Live() {
			t.Error("the review closed before the object was read")
		}
		s.read(sees(s.now, ours("obj-1"))).is(Succeeded, FindingMatches)
		if s.e.Review.Live() || s.e.Outcome.Attested {
			t.Errorf("review %+v, outcome %+v", s.e.Review, s.e.Outcome)
		}
		b := unknownEffect(t, blind()).person().do(Decision{Decision: DecideHappened, Object: "obj-1"}).is(Succeeded, FindingMatches)
		if !b.e.Outcome.Attested {
			t.Error("an attested success is not flagged")
		}
	})
	t.Run("a named object that is not there comes back to the person", func(t *testing.T) {
		s := unknownEffect(t, strict()).person().do(Decision{Decision: DecideHappened, Object: "obj-1"}).engine()
		s.wait(2*time.Minute).do(Overdue{}).is(Unknown, FindingUnknown)
		s.read(empty(s.now)).is(NeedsHuman, FindingUnknown)
	})
	t.Run("abandon burns the key", func(t *testing.T) {
		s := unknownEffect(t, strict()).person().do(Decision{Decision: DecideAbandon, Residual: "nobody knows"}).is(Abandoned, FindingUnknown)
		illegal(t, s.refuses(Decision{Decision: DecideRetry}))
		if s.e.Standing() != InFlight {
			t.Errorf("standing %s", s.e.Standing())
		}
	})
}

func TestScenario32_RepairGuards(t *testing.T) {
	dup := func() *story {
		s := unknownEffect(t, strict()).wait(time.Second)
		return s.read(sees(s.now, ours("1"), ours("2"))).is(NeedsHuman, FindingDuplicate).person()
	}
	retire := Decision{Decision: DecideRetire, Object: "2", Keep: "1", Repair: &Repair{ID: "r1", Kind: RepairRetire, Object: "2", Survivor: "1"}}
	s := dup()
	illegal(t, s.refuses(retire)) // the grace is not over
	s.wait(time.Minute)
	illegal(t, s.refuses(Decision{Decision: DecideRollback, Repair: &Repair{ID: "r1", Kind: RepairRollback, Object: "2"}})) // no prior state
	illegal(t, s.refuses(Decision{Decision: DecideCompensate, Repair: &Repair{ID: "r1", Object: "2"}}))
	s.do(retire).is(Repairing, FindingDuplicate)
	s.engine().do(RepairDone{Repair: "r1", Frozen: true, Problem: "its own call was lost"}).is(NeedsHuman, FindingDuplicate)
	again := retire
	again.Repair = &Repair{ID: "r2", Kind: RepairRetire, Object: "2"}
	illegal(t, s.person().refuses(again)) // the frozen one may yet take effect
	s.engine().do(RepairDone{Repair: "r1", Problem: "it never ran"}).is(NeedsHuman, FindingDuplicate)
	s.person().do(again).is(Repairing, FindingDuplicate)
	s.engine().do(RepairDone{Repair: "r2", Verified: true, Evidence: "sha256:gone"}).is(Succeeded, FindingMatches)
	u := unknownEffect(t, strict()).wait(time.Hour).person()
	illegal(t, u.refuses(Decision{Decision: DecideFix, Repair: &Repair{ID: "r", Kind: RepairFix, Object: "1"}}))
}

func TestScenario33_ContainmentFollowsTheFinding(t *testing.T) {
	p := strict()
	p.Contain = map[Finding]ScopeKind{FindingDuplicate: ScopeAccount, FindingUnknown: ScopeTarget}
	s := dispatching(t, p)
	s.e.Target = "SUP-1"
	s.wait(10 * time.Second).timeout()
	if s.e.HoldScope != "target:desk/SUP-1" || s.last.HoldRaised == nil {
		t.Errorf("hold %q", s.e.HoldScope)
	}
	s.wait(time.Minute).read(sees(s.now, ours("1"), ours("2")))
	if s.e.HoldScope != "account:desk/acme" || !s.last.HoldReleased {
		t.Errorf("hold %q", s.e.HoldScope)
	}
	other := Effect{Intent: Intent{Key: "k2", Destination: "desk", Account: "acme"}}
	if !s.last.HoldRaised.Covers(other) || s.last.HoldRaised.Covers(s.e) {
		t.Error("the hold covers the wrong effects")
	}
	s.person().do(ReadBegin{Lease: time.Minute}).is(Reconciling, FindingDuplicate)
	if s.e.HoldScope != "account:desk/acme" {
		t.Errorf("reading again let go of the account: %q", s.e.HoldScope)
	}
}

func TestScenario41_SnapshotDiffIdentifies(t *testing.T) {
	m := Match{ObjectID: "1", Strength: StrengthSnapshot, Agreement: AgreementSame}
	p := strict()
	s := unknownEffect(t, p).wait(time.Minute)
	s.read(sees(s.now, m)).is(Unknown, FindingUnknown)
	p.SnapshotDiff = true
	d := unknownEffect(t, p).wait(time.Minute)
	d.read(sees(d.now, m)).is(Succeeded, FindingMatches)
}

func TestScenario47_ARestoredJournalPresumesTheWorst(t *testing.T) {
	s := begin(t, strict()).authorized()
	s.do(Restore{Attempt: Attempt{ID: "p1"}}).is(Unknown, FindingUnknown)
	s.wait(10*time.Hour).read(empty(s.now)).wait(time.Hour).read(empty(s.now)).is(Unknown, FindingUnknown)
	s.do(CallEnded{Attempt: "p1", At: s.now}) // the operator's word
	s.absent()
	n := &story{t: t, now: noon, policy: strict(), by: By{Actor: "d", Kind: System}, jitter: 0.5}
	a := grant(noon).Authority
	n.do(Submit{Intent: intent(), Restored: true, Authority: &a}).is(Unknown, FindingUnknown)
	if step := Decide(n.e, n.env(), ""); step.Do != StepRead {
		t.Errorf("a key from before the backup leads to %+v", step)
	}
	old := ours("obj-1")
	old.CreatedAt = noon.Add(-24 * time.Hour) // made by the daemon that the backup forgot
	m := *n
	m.read(sees(m.now, old)).is(Succeeded, FindingMatches)
	n.absent()
	if step := Decide(n.e, n.env(), ""); step.Event == nil || step.Event.Kind() != KindResend {
		t.Fatalf("decided %+v", step)
	}
	n.do(Resend{}).wait(time.Minute).sent()
	u := unknownEffect(t, strict())
	u.do(Restore{Attempt: Attempt{ID: "p1"}, DeadAt: u.now.Add(time.Hour)}).is(Unknown, FindingUnknown)
	if len(u.e.Attempts) != 2 || u.e.Doubt.SettleNotBefore.Before(u.now.Add(time.Hour)) {
		t.Errorf("what the lost daemon may have sent from unknown is not presumed: %+v", u.e.Doubt)
	}
}

func TestScenario59_OutageByHand(t *testing.T) {
	s := begin(t, strict()).authorized().do(Outage{Reason: "down"}).is(NeedsHuman, FindingNone)
	if s.e.Authority != nil {
		t.Error("an authority survives by which it might be sent after the work is done by hand")
	}
	s.person().do(Decision{Decision: DecideComplete, Object: "obj-1", Evidence: "x"}).engine()
	s.read(sees(s.now, ours("obj-1"))).is(Succeeded, FindingMatches)
}

func TestScenario61_FenceAndReplay(t *testing.T) {
	f := unknownEffect(t, fencing()).wait(time.Minute)
	if step := Decide(f.e, f.env(), ""); step.Do != StepFence {
		t.Fatalf("decided %+v", step)
	}
	f.do(FenceBegin{Lease: time.Minute}).wait(time.Minute).do(LeaseEnd{}).is(Unknown, FindingUnknown)
	f.now = f.e.Doubt.NextReadAt
	if step := Decide(f.e, f.env(), ""); step.Do != StepRead {
		t.Errorf("an unanswered fence is not read first: %+v", step)
	}
	illegal(t, f.refuses(FenceBegin{Lease: time.Minute}))
	f.read(empty(f.now))
	if f.e.Phase == Unknown {
		f.now = f.e.Doubt.NextReadAt
		f.do(FenceBegin{Lease: time.Minute}, FenceDone{Fenced: true, Revision: "7"}).is(ConfirmedAbsent, FindingAbsent)
		if !f.e.Absence.Final {
			t.Error("absence behind a fence is not final")
		}
	}
	g := unknownEffect(t, fencing()).do(FenceBegin{Lease: time.Minute}, FenceDone{Object: &Match{ObjectID: "1"}}).is(Verifying, FindingAccepted)
	_ = g

	r := unknownEffect(t, replaying()).wait(15 * time.Second)
	if step := Decide(r.e, r.env(), ""); step.Do != StepRead {
		t.Errorf("a replay before the first read: %+v", step)
	}
	r.read(empty(r.now))
	r.now = r.e.Doubt.NextReadAt
	if step := Decide(r.e, r.env(), ""); step.Do != StepReplay {
		t.Errorf("decided %+v", step)
	}
	r.do(ReplaySend{Ask: ask(r.e), Attempt: Attempt{ID: "a2"}}).is(Reconciling, FindingUnknown)
	r.wait(time.Second).do(Lost{Attempt: "a2", DeadAt: r.now}).is(Unknown, FindingUnknown)
	if r.e.Attempts[1].State != AttemptLost {
		t.Errorf("a crash in a replay leaves %s", r.e.Attempts[1].State)
	}
	r.now = later(r.now, r.e.Doubt.NextReadAt)
	if step := Decide(r.e, r.env(), ""); step.Do != StepRead {
		t.Errorf("after a replay comes a read, not %+v", step)
	}
	late := unknownEffect(t, replaying()).wait(24 * time.Hour)
	illegal(t, late.refuses(ReplaySend{Ask: ask(late.e), Attempt: Attempt{ID: "a2"}}))
	illegal(t, unknownEffect(t, strict()).refuses(ReplaySend{}))
}
