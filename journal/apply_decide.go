package journal

import "time"

// apply is a person's decision. Who decides is in Env.By; a service never does.
func (ev Decision) apply(b *builder) error {
	if b.env.By.Kind != Human {
		return b.illegal("only a person decides")
	}
	if !b.mayDecide() {
		return b.illegal("there is nothing to decide")
	}
	b.entry("decision", func(x *Entry) {
		x.Evidence = ev.Evidence
		x.Because = string(ev.Decision) + ": " + b.env.By.Because
		for _, also := range [][2]string{{"record", ev.Record}, {"no bound", ev.NoBound}, {"second person", ev.Approver}, {"residual", ev.Residual}} {
			if also[1] != "" {
				x.Because += "; " + also[0] + ": " + also[1]
			}
		}
	})
	switch ev.Decision {
	case DecideAssign, DecideClaim, DecideKeepWaiting:
		return b.decideReview(ev)
	case DecideRead:
		return b.decideRead()
	case DecideRetry, DecideClose:
		return b.decideFailed(ev)
	}
	if b.env.By.Because == "" {
		return b.illegal("a reason is needed (--because)")
	}
	if b.in(Unknown) { // a decision on an effect still in unknown is 23 and its own row in one transaction
		if err := b.escalate("taken over by " + b.env.By.Actor); err != nil {
			return err
		}
	}
	if !b.in(NeedsHuman) {
		return b.illegal("it is not open for this decision")
	}
	switch ev.Decision {
	case DecideHappened, DecideComplete:
		return b.decideHappened(ev)
	case DecideDidNotHappen:
		return b.decideAbsent(ev)
	case DecideRollback, DecideCompensate, DecideFix, DecideRetire:
		return b.decideRepair(ev)
	case DecideAbandon:
		return b.decideAbandon(ev)
	}
	return b.illegal("unknown decision " + string(ev.Decision))
}

func (b *builder) mayDecide() bool {
	switch b.from.Phase {
	case Unknown, NeedsHuman, ConfirmedAbsent:
		return true
	case New:
		return false
	}
	return b.e.Review.Live()
}

func (b *builder) decideReview(ev Decision) error {
	if !b.e.Review.Live() {
		return b.illegal("no review is open")
	}
	r := b.e.Review
	switch ev.Decision {
	case DecideAssign:
		if ev.To == "" {
			return b.illegal("assign to whom? (--to)")
		}
		r.Owner, r.State = ev.To, ReviewOpen
		b.e.Owner = ev.To
	case DecideClaim:
		r.State, r.Owner = ReviewClaimed, b.env.By.Actor
	case DecideKeepWaiting:
		if !ev.Until.After(b.env.Now) {
			return b.illegal("keep waiting until when? (--until, in the future)")
		}
		r.DueAt, r.Overdue = ev.Until, false
		if d := b.e.Doubt; d != nil && d.ResolveBy.Before(ev.Until) {
			d.ResolveBy = ev.Until
		}
	}
	return nil
}

// decideRead is 28, or a read brought forward where reads go on anyway.
func (b *builder) decideRead() error {
	if !b.env.Policy.HasRead {
		return b.illegal("no authoritative read exists for this operation")
	}
	switch b.e.Phase {
	case Unknown:
		b.e.Doubt.NextReadAt = b.env.Now
		return nil
	case NeedsHuman:
		return ReadBegin{Lease: b.env.Policy.Timeout + b.env.Policy.RecordReserve}.apply(b)
	}
	return b.illegal("nothing is to be read in this phase")
}

// decideHappened is 30: a person names the object. It is still read back where a read exists.
func (b *builder) decideHappened(ev Decision) error {
	if ev.Object == "" && (ev.Decision != DecideComplete || ev.Evidence == "") {
		return b.illegal("name the object (--object)")
	}
	if err := b.move(30, Verifying); err != nil {
		return err
	}
	b.about("", ev.Evidence)
	b.e.Finding = FindingAccepted
	b.e.Positive = &Positive{
		At: b.env.Now, What: "a person named object " + orElse(ev.Object, "(none: done by hand)"),
		Accepted: b.e.Positive != nil && b.e.Positive.Accepted,
	}
	b.setOutcome(func(o *Outcome) {
		o.ObjectID, o.Source, o.Evidence, o.Attested = ev.Object, string(FromPerson), ev.Evidence, !b.env.Policy.HasRead
	})
	b.beginVerify(ev.Object)
	if b.env.Policy.HasRead {
		return nil
	}
	b.e.Finding = FindingMatches
	b.setOutcome(func(o *Outcome) { o.VerifiedAt = b.env.Now })
	return b.succeed(15, ev.Evidence)
}

// decideAbsent is 29: an attestation with method, time and evidence. It meets
// the same clock as a machine's absence, because a late request does not ask who looked.
func (b *builder) decideAbsent(ev Decision) error {
	looked := ev.LookedAt
	if looked.IsZero() {
		looked = b.env.Now
	}
	settle, bounded := SettleNotBefore(b.e, b.env.Policy)
	switch {
	case ev.Evidence == "":
		return b.illegal("evidence is needed: what was looked at, how and when (--evidence)")
	case ev.Then != "retry" && ev.Then != "close":
		return b.illegal("say what follows (--then retry or --then close)")
	case looked.After(b.env.Now):
		return b.illegal("it cannot have been looked at in the future")
	case !allClosed(b.e) || looked.Before(lastClosed(b.e)):
		return b.illegal("a call is or was still open; look again when it is closed")
	case bounded && looked.Before(settle):
		return b.illegal("a late request may still land; look again after " + clock(settle))
	case !bounded && b.e.MayHaveBeenSent() && ev.NoBound == "":
		return b.illegal("nobody declared how late a request can land; say why nothing can land any more (--no-bound)")
	case b.e.Positive != nil && b.e.Positive.Accepted && ev.Record == "":
		return b.illegal("it was accepted: name the destination's operation record (--record)")
	case b.env.Policy.Reversibility == IrreversibleOp && (ev.Approver == "" || ev.Approver == b.env.By.Actor):
		return b.illegal("the operation is irreversible: a second person must agree (--approver)")
	case b.e.Positive != nil && b.e.Positive.At.After(looked):
		return b.illegal("there is newer evidence that it happened (" + b.e.Positive.What + " at " + clock(b.e.Positive.At) + ")")
	}
	if err := b.absent(29, ev.Evidence, "attestation", looked); err != nil {
		return err
	}
	b.e.Absence.ValidUntil = b.env.Now.Add(b.env.Policy.Grace.AbsenceValid)
	if ev.Then == "close" {
		return b.closeAbsent("did not happen, by attestation of " + b.env.By.Actor)
	}
	if ev.Authority != nil {
		b.e.Authority = ev.Authority
	}
	if !ev.NewExpires.IsZero() {
		b.e.Deadline = ev.NewExpires
	}
	return b.resend(true)
}

// closeAbsent is 25 by a person. The owner still learns that it did not happen,
// and may retry it (37) or close the review: only a cancel and a rejection end without one.
func (b *builder) closeAbsent(reason string) error { return b.fail(25, reason, true, "") }

// decideFailed is 37 or the end of the review of a failed effect; of a
// confirmed absence it is 24 or 25.
func (b *builder) decideFailed(ev Decision) error {
	retry := ev.Decision == DecideRetry
	switch b.e.Phase {
	case ConfirmedAbsent:
		if !retry {
			return b.closeAbsent("closed by " + b.env.By.Actor)
		}
		if ev.Authority != nil {
			b.e.Authority = ev.Authority
		}
		return b.resend(true)
	case Failed:
		if !b.e.Review.Live() {
			return b.illegal("its review is decided already; a new intent needs a new version of the key")
		}
	default:
		return b.illegal("retry and close are for an effect that is known not to have happened")
	}
	if !retry {
		b.closeReview(DecideClose)
		return nil
	}
	for _, a := range b.e.Attempts {
		if a.State != AttemptNotSent && a.State != AttemptRejected && a.State != AttemptSettledAbsent && a.State != AttemptNotExecuted {
			return b.illegal("an attempt is not settled")
		}
	}
	if err := b.move(37, Prepared); err != nil {
		return err
	}
	b.closeReview(DecideRetry)
	b.e.Budget = Budget{}
	b.e.NextSend = time.Time{}
	b.e.Reason = ""
	b.e.WaitingFor = "authority"
	b.e.Finding = FindingNone
	if !ev.NewExpires.IsZero() {
		b.e.Deadline = ev.NewExpires
	}
	b.refreshAbsence()
	return nil
}

// refreshAbsence drops a proof that has expired, so that the next send asks for a new one (26).
func (b *builder) refreshAbsence() {
	if b.e.Absence != nil && !b.e.Absence.Final && !b.env.Now.Before(b.e.Absence.ValidUntil) {
		b.e.Absence = nil
	}
}

// decideAbandon is 34: the key is burned and the residual finding stays.
func (b *builder) decideAbandon(ev Decision) error {
	if err := b.move(34, Abandoned); err != nil {
		return err
	}
	b.about("", ev.Evidence)
	if ev.Residual != "" {
		b.e.Reason = "residual: " + ev.Residual
	}
	b.closeReview(DecideAbandon)
	return nil
}
