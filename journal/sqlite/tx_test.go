package sqlite

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/settled-dev/settled/journal"
)

func TestFusedEffectGoesFromSubmitToSucceededInTwoCommits(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	before, err := db.Stats(ctx)
	must(t, err)

	sent := write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "ticket:1:create:v1", now) })
	if sent.Phase != journal.Dispatching || sent.ID == 0 {
		t.Fatalf("after the first commit: phase %s id %d", sent.Phase, sent.ID)
	}
	open, err := db.OpenAttempts(ctx)
	must(t, err)
	if len(open) != 1 || open[0].State != journal.AttemptSent || open[0].Key != sent.Key {
		t.Fatalf("open attempts: %+v", open)
	}
	onDisk, err := db.Effect(ctx, sent.Key)
	must(t, err)
	if !reflect.DeepEqual(onDisk, sent) {
		t.Errorf("the effect on disk differs:\n%+v\n%+v", onDisk, sent)
	}

	done := write(t, db, func(tx *Tx) (journal.Effect, error) { return answer(tx, sent.Key, now.Add(time.Second)) })
	if done.Phase != journal.Succeeded || done.Outcome.ObjectID != "T-ticket:1:create:v1" {
		t.Fatalf("after the answer: %s %+v", done.Phase, done.Outcome)
	}
	onDisk, err = db.Effect(ctx, sent.Key)
	must(t, err)
	if !reflect.DeepEqual(onDisk, done) {
		t.Errorf("the effect on disk differs:\n%+v\n%+v", onDisk, done)
	}
	after, err := db.Stats(ctx)
	must(t, err)
	if n := after.Commits - before.Commits; n != 2 {
		t.Errorf("%d commits, want 2", n)
	}
	counts, err := db.Counts(ctx)
	must(t, err)
	if counts.Total(journal.Succeeded) != 1 || counts.Total(journal.Dispatching) != 0 {
		t.Errorf("counts: %+v", counts)
	}
	lines, err := db.EventsOf(ctx, sent.Key, 0)
	must(t, err)
	var moves []int
	for _, x := range lines {
		moves = append(moves, x.Transition)
	}
	if !reflect.DeepEqual(moves, []int{1, 2, 4, 10, 15}) {
		t.Errorf("transitions in the chain: %v", moves)
	}
}

func TestSameKeyAgainReturnsTheEffectAndWritesNothing(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	first := write(t, db, func(tx *Tx) (journal.Effect, error) { return submitAuthorized(tx, "a:1:v1", now) })
	seq, hash := db.Head()
	var again journal.Effect
	var created bool
	must(t, db.Write(ctx, func(tx *Tx) (err error) {
		again, created, err = tx.Submit(testIntent("a:1:v1", now.Add(time.Hour)), testEnv(now.Add(time.Hour)), false)
		return err
	}))
	if created || !reflect.DeepEqual(first, again) {
		t.Errorf("created %v, effect %+v", created, again)
	}
	if s, h := db.Head(); s != seq || h != hash {
		t.Errorf("the chain grew to %d", s)
	}
}

func TestAnotherRequestUnderAKeyIsRefusedAndRecorded(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	first := write(t, db, func(tx *Tx) (journal.Effect, error) { return submitAuthorized(tx, "a:1:v1", now) })
	other := testIntent("a:1:v1", now)
	other.Fingerprint = "sha256:other"
	err := db.Write(ctx, func(tx *Tx) error {
		if err := tx.Note(journal.Entry{Kind: "lost with the operation"}); err != nil {
			return err
		}
		_, _, err := tx.Submit(other, testEnv(now), false)
		return err
	})
	var conflict *journal.ConflictError
	if !errors.As(err, &conflict) || conflict.Bound != first.Fingerprint || conflict.Given != other.Fingerprint {
		t.Fatalf("error: %v", err)
	}
	lines, err := db.EventsOf(ctx, "a:1:v1", 0)
	must(t, err)
	if last := lines[len(lines)-1]; last.Kind != "conflict" {
		t.Errorf("the last line is %+v, want the conflict", last)
	}
	all, err := db.Events(ctx, 0, journal.Filter{Kinds: []string{"lost with the operation"}}, 10)
	must(t, err)
	if len(all) != 0 {
		t.Error("what the failed operation noted was kept")
	}
	if e, err := db.Effect(ctx, "a:1:v1"); err != nil || !reflect.DeepEqual(e, first) {
		t.Errorf("the effect changed: %+v %v", e, err)
	}
	verifies(t, db)
}

func TestAnOperationThatFailsHarmsNoOtherOfItsBatch(t *testing.T) {
	gate := make(chan struct{})
	opts := testOptions(t)
	db := openAt(t, opts)
	ctx, now := context.Background(), epochStart()
	results := make(chan error, 3)
	entered := make(chan struct{})
	go func() { results <- db.Write(ctx, func(tx *Tx) error { close(entered); <-gate; return nil }) }()
	<-entered
	boom := errors.New("boom")
	queue := func(fn func(*Tx) error) {
		n := len(db.queue)
		go func() { results <- db.Write(ctx, fn) }()
		waitFor(t, func() bool { return len(db.queue) > n })
	}
	queue(func(tx *Tx) error {
		_, err := submitSent(tx, "good:1:v1", now)
		return err
	})
	queue(func(tx *Tx) error {
		if _, err := submitSent(tx, "bad:1:v1", now); err != nil {
			return err
		}
		if err := tx.PutHold(journal.Hold{Scope: "all"}, journal.By{Actor: "x"}); err != nil {
			return err
		}
		return boom
	})
	close(gate)
	failed := 0
	for range 3 {
		if err := <-results; err != nil {
			failed++
			if !errors.Is(err, boom) {
				t.Errorf("error: %v", err)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d operations failed, want 1", failed)
	}
	if _, err := db.Effect(ctx, "good:1:v1"); err != nil {
		t.Errorf("the good effect: %v", err)
	}
	if _, err := db.Effect(ctx, "bad:1:v1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the bad effect: %v", err)
	}
	if hs, _ := db.Holds(ctx); len(hs) != 0 {
		t.Errorf("holds: %v", hs)
	}
	verifies(t, db)
}

func TestAChangeMadeFromAnOldEffectIsRefused(t *testing.T) {
	db := openTest(t)
	now := epochStart()
	old := write(t, db, func(tx *Tx) (journal.Effect, error) {
		e, _, err := tx.Submit(testIntent("a:1:v1", now), testEnv(now), false)
		return e, err
	})
	write(t, db, func(tx *Tx) (journal.Effect, error) { return tx.Apply(old, grant(now), testEnv(now)) })
	err := db.Write(context.Background(), func(tx *Tx) error {
		_, err := tx.Apply(old, grant(now), testEnv(now))
		return err
	})
	if !errors.Is(err, ErrStale) {
		t.Errorf("error: %v", err)
	}
}

// waitFor polls without sleeping long; it gives up after some seconds.
func waitFor(tb testing.TB, ok func() bool) {
	tb.Helper()
	for range 10_000 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
	tb.Fatal("waited in vain")
}

// verifies asserts that chain, effects and counters agree.
func verifies(tb testing.TB, db *DB) {
	tb.Helper()
	r, err := db.Verify(context.Background(), "")
	if err != nil || r.Err() != nil {
		tb.Errorf("verify: %v %v", err, r.Problems)
	}
}

func TestAnOperationThatTheDatabaseRefusesLeavesNoTrace(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitAuthorized(tx, "a:1:v1", now) })
	seq, hash := db.Head()
	err := db.Write(ctx, func(tx *Tx) error {
		e, err := submitSent(tx, "b:1:v1", now)
		if err != nil {
			return err
		}
		if err := tx.SetDispatchOff("a reason that is rolled back"); err != nil {
			return err
		}
		e.Finding = "no such finding" // written after the lines of the chain, and refused
		tx.byKey[e.Key].e = e
		return nil
	})
	if !conflictOf(err) {
		t.Fatalf("error: %v", err)
	}
	if s, h := db.Head(); s != seq || h != hash || db.DispatchOff() != "" {
		t.Errorf("head %d, dispatch off %q", s, db.DispatchOff())
	}
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "c:1:v1", now) })
	must(t, db.Write(ctx, func(tx *Tx) error {
		if tx.DispatchOff() != "" {
			t.Errorf("dispatch is off: %s", tx.DispatchOff())
		}
		return nil
	}))
	verifies(t, db)
}

func TestAPanicIsOneOperationsOwnError(t *testing.T) {
	db := openTest(t)
	err := db.Write(context.Background(), func(tx *Tx) error {
		if _, err := submitSent(tx, "a:1:v1", epochStart()); err != nil {
			return err
		}
		panic("a bug")
	})
	if err == nil {
		t.Fatal("no error")
	}
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "a:1:v1", epochStart()) })
	verifies(t, db)
}

func TestAContextCountsOnlyBeforeTheOperationIsQueued(t *testing.T) {
	db := openTest(t)
	ctx, cancel := context.WithCancel(context.Background())
	must(t, db.Write(ctx, func(tx *Tx) error {
		cancel()
		return tx.Note(journal.Entry{Kind: "kept"})
	}))
	if seq, _ := db.Head(); seq != 1 {
		t.Errorf("head %d", seq)
	}
	if err := db.Write(ctx, func(*Tx) error { t.Error("ran"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
}
