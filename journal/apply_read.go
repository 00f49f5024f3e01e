package journal

import "time"

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
