package journal

import "time"

func (ev Witness) apply(b *builder) error {
	if b.from.Phase == New {
		return b.illegal("")
	}
	b.entry("witness", func(x *Entry) { x.Evidence, x.Because = ev.Evidence, ev.What })
	return b.witness(ev)
}

// witness takes positive evidence: it moves what was in doubt to verifying,
// contradicts what was closed as not done, and never opens the gate.
func (b *builder) witness(ev Witness) error {
	prior := b.e.Positive // a rebuttal of older evidence does not rebut this
	b.e.Positive = &Positive{At: b.env.Now, What: ev.What, Accepted: prior != nil && prior.Accepted}
	n := 27
	switch b.e.Phase {
	case Acknowledged:
		n = 12
	case Unknown, Reconciling, ConfirmedAbsent, Prepared, Authorized:
	case NeedsHuman:
		if b.e.Finding.Contradicted() {
			return nil // a person has it; one more voice does not settle what is wrong
		}
	case Dispatching, Verifying, Repairing:
		return nil
	case Succeeded:
		if b.e.Outcome.ObjectID == "" {
			b.setOutcome(func(o *Outcome) { o.ObjectID = ev.ObjectID })
		}
		if ev.ObjectID == "" || ev.ObjectID == b.e.Outcome.ObjectID {
			return nil
		}
		return b.contradict(FindingDuplicate, "a second object "+ev.ObjectID+" is reported", []Match{{ObjectID: ev.ObjectID}}, ev.Evidence)
	default:
		return b.contradict(FindingConflicts, ev.What+" after it was closed", []Match{{ObjectID: ev.ObjectID}}, ev.Evidence)
	}
	if !b.e.MayHaveBeenSent() { // else the evidence speaks of the call that is in doubt already
		b.reopenAbsent()
	}
	if err := b.move(n, Verifying); err != nil {
		return err
	}
	b.why(ev.What)
	b.about("", ev.Evidence)
	b.e.Finding = FindingAccepted
	if ev.ObjectID != "" {
		b.setOutcome(func(o *Outcome) { o.ObjectID, o.Source, o.Evidence = ev.ObjectID, string(ev.Source), ev.Evidence })
	}
	b.e.Authority, b.e.WaitingFor = nil, ""
	b.beginVerify(b.e.Outcome.ObjectID)
	return nil
}

func (b *builder) beginVerify(object string) {
	b.e.Verify = &Verification{ObjectID: object, Since: b.env.Now, Deadline: b.env.Now.Add(b.env.Policy.VerifyDeadline)}
	if b.env.Policy.HasRead {
		b.e.Verify.NextRead = b.env.Now
	}
}

// succeed ends the effect as confirmed and closes whatever question was open.
func (b *builder) succeed(n int, evidence string) error {
	if err := b.move(n, Succeeded); err != nil {
		return err
	}
	b.about("", evidence)
	b.settle(AttemptSettledPresent, evidence)
	b.closeReview(DecideHappened)
	b.e.Reason = ""
	if b.e.Run != "" {
		b.ch.Checkpoint = &Checkpoint{Run: b.e.Run, Step: b.e.Key, Key: b.e.Key, Evidence: evidence, At: b.env.Now}
	}
	return nil
}

// contradict is transition 35.
func (b *builder) contradict(f Finding, reason string, seen []Match, evidence string) error {
	if b.e.Phase == Failed && f.Contradicted() {
		b.reopenAbsent() // it is not so sure any more that those calls did nothing
	}
	if err := b.move(35, NeedsHuman); err != nil {
		return err
	}
	b.why(reason)
	b.about("", evidence)
	b.wrong(f, []string{reason}, seen)
	return nil
}

// wrong records a contradicting finding and asks a person.
func (b *builder) wrong(f Finding, missing []string, seen []Match) {
	b.e.Finding = f
	b.setOutcome(func(o *Outcome) { o.VerifiedAt = time.Time{} })
	for _, t := range b.env.Policy.TripBreaker {
		b.ch.TripBreaker = b.ch.TripBreaker || t == f
	}
	kind := ReviewContradiction
	if !f.Contradicted() {
		kind = ReviewAmbiguity
	}
	b.openReview(kind, "", missing, seen)
}
