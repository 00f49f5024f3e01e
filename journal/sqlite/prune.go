package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/settled-dev/settled/journal"
)

// pruneSlice bounds the rows of one operation, so that pruning never holds the committer for long.
const pruneSlice = 500

// PruneReport says what a prune removed.
type PruneReport struct {
	Effects  int64 // whole effects; their keys stay in the ledger
	Payloads int64 // payloads and evidence bodies; their digests stay
}

// Prune removes effects that settled before settled, and payloads and evidence
// bodies of effects that settled before payload: payloads first, rows last.
// Never anything open or in review, nor an effect whose newest line in the chain
// is younger, so that what a person acted on lately stays. The binding of each key stays in the ledger, the chain stays whole.
// It works in slices of 500 in id order, each an ordinary operation.
func (db *DB) Prune(ctx context.Context, settled, payload time.Time) (out PruneReport, err error) {
	for walk := (payloadWalk{before: us(payload)}); err == nil && !walk.end; {
		next := walk
		err = db.Write(ctx, func(tx *Tx) error {
			next = walk // it may be run twice
			return tx.prunePayloads(&next)
		})
		if err == nil {
			walk = next
		}
		out.Payloads = walk.pruned
	}
	id := int64(0)
	for err == nil {
		var n, last int64
		err = db.Write(ctx, func(tx *Tx) (err error) {
			last, n, err = tx.pruneEffects(id, us(settled))
			return err
		})
		out.Effects += n
		if err != nil || last == 0 {
			break
		}
		id = last
	}
	for more := true; more && err == nil; {
		err = db.Write(ctx, func(tx *Tx) (err error) {
			more, err = tx.pruneWebhooks(us(settled))
			return err
		})
	}
	if err == nil && out.Effects+out.Payloads > 0 {
		err = db.Write(ctx, func(tx *Tx) error {
			if err := tx.begin(); err != nil {
				return err
			}
			return tx.Note(journal.Entry{
				Kind: "prune", Actor: "settled", ActorKind: journal.System, Origin: "engine",
				Because: fmt.Sprintf("%d effects, %d payloads", out.Effects, out.Payloads),
			})
		})
	}
	if err != nil {
		return out, fmt.Errorf("prune: %w", err)
	}
	return out, db.vacuum(ctx)
}

// pruneEffects looks at up to a slice of effects after id, which lie in the
// order of their submission, and stops at the first that was submitted too late
// to be old. last is where to go on; 0 at the end.
func (tx *Tx) pruneEffects(id int64, before micros) (last, n int64, err error) {
	type victim struct {
		id          int64
		destination string
		phase       string
	}
	var list []victim
	seen := 0
	err = tx.db.w.each(context.Background(), `SELECT e.id, e.destination, e.phase, e.settled_at, r.effect IS NOT NULL, coalesce(x.at, 0) FROM effect AS e
		LEFT JOIN review AS r ON r.effect = e.id LEFT JOIN event AS x ON x.seq = e.last_event WHERE e.id > ? AND e.submitted_at < ? ORDER BY e.id LIMIT ?`,
		[]any{id, before, pruneSlice}, func(r row) error {
			seen++
			last = r.int(0)
			if at := r.int(3); at > 0 && at < int64(before) && r.int(4) == 0 && r.int(5) < int64(before) {
				list = append(list, victim{r.int(0), r.str(1), r.str(2)})
			}
			return nil
		})
	if err != nil {
		return 0, 0, tx.seen(err)
	}
	if seen < pruneSlice {
		last = 0
	}
	for _, v := range list {
		if err := tx.begin(); err != nil {
			return 0, 0, err
		}
		if _, err := tx.db.w.exec("DELETE FROM effect WHERE id=?", v.id); err != nil {
			return 0, 0, tx.seen(err)
		}
		tx.count(v.destination, v.phase, -1)
		tx.db.ledger = 1
	}
	if len(list) > 0 {
		err = tx.db.putSetting("next_id", fmt.Sprint(tx.db.nextID)) // row numbers are never used again
	}
	return last, int64(len(list)), tx.seen(err)
}

// payloadWalk is how far one prune has come through the payloads. The place
// where the next one begins is kept in the journal: before it, everything is pruned.
type payloadWalk struct {
	before micros
	id     int64 // 0 = begin where the last prune ended
	gap    bool  // something before id must stay
	end    bool
	pruned int64
}

// prunePayloads looks at up to a slice of effects.
func (tx *Tx) prunePayloads(w *payloadWalk) (err error) {
	if w.id == 0 {
		if w.id, err = tx.db.settingInt("payloads_pruned_to"); err != nil {
			return tx.seen(err)
		}
	}
	var ids []int64
	seen, to := 0, int64(0)
	err = tx.db.w.each(context.Background(), `SELECT e.id, max(e.settled_at, coalesce(x.at, 0)), i.payload IS NOT NULL
		FROM effect AS e JOIN intent AS i ON i.effect = e.id LEFT JOIN event AS x ON x.seq = e.last_event
		WHERE e.id > ? AND e.submitted_at < ? ORDER BY e.id LIMIT ?`, []any{w.id, w.before, pruneSlice}, func(r row) error {
		seen++
		w.id = r.int(0)
		if at := r.int(1); at == 0 || at >= int64(w.before) {
			w.gap = true
			return nil
		}
		if r.int(2) == 1 {
			ids = append(ids, w.id)
		}
		if !w.gap {
			to = w.id
		}
		return nil
	})
	w.end = seen < pruneSlice
	if err != nil || to == 0 && len(ids) == 0 {
		return tx.seen(err)
	}
	if err := tx.begin(); err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := tx.db.w.exec("UPDATE intent SET payload=NULL WHERE effect=?", id); err != nil {
			return tx.seen(err)
		}
		if _, err := tx.db.w.exec("UPDATE evidence SET body=NULL WHERE body IS NOT NULL AND id BETWEEN ? AND ?",
			id*perEffect, id*perEffect+perEffect-1); err != nil {
			return tx.seen(err)
		}
	}
	w.pruned += int64(len(ids))
	if to > 0 {
		err = tx.db.putSetting("payloads_pruned_to", fmt.Sprint(to))
	}
	return tx.seen(err)
}

// vacuum gives freed pages back, a few at a time, so that the log stays small.
func (db *DB) vacuum(ctx context.Context) error {
	for range 64 {
		st, err := db.Stats(ctx)
		if err != nil || st.FreePages < 256 {
			return err
		}
		err = db.Write(ctx, func(tx *Tx) error {
			if err := tx.begin(); err != nil {
				return err
			}
			return tx.seen(db.w.each(context.Background(), "PRAGMA incremental_vacuum(256)", nil, func(row) error { return nil }))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
