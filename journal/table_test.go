package journal

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

func kinds() []Kind {
	return []Kind{
		KindSubmit, KindAuthorize, KindRefuse, KindSend, KindWithdraw, KindExpire, KindCancel, KindOutage, KindDefer,
		KindAnswer, KindLost, KindCallEnded, KindWitness, KindOverdue, KindReadBegin, KindReadDone, KindReadAgain, KindLeaseEnd,
		KindEscalate, KindResend, KindGiveUp, KindDoubt, KindDecide, KindReviewLate, KindRepairDone, KindContradict,
		KindFenceBegin, KindFenceDone, KindReplaySend, KindRestore, KindGraceRestart,
	}
}

// scene is an effect at a time, under a policy.
type scene struct {
	e      Effect
	now    time.Time
	policy Policy
}

func (s *story) scene() scene { return scene{s.e, s.now, s.policy} }

func fencing() Policy { p := strict(); p.Settle = SettleFence; return p }

func replaying() Policy {
	p := strict()
	p.Settle, p.ReplaysFirst, p.DedupeWindow = SettleReplay, true, span(24*time.Hour)
	return p
}

func blind() Policy { p := strict(); p.HasRead = false; return p }

func acked() Policy { p := strict(); p.Proof = ProofAck; return p }

// scenes are representative effects of every phase, each reached by events.
func scenes(t testing.TB) []scene {
	unsure := func(p Policy) *story { return unknownEffect(t, p) }
	done := func() *story {
		s := dispatching(t, strict())
		return s.do(s.answer(AnswerCommitted)).wait(time.Second).read(sees(s.now, ours("obj-1")))
	}
	wrong := func(ms ...Match) *story {
		s := unsure(strict())
		s.wait(time.Minute)
		return s.read(sees(s.now, ms...))
	}
	dup := func() *story { return wrong(ours("obj-1"), ours("obj-2")) }
	repair := func(kind DecisionKind, to RepairKind) *story {
		s := dup().person()
		return s.do(Decision{Decision: kind, Object: "obj-2", Keep: "obj-1", Repair: &Repair{ID: "r1", Kind: to, Object: "obj-2", PriorState: []byte("absent")}})
	}
	again := func() *story { s := unsure(strict()).absent(); return s.do(Resend{}) }
	replay := func() *story {
		s := unsure(replaying()).wait(15 * time.Second)
		s.read(empty(s.now)).wait(time.Minute)
		return s.do(ReplaySend{Ask: ask(s.e), Attempt: Attempt{ID: attemptID(s.e)}})
	}
	failed := func() *story { s := dispatching(t, strict()); return s.do(s.answer(AnswerRejected)) }
	compensating := strict()
	compensating.Reversibility = CompensatableOp
	compensated := unsure(compensating).wait(time.Minute)
	compensated.read(sees(compensated.now, ours("obj-1"), ours("obj-2"))).person()
	compensated.do(Decision{Decision: DecideCompensate, Object: "obj-2", Repair: &Repair{ID: "r1", Kind: RepairCompensate, Object: "obj-2"}}).engine()
	accepted := func() *story { s := dispatching(t, strict()); return s.do(s.answer(AnswerAccepted)) }
	committed := func(p Policy) *story { s := dispatching(t, p); return s.do(s.answer(AnswerCommitted)) }
	overdue := dispatching(t, strict())
	overdue.wait(10 * time.Second).do(Answer{Attempt: "a1", Class: AnswerUnknown, Open: true, Cause: "timeout"})
	retried := unsure(strict()).absent()
	retried.do(GiveUp{}).person().do(Decision{Decision: DecideRetry}).engine()
	list := []*story{
		{t: t, now: noon, policy: strict()},
		begin(t, strict()), begin(t, blind()), retried,
		begin(t, strict()).authorized(), again(), begin(t, blind()).authorized(),
		dispatching(t, strict()), dispatching(t, acked()), dispatching(t, blind()), again().wait(time.Minute).sent(),
		accepted(), committed(strict()), committed(blind()),
		unsure(strict()), unsure(fencing()), unsure(replaying()), overdue,
		unsure(replaying()).wait(15 * time.Second).do(ReadBegin{Lease: time.Second}).do(LeaseEnd{}),
		unsure(strict()).do(ReadBegin{Lease: time.Minute}), unsure(fencing()).do(FenceBegin{Lease: time.Minute}), replay(),
		unsure(strict()).do(Escalate{Reason: "x"}).do(ReadBegin{Lease: time.Minute}),
		unsure(strict()).absent(), unsure(fencing()).do(FenceBegin{Lease: time.Minute}, FenceDone{Fenced: true, Revision: "1"}),
		dup(), unsure(strict()).do(Escalate{Reason: "x"}), unsure(blind()), begin(t, strict()).authorized().do(Outage{Reason: "down"}),
		repair(DecideRetire, RepairRetire), repair(DecideRollback, RepairRollback), compensated,
		repair(DecideRetire, RepairRetire).engine().do(RepairDone{Repair: "r1", Frozen: true, Problem: "unknown"}),
		done(), committed(acked()), failed(), begin(t, strict()).do(Cancel{}),
		unsure(strict()).absent().do(GiveUp{}),
		repair(DecideRollback, RepairRollback).engine().do(RepairDone{Repair: "r1", Verified: true}),
		{t: t, e: compensated.e, now: compensated.now, policy: compensating, by: compensated.by},
		dup().person().do(Decision{Decision: DecideAbandon, Residual: "both are there"}),
	}
	list[len(list)-2].do(RepairDone{Repair: "r1", Verified: true})
	// an unknown effect that has been read, so that a replay may follow
	ready := unsure(replaying()).wait(15 * time.Second)
	ready.read(empty(ready.now)).wait(time.Minute)
	// one whose first empty read already agrees
	seen := unsure(strict())
	seen.now = seen.e.Doubt.SettleNotBefore
	seen.read(empty(seen.now)).wait(2 * time.Second).do(ReadBegin{Lease: time.Minute})
	list = append(list, ready, seen)
	out := make([]scene, len(list))
	for i, s := range list {
		out[i] = s.scene()
	}
	return out
}

// instances are representative events for an effect: every branch of every handler should be met by one.
func instances(e Effect, now time.Time) []Event {
	id := "a1"
	if a := e.Last(); a != nil {
		id = a.ID
	}
	next := Attempt{ID: attemptID(e), Epoch: 1}
	evs := []Event{
		Submit{Intent: intent()},
		Submit{Intent: intent(), Restored: true},
		grant(now),
		Authorize{},
		Refuse{Reason: "invalid"},
		Refuse{Reason: "no", Human: true},
		Send{Ask: ask(e), Attempt: next},
		Send{},
		Withdraw{Reason: "revoked"},
		Expire{Reason: "deadline passed"},
		Cancel{},
		Outage{Reason: "down"},
		Defer{Until: now.Add(time.Second)},
		Defer{Held: true},
		Defer{},
		Lost{Attempt: id, DeadAt: now},
		Lost{Attempt: id},
		Lost{Attempt: "none"},
		CallEnded{Attempt: id, At: now},
		CallEnded{},
		Witness{What: "webhook", ObjectID: "obj-1", Source: FromWebhook},
		Witness{What: "webhook", ObjectID: "obj-9"},
		Witness{},
		Overdue{},
		ReadBegin{Lease: time.Minute},
		ReadBegin{},
		ReadAgain{},
		ReadAgain{At: now},
		LeaseEnd{},
		Escalate{Reason: "taken over"},
		Resend{},
		Resend{HeldBy: "account:desk/acme"},
		GiveUp{},
		DoubtAbsence{Reason: "expired"},
		ReviewLate{Second: "boss"},
		RepairDone{Repair: "r1", Verified: true},
		RepairDone{Repair: "r1", Problem: "no"},
		RepairDone{Repair: "r1", Frozen: true},
		RepairDone{},
		Contradict{Finding: FindingDuplicate, Reason: "a second object", Candidates: []Match{ours("obj-2")}},
		Contradict{},
		FenceBegin{Lease: time.Minute},
		FenceDone{Fenced: true, Revision: "2"},
		FenceDone{},
		FenceDone{Object: &Match{ObjectID: "obj-1"}},
		ReplaySend{Ask: ask(e), Attempt: next},
		ReplaySend{},
		Restore{Attempt: Attempt{ID: "p1"}, DeadAt: now},
		Restore{},
		GraceRestart{At: now},
		GraceRestart{},
	}
	for _, c := range []AnswerClass{AnswerCommitted, AnswerAccepted, AnswerRejected, AnswerNotExecuted, AnswerNotSent, AnswerUnknown, ""} {
		evs = append(evs, Answer{Attempt: id, Class: c, At: now, ObjectID: "obj-1"}, Answer{Attempt: id, Class: c, Conflict: true, Open: true},
			Answer{Attempt: id, Class: c, Death: true, Denied: true}, Answer{Attempt: id, Class: c, At: now, RetryAfter: 7 * time.Hour})
	}
	evs = append(evs, Answer{}, Answer{Attempt: id, Class: AnswerAccepted, PollAfter: time.Second, ExpiresAt: now})
	for _, r := range readings(now) {
		evs = append(evs, ReadDone{Reading: r})
	}
	for _, d := range []DecisionKind{
		DecideRead, DecideHappened, DecideDidNotHappen, DecideComplete, DecideRollback, DecideCompensate, DecideFix, DecideRetire,
		DecideRetry, DecideClose, DecideAbandon, DecideAssign, DecideKeepWaiting, DecideClaim, "nonsense",
	} {
		for _, then := range []string{"retry", "close", ""} {
			a := grant(now).Authority
			evs = append(evs, Decision{
				Decision: d, Object: "obj-1", Keep: "obj-2", Then: then, Evidence: "sha256:photo", To: "bob", Until: now.Add(time.Hour), NoBound: "dead",
				Record: "op-1", Approver: "eve", Repair: &Repair{ID: "r2", Kind: RepairFix, Object: "obj-1", PriorState: []byte("x")}, Authority: &a,
			}, Decision{Decision: d, Then: then})
		}
	}
	return evs
}

func readings(now time.Time) []Reading {
	e := empty(now)
	with := func(change func(*Reading)) Reading { r := e; change(&r); return r }
	partial, other := ours("obj-1"), ours("obj-1")
	partial.Agreement, partial.Differences = AgreementPartial, []string{"body"}
	other.Agreement = AgreementDiffers
	similar := Match{ObjectID: "obj-7", Strength: StrengthSimilar}
	return []Reading{
		{},
		e, sees(now, ours("obj-1")), sees(now, ours("obj-1"), ours("obj-2")), sees(now, partial), sees(now, other), sees(now, similar, similar), sees(now, similar),
		with(func(r *Reading) { r.Failed = "timeout" }), with(func(r *Reading) { r.Pending = true }), with(func(r *Reading) { r.Complete = false }),
		with(func(r *Reading) { r.Ended = &OperationEnd{Code: "x"} }), with(func(r *Reading) { r.Ended = &OperationEnd{MayResend: true} }),
		with(func(r *Reading) { r.Matches, r.Postcondition = []Match{ours("obj-1")}, PostconditionFails }),
		with(func(r *Reading) { r.Matches, r.Postcondition = []Match{ours("obj-1")}, PostconditionPending }),
	}
}

func people() []By {
	return []By{{Actor: "daemon", Kind: System}, {Actor: "ada", Kind: Human, Because: "looked"}, {Actor: "ada", Kind: Human}, {Actor: "ci", Kind: Service, Because: "x"}}
}

// eachPair applies every representative event to every scene, at several times and by everybody.
func eachPair(t testing.TB, list []scene, visit func(sc scene, ev Event, env Env, ch Change, err error)) {
	for _, sc := range list {
		for _, later := range []time.Duration{time.Second, 3 * time.Minute, 30 * time.Hour} {
			now := sc.now.Add(later)
			for _, ev := range instances(sc.e, now) {
				for _, by := range people() {
					if ev.Kind() != KindDecide && ev.Kind() != KindResend && ev.Kind() != KindRefuse && by.Actor != "daemon" {
						continue
					}
					env := Env{Now: now, Jitter: 0.25, By: by, Policy: sc.policy}
					ch, err := Apply(sc.e, ev, env)
					visit(sc, ev, env, ch, err)
				}
			}
		}
	}
}

func outcomeText(ch Change, err error) string {
	if err != nil {
		return ""
	}
	var steps []string
	for _, x := range ch.Entries {
		if x.Transition != 0 {
			steps = append(steps, fmt.Sprintf("%d→%s", x.Transition, x.To))
		}
	}
	if len(steps) == 0 {
		return "stays"
	}
	return strings.Join(steps, " ")
}

// TestTable is the whole phase × event table. A change of it is a change of the model.
func TestTable(t *testing.T) {
	cells := map[Phase]map[Kind]map[string]bool{}
	eachPair(t, scenes(t), func(sc scene, ev Event, _ Env, ch Change, err error) {
		out := outcomeText(ch, err)
		if out == "" {
			return
		}
		if cells[sc.e.Phase] == nil {
			cells[sc.e.Phase] = map[Kind]map[string]bool{}
		}
		if cells[sc.e.Phase][ev.Kind()] == nil {
			cells[sc.e.Phase][ev.Kind()] = map[string]bool{}
		}
		cells[sc.e.Phase][ev.Kind()][out] = true
	})
	var b bytes.Buffer
	for _, p := range append([]Phase{New}, Phases()...) {
		fmt.Fprintf(&b, "%s\n", orElse(string(p), "new"))
		for _, k := range kinds() {
			var outs []string
			for o := range cells[p][k] {
				outs = append(outs, o)
			}
			sort.Strings(outs)
			if len(outs) == 0 {
				outs = []string{"—"}
			}
			fmt.Fprintf(&b, "  %-14s %s\n", k, strings.Join(outs, " | "))
		}
	}
	golden(t, "testdata/table.golden", b.Bytes())
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./journal -run %s -update", err, t.Name())
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from what the core does now; if that is meant: go test ./journal -run %s -update\n%s", file, t.Name(), firstDifference(string(want), string(got)))
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\n  want %s\n  got  %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("want %d lines, got %d", len(w), len(g))
}

// Every move that the model lists is made by some event: nothing in the table is dead.
func TestEveryListedMoveIsMade(t *testing.T) {
	made := map[Transition]bool{}
	eachPair(t, scenes(t), func(_ scene, _ Event, _ Env, ch Change, _ error) {
		for _, x := range ch.Entries {
			made[Transition{x.Transition, x.From, x.To}] = true
		}
	})
	for _, m := range Transitions() {
		if !made[m] {
			t.Errorf("no event makes transition %d from %s to %s", m.Number, orElse(string(m.From), "new"), m.To)
		}
	}
}

// A refused event changes nothing; an accepted one grows seq by one, leaves a
// chain of legal moves without a gap, and gives the same result when applied again.
func TestApplyIsTotalAndPure(t *testing.T) {
	n := 0
	eachPair(t, scenes(t), func(sc scene, ev Event, env Env, ch Change, err error) {
		n++
		if n%7 != 0 {
			return // a sample: deep copies are slow
		}
		before := deepCopy(sc.e)
		again, err2 := Apply(sc.e, ev, env)
		if !reflect.DeepEqual(before, sc.e) {
			t.Fatalf("%s in %s changed the caller's effect", ev.Kind(), sc.e.Phase)
		}
		if fmt.Sprint(err) != fmt.Sprint(err2) || !reflect.DeepEqual(ch, again) {
			t.Fatalf("%s in %s is not determined by its inputs", ev.Kind(), sc.e.Phase)
		}
	})
	eachPair(t, scenes(t), func(sc scene, ev Event, env Env, ch Change, err error) {
		if err != nil {
			if !reflect.DeepEqual(ch, Change{}) {
				t.Fatalf("%s in %s failed and still brought a change", ev.Kind(), sc.e.Phase)
			}
			return
		}
		if why := soundChange(sc.e, ch, env); why != "" {
			t.Fatalf("%s in %s → %s: %s", ev.Kind(), sc.e.Phase, ch.Effect.Phase, why)
		}
	})
}

// soundChange names what is wrong with a change, whatever led to it.
func soundChange(before Effect, ch Change, env Env) string {
	e := ch.Effect
	if e.Seq != before.Seq+1 || ch.Before != before.Seq {
		return fmt.Sprintf("seq went from %d to %d", before.Seq, e.Seq)
	}
	at := before.Phase
	for _, x := range ch.Entries {
		if x.Transition == 0 {
			continue
		}
		if x.From != at || !slices.Contains(Transitions(), Transition{x.Transition, x.From, x.To}) {
			return fmt.Sprintf("entry %d from %s to %s does not follow %s", x.Transition, x.From, x.To, at)
		}
		at = x.To
	}
	if at != e.Phase {
		return fmt.Sprintf("the entries lead to %s, the effect is %s", at, e.Phase)
	}
	if e.DueAt.IsZero() != (e.Due == DueNone) {
		return fmt.Sprintf("due_at %v with due %q", e.DueAt, e.Due)
	}
	if e.Phase.Closed() == e.SettledAt.IsZero() {
		return "settled_at does not go with the phase"
	}
	if before.Fingerprint != "" && before.Fingerprint != e.Fingerprint {
		return "the fingerprint changed"
	}
	return limbo(e)
}

func deepCopy(e Effect) Effect {
	c := e.clone()
	if c.Review != nil {
		c.Review.Missing = slices.Clone(c.Review.Missing)
		c.Review.Candidates = slices.Clone(c.Review.Candidates)
		c.Review.Allowed = slices.Clone(c.Review.Allowed)
	}
	if c.Doubt != nil {
		c.Doubt.Missing = slices.Clone(c.Doubt.Missing)
	}
	return c
}

// A row that lost a part of its record must not stop the daemon: nothing here may panic.
func TestDamagedEffectsDoNotPanic(t *testing.T) {
	var damaged []scene
	for _, sc := range scenes(t) {
		for _, spoil := range []func(*Effect){
			func(e *Effect) {
				e.Authority, e.Ack, e.Verify, e.Doubt, e.Absence, e.Positive, e.Review = nil, nil, nil, nil, nil, nil, nil
			},
			func(e *Effect) { e.Attempts, e.Repairs = nil, nil },
			func(e *Effect) { *e = Effect{Phase: e.Phase} },
			func(e *Effect) { e.Phase = "nonsense" },
		} {
			c := sc
			c.e = c.e.clone()
			spoil(&c.e)
			damaged = append(damaged, c)
		}
	}
	eachPair(t, damaged, func(sc scene, _ Event, env Env, ch Change, err error) {
		Decide(sc.e, env, "")
		if err == nil {
			Decide(ch.Effect, env, "")
		}
		_ = Words(sc.e)
	})
	if _, err := Apply(Effect{}, nil, Env{}); err == nil {
		t.Error("no event at all was accepted")
	}
}

// What the core says is to be done at once must move the effect or put it off:
// an effect that is due and stays due for ever would spin.
func TestNothingSpins(t *testing.T) {
	check := func(e Effect, env Env, story string) {
		for range 12 {
			step := Decide(e, env, "")
			switch step.Do {
			case StepWait:
				if !step.At.After(env.Now) {
					t.Fatalf("%s: %s waits until %s, which is not in the future", story, e.Phase, step.At)
				}
				return
			case StepApply:
				ch, err := Apply(e, step.Event, env)
				if err != nil {
					t.Fatalf("%s: the core refuses its own %s in %s: %v", story, step.Event.Kind(), e.Phase, err)
				}
				e = ch.Effect
			case StepNone:
				if !e.DueAt.IsZero() && !e.DueAt.After(env.Now) {
					t.Fatalf("%s: %s is due (%s) and nothing is to be done", story, e.Phase, e.Due)
				}
				return
			default:
				return // a call outside
			}
		}
		t.Fatalf("%s: %s never comes to rest", story, e.Phase)
	}
	for _, sc := range scenes(t) {
		if sc.e.Phase == New {
			continue
		}
		for _, later := range []time.Duration{0, time.Second, time.Minute, 20 * time.Minute, 7 * time.Hour, 30 * time.Hour, 100 * time.Hour} {
			for _, p := range []Policy{sc.policy, blind()} {
				env := Env{Now: sc.now.Add(later), Jitter: 0.5, By: By{Actor: "daemon", Kind: System}, Policy: p}
				check(sc.e, env, "scene")
			}
		}
	}
	eachPair(t, scenes(t), func(sc scene, ev Event, env Env, ch Change, err error) {
		if err == nil {
			env.By = By{Actor: "daemon", Kind: System}
			check(ch.Effect, env, string(ev.Kind()))
		}
	})
}
