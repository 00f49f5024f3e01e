package sqlite

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/settled-dev/settled/journal"
)

// What the committer keeps at hand must be what the file says, whatever was
// done to the effect since: a line about it, a failed operation, an answer.
func TestAnEffectInFlightIsKeptAtHandAsItStandsInTheFile(t *testing.T) {
	ctx, now := context.Background(), epochStart()
	for _, c := range []struct {
		name string
		then func(db *DB, key string)
		warm bool // still at hand afterwards
	}{
		{"nothing more", func(*DB, string) {}, true},
		{"a line about it", func(db *DB, key string) {
			must(t, db.Write(ctx, func(tx *Tx) error { return tx.Note(journal.Entry{Kind: "note", Key: key}) }))
		}, false},
		{"a conflict about it", func(db *DB, key string) {
			in := testIntent(key, now)
			in.Fingerprint = "sha256:ff00000000000000000000000000000000000000000000000000000000000000"
			var conflict *journal.ConflictError
			err := db.Write(ctx, func(tx *Tx) error {
				_, _, err := tx.Submit(in, testEnv(now), false)
				return err
			})
			if !errors.As(err, &conflict) {
				t.Fatalf("submit gave %v", err)
			}
		}, false},
		{"an operation that failed", func(db *DB, key string) {
			boom := errors.New("boom")
			err := db.Write(ctx, func(tx *Tx) error {
				if _, err := answer(tx, key, now); err != nil {
					return err
				}
				return boom
			})
			if !errors.Is(err, boom) {
				t.Fatalf("write gave %v", err)
			}
		}, true},
		{"an operation that failed after it had stored evidence", func(db *DB, key string) {
			boom := errors.New("boom")
			err := db.Write(ctx, func(tx *Tx) error {
				if _, err := tx.PutEvidence(key, journal.Evidence{At: now, Source: journal.FromAdapter, Kind: "dispatch"}); err != nil {
					return err
				}
				if _, err := submitSent(tx, "ticket:2:create:v1", now); err != nil {
					return err
				}
				return boom
			})
			if !errors.Is(err, boom) {
				t.Fatalf("write gave %v", err)
			}
			if w, ok := db.warm["ticket:2:create:v1"]; ok {
				t.Errorf("an effect that was undone is at hand as %s", w.e.Phase)
			}
		}, true},
		{"its answer", func(db *DB, key string) {
			write(t, db, func(tx *Tx) (journal.Effect, error) { return answer(tx, key, now) })
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			db, key := openTest(t), "ticket:1:create:v1"
			write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, key, now) })
			var w warm
			var ok bool
			var e journal.Effect
			var last int64
			look := func() {
				w, ok = db.warm[key]
				var err error
				if e, last, err = readEffect(ctx, db.w, key); err != nil {
					t.Error(err)
				}
			}
			onCommitter(t, db, look)
			if !ok {
				t.Fatal("an effect in flight is not at hand")
			}
			c.then(db, key)
			onCommitter(t, db, look)
			if ok != c.warm {
				t.Errorf("at hand: %v, want %v", ok, c.warm)
			}
			if ok && (!reflect.DeepEqual(w.e, e) || w.lastEvent != last) {
				t.Errorf("at hand %+v (line %d)\nin the file %+v (line %d)", w.e, w.lastEvent, e, last)
			}
			if e.Phase == journal.Dispatching {
				write(t, db, func(tx *Tx) (journal.Effect, error) { return answer(tx, key, now) })
			}
			rep, err := db.Verify(ctx, "")
			must(t, err)
			if len(rep.Problems) > 0 {
				t.Errorf("the chain: %v", rep.Problems)
			}
		})
	}
}

// Two operations of one batch on one effect: the second must see the first.
func TestAnEffectChangedEarlierInTheBatchIsReadFromTheFile(t *testing.T) {
	db, now := openTest(t), epochStart()
	for _, noted := range []bool{false, true} {
		key := map[bool]string{false: "a:1:v1", true: "b:1:v1"}[noted]
		write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, key, now) })
		hold := make(chan struct{})
		first := make(chan error, 2)
		go func() { // keeps the committer busy until both are queued
			first <- db.Write(context.Background(), func(*Tx) error { <-hold; return nil })
		}()
		done := make(chan journal.Effect, 2)
		for range 2 {
			go func() {
				var e journal.Effect
				_ = db.Write(context.Background(), func(tx *Tx) error {
					var err error
					if e, err = tx.Effect(key); err != nil || e.Phase != journal.Dispatching {
						return err
					}
					e, err = answer(tx, key, now)
					return err
				})
				done <- e
			}()
		}
		close(hold)
		must(t, <-first)
		for range 2 {
			if e := <-done; e.Phase == journal.Dispatching {
				t.Errorf("an operation saw %s after another of its batch had answered it", e.Phase)
			}
		}
	}
}
