package journal

import (
	"time"

	"github.com/settled-dev/settled/journal/mutant"
)

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

// ReadDone is where evidence changes what is known.
func (ev ReadDone) apply(b *builder) error {
	r := ev.Reading
	j := Judge(b.from, r, b.env.Policy)
	// In unknown only the destination's own word counts: it comes by webhook, unasked.
	told := b.from.Phase == Unknown && j.Verdict == VerdictEnded
	if !told && !b.in(Acknowledged, Verifying, Reconciling, Succeeded, Failed, RolledBack, Compensated, Abandoned) {
		return b.illegal("no read is expected")
	}
	b.recordRead(r, j)
	switch b.from.Phase {
	case Acknowledged:
		return b.readAcknowledged(r, j)
	case Verifying:
		return b.readVerifying(r, j)
	case Unknown:
		return b.readUnknown(r)
	case Reconciling:
		return b.readReconciling(r, j)
	}
	return b.readClosed(r, j)
}

// readUnknown is 14, or 18 and 21, on the destination's own operation record.
func (b *builder) readUnknown(r Reading) error {
	switch {
	case !endProves(b.e, r, b.env.Policy):
		return nil // noted; the reads decide
	case !r.Ended.MayResend:
		return b.ended(r)
	}
	if err := b.move(18, Reconciling); err != nil {
		return err
	}
	return b.absent(21, r.Evidence, "operation_record", r.BegunAt)
}

// ended is transition 14: the destination's own record says that the operation
// ran and had no effect. It rebuts what was said before, and settles the calls.
func (b *builder) ended(r Reading) error {
	b.e.Finding = FindingRejected
	b.rebut(orElse(r.Evidence, "operation_record"))
	b.settle(AttemptSettledAbsent, orElse(r.Evidence, "operation_record"))
	said := orElse(r.Ended.Message, r.Ended.Code)
	return b.fail(14, "the destination ended the operation without effect: "+said, true, "")
}

// endProves reports whether an operation record settles the effect: every call
// is closed, and where more than one is in doubt, none of them can land any more.
func endProves(e Effect, r Reading, p Policy) bool {
	if !allClosed(e) {
		return false
	}
	doubtful := 0
	for _, a := range e.Attempts {
		if !a.State.NoEffect() {
			doubtful++
		}
	}
	over := processingOver(e, p)
	return doubtful <= 1 || (!over.IsZero() && !r.BegunAt.Before(over))
}

func (b *builder) recordRead(r Reading, j Judgement) {
	permission := "unproven"
	if r.VisibilityProven {
		permission = "proven"
		if r.How == "assumed" {
			permission = "assumed"
		}
	}
	verdict := j.Verdict
	if verdict == VerdictEnded {
		verdict = VerdictAbsent
	}
	missing := j.Missing
	if j.Note != "" {
		missing = append(missing[:len(missing):len(missing)], j.Note)
	}
	b.e.Reads++
	b.ch.Reconciliations = append(b.ch.Reconciliations, Reconciliation{
		Key: b.e.Key, Number: b.e.Reads, Verdict: verdict, View: r.View, Complete: r.Complete, Permission: permission,
		Consistency: r.Consistency, Objects: len(r.Matches), BegunAt: r.BegunAt, ObservedAt: r.BegunAt, Source: r.Source,
		Evidence: r.Evidence, Missing: missing, Candidates: j.Candidates,
	})
}

func (b *builder) readAcknowledged(r Reading, j Judgement) error {
	switch j.Verdict {
	case VerdictMatches, VerdictPartial, VerdictDuplicate, VerdictConflicts:
		if err := b.move(12, Verifying); err != nil {
			return err
		}
		b.about("", r.Evidence)
		b.beginVerify(b.e.Outcome.ObjectID)
		return b.readVerifying(r, j)
	case VerdictEnded:
		switch {
		case !endProves(b.e, r, b.env.Policy): // read on
		case r.Ended.MayResend:
			return b.endedMayResend(13, r)
		default:
			return b.ended(r)
		}
	}
	if !b.env.Now.Before(b.e.Ack.Deadline) {
		return Overdue{}.apply(b.inPlace())
	}
	b.e.Ack.Polls++
	b.e.Ack.NextRead = b.env.Now.Add(max(r.PollAfter, r.RetryAfter))
	if max(r.PollAfter, r.RetryAfter) <= 0 {
		b.e.Ack.NextRead = timetable(b.e.Ack.At, b.env.Policy.Grace.Reads, b.env.Now, b.env.Jitter)
	}
	return nil
}

// inPlace lets one handler continue as another event on what is built so far.
func (b *builder) inPlace() *builder {
	b.from.Phase = b.e.Phase
	return b
}

// endedMayResend walks 13 or 16, 18 and 21 in one transaction: the
// destination's own record is absence evidence.
func (b *builder) endedMayResend(n int, r Reading) error {
	if err := b.doubtAgainQuietly(n, "the destination ended the operation without effect"); err != nil {
		return err
	}
	if err := b.move(18, Reconciling); err != nil {
		return err
	}
	return b.absent(21, r.Evidence, "operation_record", r.BegunAt)
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

func (b *builder) readVerifying(r Reading, j Judgement) error {
	switch j.Verdict {
	case VerdictMatches:
		return b.matched(r, j)
	case VerdictPartial, VerdictDuplicate, VerdictConflicts:
		if err := b.move(17, NeedsHuman); err != nil {
			return err
		}
		b.about("", r.Evidence)
		b.noteObject(j, r)
		b.wrong(findingOf(j.Verdict), j.Missing, j.Candidates)
		return nil
	case VerdictEnded:
		switch {
		case !endProves(b.e, r, b.env.Policy): // read on
		case r.Ended.MayResend:
			return b.endedMayResend(16, r)
		default:
			return b.ended(r)
		}
	}
	if !b.env.Now.Before(b.e.Verify.Deadline) {
		return Overdue{}.apply(b.inPlace())
	}
	b.e.Verify.Reads++
	b.e.Verify.NextRead = verifyAgain(*b.e.Verify, b.env)
	return nil
}

// verifyAgain reads again a lag later, then on the timetable.
func verifyAgain(v Verification, env Env) time.Time {
	t := timetable(v.Since, env.Policy.Grace.Reads, env.Now, env.Jitter)
	if again := v.Since.Add(confirmLag(env.Policy)); again.After(env.Now) && again.Before(t) {
		t = again
	}
	return earliest(t, v.Deadline)
}

// matched decides what a match is worth: the postcondition has the last word.
func (b *builder) matched(r Reading, j Judgement) error {
	b.noteObject(j, r)
	b.e.Finding = FindingMatches
	switch r.Postcondition {
	case PostconditionFails:
		if pastLag(b.e, r, b.env.Policy) {
			if err := b.move(17, NeedsHuman); err != nil {
				return err
			}
			b.about("", r.Evidence)
			b.wrong(FindingPostconditionFailed, []string{"the postcondition is false: " + orElse(r.Seen, "as read")}, []Match{*j.Match})
			return nil
		}
		fallthrough
	case PostconditionPending:
		if !b.env.Now.Before(b.e.Verify.Deadline) {
			return Overdue{}.apply(b.inPlace())
		}
		b.e.Verify.Reads++
		b.e.Verify.NextRead = verifyAgain(*b.e.Verify, b.env)
		return nil
	}
	b.setOutcome(func(o *Outcome) {
		o.VerifiedAt, o.Source, o.Evidence, o.Waived = b.env.Now, "read", r.Evidence, false
	})
	return b.succeed(15, r.Evidence)
}

// noteObject writes what a read showed of our object into the outcome.
func (b *builder) noteObject(j Judgement, r Reading) {
	m := j.Match
	if m == nil || j.Verdict == VerdictConflicts { // what conflicts is not ours: it is a candidate of the review
		return
	}
	b.setOutcome(func(o *Outcome) {
		o.ObjectID, o.ObjectType, o.URL, o.ProviderState = m.ObjectID, orElse(m.ObjectType, o.ObjectType), orElse(m.URL, o.URL), m.State
		o.Postcondition = orElse(r.Seen, string(r.Postcondition))
		o.Source, o.Evidence = "read", r.Evidence
	})
}

func findingOf(v Verdict) Finding {
	switch v {
	case VerdictMatches:
		return FindingMatches
	case VerdictPartial:
		return FindingPartial
	case VerdictDuplicate:
		return FindingDuplicate
	case VerdictConflicts:
		return FindingConflicts
	case VerdictAbsent, VerdictEnded:
		return FindingAbsent
	}
	return FindingUnknown
}

func (b *builder) readReconciling(r Reading, j Judgement) error {
	d := b.e.Doubt
	b.countRead(r, j)
	switch j.Verdict {
	case VerdictMatches:
		if err := b.move(20, Verifying); err != nil {
			return err
		}
		b.about("", r.Evidence)
		b.e.Positive = &Positive{At: b.env.Now, What: "match"}
		b.beginVerify(j.Match.ObjectID)
		return b.matched(r, j)
	case VerdictPartial, VerdictDuplicate, VerdictConflicts:
		return b.readWrong(r, findingOf(j.Verdict), j)
	case VerdictAbsent:
		return b.absent(21, r.Evidence, "read", r.BegunAt)
	case VerdictEnded:
		switch {
		case !endProves(b.e, r, b.env.Policy):
			d.Missing = []string{"the destination says an operation ended without effect, but a call may still land"}
		case r.Ended.MayResend:
			return b.absent(21, r.Evidence, "operation_record", r.BegunAt)
		default:
			return b.ended(r)
		}
	}
	if len(j.Candidates) >= 2 && r.Complete {
		d.Taken = true
		return b.backToDoubt("look-alikes without a unique match", j.Candidates)
	}
	if j.Agreed && b.e.Positive.stands() {
		return b.readWrong(r, FindingConflicts, Judgement{Missing: []string{
			"complete reads see nothing although there is evidence that it happened (" + b.e.Positive.What + ")",
		}})
	}
	if err := b.backToDoubt(firstOf(d.Missing), j.Candidates); err != nil {
		return err
	}
	if wait := max(r.RetryAfter, r.PollAfter); wait > 0 && !d.NextReadAt.IsZero() {
		d.NextReadAt = later(d.NextReadAt, b.env.Now.Add(wait))
	}
	return nil
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// countRead keeps the memory of the doubt: the first supporting read, the
// streak of failures, and the time during which nothing could be read.
func (b *builder) countRead(r Reading, j Judgement) {
	d := b.e.Doubt
	d.Reads++
	d.Missing = j.Missing
	if j.Verdict == VerdictReadFailed {
		d.ReadFailed++
		d.Paused += b.env.Now.Sub(later(d.LastRead, d.Since))
	} else {
		d.ReadFailed = 0
	}
	d.LastRead = b.env.Now
	if j.Verdict != VerdictReadFailed && d.Fence == fenceIntended {
		d.Fence = fenceRead
	}
	switch {
	case j.Supports:
		settle, _ := SettleNotBefore(b.e, b.env.Policy)
		settle = settle.Add(extraLag(r, b.env.Policy))
		if d.FirstAbsent == nil || !agreesWith(*d.FirstAbsent, r) ||
			beforeGrace(*d.FirstAbsent, b.e, b.env.Policy, isStrong(r, b.env.Policy), settle) {
			d.FirstAbsent = &AbsentRead{
				BegunAt: r.BegunAt, EndedAt: r.EndedAt, View: r.View, FilterSHA256: r.FilterSHA256,
				Subject: r.Principal, Evidence: r.Evidence,
			}
		}
	case j.Verdict != VerdictReadFailed:
		d.FirstAbsent = nil
	}
}

func agreesWith(f AbsentRead, r Reading) bool {
	return f.View == r.View && f.FilterSHA256 == r.FilterSHA256 && f.Subject == r.Principal
}

// readWrong is transition 22 with a contradicting finding.
func (b *builder) readWrong(r Reading, f Finding, j Judgement) error {
	d := *b.e.Doubt
	if err := b.move(22, NeedsHuman); err != nil {
		return err
	}
	b.about("", r.Evidence)
	d.LeaseUntil, d.NextReadAt = time.Time{}, time.Time{}
	b.e.Doubt = &d
	b.noteObject(j, r)
	b.wrong(f, j.Missing, j.Candidates)
	return nil
}

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

// readClosed is the audit: evidence against what was closed raises it again.
func (b *builder) readClosed(r Reading, j Judgement) error {
	done := b.from.Phase == Succeeded
	switch j.Verdict {
	case VerdictDuplicate, VerdictConflicts, VerdictPartial:
		b.noteObject(j, r)
		return b.contradict(findingOf(j.Verdict), firstOf(j.Missing), j.Candidates, r.Evidence)
	case VerdictMatches:
		switch {
		case done && r.Postcondition == PostconditionFails:
			return b.contradict(FindingPostconditionFailed, "the postcondition is false now: "+r.Seen, []Match{*j.Match}, r.Evidence)
		case done:
			b.noteObject(j, r)
			b.setOutcome(func(o *Outcome) { o.VerifiedAt, o.Waived, o.Attested = b.env.Now, false, false })
			b.e.Finding = FindingMatches
			return nil
		case b.from.Phase == Abandoned, b.from.Phase == Compensated:
			return nil // its residual finding is known; a compensation leaves the object where it is
		}
		return b.contradict(FindingConflicts, "an object exists although this was closed as not done", []Match{*j.Match}, r.Evidence)
	}
	if done && (j.Verdict == VerdictAbsent || j.NoneSeen) {
		return b.contradict(FindingConflicts, "the object is not there any more", nil, r.Evidence)
	}
	return nil
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
