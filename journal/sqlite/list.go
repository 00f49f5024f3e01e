package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/settled-dev/settled/journal"
)

// where collects conditions and their values.
type where struct {
	conds []string
	vals  []any
}

func (w *where) add(cond string, vals ...any) {
	w.conds = append(w.conds, cond)
	w.vals = append(w.vals, vals...)
}

func (w *where) in(column string, list []string) {
	if len(list) == 0 {
		return
	}
	for _, v := range list {
		w.vals = append(w.vals, v)
	}
	w.conds = append(w.conds, column+" IN (?"+strings.Repeat(",?", len(list)-1)+")")
}

// key turns patterns into equality, a range of the index with GLOB, or GLOB alone.
func (w *where) key(patterns []string) {
	var alts []string
	for _, p := range patterns {
		prefix, _, star := strings.Cut(p, "*")
		switch {
		case !star:
			alts = append(alts, "key = ?")
			w.vals = append(w.vals, p)
		case prefix == "":
			alts = append(alts, "key GLOB ?")
			w.vals = append(w.vals, escapeGlob(p))
		default:
			alts = append(alts, "(key >= ? AND key < ? AND key GLOB ?)")
			w.vals = append(w.vals, prefix, prefix[:len(prefix)-1]+string(prefix[len(prefix)-1]+1), escapeGlob(p))
		}
	}
	if len(alts) > 0 {
		w.conds = append(w.conds, "("+strings.Join(alts, " OR ")+")")
	}
}

func escapeGlob(p string) string {
	return strings.NewReplacer("?", "[?]", "[", "[[]").Replace(p)
}

func (w *where) sql() string {
	if len(w.conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conds, " AND ")
}

func words[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// few is how many effects may be sorted instead of being found in the order of the list.
const few = 5000

// List returns effects that the filter selects, newest first, at most limit (0
// = 100), with their attempts and without their payloads. next is the cursor of
// the following page, "" at the end. A page costs what it holds when the filter
// names phases; other filters may read past effects that they do not select.
func (db *DB) List(ctx context.Context, f journal.Filter, cursor string, limit int) (out []journal.Effect, next string, err error) {
	if limit <= 0 {
		limit = 100
	}
	if len(f.Kinds) > 0 {
		return nil, "", errors.New("filter: kind selects lines of the audit chain, not effects")
	}
	w := where{}
	if cursor != "" {
		id, err := strconv.ParseInt(cursor, 10, 64)
		if err != nil || id < 1 {
			return nil, "", fmt.Errorf("cursor %q is not one that a list returned", cursor)
		}
		w.add("e.id < ?", id)
	}
	from := db.effectWhere(&w, f)
	columns := strings.TrimSuffix(effectColumns, "i.payload") + "NULL"
	query := "SELECT " + columns + " FROM " + from + " JOIN intent AS i ON i.effect = e.id" + w.sql() + " ORDER BY e.id DESC LIMIT ?"
	err = db.read(ctx, func(c *conn) error {
		err := c.each(ctx, query, append(w.vals, limit+1), func(r row) error {
			e, _, err := effectFrom(c, r)
			out = append(out, e)
			return err
		})
		if err != nil {
			return err
		}
		if len(out) > limit {
			out = out[:limit]
			next = strconv.FormatInt(out[limit-1].ID, 10)
		}
		for i := range out {
			if out[i].Attempts, err = readAttempts(ctx, c, &out[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return out, next, err
}

// effectWhere adds the filter's conditions and returns the table with the index that suits them.
func (db *DB) effectWhere(w *where, f journal.Filter) string {
	w.in("e.phase", words(f.Phases))
	w.in("e.finding", words(f.Findings))
	w.in("e.destination", f.Destinations)
	w.in("e.operation", f.Operations)
	w.in("e.account", f.Accounts)
	w.in("e.owner", f.Owners)
	w.in("json_extract(i.body,'$.run')", f.Runs)
	w.in("json_extract(i.body,'$.actor')", f.Actors)
	if len(f.Keys) > 0 {
		k := where{}
		k.key(f.Keys)
		w.add(strings.ReplaceAll(k.conds[0], "key ", "e.key "), k.vals...)
	}
	if !f.Before.IsZero() {
		w.add("e.submitted_at < ?", us(f.Before))
	}
	if len(f.Standings) > 0 {
		w.add(standingSQL(f.Standings))
	}
	if len(f.Keys) > 0 {
		return "effect AS e"
	}
	return db.index(w, f)
}

// index chooses between the index of effects that somebody looks for, the index
// of due work, and the table in its own order.
func (db *DB) index(w *where, f journal.Filter) string {
	if len(f.Phases) == 0 {
		return "effect AS e NOT INDEXED"
	}
	sought, open, n := true, true, int64(0)
	db.view.mu.RLock()
	for _, p := range f.Phases {
		sought = sought && attention(p) != nil
		open = open && !p.Closed() && p != journal.NeedsHuman && p != journal.Repairing
		for k, c := range db.view.counters {
			if k.name == string(p) {
				n += c
			}
		}
	}
	db.view.mu.RUnlock()
	switch {
	case sought && (n < few || len(f.Phases) == 1):
		w.in("e.attention", words(f.Phases))
		return "effect AS e INDEXED BY effect_attention"
	case open && n < few:
		w.add("e.due_at IS NOT NULL")
		return "effect AS e INDEXED BY effect_due"
	}
	return "effect AS e NOT INDEXED"
}

// standingSQL spells the derivation of the standing, which is stored nowhere.
func standingSQL(list []journal.Standing) string {
	var alts []string
	for _, p := range journal.Phases() {
		var fs []string
		for _, f := range []journal.Finding{
			journal.FindingNone, journal.FindingNotSent, journal.FindingRejected, journal.FindingAccepted, journal.FindingMatches,
			journal.FindingPartial, journal.FindingDuplicate, journal.FindingConflicts, journal.FindingPostconditionFailed,
			journal.FindingAbsent, journal.FindingUnknown,
		} {
			for _, s := range list {
				if journal.StandingOf(p, f) == s {
					fs = append(fs, "'"+string(f)+"'")
				}
			}
		}
		if len(fs) > 0 {
			alts = append(alts, "(e.phase='"+string(p)+"' AND e.finding IN ("+strings.Join(fs, ",")+"))")
		}
	}
	if len(alts) == 0 {
		return "0"
	}
	return "(" + strings.Join(alts, " OR ") + ")"
}
