package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/journal"
)

// OpenReads lists the numbers of all effects of a destination that a read is
// owed to, due or not, above after and in their order. It reads the index only.
// A sweep takes it once: eight bytes an effect, whatever happens meanwhile.
func (db *DB) OpenReads(ctx context.Context, destination string, after int64) (ids []int64, err error) {
	err = db.read(ctx, func(c *conn) error {
		return c.each(ctx, `SELECT id FROM effect INDEXED BY effect_due
			WHERE due_at IS NOT NULL AND destination=? AND due_kind='read' AND id>?`, []any{destination, after}, func(r row) error {
			ids = append(ids, r.int(0))
			return nil
		})
	})
	slices.Sort(ids)
	return ids, err
}

// AuditScope says which closed effects an audit reads.
type AuditScope struct {
	Destination string
	Since       time.Time // closed since then
}

// Audited is one closed effect that an audit may read.
type Audited struct {
	ID       int64
	Key      string
	ByPerson bool // a person decided on it, at any time
}

// Audit lists the succeeded effects that were closed within the scope's window,
// and every closed effect that a person has decided on, in the order of their
// numbers and above after. It reads the chain of the window, and the index of
// decisions; never the effects that it does not return.
func (db *DB) Audit(ctx context.Context, scope AuditScope, after int64) (out []Audited, err error) {
	err = db.read(ctx, func(c *conn) error {
		byPerson := map[int64]bool{}
		first, err := firstEventSince(ctx, c, us(scope.Since))
		if err != nil {
			return err
		}
		w := where{}
		w.add("seq >= ?", first)
		w.movedTo([]journal.Phase{journal.Succeeded})
		err = c.each(ctx, "SELECT effect FROM event"+w.sql(), w.vals, func(r row) error {
			byPerson[r.int(0)] = false
			return nil
		})
		if err != nil {
			return err
		}
		err = c.each(ctx, "SELECT effect FROM event INDEXED BY event_decision WHERE kind='decision'", nil, func(r row) error {
			byPerson[r.int(0)] = true
			return nil
		})
		if err != nil {
			return err
		}
		for id, person := range byPerson {
			if id <= after {
				continue
			}
			key, err := c.oneStr(ctx, "SELECT key FROM effect WHERE id=? AND destination=? AND settled_at IS NOT NULL", id, scope.Destination)
			if errors.Is(err, ErrNotFound) {
				continue // pruned, of another destination, or open again
			}
			if err != nil {
				return err
			}
			out = append(out, Audited{id, key, person})
		}
		return nil
	})
	slices.SortFunc(out, func(a, b Audited) int { return int(a.ID - b.ID) })
	return out, err
}

// firstEventSince finds the first line of the chain that is not older than at,
// by halving: lines are appended in time.
func firstEventSince(ctx context.Context, c *conn, at micros) (int64, error) {
	lo, err := c.oneInt(ctx, "SELECT coalesce(min(seq),1) FROM event")
	if err != nil {
		return 0, err
	}
	hi, err := c.oneInt(ctx, "SELECT coalesce(max(seq),0)+1 FROM event")
	if err != nil {
		return 0, err
	}
	for lo < hi {
		mid := lo + (hi-lo)/2
		t, err := c.oneInt(ctx, "SELECT at FROM event WHERE seq=?", mid)
		if err != nil {
			return 0, err
		}
		if t < int64(at) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// EffectsByID returns the effects of these numbers, with payload and attempts,
// in the order asked for. One that is gone is left out.
func (db *DB) EffectsByID(ctx context.Context, ids []int64) (out []journal.Effect, err error) {
	out = make([]journal.Effect, 0, len(ids))
	query := strings.TrimSuffix(effectByKey, "e.key=?") + "e.id=?"
	err = db.read(ctx, func(c *conn) error {
		for _, id := range ids {
			r, err := c.one(ctx, query, id)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			e, _, err := effectFrom(c, r)
			if err != nil {
				return err
			}
			if e.Attempts, err = readAttempts(ctx, c, &e); err != nil {
				return err
			}
			out = append(out, e)
		}
		return nil
	})
	return out, err
}

// Recall takes an effect that was read outside of the transaction as it is in
// the journal, if it still has the same sequence number; else it is [ErrStale].
// It costs one look at the row where [Tx.Effect] reads everything again.
func (tx *Tx) Recall(e journal.Effect) (journal.Effect, error) {
	if r, ok := tx.byKey[e.Key]; ok {
		return r.e, sameSeq(r.e.Seq, e)
	}
	if _, ok := tx.db.warm[e.Key]; ok {
		r, err := tx.load(e.Key)
		if err != nil {
			return e, err
		}
		return r.e, sameSeq(r.e.Seq, e)
	}
	row, err := tx.db.w.one(context.Background(), "SELECT seq, last_event FROM effect WHERE id=?", e.ID)
	if err != nil {
		return e, tx.seen(err)
	}
	if err := sameSeq(row.int(0), e); err != nil {
		return e, err
	}
	tx.remember(&record{e: e, lastEvent: row.int(1), stored: len(e.Attempts), phase: e.Phase, review: e.Review, repairs: e.Repairs})
	return e, nil
}

func sameSeq(have int64, e journal.Effect) error {
	if have != e.Seq {
		return fmt.Errorf("%w: %s has seq %d, it was read with %d", ErrStale, e.Key, have, e.Seq)
	}
	return nil
}

// Interrupted is the result of a run that a stop or a crash ended; what follows it says why.
const Interrupted = "interrupted"

// WasInterrupted reports whether the run can go on where it was.
func (r SweepRun) WasInterrupted() bool {
	return !r.Finished.IsZero() && strings.HasPrefix(r.Result, Interrupted)
}

// LastSweep returns the newest run of a schedule, or [ErrNotFound].
func (tx *Tx) LastSweep(schedule string) (SweepRun, error) {
	r, err := tx.db.w.one(context.Background(), `SELECT id, schedule, epoch, nominal, started_at, finished_at, result, progress
		FROM sweep_run WHERE schedule=? ORDER BY id DESC LIMIT 1`, schedule)
	if err != nil {
		return SweepRun{}, tx.seen(err)
	}
	return SweepRun{
		r.int(0), r.str(1), r.int(2), micros(r.int(3)).time(), micros(r.int(4)).time(), micros(r.int(5)).time(), r.str(6), r.str(7),
	}, nil
}

// TrimSweeps forgets the oldest runs of a schedule beyond keep.
func (tx *Tx) TrimSweeps(schedule string, keep int) error {
	if err := tx.begin(); err != nil {
		return err
	}
	_, err := tx.db.w.exec(`DELETE FROM sweep_run WHERE schedule=?1 AND finished_at IS NOT NULL AND id <=
		(SELECT id FROM sweep_run WHERE schedule=?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)`, schedule, keep)
	return tx.seen(err)
}
