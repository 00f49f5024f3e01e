package desk

import (
	"errors"
	"fmt"
	"time"
)

// errTaken: the desk is in unique mode and a live ticket has the reference.
var errTaken = errors.New("external_ref is taken")

// arrive counts a create request and chooses its fault: the one the request
// names, else the next injected for its reference, else the plan's.
func (d *Desk) arrive(req *request, named *Fault, key string) (Fault, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entry(req.ExternalRef)
	var fault Fault
	switch queue := d.injected[req.ExternalRef]; {
	case named != nil:
		fault = *named
	case len(queue) > 0:
		fault, d.injected[req.ExternalRef] = queue[0], queue[1:]
	default:
		fault = d.cfg.Plan.Choose(req.ExternalRef, len(e.Requests)+1)
	}
	a := Arrival{At: time.Now().UTC(), Fault: fault, IdempotencyKey: key}
	if err := d.journal.append(line{Ref: e.Ref, Arrival: &a}, false); err != nil {
		return Fault{}, err
	}
	e.Requests = append(e.Requests, a)
	return fault, nil
}

// commit makes the ticket exist: durable first, visible second.
func (d *Desk) commit(req *request, key string, fault Fault) (Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mode.Unique && d.taken(req.ExternalRef) {
		return Ticket{}, errTaken
	}
	now := time.Now().UTC()
	r := &row{Asked: req.ExternalRef, Key: key, VisibleAt: now.Add(d.lag(fault))}
	r.Ticket = Ticket{
		ID: fmt.Sprintf("T-%d", 1001+len(d.rows)), ExternalRef: req.ExternalRef, Digest: req.Digest,
		Queue: req.Queue, Subject: req.Subject, Body: req.Body, Project: d.cfg.Project, Status: "open",
		Requester: req.Requester, Priority: req.Priority, CreatedAt: now,
	}
	switch fault.Kind {
	case DropRef:
		r.Ticket.ExternalRef = ""
	case DropBody:
		r.Ticket.Body = nil
	}
	if err := d.journal.append(line{Ref: r.Asked, Row: r}, true); err != nil {
		return Ticket{}, err
	}
	d.add(r)
	return r.Ticket, nil
}

// lag is how much later than now the list shows a ticket.
func (d *Desk) lag(fault Fault) time.Duration {
	switch {
	case fault.Kind == ReadLag && fault.Delay > 0, fault.Kind == LyingLag && fault.Delay > 0:
		return fault.Delay
	case fault.Kind == LyingLag:
		return 10 * max(d.cfg.Lag, 100*time.Millisecond)
	}
	return d.cfg.Lag
}

// add, taken and first are called with the lock held.
func (d *Desk) add(r *row) {
	d.rows = append(d.rows, r)
	d.byID[r.Ticket.ID] = r
	e := d.entry(r.Asked)
	e.Commits = append(e.Commits, Commit{At: r.Ticket.CreatedAt, ID: r.Ticket.ID, Digest: r.Ticket.Digest})
}

func (d *Desk) taken(ref string) bool {
	for _, c := range d.entry(ref).Commits {
		if r := d.byID[c.ID]; ref != "" && !r.deleted && r.Ticket.ExternalRef == ref {
			return true
		}
	}
	return false
}

// replayed finds the ticket that the same Idempotency-Key made within the
// window, when the desk was asked to deduplicate at all.
func (d *Desk) replayed(key string, req *request) (Ticket, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if key == "" || d.cfg.DedupeWindow <= 0 {
		return Ticket{}, false
	}
	for _, c := range d.entry(req.ExternalRef).Commits {
		if r := d.byID[c.ID]; r.Key == key && time.Since(c.At) < d.cfg.DedupeWindow {
			return r.Ticket, true
		}
	}
	return Ticket{}, false
}

// remove deletes a ticket; false means that there is none.
func (d *Desk) remove(id string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.byID[id]
	if r == nil || r.deleted {
		return false, nil
	}
	gone := Removal{At: time.Now().UTC(), ID: id}
	if err := d.journal.append(line{Ref: r.Asked, Removal: &gone}, true); err != nil {
		return false, err
	}
	d.drop(r, gone)
	return true, nil
}

func (d *Desk) drop(r *row, gone Removal) {
	r.deleted = true
	e := d.entry(r.Asked)
	e.Removals = append(e.Removals, gone)
}

// replay rebuilds the state from one journal line.
func (d *Desk) replay(l line) error {
	switch {
	case l.Arrival != nil:
		e := d.entry(l.Ref)
		e.Requests = append(e.Requests, *l.Arrival)
	case l.Row != nil:
		d.add(l.Row)
	case l.Removal != nil:
		r := d.byID[l.Removal.ID]
		if r == nil {
			return fmt.Errorf("removal of %s, which was never committed", l.Removal.ID)
		}
		d.drop(r, *l.Removal)
	default:
		return errors.New("a record without content")
	}
	return nil
}
