package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/settled-dev/settled/journal"
)

// TestTheDatabaseAgreesWithTheModel gives the same events to Apply alone and to
// the database, several to one operation, with restarts between, and compares
// after every operation: effect, reads, holds, counters, chain.
func TestTheDatabaseAgreesWithTheModel(t *testing.T) {
	if testing.Short() {
		t.Skip("many databases")
	}
	base := t.TempDir()
	run, met := 0, map[journal.Phase]int{}
	history := func(rt *rapid.T) {
		run++
		dir := fmt.Sprintf("%s/%d", base, run)
		opts := Options{Path: dir + "/journal.db", GenerationPath: dir + "/m/marker", ChainKey: testKey}
		m := &modelRun{t: rt, opts: opts, now: epochStart(), model: map[string]journal.Effect{}, reads: map[string][]journal.Reconciliation{}, met: met}
		m.open()
		defer func() {
			if err := m.db.Close(); err != nil {
				rt.Errorf("close: %v", err)
			}
			os.RemoveAll(dir)
		}()
		for range rapid.IntRange(3, 15).Draw(rt, "operations") {
			m.operation()
			m.compare()
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				if err := m.db.Close(); err != nil {
					rt.Fatalf("close: %v", err)
				}
				m.open()
				m.compare()
			}
		}
		m.end()
	}
	// Some phases are rare. A hundred histories may meet none of them by chance,
	// five hundred do not.
	for round := 0; round < 5 && !t.Failed() && (round == 0 || len(unmet(met)) > 0); round++ {
		rapid.Check(t, history)
	}
	if lack := unmet(met); len(lack) > 0 && run >= 100 && !t.Failed() {
		t.Errorf("no history met %v: %v", lack, met)
	}
}

// unmet are the phases that a history should have gone through and none did.
func unmet(met map[journal.Phase]int) (lack []journal.Phase) {
	for _, p := range []journal.Phase{
		journal.Prepared, journal.Authorized, journal.Dispatching, journal.Acknowledged, journal.Unknown, journal.Reconciling,
		journal.NeedsHuman, journal.Succeeded, journal.Failed,
	} {
		if met[p] == 0 {
			lack = append(lack, p)
		}
	}
	return lack
}

type modelRun struct {
	t     *rapid.T
	opts  Options
	db    *DB
	now   time.Time
	model map[string]journal.Effect
	reads map[string][]journal.Reconciliation
	lines int
	ids   int
	met   map[journal.Phase]int
}

func (m *modelRun) open() {
	db, err := Open(context.Background(), m.opts)
	if err != nil {
		m.t.Fatalf("open: %v", err)
	}
	m.db = db
}

// planned is one event of an operation and what the model makes of it.
type planned struct {
	key  string
	ev   journal.Event
	env  journal.Env
	want journal.Change
	err  error
}

// operation applies one to four events in one operation, to the model first and
// then to the database; sometimes the operation fails and must leave no trace.
func (m *modelRun) operation() {
	t := m.t
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
	fail := rapid.IntRange(0, 5).Draw(t, "fail") == 0
	model := maps.Clone(m.model)
	var plan []planned
	for range rapid.IntRange(1, 4).Draw(t, "events") {
		p := planned{key: rapid.SampledFrom([]string{"a:1:v1", "b:2:v1", "c:3:v1"}).Draw(t, "key"), env: testEnv(m.now)}
		p.env.Jitter = 0.25
		e, known := model[p.key]
		if p.ev = journal.Event(journal.Submit{Intent: testIntent(p.key, m.now)}); known {
			p.ev = m.event(e)
		}
		if p.want, p.err = journal.Apply(e, p.ev, p.env); p.err == nil {
			model[p.key] = p.want.Effect
		}
		plan = append(plan, p)
	}
	boom := errors.New("boom")
	ids := map[string]int64{}
	err := m.db.Write(context.Background(), func(tx *Tx) error {
		for _, p := range plan {
			if err := m.one(tx, p, ids); err != nil {
				return err
			}
		}
		if fail {
			return boom
		}
		return nil
	})
	switch {
	case fail && errors.Is(err, boom):
		return
	case err != nil:
		t.Fatalf("operation: %v", err)
	}
	for _, p := range plan {
		if p.err != nil {
			continue
		}
		e := p.want.Effect
		if id, fresh := ids[p.key]; fresh {
			e.ID = id
		}
		m.model[p.key] = e
		m.met[e.Phase]++
		m.reads[p.key] = append(m.reads[p.key], p.want.Reconciliations...)
		m.lines += len(p.want.Entries)
	}
}

// one applies an event in the database and compares what came of it with the model.
func (m *modelRun) one(tx *Tx, p planned, ids map[string]int64) (err error) {
	var got journal.Effect
	if in, ok := p.ev.(journal.Submit); ok {
		if got, _, err = tx.Submit(in.Intent, p.env, false); err == nil {
			ids[p.key] = got.ID
		}
	} else if got, err = tx.Effect(p.key); err != nil {
		return err
	} else {
		got, err = tx.Apply(got, p.ev, p.env)
	}
	if (err == nil) != (p.err == nil) || (err != nil && err.Error() != p.err.Error()) {
		return fmt.Errorf("%T: the database says %v, the model %v", p.ev, err, p.err)
	}
	want := p.want.Effect
	if id, fresh := ids[p.key]; fresh {
		want.ID = id
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%T:\n got %+v\nwant %+v", p.ev, got, want)
	}
	return nil
}

// event draws an event that may or may not be legal now.
func (m *modelRun) event(e journal.Effect) journal.Event {
	t := m.t
	last := ""
	if a := e.Last(); a != nil {
		last = a.ID
	}
	m.ids++
	send := sendOf(e, m.db.Epoch(), fmt.Sprintf("att-%d", m.ids))
	class := rapid.SampledFrom([]journal.AnswerClass{
		journal.AnswerCommitted, journal.AnswerAccepted, journal.AnswerRejected, journal.AnswerNotExecuted, journal.AnswerNotSent, journal.AnswerUnknown,
	}).Draw(t, "class")
	if on := m.onward(e.Phase, last, class, send); len(on) > 0 && rapid.IntRange(0, 2).Draw(t, "onward") > 0 {
		return rapid.SampledFrom(on).Draw(t, "event")
	}
	return rapid.SampledFrom([]journal.Event{
		grant(m.now), send, send, grant(m.now), send,
		journal.Answer{Attempt: last, Class: class, At: m.now, ObjectID: "T-1", Handle: "op-1", Cause: "timeout", Reason: "validation"},
		journal.Answer{Attempt: last, Class: class, At: m.now, ObjectID: "T-1", Handle: "op-1", Cause: "timeout", Reason: "validation"},
		journal.Lost{Attempt: last, DeadAt: m.now, Cause: "crash"},
		journal.CallEnded{Attempt: last, At: m.now},
		journal.ReadBegin{Lease: time.Minute},
		m.reading(), m.reading(),
		journal.LeaseEnd{},
		journal.Overdue{},
		journal.Resend{},
		journal.GiveUp{Reason: "enough"},
		journal.DoubtAbsence{Reason: "expired"},
		journal.Escalate{Reason: "nobody knows"},
		journal.ReviewLate{Second: "lead"},
		journal.ReadAgain{At: m.now},
		journal.Witness{What: "webhook", ObjectID: "T-1", Source: journal.FromWebhook, Evidence: "sha256:w"},
		journal.Contradict{Finding: journal.FindingDuplicate, Reason: "a second object", Candidates: []journal.Match{{ObjectID: "T-2"}}},
		journal.Cancel{},
		journal.Withdraw{Reason: "policy changed"},
		journal.Expire{Reason: "deadline passed"},
		journal.Defer{Until: m.now.Add(time.Minute), Held: true},
		journal.Decision{Decision: rapid.SampledFrom([]journal.DecisionKind{
			journal.DecideClaim, journal.DecideHappened, journal.DecideAbandon, journal.DecideRead, journal.DecideKeepWaiting, journal.DecideClose,
		}).Draw(t, "decision"), Object: "T-1", Evidence: "sha256:e", LookedAt: m.now, Until: m.now.Add(time.Hour), Residual: "none"},
	}).Draw(t, "event")
}

// onward lists events that lead on from a phase, so that histories get far.
func (m *modelRun) onward(p journal.Phase, last string, class journal.AnswerClass, send journal.Event) []journal.Event {
	answer := journal.Answer{Attempt: last, Class: class, At: m.now, ObjectID: "T-1", Handle: "op-1", Cause: "timeout", Reason: "validation"}
	switch p {
	case journal.Prepared:
		return []journal.Event{grant(m.now)}
	case journal.Authorized:
		return []journal.Event{send}
	case journal.Dispatching:
		return []journal.Event{answer, answer, journal.Lost{Attempt: last, DeadAt: m.now, Cause: "crash"}}
	case journal.Unknown:
		return []journal.Event{journal.ReadBegin{Lease: time.Minute}, journal.Escalate{Reason: "nobody knows"}}
	case journal.Reconciling, journal.Verifying, journal.Acknowledged:
		return []journal.Event{m.reading()}
	case journal.ConfirmedAbsent:
		return []journal.Event{journal.Resend{}, journal.GiveUp{Reason: "enough"}}
	}
	return nil
}

func (m *modelRun) reading() journal.ReadDone {
	t := m.t
	r := journal.Reading{
		Source: "timer", BegunAt: m.now, EndedAt: m.now.Add(time.Second), View: "by_ref", ScannedFrom: epochStart().Add(-time.Hour),
		ScannedTo: m.now.Add(time.Second), Complete: true, VisibilityProven: true, Consistency: journal.ConsistencyBounded,
		Evidence: "sha256:r",
	}
	match := journal.Match{ObjectID: "T-1", Strength: journal.StrengthMarker, Agreement: journal.AgreementSame, Observed: []byte(`{"a":1}`)}
	switch rapid.IntRange(0, 4).Draw(t, "reading") {
	case 0:
		r.Matches = []journal.Match{match}
	case 1:
		second := match
		second.ObjectID = "T-2"
		r.Matches = []journal.Match{match, second}
	case 2:
		r.Failed = "timeout"
	}
	return journal.ReadDone{Reading: r}
}

// compare reads everything back and compares it with the model.
func (m *modelRun) compare() {
	ctx, t := context.Background(), m.t
	phases, reviews, overdue := map[journal.Phase]int64{}, int64(0), int64(0)
	var holds []string
	for key, want := range m.model {
		got, err := m.db.Effect(ctx, key)
		waits := want.Due == journal.DueHeld || want.Due == journal.DueResend
		if waits && got.Due == want.Due && got.DueAt.Before(want.DueAt) {
			got.DueAt = want.DueAt // the release of a hold asks for an earlier look; the model has no holds to release
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s came back (%v)\n got %+v\nwant %+v", key, err, got, want)
		}
		reads, err := m.db.Reconciliations(ctx, key)
		if err != nil || len(reads) != len(m.reads[key]) || (len(reads) > 0 && !reflect.DeepEqual(reads, m.reads[key])) {
			t.Fatalf("%s has reads (%v)\n got %+v\nwant %+v", key, err, reads, m.reads[key])
		}
		phases[want.Phase]++
		if want.Review.Live() {
			reviews++
			if want.Review.Overdue {
				overdue++
			}
		}
		if want.HoldScope != "" {
			holds = append(holds, want.HoldScope)
		}
	}
	counts, err := m.db.Counts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range journal.Phases() {
		if counts.Total(p) != phases[p] {
			t.Fatalf("%d effects are counted as %s, there are %d", counts.Total(p), p, phases[p])
		}
	}
	if counts.ReviewsOpen["desk"] != reviews || counts.ReviewsOverdue["desk"] != overdue {
		t.Fatalf("reviews %d overdue %d, want %d and %d", counts.ReviewsOpen["desk"], counts.ReviewsOverdue["desk"], reviews, overdue)
	}
	if hs, _ := m.db.Holds(ctx); len(hs) != len(holds) {
		t.Fatalf("holds %+v, the model raises %v", hs, holds)
	}
	if seq, _ := m.db.Head(); seq != int64(m.lines) {
		t.Fatalf("the chain has %d lines, the model %d", seq, m.lines)
	}
}

func (m *modelRun) end() {
	r, err := m.db.Verify(context.Background(), "")
	if err != nil || r.Err() != nil {
		m.t.Fatalf("verify: %+v %v", r, err)
	}
}
