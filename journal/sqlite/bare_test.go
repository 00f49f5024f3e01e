package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/settled-dev/settled/journal"
)

// An operation without a savepoint that the database refuses half-way must not
// take the others of its batch with it, nor leave anything of itself.
func TestARefusedOperationIsUndoneAloneThoughItHadNoSavepoint(t *testing.T) {
	db, now := openTest(t), epochStart()
	busy, runs := make(chan struct{}), 0
	ends := make(chan error, 4)
	go func() { ends <- db.Write(context.Background(), func(*Tx) error { <-busy; return nil }) }()
	queued := func(fn func(*Tx) error) chan error {
		end := make(chan error, 1)
		o := &op{fn: fn, done: make(chan struct{})}
		must(t, db.enqueue(context.Background(), o))
		go func() { <-o.done; end <- o.err }()
		return end
	}
	good1 := queued(func(tx *Tx) error { _, err := submitSent(tx, "a:1:v1", now); return err })
	bad := queued(func(tx *Tx) error {
		runs++
		if _, err := submitAuthorized(tx, "b:1:v1", now); err != nil {
			return err
		}
		tx.byKey["b:1:v1"].path = []step{{journal.Prepared, nil}, {journal.Succeeded, int64(1)}, {journal.Authorized, nil}} // a move that the schema refuses
		return nil
	})
	good2 := queued(func(tx *Tx) error { _, err := submitSent(tx, "c:1:v1", now); return err })
	close(busy)
	must(t, <-ends)
	must(t, <-good1)
	must(t, <-good2)
	if err := <-bad; err == nil {
		t.Fatal("the database took an illegal move")
	}
	if runs != 2 {
		t.Errorf("the refused operation ran %d times, want twice: without and with a savepoint", runs)
	}
	if _, err := db.Effect(context.Background(), "b:1:v1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("something of the refused operation is left: %v", err)
	}
	for _, key := range []string{"a:1:v1", "c:1:v1"} {
		if e, err := db.Effect(context.Background(), key); err != nil || e.Phase != journal.Dispatching {
			t.Errorf("%s: %v %v", key, e.Phase, err)
		}
	}
	rep, err := db.Verify(context.Background(), "")
	must(t, err)
	if len(rep.Problems) > 0 || db.careful {
		t.Errorf("problems %v, careful %v", rep.Problems, db.careful)
	}
}

// A release that runs again with its batch still wakes everything.
func TestAWakingThatRunsAgainWithItsBatchForgetsNothing(t *testing.T) {
	db, now := openTest(t), epochStart()
	ctx, by := context.Background(), journal.By{Actor: "uid:0", Kind: journal.Human, Because: "over"}
	must(t, db.Write(ctx, func(tx *Tx) error {
		for i := range wakeSlice + 100 {
			e, err := submitAuthorized(tx, fmt.Sprintf("k:%d:v1", i), now)
			if err != nil {
				return err
			}
			if _, err := tx.Apply(e, journal.Defer{Until: e.Deadline, Held: true}, testEnv(now)); err != nil {
				return err
			}
		}
		return tx.PutHold(journal.Hold{Scope: "all"}, by)
	}))
	entered, gate, ends := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		ends <- db.Write(ctx, func(tx *Tx) error {
			close(entered)
			<-gate
			_, err := tx.ReleaseHold("all", by) // leaves a second slice to the committer
			return err
		})
	}()
	<-entered
	go func() {
		ends <- db.Write(ctx, func(tx *Tx) error { // shares the batch of that second slice, and is refused
			if _, err := submitAuthorized(tx, "bad:1:v1", now); err != nil {
				return err
			}
			tx.byKey["bad:1:v1"].path = []step{{journal.Prepared, nil}, {journal.Succeeded, int64(1)}, {journal.Authorized, nil}}
			return nil
		})
	}()
	waitFor(t, func() bool { return len(db.queue) == 1 })
	close(gate)
	refused := 0
	for range 2 {
		if err := <-ends; err != nil {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d operations failed", refused)
	}
	waitFor(t, func() bool {
		rows, err := db.Due(ctx, "desk", []journal.DueKind{journal.DueHeld}, time.Now().Add(time.Minute), 2*wakeSlice)
		return err == nil && len(rows) == wakeSlice+100
	})
}
