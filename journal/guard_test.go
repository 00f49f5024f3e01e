package journal

import (
	"testing"
	"time"
)

// Even an absent effect is not sent again while a call is in doubt or evidence stands: the phase alone opens nothing.
func TestResendLooksAtAttemptsAndEvidence(t *testing.T) {
	s := unknownEffect(t, strict()).absent()
	whole := s.e
	s.e = whole.clone()
	s.e.Attempts[0].State = AttemptTimedOut
	illegal(t, s.refuses(Resend{}))
	s.e = whole.clone()
	s.e.Positive = &Positive{At: s.now, What: "webhook"}
	illegal(t, s.refuses(Resend{}))
	s.e = whole.clone()
	s.e.Authority.ExpiresAt = s.now
	illegal(t, s.refuses(Resend{}))
	s.e = whole
	s.do(Resend{})
}

// An answer that came late moves the grace; a first read from before is no first read any more.
func TestAgreementIsHeldAgainstTheGraceOfNow(t *testing.T) {
	for name, p := range map[string]Policy{"eventual": strict(), "strong": strong()} {
		s := unknownEffect(t, p)
		r := func() Reading { r := empty(s.now); r.Consistency = p.Consistency; return r }
		s.now = s.e.Doubt.SettleNotBefore
		s.read(r()).is(Unknown, FindingUnknown)
		s.wait(time.Second).do(Answer{Attempt: "a1", Class: AnswerNotExecuted, At: s.now})
		s.now = s.e.Doubt.SettleNotBefore
		s.read(r())
		if s.e.Phase != Unknown {
			t.Errorf("%s: one read after the new grace was enough", name)
		}
		s.wait(3 * time.Second).read(r())
		if s.e.Phase != ConfirmedAbsent {
			t.Errorf("%s: two reads after the new grace were not: %v", name, s.e.Doubt.Missing)
		}
	}
}

func TestAnAttestationComesAfterTheCallsAndTheEvidence(t *testing.T) {
	p := strict()
	p.Grace.MaxProcessing = nil
	d := Decision{Decision: DecideDidNotHappen, Then: "retry", Evidence: "sha256:photo", NoBound: "the host was wiped"}
	s := unknownEffect(t, p).wait(time.Hour).person()
	early := d
	early.LookedAt = noon.Add(5 * time.Second) // the call ended at 12:00:10
	illegal(t, s.refuses(early))
	s.do(d).is(Authorized, FindingAbsent)

	w := unknownEffect(t, strict()).do(Escalate{Reason: "x"}).wait(time.Hour).do(Witness{What: "webhook"})
	w.wait(5 * time.Minute).do(Overdue{}).person()
	a := grant(w.now).Authority
	d.Authority = &a
	d.LookedAt = w.now.Add(-10 * time.Minute) // the webhook came 5 minutes ago
	illegal(t, w.refuses(d))
	d.LookedAt = w.now
	w.do(d).is(Authorized, FindingAbsent)
}

func TestARepairWaitsForAnOpenCall(t *testing.T) {
	s := dispatching(t, strict()).wait(10 * time.Second).do(Answer{Attempt: "a1", Class: AnswerUnknown, Open: true})
	s.wait(time.Hour).read(sees(s.now, ours("1"), ours("2"))).is(NeedsHuman, FindingDuplicate).person()
	fix := Decision{Decision: DecideFix, NoBound: "sure", Repair: &Repair{ID: "r", Kind: RepairFix, Object: "1"}}
	illegal(t, s.refuses(fix))
	s.do(CallEnded{Attempt: "a1", At: s.now}).wait(time.Hour).do(fix).is(Repairing, FindingDuplicate)
}

// A free key against evidence that it happened is a contradiction, not an absence.
func TestAFenceDoesNotRebutEvidence(t *testing.T) {
	s := dispatching(t, fencing())
	s.do(s.answer(AnswerCommitted)).wait(2*time.Minute).do(Overdue{}).is(Unknown, FindingUnknown)
	s.do(FenceBegin{Lease: time.Minute}, FenceDone{Fenced: true, Revision: "1"}).is(NeedsHuman, FindingConflicts)
}

// Only the settled and the absence clause of the gate are lifted for a replay.
func TestAReplayMeetsTheRestOfTheGate(t *testing.T) {
	s := unknownEffect(t, replaying()).wait(15 * time.Second)
	s.read(empty(s.now)).wait(time.Minute)
	for clause, spoil := range map[string]func(*Effect, *Ask){
		GatePositive: func(e *Effect, _ *Ask) { e.Positive = &Positive{At: s.now, What: "webhook"} },
		GateHold:     func(_ *Effect, a *Ask) { a.HeldBy = "all" },
		GateBudget:   func(e *Effect, _ *Ask) { e.Budget.Attempts = 3 },
		GateDispatch: func(_ *Effect, a *Ask) { a.Dispatch = "off" },
	} {
		c := *s
		c.e = s.e.clone()
		a := ask(c.e)
		spoil(&c.e, &a)
		shut(t, c.refuses(ReplaySend{Ask: a, Attempt: Attempt{ID: "a2"}}), clause)
		if clause == GatePositive || clause == GateBudget {
			if step := Decide(c.e, c.env(), ""); step.Do != StepRead {
				t.Errorf("the core wants %s although the gate refuses it", step.Do)
			}
		}
	}
	// evidence of the effect ends the replay's doubt, and its own answer then finds another phase
	s.do(ReplaySend{Ask: ask(s.e), Attempt: Attempt{ID: "a2"}}, Witness{What: "webhook", ObjectID: "obj-1"}).is(Verifying, FindingAccepted)
	s.do(Answer{Attempt: "a2", Class: AnswerNotExecuted, At: s.now}).is(Verifying, FindingAccepted)
	s.read(sees(s.now, ours("obj-1"))).is(Succeeded, FindingMatches)
}

// Evidence that comes while a call is under way outweighs that call's own "not executed".
func TestEvidenceDuringACall(t *testing.T) {
	s := dispatching(t, strict()).do(Witness{What: "webhook", ObjectID: "obj-1"}).is(Dispatching, FindingUnknown)
	s.do(s.answer(AnswerNotExecuted)).is(Unknown, FindingUnknown)
	d := unknownEffect(t, strict()).absent().do(Resend{}).wait(time.Minute).sent()
	d.do(Answer{Attempt: "a1", Class: AnswerCommitted, At: d.now, ObjectID: "obj-1"})
	if st := d.e.Attempts[0].State; st != AttemptTimedOut {
		t.Errorf("the first call, which committed, is %s", st)
	}
	c := unknownEffect(t, strict()).absent().do(Witness{What: "webhook", ObjectID: "obj-1"}).is(Verifying, FindingAccepted)
	if !c.e.MayHaveBeenSent() {
		t.Error("the call that a webhook confirms is still settled as absent")
	}
}

// after_absence stands still while reads fail.
func TestFailedReadsDoNotUseUpAfterAbsence(t *testing.T) {
	s := unknownEffect(t, strict())
	f := empty(s.now)
	f.Failed = "503"
	for range 20 {
		s.wait(time.Minute).read(f)
	}
	s.read(empty(s.now)).wait(2*time.Second).read(empty(s.now)).is(ConfirmedAbsent, FindingAbsent)
	if why := absenceSpent(s.e, s.env()); why != "" {
		t.Error(why)
	}
	s.do(DoubtAbsence{Reason: "x"}) // and what stood still is not forgotten when the proof is doubted
	s.now = later(s.now, s.e.Doubt.SettleNotBefore)
	s.read(empty(s.now)).wait(2*time.Second).read(empty(s.now)).is(ConfirmedAbsent, FindingAbsent)
	if why := absenceSpent(s.e, s.env()); why != "" {
		t.Error(why)
	}
}

// An object that is not whole counts only when nothing can be writing any more.
func TestPartialWaitsForTheCallAndTheLag(t *testing.T) {
	part := ours("obj-1")
	part.Agreement, part.Differences = AgreementPartial, []string{"body"}
	s := dispatching(t, strict()).wait(10 * time.Second).do(Answer{Attempt: "a1", Class: AnswerUnknown, Open: true})
	s.wait(time.Minute).read(sees(s.now, part)).is(Unknown, FindingUnknown)
	s.do(CallEnded{Attempt: "a1", At: s.now}).wait(time.Second).read(sees(s.now, part)).is(Unknown, FindingUnknown)
	s.wait(time.Second).read(sees(s.now, part)).is(NeedsHuman, FindingPartial)
}

// One question has one review: reading again keeps who has it and until when.
func TestTheOneReviewIsKept(t *testing.T) {
	s := unknownEffect(t, strict()).do(Escalate{Reason: "x"}).person().do(Decision{Decision: DecideClaim})
	due := s.e.Review.DueAt
	s.engine().wait(time.Hour).read(empty(s.now)).wait(time.Hour)
	s.read(sees(s.now, ours("1"), ours("2"))).is(NeedsHuman, FindingDuplicate)
	r := s.e.Review
	if r.Owner != "ada" || r.State != ReviewClaimed || !r.DueAt.Equal(due) || r.Kind != ReviewContradiction || len(r.Candidates) != 2 {
		t.Errorf("review %+v", r)
	}
	if !s.last.ReviewChanged {
		t.Error("the journal would not write the review")
	}
}

// A row of another's object never becomes the outcome of ours.
func TestAConflictingObjectIsACandidateOnly(t *testing.T) {
	other := ours("not-ours")
	other.Account = "umbrella"
	s := unknownEffect(t, strict()).wait(time.Minute)
	s.read(sees(s.now, other)).is(NeedsHuman, FindingConflicts)
	if s.e.Outcome.ObjectID != "" || len(s.e.Review.Candidates) != 1 {
		t.Errorf("outcome %+v, candidates %+v", s.e.Outcome, s.e.Review.Candidates)
	}
}

// proof = "ack": a late Committed is an answer too; an acceptance never is.
func TestProofByAcknowledgement(t *testing.T) {
	s := dispatching(t, acked())
	s.do(s.answer(AnswerCommitted)).is(Succeeded, FindingAccepted)
	if !s.e.Outcome.Waived || len(Check(s.history())) != 0 {
		t.Errorf("outcome %+v, %v", s.e.Outcome, Check(s.history()))
	}
	p := acked()
	p.HasRead = false
	l := unknownEffect(t, p).is(NeedsHuman, FindingUnknown)
	l.do(Answer{Attempt: "a1", Class: AnswerCommitted, At: l.now, ObjectID: "obj-1"}).is(Succeeded, FindingAccepted)
	a := dispatching(t, acked())
	a.do(a.answer(AnswerAccepted)).is(Acknowledged, FindingAccepted)
	a.do(Witness{What: "webhook"}).is(Verifying, FindingAccepted)
}

// Past the processing bound but inside the lag, a first read of a lagging view is no first read either.
func TestAFirstReadInsideTheLagDoesNotAgree(t *testing.T) {
	s := unknownEffect(t, strict())
	s.now = s.e.Doubt.SettleNotBefore
	s.read(empty(s.now)).do(Answer{Attempt: "a1", Class: AnswerNotExecuted, At: s.now.Add(-6 * time.Second)})
	s.now = s.e.Doubt.SettleNotBefore
	s.read(empty(s.now)).is(Unknown, FindingNotSent)
}
