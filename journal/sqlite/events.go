package sqlite

import (
	"context"
	"encoding/hex"
	"strings"

	"github.com/settled-dev/settled/journal"
)

// maxEventsOf bounds the lines read for one effect.
const maxEventsOf = 10_000

// EventFilter is another name of the filter that [DB.Events] takes.
type EventFilter = journal.Filter

// Events returns the lines after the sequence number that the filter selects,
// oldest first, at most limit (0 = 100). phase is the phase that a transition
// led to; key, run, kind and actor are those of the line; every other field is
// asked of the effect that the line is about, as it is now. Without a filter a
// page costs what it holds.
func (db *DB) Events(ctx context.Context, after int64, f journal.Filter, limit int) (out []journal.Entry, err error) {
	if limit <= 0 {
		limit = 100
	}
	w := where{}
	w.add("seq > ?", after)
	w.key(f.Keys)
	w.in("kind", f.Kinds)
	w.in("run", f.Runs)
	w.in("actor", f.Actors)
	w.in("to_phase", words(f.Phases))
	about := where{}
	f.Keys, f.Runs, f.Phases, f.Kinds, f.Actors = nil, nil, nil, nil, nil
	db.effectWhere(&about, f)
	if len(about.conds) > 0 {
		w.add("EXISTS (SELECT 1 FROM effect AS e JOIN intent AS i ON i.effect = e.id WHERE e.key = event.key AND "+
			strings.Join(about.conds, " AND ")+")", about.vals...)
	}
	err = db.read(ctx, func(c *conn) error {
		prev := int64(-1) // the line before the next one of the page, when it is known
		var prevHash [32]byte
		var gaps []int
		err := c.each(ctx, "SELECT "+eventColumns+" FROM event"+w.sql()+" ORDER BY seq LIMIT ?", append(w.vals, limit), func(r row) error {
			x, hash := entryFrom(r)
			if prev == x.Seq-1 {
				x.PrevHash = hex.EncodeToString(prevHash[:])
			} else {
				gaps = append(gaps, len(out))
			}
			prev, prevHash = x.Seq, hash
			out = append(out, x)
			return nil
		})
		if err != nil {
			return err
		}
		for _, i := range gaps {
			if out[i].PrevHash, err = hashAt(ctx, c, out[i].Seq-1); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// EventsOf returns the newest lines about one key, oldest first, at most limit
// (0 = 10000). It follows the links from line to line.
func (db *DB) EventsOf(ctx context.Context, key string, limit int) (out []journal.Entry, err error) {
	if limit <= 0 || limit > maxEventsOf {
		limit = maxEventsOf
	}
	err = db.read(ctx, func(c *conn) error {
		out, err = readEventsOf(ctx, c, key, limit)
		return err
	})
	return out, err
}

func readEventsOf(ctx context.Context, c *conn, key string, limit int) ([]journal.Entry, error) {
	seq, err := c.oneInt(ctx, "SELECT last_event FROM effect WHERE key=?", key)
	if err != nil {
		return nil, err
	}
	var out []journal.Entry
	for seq > 0 && len(out) < limit {
		r, err := c.one(ctx, "SELECT "+eventColumns+" FROM event WHERE seq=?", seq)
		if err != nil {
			break // older lines are sealed and pruned
		}
		x, _ := entryFrom(r)
		if x.PrevHash, err = hashAt(ctx, c, seq-1); err != nil {
			return nil, err
		}
		out = append(out, x)
		seq = r.int(16)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, nil
}

// hashAt is the hash of one line in hex; of a pruned or missing one, what its seal says, or zeros before the first.
func hashAt(ctx context.Context, c *conn, seq int64) (string, error) {
	if seq <= 0 {
		return strings.Repeat("0", 64), nil
	}
	var hash []byte
	err := c.each(ctx, "SELECT hash FROM event WHERE seq=?1 UNION ALL SELECT hash FROM audit_seal WHERE last_seq=?1", []any{seq},
		func(r row) error {
			hash = r.blob(0)
			return nil
		})
	return hex.EncodeToString(hash), err
}
