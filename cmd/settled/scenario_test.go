package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/cutproxy"
	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/sdk/client"
)

// absence is the state of an attempt that was proved to have had no effect.
const absence = "settled_absent"

func attemptStates(e client.Effect) (states []string) {
	for _, a := range e.Attempts {
		states = append(states, a.State)
	}
	return states
}

// verdicts are the answers of all reads, in order.
func verdicts(e client.Effect) (out []string) {
	for _, r := range e.Reconciliations {
		out = append(out, r.Verdict)
	}
	return out
}

func TestScenario01AnswerLostAfterCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	const ticket, tag = "ticket:SUP-1:create:v1", "release:app-1.0:tag:v1"
	r.ticket(ticket, "lost-answer")
	r.tag(tag, desk.LostAnswer)
	r.isUnknown(ticket)
	for _, key := range []string{ticket, tag} {
		e := r.doneOnce(key, 1)
		r.went(key, "dispatching", "unknown", "reconciling", "verifying", "succeeded")
		if got := attemptStates(e); !slices.Equal(got, []string{"settled_present"}) {
			t.Errorf("%s: attempts %v", key, got)
		}
	}
}

func TestScenario02RequestLostBeforeCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	const ticket, tag = "ticket:SUP-2:create:v1", "release:app-2.0:tag:v1"
	r.ticket(ticket, "lost-request")
	r.tag(tag, desk.LostRequest)
	doubt := r.isUnknown(ticket)
	if doubt.Unknown.SettleNotBefore == nil {
		t.Fatal("no moment is named from which absence may be believed")
	}
	for _, key := range []string{ticket, tag} {
		e := r.doneOnce(key, 2)
		r.went(key, "dispatching", "unknown", "reconciling", "unknown", "reconciling", "confirmed_absent", "authorized", "dispatching", "verifying", "succeeded")
		if got := attemptStates(e); len(got) != 2 || got[0] != absence || e.Attempts[0].ReleasedBy == nil {
			t.Errorf("%s: attempts %v, the first released by %v", key, got, e.Attempts[0].ReleasedBy)
		}
		if v := verdicts(e); !slices.Contains(v, "unknown") || !slices.Contains(v, "absent") {
			t.Errorf("%s: verdicts %v: want an early empty read that was not believed, and a later one that was", key, v)
		}
	}
	calls := r.entry(ticket).Requests
	if calls[0].IdempotencyKey != ticket || calls[1].IdempotencyKey != ticket {
		t.Errorf("the two calls carried the keys %q and %q", calls[0].IdempotencyKey, calls[1].IdempotencyKey)
	}
	if calls[1].At.Before(*doubt.Unknown.SettleNotBefore) {
		t.Errorf("sent again at %v, before %v", calls[1].At, *doubt.Unknown.SettleNotBefore)
	}
}

func TestScenario03LateCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{tweaks: []string{`max_processing   = "1s" `, `max_processing   = "4s" `}})
	const key = "ticket:SUP-3:create:v1"
	r.ticket(key, "late-commit:2500ms")
	e := r.doneOnce(key, 1)
	committed := r.entry(key).Commits[0].At
	early := 0
	for _, read := range e.Reconciliations {
		if read.Objects == 0 && read.ObservedAt != nil && read.ObservedAt.Before(committed) {
			early++
			if read.Verdict != "unknown" {
				t.Errorf("an early empty read was believed: %+v", read)
			}
		}
	}
	if early == 0 {
		t.Errorf("no read came before the commit, so nothing was tested: %v", verdicts(e))
	}
}

func TestScenario04KilledBeforeRecordingTheAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{tweaks: []string{`timeout        = "2s"`, `timeout        = "20s"`}})
	const key = "ticket:SUP-4:create:v1"
	// The desk has answered with the ticket's id; the answer is on its way when the daemon dies.
	r.proxy.SetPlan(cutproxy.Script(cutproxy.Writes, cutproxy.Action{Kind: cutproxy.DelayAnswer, Delay: 15 * time.Second}))
	r.ticket(key)
	r.waitLedger(key, "a commit", func(e desk.Entry) bool { return len(e.Commits) == 1 })
	before := r.until(key, "is sent", func(e client.Effect) bool { return e.Phase == "dispatching" }, "dispatching")
	r.must(r.KillDaemon())
	r.must(r.StartDaemon(r.ctx))
	e := r.doneOnce(key, 1)
	r.went(key, "dispatching", "unknown", "reconciling", "verifying", "succeeded")
	if _, because := r.path(key); because["unknown"] != "crash" {
		t.Errorf("unknown because %q, want crash", because["unknown"])
	}
	if len(e.Attempts) != 1 || e.Attempts[0].ID != before.Attempts[0].ID || e.Attempts[0].Epoch != before.Attempts[0].Epoch {
		t.Errorf("attempts before %+v and after %+v", before.Attempts, e.Attempts)
	}
	st, err := r.c.Status(r.ctx)
	r.must(err)
	if st.Epoch <= e.Attempts[0].Epoch {
		t.Errorf("the restarted daemon has epoch %d, the attempt %d", st.Epoch, e.Attempts[0].Epoch)
	}
}

func TestScenario05RejectedBeforeCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	const key, other = "ticket:SUP-5:create:v1", "ticket:SUP-6:create:v1"
	r.ticket(key, "invalid")
	e := r.rests(key, "failed")
	if e.Standing != "not_started" || e.Finding != "rejected" || e.Next == nil || e.Next.What != "escalate" {
		t.Errorf("standing %s, finding %s, next %+v", e.Standing, e.Finding, e.Next)
	}
	if e.Review == nil || e.Review.Kind != "exception" || e.Review.Owner != "support-ops" || e.Review.DueAt == nil {
		t.Errorf("a failure without an owner: %+v", e.Review)
	}
	if got := attemptStates(e); !slices.Equal(got, []string{"rejected"}) {
		t.Errorf("attempts %v", got)
	}
	r.ticket(other, "lost-answer") // a whole cycle of another effect goes by
	r.doneOnce(other, 1)
	r.truth(key, 1, 0)
	r.neverBlind(e)
}

func TestScenario10ReadReplicaLags(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{
		desk: []string{"--lag", "2400ms"},
		tweaks: []string{
			`lag              = "300ms"`, `lag              = "2500ms"`,
			`lag            = "300ms"`, `lag            = "2500ms"`,
		},
	})
	const key = "ticket:SUP-10:create:v1"
	r.ticket(key, "lost-answer")
	e := r.doneOnce(key, 1)
	committed := r.entry(key).Commits[0].At
	if i := slices.IndexFunc(e.Reconciliations, func(x client.Reconciliation) bool {
		return x.Objects == 0 && x.Verdict == "unknown" && x.ObservedAt.After(committed)
	}); i < 0 {
		t.Errorf("no read was empty after the commit, so nothing was tested: %v", verdicts(e))
	}
}

func TestScenario10LyingLagMakesADuplicateThatIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	const key, queued = "ticket:SUP-11:create:v1", "ticket:SUP-12:create:v1"
	// The first ticket reaches the list 8 s late, although the desk declares
	// 300 ms, and its answer is lost. After the second, nothing can be read until
	// both can be seen.
	var first time.Time
	writes := 0
	r.proxy.SetPlan(func(q cutproxy.Request) cutproxy.Action { // one call at a time
		switch {
		case cutproxy.Writes(q) && q.Key == key:
			if writes++; writes == 1 {
				first = time.Now()
				return cutproxy.Action{Kind: cutproxy.AfterForward}
			}
		case writes == 2 && time.Since(first) < 9400*time.Millisecond:
			return cutproxy.Action{Kind: cutproxy.BeforeForward}
		}
		return cutproxy.Action{}
	})
	r.ticket(key, "lying-lag:8s")
	e := r.rests(key, "needs_human")
	if e.Finding != "duplicate" || e.Standing != "contradicted" || e.Review == nil || len(e.Review.Candidates) != 2 {
		t.Fatalf("finding %s, standing %s, review %+v", e.Finding, e.Standing, e.Review)
	}
	r.truth(key, 2, 2) // a lie about the lag makes a duplicate; that it is found is what can be promised
	r.neverBlind(e)
	holds, err := r.c.Holds(r.ctx)
	r.must(err)
	if !slices.ContainsFunc(holds, func(h client.Hold) bool { return h.Scope == "account:desk/acme" }) {
		t.Errorf("the account is not held: %+v", holds)
	}
	r.ticket(queued)
	time.Sleep(500 * time.Millisecond) // what is held must not be sent; there is no event to wait for
	r.truth(queued, 0, 0)
}

func TestScenario12AnswersThatProveNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{tweaks: []string{`verify_deadline  = "1m"`, `verify_deadline  = "3s"`}})
	for _, fault := range []string{"error-500", "error-502", "garbled", "truncated"} {
		r.ticket("ticket:"+fault+":create:v1", fault)
	}
	r.ticket("ticket:drop-ref:create:v1", "drop-ref")
	r.ticket("ticket:drop-body:create:v1", "drop-body")
	for _, fault := range []string{"error-500", "error-502", "garbled", "truncated"} {
		key := "ticket:" + fault + ":create:v1"
		r.doneOnce(key, 1)
		r.went(key, "dispatching", "unknown", "reconciling", "verifying", "succeeded")
	}
	for fault, finding := range map[string]string{"drop-body": "partial", "drop-ref": "conflicts"} {
		key := "ticket:" + fault + ":create:v1"
		e := r.rests(key, "needs_human")
		if e.Finding != finding || e.Standing != "contradicted" || e.Review == nil || e.Review.Owner == "" || e.Review.DueAt == nil {
			t.Errorf("%s: finding %s, standing %s, review %+v", key, e.Finding, e.Standing, e.Review)
		}
		r.truth(key, 1, 1)
		r.neverBlind(e)
		phases, _ := r.path(key)
		if slices.Contains(phases, "succeeded") {
			t.Errorf("%s was called succeeded: %v", key, phases)
		}
	}
}

func TestScenario13OneRequestPerDispatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.ticket("ticket:SUP-20:create:v1") // warms up connections, on which HTTP libraries send again by themselves
	r.doneOnce("ticket:SUP-20:create:v1", 1)
	const key = "ticket:SUP-21:create:v1"
	r.proxy.SetPlan(func(q cutproxy.Request) cutproxy.Action {
		if cutproxy.Writes(q) && q.Key == key && q.Time <= 2 {
			return cutproxy.Action{Kind: cutproxy.BeforeForward}
		}
		return cutproxy.Action{}
	})
	r.ticket(key)
	e := r.doneOnce(key, 1) // the desk saw the third only
	var sent []cutproxy.Event
	for _, ev := range r.proxy.Events() {
		if cutproxy.Writes(ev.Request) && ev.Request.Key == key {
			sent = append(sent, ev)
		}
	}
	if len(sent) != 3 || len(e.Attempts) != 3 {
		t.Fatalf("%d requests on the wire, %d attempts in the journal, want 3 and 3", len(sent), len(e.Attempts))
	}
	for i, a := range e.Attempts {
		if sent[i].At.Before(*a.SentAt) || i+1 < len(sent) && !sent[i+1].At.After(*a.ClosedAt) {
			t.Errorf("request %d of %v is not the one of attempt %d (%v to %v)", i+1, sent[i].At, a.Number, a.SentAt, a.ClosedAt)
		}
	}
}

func TestScenario45StoppedInTheMiddleOfCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{
		tweaks: []string{`timeout        = "2s"`, `timeout        = "20s"`},
		extra:  "[daemon]\nstop_budget = \"2s\"",
	})
	const drained, parked, queued = "ticket:SUP-30:create:v1", "ticket:SUP-31:create:v1", "ticket:SUP-32:create:v1"
	r.must(r.c.Hold(r.ctx, "key:"+queued, "it shall wait"))
	r.ticket(queued)
	r.ticket(parked, "hang-commit")
	r.waitLedger(parked, "a commit", func(e desk.Entry) bool { return len(e.Commits) == 1 })
	r.proxy.SetPlan(func(q cutproxy.Request) cutproxy.Action {
		if q.Key == drained {
			return cutproxy.Action{Kind: cutproxy.DelayAnswer, Delay: time.Second}
		}
		return cutproxy.Action{}
	})
	r.ticket(drained)
	r.waitLedger(drained, "a commit", func(e desk.Entry) bool { return len(e.Commits) == 1 })
	begun := time.Now()
	status, log, err := r.StopDaemon(20 * time.Second)
	r.must(err)
	if took := time.Since(begun); status != 0 || took < 1500*time.Millisecond || took > 5*time.Second {
		t.Errorf("status %d after %v, want 0 when the budget of 2 s is over\n%s", status, took, log)
	}
	if !strings.Contains(log, "parked") || !strings.Contains(log, "in_flight=1") {
		t.Errorf("the log does not say what was left:\n%s", log)
	}
	r.must(r.StartDaemon(r.ctx))
	r.doneOnce(drained, 1)
	r.went(drained, "dispatching", "verifying", "succeeded")
	if phases, _ := r.path(drained); slices.Contains(phases, "unknown") {
		t.Errorf("the drained call became unknown: %v", phases)
	}
	r.doneOnce(parked, 1)
	if _, because := r.path(parked); because["unknown"] != "stop" {
		t.Errorf("unknown because %q, want stop", because["unknown"])
	}
	r.truth(queued, 0, 0)
}
