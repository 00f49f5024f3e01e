package daemon

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

// maxReads bounds the authoritative reads under way for one destination, so
// that sweeps never starve dispatch.
const maxReads = 32

// batch is how many due rows one look at the index takes.
const batch = 64

// destination is what runs for one configured destination.
type destination struct {
	d       *Daemon
	name    string
	conf    atomic.Pointer[config.Destination] // replaced whole, under mu, by a reload
	port    Port
	limiter *rate.Limiter
	slots   chan struct{}   // one per dispatch that may run at once
	reads   chan struct{}   // one per read that may run at once
	wake    chan struct{}   // cap 1: look for something to send
	care    chan struct{}   // cap 1: look for something to read or decide
	turns   [2]atomic.Int64 // how often the two loops came round
	breaker *breaker
	hooks   hooks // has its own lock
	tokens  *tokens

	mu sync.Mutex
	// protects following
	busy  map[string]bool // keys being worked on: claimed and released by the workers
	ops   map[string]operation
	desc  sdk.Description
	sha   string
	known bool // desc is filled
}

func newDestination(d *Daemon, name string, conf *config.Destination, port Port) *destination {
	eff := conf.ForOperation("")
	perSecond := rate.Limit(eff.RatePerSecond)
	if eff.RatePerSecond <= 0 {
		perSecond = rate.Inf
	}
	s := &destination{
		d: d, name: name, port: port,
		limiter: rate.NewLimiter(perSecond, max(1, int(eff.RatePerSecond))),
		slots:   make(chan struct{}, max(1, eff.Concurrency)),
		reads:   make(chan struct{}, min(maxReads, max(2, eff.Concurrency))),
		wake:    make(chan struct{}, 1), care: make(chan struct{}, 1),
		breaker: newBreaker(eff.OpenAfter), tokens: newTokens(eff.TokensShare, eff.TokensPerMinute),
		busy: map[string]bool{}, ops: map[string]operation{},
	}
	s.conf.Store(conf)
	return s
}

// poke asks a loop to look again; one request is as good as many.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// claim takes a key for one worker. A key has one worker at a time.
func (s *destination) claim(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[key] {
		return false
	}
	s.busy[key] = true
	return true
}

func (s *destination) release(key string) {
	s.mu.Lock()
	delete(s.busy, key)
	s.mu.Unlock()
}

// describe learns what the adapter offers, once per binary. It is called again
// when another binary answers.
func (s *destination) describe(ctx context.Context) error {
	live, err := s.port.Acquire(ctx)
	if err != nil {
		return err
	}
	sha := live.Process().Adapter.SHA256
	s.mu.Lock()
	fresh := s.known && s.sha == sha
	s.mu.Unlock()
	if fresh {
		return nil
	}
	desc, err := live.Describe(ctx)
	if err != nil {
		return fmt.Errorf("describe %s: %w", s.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.desc, s.sha, s.known = desc, sha, true
	s.resolveLocked()
	return nil
}

// current asks a replaced adapter what it offers; the gate then sees another
// contract and the authority is asked for again.
func (s *destination) current(ctx context.Context, e journal.Effect, op operation, live Live) (operation, error) {
	if s.described(live) {
		return op, nil
	}
	if err := s.describe(ctx); err != nil {
		return op, err
	}
	fresh, err := s.operation(ctx, e.Operation)
	if err != nil {
		return op, err
	}
	return fresh, nil
}

// described reports whether what is known of the adapter is known of this executable.
func (s *destination) described(live Live) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known && s.sha == live.Process().Adapter.SHA256
}

// resolveLocked works out the policy of every operation. mu is held.
func (s *destination) resolveLocked() {
	s.ops = map[string]operation{}
	for _, spec := range s.desc.Actions {
		s.ops[spec.Name] = resolve(s.conf.Load().ForOperation(spec.Name), spec, s.sha, s.d.settings.Load().PolicySHA256())
	}
}

// operation returns what rules one operation. An operation that the adapter
// does not name is an error that lists those it does.
func (s *destination) operation(ctx context.Context, name string) (operation, error) {
	s.mu.Lock()
	op, ok := s.ops[name]
	known := s.known
	s.mu.Unlock()
	if ok {
		return op, nil
	}
	if !known {
		if err := s.describe(ctx); err != nil {
			return operation{}, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if op, ok = s.ops[name]; ok {
			return op, nil
		}
	}
	return operation{}, &InvalidError{Faults: []string{fmt.Sprintf("destination %s has no operation %q; it has: %s", s.name, name, s.names())}}
}

func (s *destination) names() string {
	out := ""
	for _, a := range s.desc.Actions {
		if out != "" {
			out += ", "
		}
		out += a.Name
	}
	return orElse(out, "none")
}

// prepares reports whether the adapter wants to be asked before each dispatch.
func (s *destination) prepares() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desc.HasFeature(sdk.FeaturePrepare)
}

// dispatchKinds and careKinds split the due queue between the two loops.
func dispatchKinds() []journal.DueKind { return []journal.DueKind{journal.DueDispatch} }

func careKinds() []journal.DueKind {
	return []journal.DueKind{
		journal.DueRead, journal.DueLease, journal.DueExpire, journal.DueResend,
		journal.DueEscalate, journal.DueHeld,
	}
}

// dispatchLoop sends what is due while a slot is free. It sleeps until the
// next due time or a poke; there is no polling.
func (s *destination) dispatchLoop(ctx context.Context) {
	s.loop(ctx, s.wake, &s.turns[0], dispatchKinds(), func(rows []sqlite.DueRow) (again time.Duration) {
		for _, row := range rows {
			if wait, open := s.mayDispatch(); !open {
				return wait
			}
			select {
			case s.slots <- struct{}{}:
			default:
				return 0 // a slot that frees pokes
			}
			if !s.claim(row.Key) {
				<-s.slots
				continue
			}
			s.goDispatch(row.Key, nil)
		}
		return 0
	})
}

// mayDispatch says whether a write may be thought of now, and if not when to ask again.
func (s *destination) mayDispatch() (wait time.Duration, open bool) {
	if s.d.stopping.Load() || s.d.full.Load() {
		return time.Second, false
	}
	if wait, open = s.breaker.allows(time.Now()); !open {
		poke(s.care) // the breaker half-opens with a read
		return wait, false
	}
	return 0, true
}

// careLoop does all that is owed and is no write: reads, leases, expiries, reviews.
func (s *destination) careLoop(ctx context.Context) {
	s.loop(ctx, s.care, &s.turns[1], careKinds(), func(rows []sqlite.DueRow) time.Duration {
		if wait, probe := s.breaker.wantsProbe(time.Now()); probe {
			s.goProbe()
		} else if wait > 0 && len(rows) == 0 {
			return wait
		}
		later := time.Duration(0)
		for _, row := range rows {
			if s.shed(row.Kind) {
				later = time.Second
				continue
			}
			select {
			case s.reads <- struct{}{}:
			default:
				return later
			}
			if !s.claim(row.Key) {
				<-s.reads
				continue
			}
			s.goCare(row.Key, "timer")
		}
		return later
	})
}

// shed reports whether a due read waits because the destination is down: one
// read at a time probes it, the others would only add to its trouble.
func (s *destination) shed(kind journal.DueKind) bool {
	return kind == journal.DueRead && s.breaker.open() && len(s.reads) > 0
}

// loop waits for the earlier of a poke and the next due time, then hands the
// due rows to f. f returns a wait when it could not take all for a reason that
// nobody pokes for.
func (s *destination) loop(ctx context.Context, pokes <-chan struct{}, turns *atomic.Int64, kinds []journal.DueKind, f func([]sqlite.DueRow) time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		turns.Add(1)
		select {
		case <-ctx.Done():
			return
		case <-pokes:
		case <-timer.C:
		}
		at := now()
		rows, err := s.d.db.Due(ctx, s.name, kinds, at, batch+s.busyCount())
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			s.d.log.Error("cannot read what is due", "destination", s.name, "err", err)
			timer.Reset(time.Second)
			continue
		}
		wait := f(s.idle(rows))
		next, err := s.d.db.NextDue(ctx, s.name, kinds, at)
		switch {
		case err != nil:
			wait = time.Second
		case !next.IsZero():
			if until := time.Until(next); wait == 0 || until < wait {
				wait = max(until, time.Millisecond)
			}
		}
		if wait > 0 {
			timer.Reset(wait)
		}
	}
}

func (s *destination) busyCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.busy)
}

// idle drops the rows that somebody works on already.
func (s *destination) idle(rows []sqlite.DueRow) []sqlite.DueRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := rows[:0]
	for _, r := range rows {
		if !s.busy[r.Key] {
			out = append(out, r)
		}
	}
	return out
}

// settleDue pokes the loop that must look at the effect's next due time.
func (s *destination) settleDue(e journal.Effect) {
	switch {
	case e.DueAt.IsZero():
	case e.Due == journal.DueDispatch:
		poke(s.wake)
	default:
		poke(s.care)
	}
}
