package journal

import (
	"fmt"
	"slices"
	"time"
)

// History is everything that can be observed of some effects: what the journal
// says, what adapters were asked to do and what destinations hold. Any part may
// be left out; then the invariants that need it are not judged. Tests and the
// simulator fill all of it, `journal verify` what a journal holds.
type History struct {
	Effects []Effect         // as they are at the end, attempts included
	Entries []Entry          // the whole chain, in its order
	Reads   []Reconciliation // in order
	Sent    []SentRow        // `sent` rows that became durable
	Calls   []Call           // calls to an adapter's Dispatch, as the adapter saw them
	Objects []Object         // what the destinations hold, by the key that made it
	Bound   []Binding        // every fingerprint that a key was ever seen with

	// Honest says that the adapters told the truth and that declared lags and
	// bounds were true: then no destination may ever hold two effects of a key.
	Honest bool
	// Now ends a history that ran on under a fair clock until nothing was due;
	// zero = it was cut off, and nothing that has yet to happen is missed.
	Now time.Time
	// Slack is how much later than due something may be at Now.
	Slack time.Duration
}

// SentRow is the durable row that must precede a call.
type SentRow struct {
	Key, Attempt string
	Epoch        int64
	At           time.Time // when its COMMIT returned
}

// Call is one call to an adapter's Dispatch.
type Call struct {
	Key, Attempt string
	Epoch        int64
	At           time.Time
}

// Object is one thing at a destination that an effect made.
type Object struct {
	Key, ID string
	Undone  bool // by a repair: it does not count as a second effect
}

// Binding is a fingerprint under which a key was seen.
type Binding struct{ Key, Fingerprint string }

// Violation is one invariant that a history breaks.
type Violation struct {
	Invariant string // I1 … I13
	Key       string
	What      string
}

func (v Violation) String() string { return v.Invariant + " " + v.Key + ": " + v.What }

// checker collects violations; everything else is read only.
type checker struct {
	History
	byKey map[string][]Entry
	found []Violation
}

// Check holds a history against the invariants I1 to I13 of the model and
// returns every breach, in the order of the invariants. It never panics,
// whatever it is given.
func Check(h History) []Violation {
	c := &checker{History: h, byKey: map[string][]Entry{}}
	for _, x := range h.Entries {
		c.byKey[x.Key] = append(c.byKey[x.Key], x)
	}
	c.oneOpenAttempt()
	c.durableBeforeCall()
	c.callsWithinAttempts()
	c.attemptsReleased()
	c.successProved()
	c.absenceProved()
	c.fingerprintsConstant()
	c.noLimbo()
	c.onlyThroughTheGate()
	c.oneEventEach()
	c.oneEffectEach()
	c.alive()
	c.noSendOnEvidence()
	return c.found
}

func (c *checker) add(invariant, key, format string, args ...any) {
	c.found = append(c.found, Violation{invariant, key, fmt.Sprintf(format, args...)})
}

// oneOpenAttempt is I1: at most one attempt is `sent` and open per effect.
func (c *checker) oneOpenAttempt() {
	for _, e := range c.Effects {
		open := 0
		for _, a := range e.Attempts {
			if a.State == AttemptSent {
				open++
			}
		}
		if open > 1 {
			c.add("I1", e.Key, "%d attempts are sent and open", open)
		}
	}
}

// durableBeforeCall is I2: every call is preceded by a durable `sent` row with that attempt and epoch.
func (c *checker) durableBeforeCall() {
	rows := map[string]SentRow{}
	for _, r := range c.Sent {
		rows[r.Attempt] = r
	}
	for _, call := range c.Calls {
		r, ok := rows[call.Attempt]
		switch {
		case !ok:
			c.add("I2", call.Key, "attempt %s was called and no `sent` row is durable", call.Attempt)
		case r.Key != call.Key || r.Epoch != call.Epoch:
			c.add("I2", call.Key, "attempt %s was called as epoch %d, its row says %s, epoch %d", call.Attempt, call.Epoch, r.Key, r.Epoch)
		case r.At.After(call.At):
			c.add("I2", call.Key, "attempt %s was called %s before its row was durable", call.Attempt, r.At.Sub(call.At))
		}
	}
}

// callsWithinAttempts is I3: calls never outnumber the attempts that reached `sent`.
func (c *checker) callsWithinAttempts() {
	if c.Sent == nil && c.Effects == nil {
		return
	}
	sent, perAttempt, perKey := map[string]int{}, map[string]int{}, map[string]int{}
	for _, r := range c.Sent {
		sent[r.Key]++
	}
	for _, e := range c.Effects {
		n := 0
		for _, a := range e.Attempts {
			if !a.SentAt.IsZero() && !a.Presumed() {
				n++
			}
		}
		sent[e.Key] = max(sent[e.Key], n)
	}
	var keys []string
	for _, call := range c.Calls {
		if perKey[call.Key] == 0 {
			keys = append(keys, call.Key)
		}
		perKey[call.Key]++
		if perAttempt[call.Attempt]++; perAttempt[call.Attempt] == 2 {
			c.add("I3", call.Key, "attempt %s was called more than once", call.Attempt)
		}
	}
	for _, k := range keys {
		if perKey[k] > sent[k] {
			c.add("I3", k, "%d calls for %d attempts that reached sent", perKey[k], sent[k])
		}
	}
}

// attemptsReleased is I4: attempt n+1 exists only if attempt n is known to have
// had no effect. A replay (40) and an attempt presumed after a restore are the named exceptions.
func (c *checker) attemptsReleased() {
	for _, e := range c.Effects {
		for i := 1; i < len(e.Attempts); i++ {
			prev, next := e.Attempts[i-1], e.Attempts[i]
			if next.Replay || next.Presumed() || prev.State.NoEffect() || prev.ReleasedBy != "" {
				continue // released_by stays when the evidence is doubted later
			}
			c.add("I4", e.Key, "attempt %d exists although attempt %d is %s", next.Number, prev.Number, prev.State)
		}
	}
}

// successProved is I5: succeeded implies matching evidence and a true postcondition, or the declared waiver.
func (c *checker) successProved() {
	for _, e := range c.Effects {
		o := e.Outcome
		switch {
		case e.Phase != Succeeded || o.Waived:
		case e.Finding != FindingMatches:
			c.add("I5", e.Key, "succeeded with finding %s and no waiver", e.Finding)
		case o.VerifiedAt.IsZero():
			c.add("I5", e.Key, "succeeded without a verified postcondition")
		case o.Evidence == "" && !o.Attested:
			c.add("I5", e.Key, "succeeded without evidence")
		}
	}
}

// absenceProved is I6: confirmed_absent implies a reconciliation that met the guard, a fence or a person's attestation.
func (c *checker) absenceProved() {
	absent := map[string]bool{}
	for _, r := range c.Reads {
		absent[r.Key] = absent[r.Key] || r.Verdict == VerdictAbsent
	}
	for _, x := range c.Entries {
		if x.To != ConfirmedAbsent {
			continue
		}
		switch x.Transition {
		case 21:
			if c.Reads != nil && !absent[x.Key] {
				c.add("I6", x.Key, "confirmed absent (21) without a reconciliation that says so")
			}
		case 29:
			if x.ActorKind != Human || x.Evidence == "" {
				c.add("I6", x.Key, "attested absent (29) by %q without being a person with evidence", x.Actor)
			}
		case 39:
		default:
			c.add("I6", x.Key, "confirmed absent by transition %d, which proves nothing", x.Transition)
		}
	}
	for _, e := range c.Effects {
		if e.Phase != ConfirmedAbsent {
			continue
		}
		if e.Absence == nil || e.Absence.Ref == "" {
			c.add("I6", e.Key, "confirmed_absent carries no evidence")
		} else if e.MayHaveBeenSent() {
			c.add("I6", e.Key, "confirmed_absent with an attempt that is not settled")
		}
	}
}

// fingerprintsConstant is I7: a key's fingerprint never changes.
func (c *checker) fingerprintsConstant() {
	first := map[string]string{}
	see := func(b Binding) {
		if f, ok := first[b.Key]; ok && f != b.Fingerprint {
			c.add("I7", b.Key, "bound to %s and to %s", f, b.Fingerprint)
			return
		}
		first[b.Key] = b.Fingerprint
	}
	for _, b := range c.Bound {
		see(b)
	}
	for _, e := range c.Effects {
		see(Binding{e.Key, e.Fingerprint})
	}
}

// noLimbo is I8: what must be carried is carried, and what failed has an owner unless a person ended it.
func (c *checker) noLimbo() {
	for _, e := range c.Effects {
		if why := limbo(e); why != "" {
			c.add("I8", e.Key, "%s", why)
		}
		if e.Phase != Failed || e.Review != nil {
			continue
		}
		for _, x := range slices.Backward(c.byKey[e.Key]) {
			if x.Transition == 0 {
				continue
			}
			if x.owned() {
				c.add("I8", e.Key, "failed by transition %d and nobody owns it", x.Transition)
			}
			break
		}
	}
}

// onlyThroughTheGate is I9: dispatching only from authorized; authorized only from prepared, dispatching and confirmed_absent.
func (c *checker) onlyThroughTheGate() {
	for _, x := range c.Entries {
		ok := true
		switch x.To {
		case Dispatching:
			ok = x.From == Authorized && x.Transition == 4
		case Authorized:
			ok = (x.From == Prepared && x.Transition == 2) || (x.From == Dispatching && x.Transition == 7) ||
				(x.From == ConfirmedAbsent && x.Transition == 24)
		}
		if !ok {
			c.add("I9", x.Key, "reached %s from %s by transition %d", x.To, orElse(string(x.From), "new"), x.Transition)
		}
	}
}

// oneEventEach is I10: every transition has exactly one event, and the chain is linear.
func (c *checker) oneEventEach() {
	at := map[string]Phase{}
	for i, x := range c.Entries {
		if i > 0 {
			if prev := c.Entries[i-1]; x.Seq != 0 && prev.Seq != 0 && x.Seq != prev.Seq+1 {
				c.add("I10", x.Key, "event %d follows event %d", x.Seq, prev.Seq)
			} else if x.PrevHash != "" && prev.Hash != "" && x.PrevHash != prev.Hash {
				c.add("I10", x.Key, "event %d does not continue the chain", x.Seq)
			}
		}
		if x.Transition == 0 {
			continue
		}
		switch {
		case x.From != at[x.Key]:
			c.add("I10", x.Key, "transition %d begins in %s, the effect was in %s", x.Transition, orElse(string(x.From), "new"), orElse(string(at[x.Key]), "new"))
		case !legal(x.Transition, x.From, x.To):
			c.add("I10", x.Key, "transition %d from %s to %s is not in the model", x.Transition, orElse(string(x.From), "new"), x.To)
		}
		at[x.Key] = x.To
	}
	if c.Entries == nil {
		return
	}
	for _, e := range c.Effects {
		if at[e.Key] != e.Phase {
			c.add("I10", e.Key, "it is %s and its last event says %s", e.Phase, orElse(string(at[e.Key]), "nothing"))
		}
	}
}

// oneEffectEach is I11: with honest adapters a destination never holds two
// effects of a key; with lying ones the duplicate is found in the end.
func (c *checker) oneEffectEach() {
	held := map[string][]string{}
	var keys []string
	for _, o := range c.Objects {
		if o.Undone || slices.Contains(held[o.Key], o.ID) {
			continue
		}
		if held[o.Key] == nil {
			keys = append(keys, o.Key)
		}
		held[o.Key] = append(held[o.Key], o.ID)
	}
	for _, k := range keys {
		if len(held[k]) < 2 {
			continue
		}
		switch {
		case c.Honest:
			c.add("I11", k, "the destination holds %d effects: %v", len(held[k]), held[k])
		case !c.Now.IsZero() && !c.duplicateFound(k):
			c.add("I11", k, "the destination holds %v and nobody was told", held[k])
		}
	}
}

// duplicateFound reports whether the effect was ever handed to a person because of more than one object.
func (c *checker) duplicateFound(key string) bool {
	for _, e := range c.Effects {
		if e.Key == key && (e.Finding == FindingDuplicate || len(e.Repairs) > 0 || e.Phase == Abandoned) {
			return true
		}
	}
	for _, r := range c.Reads {
		if r.Key == key && r.Verdict == VerdictDuplicate {
			return true
		}
	}
	return false
}

// alive is I12: every open phase has due_at or a review, and under a fair clock nothing stays unknown.
func (c *checker) alive() {
	for _, e := range c.Effects {
		if !e.Phase.Closed() && e.Phase != Repairing && e.DueAt.IsZero() && !e.Review.Live() {
			c.add("I12", e.Key, "%s has neither due_at nor a review", e.Phase)
		}
		if c.Now.IsZero() {
			continue
		}
		late := c.Now.Add(-c.Slack)
		doubtful := e.Phase == Unknown || e.Phase == Reconciling
		switch {
		case doubtful && e.Doubt != nil && e.Doubt.ResolveBy.Before(late):
			c.add("I12", e.Key, "still %s, though it had to be resolved by %s", e.Phase, e.Doubt.ResolveBy.UTC().Format(time.RFC3339))
		case !e.DueAt.IsZero() && e.DueAt.Before(late):
			c.add("I12", e.Key, "%s was due (%s) at %s and nothing happened", e.Phase, e.Due, e.DueAt.UTC().Format(time.RFC3339))
		}
	}
}

// noSendOnEvidence is I13: no send on unrebutted positive evidence.
func (c *checker) noSendOnEvidence() {
	standing := map[string]string{}
	for _, x := range c.Entries {
		switch {
		case x.Transition == 4 || (x.Transition == 40 && x.From == Unknown):
			if what := standing[x.Key]; what != "" {
				c.add("I13", x.Key, "attempt %s was sent although %s", x.Attempt, what)
			}
		case x.To == ConfirmedAbsent, x.Transition == 14: // rebutted, or the guard did not hold (I6)
			delete(standing, x.Key)
		case x.speaksFor():
			standing[x.Key] = fmt.Sprintf("event %d (%s %d) said that it happened", x.Seq, x.Kind, x.Transition)
		}
	}
}

// speaksFor reports whether the entry is positive evidence.
func (x Entry) speaksFor() bool {
	switch x.Transition {
	case 9, 10, 12, 20, 27, 30:
		return true
	}
	return x.Kind == "witness" || (x.Kind == "late_answer" && (x.Because == lateSaid(AnswerCommitted) || x.Because == lateSaid(AnswerAccepted)))
}

func lateSaid(c AnswerClass) string { return "late answer: " + string(c) }
