package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/settled-dev/settled/journal"
)

// wakeSlice bounds how many held effects one operation wakes.
const wakeSlice = 512

// HoldFor names the scope of a hold that stops a send of e; "" = none.
func (tx *Tx) HoldFor(e journal.Effect) string {
	h, ok := tx.Hold(e)
	if !ok {
		return ""
	}
	return h.Scope
}

// Hold returns a hold that stops a send of e.
func (tx *Tx) Hold(e journal.Effect) (journal.Hold, bool) {
	if len(tx.db.holds) == 0 {
		return journal.Hold{}, false
	}
	for _, scope := range scopesOf(e) {
		for _, h := range tx.db.holds[scope] {
			if h.Covers(e) {
				return h, true
			}
		}
	}
	return journal.Hold{}, false
}

// scopesOf lists every scope that covers an effect.
func scopesOf(e journal.Effect) []string {
	scopes := []string{"all", "destination:" + e.Destination, "account:" + e.Destination + "/" + e.Account, "key:" + e.Key}
	if e.Target != "" {
		scopes = append(scopes, "target:"+e.Destination+"/"+e.Target)
	}
	if e.Run != "" {
		scopes = append(scopes, "run:"+e.Run)
	}
	return scopes
}

// PutHold records a person's hold. A second hold of the same scope replaces the reason of the first.
func (tx *Tx) PutHold(h journal.Hold, by journal.By) error {
	if h.At.IsZero() {
		h.At = tx.Now()
	}
	if h.By == "" {
		h.By = by.Actor
	}
	if h.Because == "" {
		h.Because = by.Because
	}
	if err := tx.putHold(h); err != nil {
		return err
	}
	x := noteBy("hold", by, h.Because)
	x.Because = strings.TrimSuffix(h.Scope+": "+h.Because, ": ")
	return tx.Note(x)
}

// ReleaseHold ends the holds of a scope that people made, and asks for another
// look at the effects that were held back in its destination. woken counts
// those woken at once, at most 512; the others follow in later transactions. A
// scope without such a hold is [ErrNotFound].
func (tx *Tx) ReleaseHold(scope string, by journal.By) (woken int, err error) {
	if err := tx.begin(); err != nil {
		return 0, err
	}
	n, err := tx.db.w.exec("DELETE FROM hold WHERE scope=? AND raised_by=''", scope)
	if err != nil {
		return 0, tx.seen(err)
	}
	if n == 0 {
		return 0, ErrNotFound
	}
	tx.forget(scope, "")
	x := noteBy("release", by, "")
	x.Because = strings.TrimSuffix(scope+": "+by.Because, ": ")
	if err := tx.Note(x); err != nil {
		return 0, err
	}
	return tx.wake(scope)
}

func (tx *Tx) putHold(h journal.Hold) error {
	if err := tx.begin(); err != nil {
		return err
	}
	_, err := tx.db.w.exec(`INSERT INTO hold (scope, raised_by, finding, by, because, at) VALUES (?1,?2,?3,?4,?5,?6)
		ON CONFLICT DO UPDATE SET finding=?3, by=?4, because=?5, at=?6`,
		h.Scope, h.RaisedBy, string(h.Finding), h.By, h.Because, us(h.At))
	if err != nil {
		return tx.seen(err)
	}
	tx.forget(h.Scope, h.RaisedBy)
	h.At = stored(h.At)
	tx.db.holds[h.Scope] = append(tx.db.holds[h.Scope], h)
	return nil
}

func (tx *Tx) forget(scope, raisedBy string) {
	tx.holds = true
	left := slices.DeleteFunc(slices.Clone(tx.db.holds[scope]), func(h journal.Hold) bool { return h.RaisedBy == raisedBy })
	if len(left) == 0 {
		delete(tx.db.holds, scope)
		return
	}
	tx.db.holds[scope] = left
}

// keepHold follows the hold that an effect raises by itself. It has at most one.
func (tx *Tx) keepHold(ch *journal.Change) error {
	if !ch.HoldReleased && ch.HoldRaised == nil {
		return nil
	}
	if err := tx.begin(); err != nil {
		return err
	}
	key := ch.Effect.Key
	for scope, hs := range tx.db.holds {
		if !slices.ContainsFunc(hs, func(h journal.Hold) bool { return h.RaisedBy == key }) {
			continue
		}
		if _, err := tx.db.w.exec("DELETE FROM hold WHERE scope=? AND raised_by=?", scope, key); err != nil {
			return tx.seen(err)
		}
		tx.forget(scope, key)
		tx.db.wakes = append(tx.db.wakes, scope)
	}
	if ch.HoldRaised == nil {
		return nil
	}
	h := *ch.HoldRaised
	h.RaisedBy = key
	return tx.putHold(h)
}

// wake is the committer's own operation: one slice of what a release left to do.
func wake(tx *Tx) error {
	scope := tx.db.wakes[0]
	tx.db.wakes = tx.db.wakes[1:]
	_, err := tx.wake(scope)
	return err
}

// wake makes held effects due now, in the whole destination of the scope: who
// is still held by something else is held back again when looked at. An absence
// whose next attempt was held back is looked at again too.
func (tx *Tx) wake(scope string) (int, error) {
	now := us(tx.Now())
	left := int64(wakeSlice)
	for _, d := range tx.destinationsOf(scope) {
		for _, kind := range []journal.DueKind{journal.DueHeld, journal.DueResend} {
			if err := tx.begin(); err != nil {
				return 0, err
			}
			n, err := tx.db.w.exec(`UPDATE effect SET due_at=?1 WHERE id IN (SELECT id FROM effect WHERE destination=?2 AND due_kind=?4
				AND due_at > ?1 ORDER BY due_at LIMIT ?3)`, now, d, left, string(kind))
			if err != nil {
				return 0, tx.seen(err)
			}
			if left -= n; left <= 0 {
				tx.db.wakes = append(tx.db.wakes, scope)
				return wakeSlice, nil
			}
		}
	}
	return int(wakeSlice - left), nil
}

func (tx *Tx) destinationsOf(scope string) []string {
	kind, rest, _ := strings.Cut(scope, ":")
	switch kind {
	case "destination":
		return []string{rest}
	case "target", "account":
		d, _, _ := strings.Cut(rest, "/")
		return []string{d}
	}
	var all []string
	for k := range tx.db.counters {
		if !slices.Contains(all, k.destination) {
			all = append(all, k.destination)
		}
	}
	for k := range tx.delta {
		if !slices.Contains(all, k.destination) {
			all = append(all, k.destination)
		}
	}
	slices.Sort(all)
	return all
}

func (db *DB) reloadHolds(ctx context.Context) error {
	hs, err := readHolds(ctx, db.w)
	if err != nil {
		return err
	}
	db.holds = map[string][]journal.Hold{}
	for _, h := range hs {
		db.holds[h.Scope] = append(db.holds[h.Scope], h)
	}
	return nil
}

func readHolds(ctx context.Context, c *conn) (out []journal.Hold, err error) {
	err = c.each(ctx, "SELECT scope, raised_by, finding, by, because, at FROM hold ORDER BY scope, raised_by", nil, func(r row) error {
		out = append(out, journal.Hold{
			Scope: r.str(0), RaisedBy: r.str(1), Finding: journal.Finding(r.str(2)), By: r.str(3), Because: r.str(4),
			At: micros(r.int(5)).time(),
		})
		return nil
	})
	return out, err
}

func flatten(by map[string][]journal.Hold) []journal.Hold {
	var out []journal.Hold
	for _, hs := range by {
		out = append(out, hs...)
	}
	slices.SortFunc(out, func(a, b journal.Hold) int {
		if c := strings.Compare(a.Scope, b.Scope); c != 0 {
			return c
		}
		return strings.Compare(a.RaisedBy, b.RaisedBy)
	})
	return out
}

// Holds lists the holds in force, by scope.
func (db *DB) Holds(context.Context) ([]journal.Hold, error) {
	db.view.mu.RLock()
	defer db.view.mu.RUnlock()
	return slices.Clone(db.view.holds), nil
}
