package desk

import (
	"slices"
	"strings"
	"time"
)

// Arrival is one create request that reached the desk, whatever became of it.
type Arrival struct {
	At             time.Time `json:"at"`
	Fault          Fault     `json:"fault"`
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
}

// Commit is one ticket that came into being.
type Commit struct {
	At     time.Time `json:"at"`
	ID     string    `json:"id"`
	Digest string    `json:"digest,omitempty"`
}

// Removal is one ticket that was deleted.
type Removal struct {
	At time.Time `json:"at"`
	ID string    `json:"id"`
}

// Entry is the truth about one external reference.
type Entry struct {
	Ref      string    `json:"ref"` // as requested, also where the desk dropped it
	Requests []Arrival `json:"requests"`
	Commits  []Commit  `json:"commits"`
	Removals []Removal `json:"removals"`
}

// Ledger is the truth about every reference, sorted by it.
type Ledger []Entry

// Of gives the entry of a reference; one never seen has no requests.
func (l Ledger) Of(ref string) Entry {
	if i, ok := slices.BinarySearchFunc(l, ref, func(e Entry, r string) int { return strings.Compare(e.Ref, r) }); ok {
		return l[i]
	}
	return Entry{Ref: ref}
}

// Duplicates lists the entries with more than one commit.
func (l Ledger) Duplicates() []Entry {
	var out []Entry
	for _, e := range l {
		if len(e.Commits) > 1 {
			out = append(out, e)
		}
	}
	return out
}

// Ledger gives a copy of the ground truth as of now. Call Drain first when late
// commits may be pending.
func (d *Desk) Ledger() Ledger {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(Ledger, 0, len(d.ledger))
	for _, e := range d.ledger {
		out = append(out, Entry{
			Ref:      e.Ref,
			Requests: append([]Arrival{}, e.Requests...),
			Commits:  append([]Commit{}, e.Commits...),
			Removals: append([]Removal{}, e.Removals...),
		})
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Ref, b.Ref) })
	return out
}

// entry is called with the lock held.
func (d *Desk) entry(ref string) *Entry {
	e := d.ledger[ref]
	if e == nil {
		e = &Entry{Ref: ref}
		d.ledger[ref] = e
	}
	return e
}
