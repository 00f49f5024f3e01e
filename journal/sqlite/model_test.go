package sqlite

import (
	"context"
	"errors"
	"fmt"
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
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		dir := fmt.Sprintf("%s/%d", base, run)
		opts := Options{Path: dir + "/journal.db", GenerationPath: dir + "/m/marker", ChainKey: testKey}
		m := &modelRun{t: rt, opts: opts, now: epochStart(), model: map[string]journal.Effect{}, reads: map[string][]journal.Reconciliation{}}
		m.open()
		defer func() {
			if err := m.db.Close(); err != nil {
				rt.Errorf("close: %v", err)
			}
			os.RemoveAll(dir)
		}()
		for range rapid.IntRange(3, 25).Draw(rt, "operations") {
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
	})
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
}

func (m *modelRun) open() {
	db, err := Open(context.Background(), m.opts)
	if err != nil {
		m.t.Fatalf("open: %v", err)
	}
	m.db = db
}

// operation applies one to four events in one operation, to the database and to the model; sometimes the operation fails.
func (m *modelRun) operation() {
	t := m.t
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
	events := rapid.IntRange(1, 4).Draw(t, "events")
	fail := rapid.IntRange(0, 5).Draw(t, "fail") == 0
	model, reads, lines := map[string]journal.Effect{}, map[string][]journal.Reconciliation{}, m.lines
	for k, e := range m.model {
		model[k], reads[k] = e, m.reads[k]
	}
	boom := errors.New("boom")
	var thrown any // rapid gives up a run by a panic, which the committer would take for the operation's
	err := m.db.Write(context.Background(), func(tx *Tx) error {
		defer func() {
			if thrown = recover(); thrown != nil {
				panic(thrown)
			}
		}()
		for range events {
			key := rapid.SampledFrom([]string{"a:1:v1", "b:2:v1", "c:3:v1"}).Draw(t, "key")
			if err := m.one(tx, key, model, reads, &lines); err != nil {
				return err
			}
		}
		if fail {
			return boom
		}
		return nil
	})
	if thrown != nil {
		panic(thrown)
	}
	switch {
	case fail && errors.Is(err, boom):
	case err != nil:
		t.Fatalf("operation: %v", err)
	default:
		m.model, m.reads, m.lines = model, reads, lines
	}
}

// one applies one event to one effect on both sides and compares what Apply gave.
func (m *modelRun) one(tx *Tx, key string, model map[string]journal.Effect, reads map[string][]journal.Reconciliation, lines *int) error {
	e, ok := model[key]
	env := testEnv(m.now)
	env.Jitter = 0.25
	var ev journal.Event
	if !ok {
		ev = journal.Submit{Intent: testIntent(key, m.now)}
	} else {
		ev = m.event(e)
	}
	want, wantErr := journal.Apply(e, ev, env)
	var got journal.Effect
	var gotErr error
	if !ok {
		got, _, gotErr = tx.Submit(testIntent(key, m.now), env, false)
	} else {
		cur, err := tx.Effect(key)
		if err != nil {
			return err
		}
		got, gotErr = tx.Apply(cur, ev, env)
	}
	if (gotErr == nil) != (wantErr == nil) || (gotErr != nil && gotErr.Error() != wantErr.Error()) {
		return fmt.Errorf("%T in %s: the database says %v, the model %v", ev, e.Phase, gotErr, wantErr)
	}
	if wantErr != nil {
		return nil
	}
	if !ok {
		want.Effect.ID = got.ID
	}
	if !reflect.DeepEqual(got, want.Effect) {
		return fmt.Errorf("%T in %s:\n got %+v\nwant %+v", ev, e.Phase, got, want.Effect)
	}
	model[key] = want.Effect
	reads[key] = append(append([]journal.Reconciliation(nil), reads[key]...), want.Reconciliations...)
	*lines += len(want.Entries)
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
		if got.Due == journal.DueHeld && want.Due == journal.DueHeld && got.DueAt.Before(want.DueAt) {
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
