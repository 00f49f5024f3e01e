package sqlite

import (
	"context"
	"errors"
	"testing"

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
