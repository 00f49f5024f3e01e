package journal

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is a tiny destination behind a call that may be lost, be late or lie
// about nothing: it commits at most what it was asked, some time within the
// declared bounds, and its view lags by at most the declared lag.
type world struct {
	t       *rapid.T
	s       *story
	pending map[string]time.Time // attempt → when it will commit; only while that is in the future
	objects []object
	sent    []SentRow
	calls   []Call
	open    map[string]bool // calls that have not returned
	seen    map[Phase]int   // shared by the stories of a test
}

type object struct {
	id      string
	at      time.Time
	attempt string
}

// pick draws evenly below n; rapid's own ranges prefer small numbers, and with
// them most stories end before they begin.
func pick(t *rapid.T, n int, what string) int {
	x := rapid.Uint64().Draw(t, what) * 0x9E3779B97F4A7C15
	return int((x >> 33) % uint64(n))
}

// upTo draws a duration in milliseconds.
func upTo(t *rapid.T, d time.Duration, what string) time.Duration {
	return time.Duration(pick(t, int(d/time.Millisecond)+1, what)) * time.Millisecond
}

func anyOf[T any](t *rapid.T, what string, list ...T) T { return list[pick(t, len(list), what)] }

func newWorld(t *rapid.T, tb testing.TB, p Policy) *world {
	s := begin(tb, p)
	s.jitter = float64(pick(t, 1000, "jitter")) / 1000
	return &world{t: t, s: s, pending: map[string]time.Time{}, open: map[string]bool{}}
}

// settle lets happen what was to happen by now.
func (w *world) settle() {
	for a, at := range w.pending {
		if !at.After(w.s.now) {
			w.objects = append(w.objects, object{"obj-" + a, at, a})
			delete(w.pending, a)
		}
	}
}

// step applies an event as the journal would, and holds the result against what must always be true.
func (w *world) step(ev Event) bool {
	before := w.s.e
	copied := deepCopy(before)
	ch, err := Apply(before, ev, w.s.env())
	if !reflect.DeepEqual(copied, before) {
		w.t.Fatalf("%s in %s changed the caller's effect", ev.Kind(), before.Phase)
	}
	again, err2 := Apply(before, ev, w.s.env())
	if !reflect.DeepEqual(ch, again) || fmt.Sprint(err) != fmt.Sprint(err2) {
		w.t.Fatalf("%s in %s is not determined by its inputs", ev.Kind(), before.Phase)
	}
	if err != nil {
		return false
	}
	if why := soundChange(before, ch, w.s.env()); why != "" {
		w.t.Fatalf("%s in %s → %s: %s", ev.Kind(), before.Phase, ch.Effect.Phase, why)
	}
	if n := len(ch.Effect.Attempts); n > len(before.Attempts) && n > 1 {
		if a := ch.Effect.Attempts[n-1]; !a.Replay && !a.Presumed() && before.MayHaveBeenSent() {
			w.t.Fatalf("attempt %d was made while an earlier one is in doubt", n)
		}
	}
	if err := w.s.try(ev); err != nil {
		w.t.Fatal(err)
	}
	for _, v := range Check(w.history()) {
		w.t.Fatalf("after %s: %s", ev.Kind(), v)
	}
	return true
}

func (w *world) history() History {
	h := History{Effects: []Effect{w.s.e}, Entries: w.s.log, Reads: w.s.reads, Sent: w.sent, Calls: w.calls, Honest: true, Bound: []Binding{{w.s.e.Key, "sha256:f"}}}
	for i := range h.Entries {
		h.Entries[i].Seq = int64(i + 1)
	}
	for _, o := range w.objects {
		h.Objects = append(h.Objects, Object{Key: w.s.e.Key, ID: o.id})
	}
	return h
}

// send asks the gate and, when it opens, makes the call: the destination will
// commit soon, late, or never.
func (w *world) send(ev Event, id string) {
	if !w.step(ev) {
		return
	}
	w.sent = append(w.sent, SentRow{w.s.e.Key, id, 1, w.s.now})
	w.calls = append(w.calls, Call{w.s.e.Key, id, 1, w.s.now})
	w.open[id] = true
	if w.s.e.Last().Replay && (len(w.objects) > 0 || len(w.pending) > 0) {
		return // a replay is answered with the first response
	}
	p := w.s.policy
	longest := p.Timeout + *p.Grace.MaxProcessing
	if pick(w.t, 2, "commits") == 0 {
		w.pending[id] = w.s.now.Add(upTo(w.t, longest, "after"))
	}
}

// answer returns from a call truthfully: what it says is so, or it says nothing.
func (w *world) answer() {
	for id := range w.open {
		a := Answer{Attempt: id, At: w.s.now, Class: AnswerUnknown, Evidence: "sha256:answer"}
		committed := false
		for _, o := range w.objects {
			if o.attempt == id {
				committed, a.ObjectID = true, o.id
			}
		}
		_, coming := w.pending[id]
		switch how := pick(w.t, 4, "answer"); {
		case how == 0: // lost on the way; the adapter says so
		case how == 1: // overdue: the call has not returned
			a.Open = true
		case committed:
			a.Class = AnswerCommitted
		case !coming && len(w.objects) == 0:
			a.Class = anyOf(w.t, "no", AnswerNotExecuted, AnswerRejected, AnswerNotSent)
			a.RetryAfter = upTo(w.t, time.Minute, "retry_after")
		}
		if !a.Open {
			delete(w.open, id)
			w.cut(id)
		}
		w.step(a)
		return
	}
}

// cut keeps what a call that ended can still do within the declared bound.
func (w *world) cut(id string) {
	last := w.s.now
	for _, a := range w.s.e.Attempts {
		if a.ID == id && a.Deadline.After(last) {
			last = a.Deadline
		}
	}
	if at, ok := w.pending[id]; ok {
		if limit := w.s.now.Add(*w.s.policy.Grace.MaxProcessing); at.After(limit) {
			w.pending[id] = limit
		}
	}
}

// look reads as the declared view shows it: what is older than the lag is seen for certain, newer things perhaps.
func (w *world) look() Reading {
	r := empty(w.s.now)
	r.Consistency = w.s.policy.Consistency
	switch pick(w.t, 8, "view") {
	case 0:
		r.Failed = "timeout"
	case 1:
		r.Complete = false
	}
	for _, o := range w.objects {
		if !o.at.After(w.s.now.Add(-*w.s.policy.Grace.Lag)) || pick(w.t, 3, "seen early") == 0 {
			r.Matches = append(r.Matches, ours(o.id))
		}
	}
	return r
}

func (w *world) decide() {
	d := Decision{
		Decision: anyOf(w.t, "decision", DecideDidNotHappen, DecideDidNotHappen, DecideAbandon, DecideRetry, DecideRetry, DecideClose, DecideRead, DecideKeepWaiting, DecideAssign),
		Then:     anyOf(w.t, "then", "retry", "close"), Evidence: "sha256:looked", To: "bob", Until: w.s.now.Add(time.Hour),
	}
	for _, o := range w.objects { // people are careful here: they look at the truth
		if d.Decision == DecideDidNotHappen {
			d.Decision, d.Object = DecideHappened, o.id
		}
	}
	a := grant(w.s.now).Authority
	d.Authority, d.NewExpires = &a, w.s.now.Add(6*time.Hour)
	w.s.person()
	w.step(d)
	w.s.engine()
}

// follow does what the core says is owed, as the daemon would.
func (w *world) follow() {
	s := w.s
	step := Decide(s.e, s.env(), "")
	switch step.Do {
	case StepWait:
		s.now = step.At
		w.settle()
	case StepApply:
		w.step(step.Event)
	case StepDispatch:
		w.send(s.sendEvent(), attemptID(s.e))
	case StepReplay:
		w.send(ReplaySend{Ask: ask(s.e), Attempt: Attempt{ID: attemptID(s.e), Epoch: 1}}, attemptID(s.e))
	case StepFence: // this destination cannot be fenced: the call is lost
		w.step(FenceBegin{Lease: time.Minute})
	case StepRead:
		if s.e.Phase == Unknown || s.e.Phase == NeedsHuman {
			w.step(ReadBegin{Lease: time.Minute})
		}
		w.step(ReadDone{Reading: w.look()})
	}
}

// cover counts what the stories reach, so that a generator that has gone lame is noticed.
func (w *world) cover() {
	if w.seen == nil {
		return
	}
	w.seen[w.s.e.Phase]++
	if len(w.s.e.Attempts) > 1 {
		w.seen["second attempt"]++
	}
	if len(w.objects) > 0 && w.s.e.MayHaveBeenSent() {
		w.seen["in doubt and there"]++
	}
}

func strong() Policy {
	p := strict()
	p.Consistency, p.Grace.Lag = ConsistencyStrong, span(0)
	return p
}

// Whatever comes in whatever order, nothing is in limbo, nothing is sent twice
// blindly and the destination never holds two effects.
func TestRapidNoOrderOfEventsMakesASecondEffect(t *testing.T) {
	seen := map[Phase]int{}
	rapid.Check(t, func(rt *rapid.T) {
		p := anyOf(rt, "policy", strict(), strict(), strong(), acked(), replaying(), fencing())
		p.Grace.MaxProcessing = span(upTo(rt, 2*time.Minute, "processing"))
		if p.Consistency != ConsistencyStrong {
			p.Grace.Lag = span(upTo(rt, 30*time.Second, "lag"))
		}
		w := newWorld(rt, t, p)
		w.seen = seen
		w.step(grant(w.s.now))
		for range 30 + pick(rt, 60, "steps") {
			w.settle()
			w.cover()
			switch pick(rt, 24, "what") {
			default:
				w.follow()
			case 5, 6:
				w.answer()
			case 7:
				w.s.now = w.s.now.Add(upTo(rt, 2*time.Minute, "pass"))
				w.settle()
			case 8:
				w.step(grant(w.s.now))
			case 9: // the daemon is killed: its processes die with it
				for _, a := range w.s.e.Attempts {
					delete(w.open, a.ID)
					w.cut(a.ID)
					if a.State == AttemptSent {
						w.step(Lost{Attempt: a.ID, DeadAt: w.s.now})
					} else if a.ClosedAt.IsZero() {
						w.step(CallEnded{Attempt: a.ID, At: w.s.now})
					}
				}
				if w.s.e.Phase == Reconciling {
					w.step(LeaseEnd{})
				}
			case 10:
				w.decide()
			case 11: // a webhook tells the truth
				for _, o := range w.objects {
					w.step(Witness{What: "webhook", ObjectID: o.id, Source: FromWebhook})
					break
				}
			case 12:
				w.step(anyOf[Event](rt, "event",
					Escalate{Reason: "x"}, DoubtAbsence{Reason: "x"}, ReadAgain{}, GraceRestart{At: w.s.now}, Overdue{}, Withdraw{Reason: "x"},
					GiveUp{}, LeaseEnd{}, Resend{}, Cancel{}, Outage{Reason: "down"}, Expire{Reason: "x"}))
			case 13: // an operator or a worker tries to send anyway
				w.send(w.s.sendEvent(), attemptID(w.s.e))
			}
		}
	})
	for _, p := range []Phase{Unknown, ConfirmedAbsent, Succeeded, "second attempt", "in doubt and there"} {
		if seen[p] == 0 {
			t.Errorf("no story met: %s", p)
		}
	}
	t.Log(seen)
}

// Left to the core alone, under a fair clock, every effect comes to rest where
// nothing is unknown: done, failed with an owner, or with a person.
func TestRapidEveryEffectComesToRest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := anyOf(rt, "policy", strict(), strong(), blind(), replaying(), fencing())
		w := newWorld(rt, t, p)
		w.step(grant(w.s.now))
		for i := 0; ; i++ {
			w.settle()
			e := w.s.e
			if e.Phase == Dispatching || (e.Phase == Reconciling && e.Last() != nil && e.Last().State == AttemptSent) {
				w.answer()
			}
			for id := range w.open { // an overdue call ends when its process is killed
				if w.s.e.Phase != Dispatching && w.s.e.Phase != Reconciling {
					delete(w.open, id)
					w.cut(id)
					w.step(CallEnded{Attempt: id, At: w.s.now})
				}
			}
			if w.s.e.Phase.Closed() || w.s.e.Phase == NeedsHuman {
				break
			}
			w.follow()
			if i > 3000 {
				rt.Fatalf("after %d steps and %s it is still %s", i, w.s.now.Sub(noon), w.s.e.Phase)
			}
		}
		h := w.history()
		h.Now, h.Slack = w.s.now, time.Hour
		for _, v := range Check(h) {
			rt.Fatal(v)
		}
	})
}
