package sqlite

import (
	"context"
	"encoding/hex"
	"slices"
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
	w.aboutKey(f.Keys)
	w.in("coalesce(kind, 'transition')", f.Kinds)
	w.in("run", f.Runs)
	w.actor(f.Actors)
	w.movedTo(f.Phases)
	about := where{}
	f.Keys, f.Runs, f.Phases, f.Kinds, f.Actors = nil, nil, nil, nil, nil
	db.effectWhere(&about, f)
	if len(about.conds) > 0 {
		w.add("EXISTS (SELECT 1 FROM effect AS e JOIN intent AS i ON i.effect = e.id WHERE e.id = event.effect AND "+
			strings.Join(about.conds, " AND ")+")", about.vals...)
	}
	err = db.read(ctx, func(c *conn) error {
		prev := int64(-1) // the line before the next one of the page, when it is known
		var prevHash [32]byte
		var gaps []int
		err := c.each(ctx, "SELECT "+eventColumns+" FROM event"+w.sql()+" ORDER BY seq LIMIT ?", append(w.vals, limit), func(r row) error {
			x, _, hash, err := entryFrom(c, r)
			if err != nil {
				return err
			}
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

// aboutKey selects lines by the key of their effect, pruned or not.
func (w *where) aboutKey(patterns []string) {
	if len(patterns) == 0 {
		return
	}
	k := where{}
	k.key(patterns)
	w.add("(effect IN (SELECT id FROM effect WHERE "+k.conds[0]+" UNION ALL SELECT id FROM key_ledger WHERE "+k.conds[0]+") OR "+k.conds[0]+")",
		slices.Concat(k.vals, k.vals, k.vals)...)
}

// actor selects lines by who acted, which is the first part of a term or of a text.
func (w *where) actor(list []string) {
	var alts []string
	var vals []any
	for _, a := range list {
		from, to := a+termSep, a+string(termSep[0]+1)
		alts = append(alts, "(who IN (SELECT id FROM term WHERE value >= ? AND value < ?) OR (typeof(who) = 'text' AND who >= ? AND who < ?))")
		vals = append(vals, from, to, from, to)
	}
	if len(alts) > 0 {
		w.add("("+strings.Join(alts, " OR ")+")", vals...)
	}
}

// movedTo selects transitions by the phase that they led to.
func (w *where) movedTo(phases []journal.Phase) {
	if len(phases) == 0 {
		return
	}
	numbers := make([]any, len(phases))
	for i, p := range phases {
		numbers[i] = phaseNumber(p)
	}
	w.add("move % 100 IN (?"+strings.Repeat(",?", len(phases)-1)+")", numbers...)
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
		x, back, _, err := entryFrom(c, r)
		if err != nil {
			return nil, err
		}
		if x.PrevHash, err = hashAt(ctx, c, seq-1); err != nil {
			return nil, err
		}
		out = append(out, x)
		seq = back
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
