package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/journal"
)

// read lends one of the read connections to f.
func (db *DB) read(ctx context.Context, f func(*conn) error) error {
	select {
	case <-db.gone:
		return ErrClosed
	default:
	}
	select {
	case c := <-db.readers:
		defer func() { db.readers <- c }()
		return storageError(f(c))
	case <-db.gone:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func readEffect(ctx context.Context, c *conn, key string) (journal.Effect, int64, error) {
	r, err := c.one(ctx, effectByKey, key)
	if err != nil {
		return journal.Effect{}, 0, err
	}
	e, last, err := effectFrom(c, r)
	if err != nil {
		return e, 0, err
	}
	e.Attempts, err = readAttempts(ctx, c, &e)
	return e, last, err
}

func readAttempts(ctx context.Context, c *conn, e *journal.Effect) (out []journal.Attempt, err error) {
	err = c.each(ctx, "SELECT "+attemptColumns+" FROM attempt WHERE id BETWEEN ? AND ? ORDER BY id",
		[]any{e.ID * perEffect, e.ID*perEffect + perEffect - 1}, func(r row) error {
			a, err := attemptFrom(c, e, r, 0)
			out = append(out, a)
			return err
		})
	return out, err
}

// Effect returns the effect of a key with payload and attempts, or [ErrNotFound].
func (db *DB) Effect(ctx context.Context, key string) (e journal.Effect, err error) {
	err = db.read(ctx, func(c *conn) error {
		e, _, err = readEffect(ctx, c, key)
		return err
	})
	return e, err
}

func readReconciliations(ctx context.Context, c *conn, e journal.Effect) (out []journal.Reconciliation, err error) {
	err = c.each(ctx, "SELECT verdict, body FROM reconciliation WHERE id BETWEEN ? AND ? ORDER BY id",
		[]any{e.ID * perEffect, e.ID*perEffect + perEffect - 1}, func(r row) error {
			x, err := reconciliationFrom(e.Key, r.str(0), r.str(1))
			out = append(out, x)
			return err
		})
	return out, err
}

// Reconciliations returns the reads of an effect, oldest first.
func (db *DB) Reconciliations(ctx context.Context, key string) (out []journal.Reconciliation, err error) {
	err = db.read(ctx, func(c *conn) error {
		id, err := c.oneInt(ctx, "SELECT id FROM effect WHERE key=?", key)
		if err != nil {
			return err
		}
		e := journal.Effect{ID: id}
		e.Key = key
		out, err = readReconciliations(ctx, c, e)
		return err
	})
	return out, err
}

// DueRow is one effect that something is owed to.
type DueRow struct {
	Key  string
	Seq  int64
	Kind journal.DueKind
	At   time.Time
	ID   int64
}

// DueKinds lists every kind of due work.
func DueKinds() []journal.DueKind {
	return []journal.DueKind{
		journal.DueDispatch, journal.DueRead, journal.DueLease, journal.DueExpire, journal.DueResend,
		journal.DueEscalate, journal.DueHeld, journal.DueCall,
	}
}

const sqlDue = `SELECT key, seq, due_kind, due_at, id FROM effect WHERE due_at IS NOT NULL AND destination=? AND due_kind=? AND due_at<=?
 ORDER BY due_at, id LIMIT ?`

// Due lists effects of a destination whose due time has come, the most overdue
// first, at most limit. No kinds means every kind. It reads only rows that it returns.
func (db *DB) Due(ctx context.Context, destination string, kinds []journal.DueKind, now time.Time, limit int) (out []DueRow, err error) {
	if len(kinds) == 0 {
		kinds = DueKinds()
	}
	err = db.read(ctx, func(c *conn) error {
		for _, k := range kinds {
			err := c.each(ctx, sqlDue, []any{destination, string(k), us(now), limit}, func(r row) error {
				out = append(out, DueRow{r.str(0), r.int(1), journal.DueKind(r.str(2)), micros(r.int(3)).time(), r.int(4)})
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if len(kinds) > 1 {
		slices.SortFunc(out, func(a, b DueRow) int {
			if c := a.At.Compare(b.At); c != 0 {
				return c
			}
			return int(a.ID - b.ID)
		})
	}
	return out[:min(len(out), limit)], err
}

const sqlNextDue = `SELECT due_at FROM effect WHERE due_at IS NOT NULL AND destination=? AND due_kind=? AND due_at>?
 ORDER BY due_at, id LIMIT 1`

// NextDue is the earliest due time later than after; zero when there is none.
// "" means every destination, no kinds every kind. It makes one step in the
// index for each destination and kind.
func (db *DB) NextDue(ctx context.Context, destination string, kinds []journal.DueKind, after time.Time) (at time.Time, err error) {
	if len(kinds) == 0 {
		kinds = DueKinds()
	}
	destinations := []string{destination}
	if destination == "" {
		destinations = db.destinations()
	}
	err = db.read(ctx, func(c *conn) error {
		for _, d := range destinations {
			for _, k := range kinds {
				n, err := c.oneInt(ctx, sqlNextDue, d, string(k), us(after))
				if errors.Is(err, ErrNotFound) {
					continue
				}
				if err != nil {
					return err
				}
				if t := micros(n).time(); at.IsZero() || t.Before(at) {
					at = t
				}
			}
		}
		return nil
	})
	return at, err
}

// destinations lists every destination that the journal has ever had an effect of.
func (db *DB) destinations() []string {
	db.view.mu.RLock()
	defer db.view.mu.RUnlock()
	var out []string
	for k := range db.view.counters {
		if !slices.Contains(out, k.destination) {
			out = append(out, k.destination)
		}
	}
	slices.Sort(out)
	return out
}

// OpenAttempt is a call that may still send, or whose end nobody recorded.
type OpenAttempt struct {
	Key, Destination string
	Seq              int64 // of the effect
	Phase            journal.Phase
	Attempt          string // its id
	State            journal.AttemptState
	Record           journal.Attempt
}

// OpenAttempts lists every attempt that is sent, or answered but not closed, in
// the order of their effects. It reads the index of open attempts only.
func (db *DB) OpenAttempts(ctx context.Context) (out []OpenAttempt, err error) {
	err = db.read(ctx, func(c *conn) error {
		return c.each(ctx, `SELECT e.key, e.destination, e.seq, e.phase, e.account, `+attemptColumnsOf("a")+`
			FROM attempt AS a INDEXED BY attempt_open JOIN effect AS e ON e.id = a.effect
			WHERE a.slot IS NOT NULL ORDER BY a.effect, a.slot`, nil, func(r row) error {
			var e journal.Effect
			e.Key, e.Account = r.str(0), r.str(4)
			a, err := attemptFrom(c, &e, r, 5)
			out = append(out, OpenAttempt{r.str(0), r.str(1), r.int(2), journal.Phase(r.str(3)), a.ID, a.State, a})
			return err
		})
	})
	return out, err
}

func attemptColumnsOf(alias string) string {
	return alias + "." + strings.ReplaceAll(attemptColumns, ", ", ", "+alias+".")
}

// Counts is what the journal holds, from maintained counters.
type Counts struct {
	Phases         map[string]map[journal.Phase]int64 // by destination
	ReviewsOpen    map[string]int64
	ReviewsOverdue map[string]int64
}

// Total adds up one phase over all destinations.
func (c Counts) Total(p journal.Phase) (n int64) {
	for _, by := range c.Phases {
		n += by[p]
	}
	return n
}

// Counts reads the counters; it counts nothing.
func (db *DB) Counts(context.Context) (Counts, error) {
	out := Counts{map[string]map[journal.Phase]int64{}, map[string]int64{}, map[string]int64{}}
	db.view.mu.RLock()
	counters := maps.Clone(db.view.counters)
	db.view.mu.RUnlock()
	for k, n := range counters {
		switch k.name {
		case counterReviews:
			out.ReviewsOpen[k.destination] = n
		case counterOverdue:
			out.ReviewsOverdue[k.destination] = n
		default:
			if out.Phases[k.destination] == nil {
				out.Phases[k.destination] = map[journal.Phase]int64{}
			}
			out.Phases[k.destination][journal.Phase(k.name)] = n
		}
	}
	return out, nil
}

// Queued is how many effects of a destination wait to be sent: prepared, authorized and confirmed absent.
func (db *DB) Queued(destination string) int64 {
	db.view.mu.RLock()
	defer db.view.mu.RUnlock()
	n := int64(0)
	for _, p := range []journal.Phase{journal.Prepared, journal.Authorized, journal.ConfirmedAbsent} {
		n += db.view.counters[counterKey{destination, string(p)}]
	}
	return n
}

// OldestUnknown is since when the longest open doubt exists, and its key; zero when nothing is in doubt.
func (db *DB) OldestUnknown(ctx context.Context) (since time.Time, key string, err error) {
	err = db.read(ctx, func(c *conn) error {
		r, err := c.one(ctx, "SELECT doubt_at, key FROM effect WHERE doubt_at IS NOT NULL ORDER BY doubt_at LIMIT 1")
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err == nil {
			since, key = micros(r.int(0)).time(), r.str(1)
		}
		return err
	})
	return since, key, err
}

// Head is the newest line of the chain and its hash in hex.
func (db *DB) Head() (seq int64, hash string) {
	db.view.mu.RLock()
	defer db.view.mu.RUnlock()
	s := db.view.head.String()
	return db.view.head.seq, s[strings.IndexByte(s, ':')+1:]
}

// ReviewItem is an open review and the effect that it is about.
type ReviewItem struct {
	Key, Destination string
	Review           journal.Review
}

// Reviews lists the open reviews, the most urgent first: overdue, then by due
// time. The filter's owner, destination, key and finding count; at most limit (0 = 1000).
func (db *DB) Reviews(ctx context.Context, f journal.Filter, limit int) (out []ReviewItem, err error) {
	if limit <= 0 {
		limit = 1000
	}
	q := where{}
	q.in("owner", f.Owners)
	q.in("destination", f.Destinations)
	q.key(f.Keys)
	err = db.read(ctx, func(c *conn) error {
		return c.each(ctx, "SELECT key, destination, body FROM review"+q.sql()+" ORDER BY overdue DESC, due_at, effect LIMIT ?",
			append(q.vals, limit), func(r row) error {
				var b reviewRow
				if err := json.Unmarshal([]byte(r.str(2)), &b); err != nil {
					return fmt.Errorf("review of %s: %w: %w", r.str(0), ErrCorrupt, err)
				}
				item := ReviewItem{r.str(0), r.str(1), b.domain()}
				if len(f.Findings) == 0 || slices.Contains(f.Findings, item.Review.Finding) {
					out = append(out, item)
				}
				return nil
			})
	})
	return out, err
}
