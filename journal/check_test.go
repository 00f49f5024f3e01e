package journal

import (
	"testing"
	"time"
)

// history is what can be seen of a story.
func (s *story) history() History {
	h := History{Effects: []Effect{s.e}, Entries: s.log, Reads: s.reads, Honest: true, Bound: []Binding{{s.e.Key, s.e.Fingerprint}}}
	for i := range h.Entries {
		h.Entries[i].Seq = int64(i + 1)
	}
	for _, a := range s.e.Attempts {
		h.Sent = append(h.Sent, SentRow{a.Key, a.ID, a.Epoch, a.SentAt})
		h.Calls = append(h.Calls, Call{a.Key, a.ID, a.Epoch, a.SentAt.Add(time.Millisecond)})
	}
	return h
}

// broken says which invariants a history breaks.
func broken(h History) map[string]bool {
	out := map[string]bool{}
	for _, v := range Check(h) {
		out[v.Invariant] = true
		_ = v.String()
	}
	return out
}

// A history that the core itself makes breaks nothing, and each invariant is
// broken by a history of its own: the check can fail.
func TestCheckFindsEachBrokenInvariant(t *testing.T) {
	resent := func() *story {
		s := unknownEffect(t, strict()).absent().do(Resend{}).wait(time.Minute).sent()
		return s.do(s.answer(AnswerCommitted)).wait(3*time.Second).read(sees(s.now, ours("obj-1"))).is(Succeeded, FindingMatches)
	}
	if got := Check(resent().history()); len(got) != 0 {
		t.Fatalf("an honest history is said to break %v", got)
	}
	for _, c := range []struct {
		invariant, name string
		spoil           func(*History)
	}{
		{"I1", "two calls are open at once", func(h *History) {
			h.Effects[0].Attempts[0].State, h.Effects[0].Attempts[1].State = AttemptSent, AttemptSent
		}},
		{"I2", "a call without a durable row", func(h *History) { h.Sent = h.Sent[1:] }},
		{"I2", "a call before its row", func(h *History) { h.Sent[0].At = h.Calls[0].At.Add(time.Second) }},
		{"I2", "a call of another epoch", func(h *History) { h.Calls[0].Epoch++ }},
		{"I3", "one attempt called twice", func(h *History) { h.Calls = append(h.Calls, h.Calls[0]) }},
		{"I3", "more calls than attempts", func(h *History) { h.Calls = append(h.Calls, Call{Key: h.Calls[0].Key, Attempt: "a9"}) }},
		{"I4", "a second attempt while the first is in doubt", func(h *History) {
			h.Effects[0].Attempts[0].State, h.Effects[0].Attempts[0].ReleasedBy = AttemptTimedOut, ""
		}},
		{"I5", "success with another finding", func(h *History) { h.Effects[0].Finding = FindingAccepted }},
		{"I5", "success never verified", func(h *History) { h.Effects[0].Outcome.VerifiedAt = time.Time{} }},
		{"I5", "success without evidence", func(h *History) { h.Effects[0].Outcome.Evidence = "" }},
		{"I6", "absence without a verdict", func(h *History) { h.Reads = []Reconciliation{} }},
		{"I6", "absence by a transition that proves nothing", func(h *History) { h.Entries = transitionTo(h.Entries, ConfirmedAbsent, 19) }},
		{"I6", "an attestation by nobody", func(h *History) { h.Entries = transitionTo(h.Entries, ConfirmedAbsent, 29) }},
		{"I6", "confirmed_absent without evidence", func(h *History) { h.Effects[0].Phase = ConfirmedAbsent; h.Effects[0].Absence = nil }},
		{"I6", "confirmed_absent with an open question", func(h *History) {
			h.Effects[0].Phase, h.Effects[0].Absence = ConfirmedAbsent, &Absence{Ref: "x"}
		}},
		{"I7", "a key bound twice", func(h *History) { h.Bound = append(h.Bound, Binding{h.Effects[0].Key, "sha256:other"}) }},
		{"I8", "unknown without a next read", func(h *History) { h.Effects[0].Phase, h.Effects[0].Doubt = Unknown, nil }},
		{"I8", "needs_human without a review", func(h *History) { h.Effects[0].Phase, h.Effects[0].Review = NeedsHuman, nil }},
		{"I9", "dispatching from elsewhere", func(h *History) {
			h.Entries = append(h.Entries, Entry{Transition: 4, From: Unknown, To: Dispatching})
		}},
		{"I9", "unknown made authorized", func(h *History) {
			h.Entries = append(h.Entries, Entry{Transition: 24, From: Unknown, To: Authorized})
		}},
		{"I10", "an event is missing", func(h *History) { h.Entries = append(h.Entries[:2:2], h.Entries[3:]...) }},
		{"I10", "the chain forks", func(h *History) { h.Entries[1].PrevHash, h.Entries[0].Hash = "a", "b" }},
		{"I10", "the phase was changed without an event", func(h *History) { h.Effects[0].Phase = Abandoned }},
		{"I10", "a move that is not listed", func(h *History) { h.Entries[1].Transition = 30 }},
		{"I11", "two objects", func(h *History) { h.Objects = []Object{{Key: "k", ID: "1"}, {Key: "k", ID: "2"}} }},
		{"I11", "two objects after a lie, never found", func(h *History) {
			h.Objects = []Object{{Key: "k", ID: "1"}, {Key: "k", ID: "2"}}
			h.Honest, h.Now = false, noon
		}},
		{"I12", "open and nothing owed", func(h *History) { h.Effects[0].Phase, h.Effects[0].DueAt = Acknowledged, time.Time{} }},
		{"I12", "unknown for ever", func(h *History) {
			h.Effects[0].Phase, h.Effects[0].Doubt = Unknown, &Doubt{ResolveBy: noon, NextReadAt: noon}
			h.Now, h.Slack = noon.Add(48*time.Hour), time.Hour
		}},
		{"I12", "due and forgotten", func(h *History) {
			h.Effects[0].Phase, h.Effects[0].DueAt, h.Now = Authorized, noon, noon.Add(time.Hour)
		}},
		{"I13", "sent on positive evidence", func(h *History) {
			for i, x := range h.Entries {
				if x.Transition == 24 {
					h.Entries[i].Kind = "witness"
				}
			}
		}},
	} {
		t.Run(c.invariant+" "+c.name, func(t *testing.T) {
			h := resent().history()
			c.spoil(&h)
			if !broken(h)[c.invariant] {
				t.Errorf("not found; found %v", Check(h))
			}
		})
	}
}

func transitionTo(list []Entry, p Phase, n int) []Entry {
	for i := range list {
		if list[i].To == p {
			list[i].Transition = n
		}
	}
	return list
}

// What failed without a person's wish must have an owner.
func TestCheckFindsAFailureWithoutAnOwner(t *testing.T) {
	s := dispatching(t, strict())
	h := s.do(s.answer(AnswerRejected)).is(Failed, FindingRejected).history()
	if got := Check(h); len(got) != 0 {
		t.Fatalf("an owned failure is said to break %v", got)
	}
	h.Effects[0].Review = nil
	if !broken(h)["I8"] {
		t.Error("nobody missed the review")
	}
	c := begin(t, strict()).do(Cancel{})
	if got := Check(c.history()); len(got) != 0 {
		t.Errorf("a cancel needs no owner: %v", got)
	}
}

// A duplicate behind a lying lag is allowed only when it was found; objects that a repair undid do not count.
func TestCheckCountsDuplicates(t *testing.T) {
	s := unknownEffect(t, strict()).wait(time.Minute)
	h := s.read(sees(s.now, ours("1"), ours("2"))).is(NeedsHuman, FindingDuplicate).history()
	h.Objects, h.Honest, h.Now = []Object{{s.e.Key, "1", false}, {s.e.Key, "2", false}}, false, s.now
	if got := Check(h); len(got) != 0 {
		t.Errorf("a duplicate that was found is allowed when the lag was a lie: %v", got)
	}
	h.Honest, h.Objects[1].Undone = true, true
	if got := Check(h); len(got) != 0 {
		t.Errorf("an object that was undone is no second effect: %v", got)
	}
}

// The two mutants that are not the core's, as the check sees them: a row
// written after its call, and an orphan that sends after it was declared dead.
func TestCheckCatchesTheMutantsOfTheShell(t *testing.T) {
	s := dispatching(t, strict())
	s.do(s.answer(AnswerCommitted)).read(sees(s.now, ours("obj-1")))
	h := s.history()
	h.Sent[0].At = h.Calls[0].At.Add(time.Microsecond)
	if !broken(h)["I2"] {
		t.Error("a `sent` row after its call was not noticed")
	}
	o := dispatching(t, strict())
	o.do(Lost{Attempt: "a1", DeadAt: o.now}) // nobody made sure
	o.absent().do(Resend{}).wait(time.Minute).sent()
	o.do(o.answer(AnswerCommitted)).wait(3 * time.Second).read(sees(o.now, ours("obj-1")))
	g := o.history()
	g.Objects = []Object{{o.e.Key, "obj-1", false}, {o.e.Key, "of the orphan", false}}
	if !broken(g)["I11"] {
		t.Error("the orphan's object was not noticed")
	}
}
