package journal

import "time"

// decideRepair is 31: the decision and the repair in one transaction.
func (b *builder) decideRepair(ev Decision) error {
	ok := false
	for _, k := range repairsFor(b.e, b.env.Policy) {
		ok = ok || k == ev.Decision
	}
	settle, bounded := SettleNotBefore(b.e, b.env.Policy)
	switch {
	case ev.Repair == nil || ev.Repair.ID == "" || ev.Repair.Object == "":
		return b.illegal("a repair needs an id and the object it acts on")
	case !ok:
		return b.illegal("the finding and the operation's reversibility do not allow " + string(ev.Decision))
	case !allClosed(b.e):
		return b.illegal("a call is still open")
	case bounded && b.env.Now.Before(settle):
		return b.illegal("a late request may still land; repair after " + clock(settle))
	case !bounded && b.e.MayHaveBeenSent() && ev.NoBound == "":
		return b.illegal("nobody declared how late a request can land; say why nothing can land any more (--no-bound)")
	case ev.Decision == DecideRollback && len(ev.Repair.PriorState) == 0:
		return b.illegal("no prior state is stored: compensate instead")
	}
	for _, r := range b.e.Repairs {
		if r.State == RepairOpen || r.State == RepairFrozen {
			return b.illegal("repair " + r.ID + " is not settled")
		}
	}
	if err := b.move(31, Repairing); err != nil {
		return err
	}
	r := *ev.Repair
	r.State, r.OpenedAt, r.By, r.Because = RepairOpen, b.env.Now, b.env.By.Actor, b.env.By.Because
	b.e.Repairs = append(b.e.Repairs, r)
	b.closeReview(ev.Decision)
	return nil
}

func (ev RepairDone) apply(b *builder) error {
	r := b.repair(ev.Repair)
	switch {
	case r == nil:
		return b.illegal("no unsettled repair " + ev.Repair)
	case ev.Frozen && ev.Verified:
		return b.illegal("a repair cannot be verified and frozen")
	case b.from.Phase == NeedsHuman && r.State == RepairFrozen:
		return b.thawed(r, ev)
	case b.from.Phase != Repairing || r.State != RepairOpen:
		return b.illegal("")
	}
	r.ClosedAt = b.env.Now
	if !ev.Verified {
		r.State = RepairFailed
		if ev.Frozen {
			r.State, r.ClosedAt = RepairFrozen, time.Time{}
		}
		seen := candidates(b.e)
		if err := b.move(33, NeedsHuman); err != nil {
			return err
		}
		b.why(ev.Problem)
		b.about("", ev.Evidence)
		b.wrong(b.e.Finding, []string{"the repair did not do it: " + ev.Problem}, seen)
		return nil
	}
	r.State = RepairSucceeded
	to := Succeeded
	switch r.Kind {
	case RepairRollback:
		to = RolledBack
	case RepairCompensate:
		to = Compensated
	}
	if to == Succeeded {
		b.e.Finding = FindingMatches
		b.setOutcome(func(o *Outcome) { o.VerifiedAt, o.Evidence = b.env.Now, ev.Evidence })
		return b.succeed(32, ev.Evidence)
	}
	if err := b.move(32, to); err != nil {
		return err
	}
	b.about("", ev.Evidence)
	b.settle(AttemptSettledPresent, ev.Evidence)
	return nil
}

// repair finds an unsettled repair by its id, or nil.
func (b *builder) repair(id string) *Repair {
	for i := range b.e.Repairs {
		if r := &b.e.Repairs[i]; r.ID == id && (r.State == RepairOpen || r.State == RepairFrozen) {
			return r
		}
	}
	return nil
}

// thawed takes the end of a frozen repair. The effect stays with its person, who
// sees in the one review what the repair came to.
func (b *builder) thawed(r *Repair, ev RepairDone) error {
	if ev.Frozen {
		return b.illegal("the repair is frozen already")
	}
	r.State, r.ClosedAt = RepairFailed, b.env.Now
	said := "repair " + r.ID + " had no effect: " + ev.Problem
	if ev.Verified {
		r.State, said = RepairSucceeded, "repair "+r.ID+" did take effect: read the object again and decide"
	}
	b.entry("repair_settled", func(x *Entry) { x.Evidence, x.Because = ev.Evidence, said })
	if b.e.Review.Live() {
		b.e.Review.Missing = append([]string{said}, b.e.Review.Missing...)
		b.e.Review.Allowed = allowed(b.e, b.env.Policy)
	}
	return nil
}

func (ev Contradict) apply(b *builder) error {
	if !b.from.Phase.Closed() {
		return b.illegal("only a closed effect is contradicted")
	}
	f := ev.Finding
	if f == "" {
		f = b.e.Finding
	}
	return b.contradict(f, ev.Reason, ev.Candidates, ev.Evidence)
}

// What is known of a fence: its intent is durable before the call; an
// unanswered one is read before it is sent again.
const (
	fenceIntended = "intended"
	fenceRead     = "read"
)

func (ev FenceBegin) apply(b *builder) error {
	if b.from.Phase != Unknown || b.env.Policy.Settle != SettleFence {
		return b.illegal("fencing is not opted in for this operation")
	}
	if b.e.Doubt.Fence == fenceIntended {
		return b.illegal("an unanswered fence is read before it is sent again")
	}
	if err := b.move(39, Reconciling); err != nil {
		return err
	}
	b.e.Doubt.LeaseUntil = b.env.Now.Add(ev.Lease)
	b.e.Doubt.Fence = fenceIntended
	return nil
}

func (ev FenceDone) apply(b *builder) error {
	if b.from.Phase != Reconciling || b.e.Doubt.Fence != fenceIntended {
		return b.illegal("no fence was begun")
	}
	switch {
	case ev.Object != nil:
		if err := b.move(39, Verifying); err != nil {
			return err
		}
		b.about("", ev.Evidence)
		b.e.Finding = FindingAccepted
		b.e.Positive = &Positive{At: b.env.Now, What: "the fence met our object", Accepted: b.e.Positive != nil && b.e.Positive.Accepted}
		b.setOutcome(func(o *Outcome) {
			o.ObjectID, o.ObjectType, o.URL = ev.Object.ObjectID, ev.Object.ObjectType, ev.Object.URL
			o.Source, o.Evidence = string(FromRead), ev.Evidence
		})
		b.beginVerify(ev.Object.ObjectID)
		return nil
	case ev.Fenced && allClosed(b.e) && b.e.Positive.stands():
		return b.readWrong(Reading{Evidence: ev.Evidence}, FindingConflicts, Judgement{Missing: []string{
			"the key was free although there is evidence that it happened (" + b.e.Positive.What + ")",
		}})
	case ev.Fenced && allClosed(b.e):
		if err := b.absent(39, orElse(ev.Evidence, "fence:"+ev.Revision), "fence", b.env.Now); err != nil {
			return err
		}
		b.e.Absence.Final = true
		return nil
	}
	return b.backToDoubt("the fence was not answered; it is read before it is sent again", nil)
}

func (ev ReplaySend) apply(b *builder) error {
	p := b.env.Policy
	if b.from.Phase != Unknown || p.Settle != SettleReplay {
		return b.illegal("replay is not opted in for this operation")
	}
	first := b.e.FirstSent()
	maxProcessing := p.Grace.MaxProcessing
	switch {
	case !p.ReplaysFirst || p.DedupeWindow == nil || p.Reversibility == IrreversibleOp || maxProcessing == nil:
		return b.illegal("the destination does not promise to answer a replay with the first response")
	case first.IsZero():
		return b.illegal("nobody knows when the first request was sent")
	case !b.env.Now.Add(p.Timeout + *maxProcessing + p.Grace.Skew).Before(first.Add(*p.DedupeWindow)):
		return b.illegal("the destination's dedupe window ends too soon")
	case !allClosed(b.e):
		return b.illegal("a call is still open")
	}
	var refused []Refusal
	asIf := b.e
	asIf.Phase = Authorized
	for _, r := range Gate(asIf, ev.Ask, b.env) {
		if r.Clause != GateUnsettled && r.Clause != GateAbsence {
			refused = append(refused, r)
		}
	}
	if len(refused) > 0 {
		return &GateError{Key: b.e.Key, Refusals: refused}
	}
	lease := p.Timeout + p.Grace.Linger + p.RecordReserve
	doubt := *b.e.Doubt
	a := ev.Attempt
	a.Replay = true
	if err := b.record(40, Reconciling, a); err != nil {
		return err
	}
	b.e.Doubt = &doubt
	b.e.Doubt.LeaseUntil = b.env.Now.Add(lease)
	return nil
}

// replayed is the answer to a replay: the first response again is proof, all else proves nothing.
func (b *builder) replayed(a *Attempt, ev Answer) error {
	closeAttempt(a, ev)
	if ev.Class == AnswerCommitted {
		a.State = AttemptCommitted
		if err := b.move(40, Verifying); err != nil {
			return err
		}
		b.about(a.ID, ev.Evidence)
		b.e.Finding = FindingAccepted
		b.e.Positive = &Positive{At: ev.At, What: "replay answered as committed"}
		b.setOutcome(func(o *Outcome) {
			o.Acknowledgement, o.ObjectID, o.Source, o.Evidence = "committed", ev.ObjectID, "dispatch", ev.Evidence
		})
		b.beginVerify(ev.ObjectID)
		return nil
	}
	a.State = AttemptTimedOut
	if ev.Death {
		a.State, a.Cause = AttemptLost, orElse(ev.Cause, a.Cause)
	}
	switch ev.Class {
	case AnswerAccepted: // the first response is owed; from now on only an operation record proves absence
		b.e.Positive = &Positive{At: ev.At, What: "replay answered as accepted", Accepted: true}
	case AnswerNotSent:
		a.State = AttemptNotSent
		b.e.Budget.Attempts--
	case AnswerNotExecuted:
		a.State = AttemptNotExecuted
	case AnswerRejected:
		if !ev.Conflict {
			a.State = AttemptRejected
		}
	}
	d := *b.e.Doubt
	if err := b.move(40, Unknown); err != nil {
		return err
	}
	b.about(a.ID, ev.Evidence)
	d.LeaseUntil, d.FirstAbsent = time.Time{}, nil
	b.e.Doubt = &d
	b.e.Finding = FindingUnknown
	b.refreshSettle()
	return nil
}

func (ev Restore) apply(b *builder) error {
	last := b.e.Phase
	switch last {
	case Prepared, Authorized, Dispatching, Acknowledged, Verifying, Reconciling, ConfirmedAbsent, Unknown, NeedsHuman:
	default:
		return b.illegal("only what is open was perhaps sent again after the backup")
	}
	b.settleOpenAsLost(ev)
	b.reopenAbsent()
	if last == Unknown || last == NeedsHuman {
		b.entry("restore", nil)
		b.presume(ev.Attempt, ev.DeadAt)
		if d := b.e.Doubt; d != nil {
			d.FirstAbsent = nil
		}
		b.refreshSettle()
		return nil
	}
	if err := b.move(41, Unknown); err != nil {
		return err
	}
	b.presume(ev.Attempt, ev.DeadAt)
	b.e.WaitingFor = ""
	b.beginDoubt(doubting{cause: "restore", missing: "what the daemon did after the backup was taken", last: last})
	return b.orPerson()
}

// presume adds the attempt that a lost daemon may have made, and names it in the newest entry.
func (b *builder) presume(a Attempt, deadAt time.Time) {
	a.ID = orElse(a.ID, "presumed:"+b.e.Key)
	a.State, a.Number, a.Reason = AttemptLost, len(b.e.Attempts)+1, presumed+"the journal was restored from a backup"
	if a.SentAt.IsZero() && b.from.Phase != New { // of a key that nobody knows, no time is known either
		a.SentAt = b.e.SubmittedAt
	}
	a.ClosedAt, a.Death = deadAt, true
	if deadAt.IsZero() && b.from.Phase == New {
		a.ClosedAt = b.env.Now
	}
	b.e.Attempts = append(b.e.Attempts, a)
	b.touch(len(b.e.Attempts) - 1)
	b.about(a.ID, "")
}

// settleOpenAsLost gives up every call of the old daemon: they end with it.
func (b *builder) settleOpenAsLost(ev Restore) {
	for i := range b.e.Attempts {
		a := &b.e.Attempts[i]
		switch {
		case a.State == AttemptSent:
			a.State = AttemptLost
		case a.State.NoEffect() || !a.ClosedAt.IsZero():
			continue
		}
		b.touch(i)
		a.ClosedAt, a.Death = ev.DeadAt, true
	}
}

func (ev ReviewLate) apply(b *builder) error {
	r := b.e.Review
	if !r.Live() || r.Overdue || b.env.Now.Before(r.DueAt) {
		return b.illegal("no review is overdue")
	}
	r.Overdue = true
	if ev.Second != "" {
		r.Owner, r.State = ev.Second, ReviewOpen
	}
	b.entry("review_overdue", func(x *Entry) { x.Because = "overdue since " + clock(r.DueAt) + "; now with " + r.Owner })
	return nil
}
