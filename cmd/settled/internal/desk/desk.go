package desk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Config is everything a desk needs. The zero value works: a loopback port of
// the kernel's choice, no files, no faults, no credentials.
type Config struct {
	Listen       string        // default 127.0.0.1:0
	Data         string        // directory of the journal; empty = nothing is kept
	Project      string        // default acme
	Token        string        // bearer token of ordinary calls; empty = none is asked for
	RepairToken  string        // bearer token that alone may delete; empty = Token may
	Lag          time.Duration // every ticket reaches the list this much later
	Plan         Plan
	Mode         Mode          // at the start
	DedupeWindow time.Duration // > 0: the same Idempotency-Key within it answers the first ticket again
}

// Outage is how the desk is out of order. The empty outage is none.
type Outage string

// The outages.
const (
	Up          Outage = ""
	Refusing    Outage = "refuse" // connections are refused, open ones were cut
	Unavailable Outage = "503"    // every call is answered 503
)

// Mode is what holds for all requests until it is changed.
type Mode struct {
	Outage     Outage `json:"outage"`
	Hidden     bool   `json:"hidden"`     // the caller sees nothing: lists are 200 and empty, GET is 404, /me admits it
	Incomplete bool   `json:"incomplete"` // lists say complete = false
	Unique     bool   `json:"unique"`     // a second live ticket of one reference is refused with 409
}

// Desk is a running ticket desk. Its methods may be called from anywhere.
type Desk struct {
	cfg     Config
	address string
	journal *journal
	stop    context.CancelFunc
	done    context.Context // ended by Close
	work    sync.WaitGroup  // handlers, late commits, the server

	mu       sync.Mutex // guards everything below
	closed   bool
	server   *http.Server // nil while refusing
	mode     Mode
	rows     []*row
	byID     map[string]*row
	ledger   map[string]*Entry
	injected map[string][]Fault
	reads    map[string][]Fault
	late     map[chan struct{}]struct{}
}

// Start loads the journal, listens and serves until Close.
func Start(cfg Config) (*Desk, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.Project == "" {
		cfg.Project = "acme"
	}
	d := &Desk{
		cfg: cfg, byID: map[string]*row{}, ledger: map[string]*Entry{},
		injected: map[string][]Fault{}, reads: map[string][]Fault{}, late: map[chan struct{}]struct{}{},
	}
	d.done, d.stop = context.WithCancel(context.Background())
	if cfg.Data != "" {
		j, err := openJournal(cfg.Data, d.replay)
		if err != nil {
			d.stop()
			return nil, err
		}
		d.journal = j
	}
	d.mu.Lock()
	err := d.listen(cfg.Listen)
	d.mu.Unlock()
	if err == nil {
		err = d.SetMode(cfg.Mode)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// listen is called with the lock held.
func (d *Desk) listen(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("desk: %w", err)
	}
	d.address = l.Addr().String()
	srv := &http.Server{Handler: d.routes(), ReadHeaderTimeout: 10 * time.Second}
	d.server = srv
	d.work.Go(func() {
		// Serve always ends with an error; the only ending there is here is ours.
		_ = srv.Serve(l)
	})
	return nil
}

// URL is the base of the desk, without a trailing slash. It stays the same over an outage.
func (d *Desk) URL() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "http://" + d.address
}

// Inject queues faults for the next create requests of a reference, one each.
func (d *Desk) Inject(ref string, faults ...Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.injected[ref] = append(d.injected[ref], faults...)
}

// InjectRead queues faults for the next lists of a reference, one each.
func (d *Desk) InjectRead(ref string, faults ...Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads[ref] = append(d.reads[ref], faults...)
}

// Mode tells what holds now.
func (d *Desk) Mode() Mode {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode
}

// SetMode changes what holds for all requests. Leaving Refusing takes the old
// address again, and fails when somebody else has it by then.
func (d *Desk) SetMode(m Mode) error {
	if m.Outage != Up && m.Outage != Refusing && m.Outage != Unavailable {
		return fmt.Errorf("desk: unknown outage %q; the outages are %q and %q", m.Outage, Refusing, Unavailable)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errors.New("desk: closed")
	}
	if m.Outage == Refusing && d.server != nil {
		err := d.server.Close()
		d.server = nil
		if err != nil {
			return fmt.Errorf("desk: %w", err)
		}
	}
	if m.Outage != Refusing && d.server == nil {
		if err := d.listen(d.address); err != nil {
			return err
		}
	}
	d.mode = m
	return nil
}

// Tickets lists the live tickets, also those that the list does not show yet.
func (d *Desk) Tickets() []Ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Ticket
	for _, r := range d.rows {
		if !r.deleted {
			out = append(out, r.Ticket)
		}
	}
	return out
}

// Drain waits until no late commit is pending, or the context ends.
func (d *Desk) Drain(ctx context.Context) error {
	for {
		d.mu.Lock()
		var next chan struct{}
		for c := range d.late {
			next = c
			break
		}
		d.mu.Unlock()
		if next == nil {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("desk: late commits are pending: %w", ctx.Err())
		}
	}
}

// Close cuts every connection, forgets pending late commits and waits until
// nothing of the desk runs. The journal can then be opened again.
func (d *Desk) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	srv := d.server
	d.server = nil
	d.mu.Unlock()
	d.stop()
	var err error
	if srv != nil {
		err = srv.Close()
	}
	d.work.Wait()
	return errors.Join(err, d.journal.close())
}

// enter says whether a handler may run; work.Done must follow.
func (d *Desk) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Add(1)
	return true
}
