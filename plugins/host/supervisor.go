package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// Options say what a supervisor keeps alive, and how hard it tries.
type Options struct {
	Command       Command
	Configuration sdk.Configuration

	BackoffMin  time.Duration // before the first restart; 0 = 1 s
	BackoffMax  time.Duration // 0 = 5 min
	CircuitMax  int           // deaths in CircuitSpan that open the circuit; 0 = 5
	CircuitSpan time.Duration // 0 = 10 min
	DrainMax    time.Duration // how long running calls of a retired process may take; 0 = 2 min
	AcquireMax  time.Duration // how long a call waits for a process that restarts; 0 = 5 s

	// Changed is told every change of the status, from the supervisor's own
	// goroutines, one at a time. It must not call the supervisor. nil = nobody asks.
	Changed func(Status)
}

// Status is what a supervisor says of its process.
type Status struct {
	Up          bool
	Identity    Identity  // of the current process, or of the last
	Restarts    uint64    // starts that succeeded after the first
	Deaths      int       // in the circuit's span: deaths, faults and failed starts
	Draining    int       // retired processes that are not proven dead yet
	Violations  uint64    // answers of all processes that broke the contract
	CircuitOpen time.Time // no start before this; zero = closed
	NextStart   time.Time // when a start is due; zero = none is planned
	LastError   string    // of the last failed start or death; empty after a good start
}

// ErrDown is a call that found no process. Nothing was sent.
var ErrDown = errors.New("the adapter is not running")

// maxDraining bounds how many retired processes may live beside the current one.
const maxDraining = 2

// Supervisor keeps one live process for one destination. It is an
// [sdk.Adapter], [sdk.Fencer] and [sdk.ManyReader] over whichever process is current.
//
// A process that dies, fails to start, panics, loses a call or overruns is
// replaced, after a pause that doubles from BackoffMin to BackoffMax with jitter
// and falls back to the minimum once a process has lived for a minute. After
// CircuitMax such ends within CircuitSpan no process is started until the oldest
// of them is older than the span.
type Supervisor struct {
	o    Options
	log  *slog.Logger
	stop context.CancelFunc
	ctx  context.Context // ends with Close
	wg   sync.WaitGroup  // the loop and the drains

	mu       sync.Mutex // guards all below
	current  *Process   // nil = none takes calls
	changed  chan struct{}
	retired  map[*Process]bool
	last     *Process
	started  uint64
	ends     []time.Time // within the span, oldest first
	streak   int         // ends in a row without a process that lived
	next     time.Time
	lastErr  error
	violated uint64 // of processes that are gone
	closed   bool

	notify sync.Mutex // one Changed at a time
}

// NewSupervisor makes a supervisor that has started nothing yet; see [Supervisor.Start].
func NewSupervisor(o Options) *Supervisor {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&o.BackoffMin, time.Second)
	set(&o.BackoffMax, 5*time.Minute)
	set(&o.CircuitSpan, 10*time.Minute)
	set(&o.DrainMax, 2*time.Minute)
	set(&o.AcquireMax, 5*time.Second)
	if o.CircuitMax <= 0 {
		o.CircuitMax = 5
	}
	if o.Command.Log == nil {
		o.Command.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Supervisor{
		o: o, log: o.Command.Log.With("adapter", o.Command.Name), ctx: ctx, stop: stop,
		changed: make(chan struct{}), retired: map[*Process]bool{},
	}
}

// Start begins to keep a process and returns the result of the first start, or
// the error of ctx if that ends earlier. After an error it goes on trying
// in the background until Close. Call it once.
func (s *Supervisor) Start(ctx context.Context) error {
	first := make(chan error, 1)
	s.wg.Go(func() { s.loop(first) })
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close takes no new calls, lets the running ones end until ctx is done, and
// ends every process. When it returns nil nothing is left.
func (s *Supervisor) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	p := s.current
	s.current = nil
	s.wake()
	draining := len(s.retired)
	s.mu.Unlock()
	var err error
	if p != nil {
		err = p.Close(ctx)
	}
	if draining > 0 {
		s.awaitDrained(ctx)
	}
	s.stop() // the loop ends; drains that are not over kill at once
	s.wg.Wait()
	s.publish()
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.retired {
		err = errors.Join(err, fmt.Errorf("process %d is not proven dead", p.id.PID))
	}
	return err
}

func (s *Supervisor) awaitDrained(ctx context.Context) {
	for {
		s.mu.Lock()
		n, changed := len(s.retired), s.changed
		s.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// loop starts, waits for the end, pauses, and starts again.
func (s *Supervisor) loop(first chan<- error) {
	for n := 0; s.mayStart(); n++ {
		p, err := s.startOne()
		if n == 0 {
			first <- err
		}
		if err != nil {
			s.ended(nil, err)
			continue
		}
		select {
		case <-p.Done():
			_, exit := p.run.death()
			s.lost(p, fmt.Errorf("the process ended: %s", exit))
		case <-s.replaced(p):
		case <-s.ctx.Done():
		}
	}
	select { // a Start that waits for a supervisor that was closed
	case first <- ErrDown:
	default:
	}
}

// mayStart waits until a start is due and there is room beside draining processes.
func (s *Supervisor) mayStart() bool {
	for {
		s.mu.Lock()
		wait, room, changed, closed := time.Until(s.due()), len(s.retired) < maxDraining, s.changed, s.closed
		s.mu.Unlock()
		if closed || s.ctx.Err() != nil {
			return false
		}
		if wait <= 0 && room {
			return true
		}
		if !room {
			wait = s.o.BackoffMax // until a drain tells that it is over
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-s.ctx.Done():
		}
		timer.Stop()
	}
}

// due is the later of the pause and the circuit; the caller holds mu.
func (s *Supervisor) due() time.Time {
	if open := s.circuit(time.Now()); open.After(s.next) {
		return open
	}
	return s.next
}

// circuit is when the circuit closes; zero when it is closed. The caller holds mu.
func (s *Supervisor) circuit(now time.Time) time.Time {
	s.ends = slices.DeleteFunc(s.ends, func(t time.Time) bool { return now.Sub(t) >= s.o.CircuitSpan })
	if len(s.ends) < s.o.CircuitMax {
		return time.Time{}
	}
	return s.ends[len(s.ends)-s.o.CircuitMax].Add(s.o.CircuitSpan)
}

func (s *Supervisor) startOne() (*Process, error) {
	s.mu.Lock()
	conf := s.o.Configuration
	s.mu.Unlock()
	p, err := Start(s.ctx, s.o.Command, conf)
	if err != nil {
		return nil, err
	}
	p.onFault = func(f Fault, err error) { s.fault(p, f, err) } // before anybody can call it
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errors.Join(ErrDown, p.Kill("the supervisor was closed"))
	}
	s.current, s.last, s.lastErr, s.next = p, p, nil, time.Time{}
	s.started++
	s.wake()
	s.mu.Unlock()
	s.publish()
	return p, nil
}

// replaced is closed when p is no longer current.
func (s *Supervisor) replaced(p *Process) <-chan struct{} {
	out := make(chan struct{})
	s.wg.Go(func() {
		defer close(out)
		for {
			s.mu.Lock()
			over, changed := s.current != p, s.changed
			s.mu.Unlock()
			if over {
				return
			}
			select {
			case <-changed:
			case <-s.ctx.Done():
				return
			}
		}
	})
	return out
}

// wake tells all who wait that something changed; the caller holds mu.
func (s *Supervisor) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// lost takes a process that died by itself out of service. What it leaves is collected already.
func (s *Supervisor) lost(p *Process, err error) {
	p.gate.shut()
	s.mu.Lock()
	if s.current != p { // retired or closed before: that was counted then
		s.mu.Unlock()
		return
	}
	s.current = nil
	s.violated += p.Violations()
	s.mu.Unlock()
	s.ended(p, err)
	p.settle()
}

// ended counts an end that nobody asked for, and plans the next start.
func (s *Supervisor) ended(p *Process, err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	now := time.Now()
	if p != nil && now.Sub(p.id.StartedAt) >= time.Minute {
		s.streak = 0
	}
	pause := backoff(s.o.BackoffMin, s.o.BackoffMax, s.streak)
	s.streak++
	s.ends = append(s.ends, now)
	s.next, s.lastErr = now.Add(pause), err
	open := s.circuit(now)
	s.wake()
	s.mu.Unlock()
	if !open.IsZero() {
		s.log.Error("the adapter ends too often; it stays down for a while", "error", err, "until", open)
	} else {
		s.log.Error("the adapter ended; it is started again", "error", err, "in", pause)
	}
	s.publish()
}

// backoff doubles from least to most and takes a random part off, a quarter at most.
func backoff(least, most time.Duration, n int) time.Duration {
	d := least
	for range min(n, 40) {
		if d *= 2; d >= most {
			break
		}
	}
	d = min(d, most)
	return max(least, d-rand.N(d/4+1))
}

// fault retires a process that did wrong, and counts it as an end.
func (s *Supervisor) fault(p *Process, f Fault, err error) {
	if s.retire(p, string(f)) {
		s.ended(p, fmt.Errorf("%s: %w", f, err))
	}
}

// Retire takes p out of service: it gets no new calls, those that run may end,
// each within its own deadline and linger and all within DrainMax, then it is
// killed. Another process is started at once. It does not wait, and does
// nothing to a process that is retired already.
func (s *Supervisor) Retire(p *Process, reason string) {
	if s.retire(p, reason) {
		s.publish()
	}
}

func (s *Supervisor) retire(p *Process, reason string) bool {
	p.gate.shut()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != p {
		return false
	}
	s.current = nil
	s.retired[p] = true
	s.wake()
	s.log.Warn("retiring the adapter's process", "pid", p.id.PID, "reason", reason, "calls", p.gate.count())
	s.wg.Go(func() { s.drain(p, reason) })
	return true
}

// drain waits for the running calls and ends the process. One that cannot be
// proven dead stays among the retired and is watched until Close.
func (s *Supervisor) drain(p *Process, reason string) {
	ctx, cancel := context.WithTimeout(s.ctx, s.o.DrainMax)
	if !p.gate.await(ctx) {
		s.log.Warn("calls of the retired process did not end in time", "pid", p.id.PID, "calls", p.gate.count())
	}
	cancel()
	if err := p.Kill(reason); err != nil {
		s.log.Error("cannot prove the adapter's process dead", "error", err)
		select {
		case <-p.Done():
		case <-s.ctx.Done():
			return
		}
	}
	p.settle()
	s.mu.Lock()
	delete(s.retired, p)
	s.violated += p.Violations()
	s.wake()
	s.mu.Unlock()
	s.publish()
}

// Reconfigure has the next process take another configuration, retires the
// current one and starts another at once: how rotated secrets are taken over.
func (s *Supervisor) Reconfigure(conf sdk.Configuration) {
	s.mu.Lock()
	s.o.Configuration = conf
	p := s.current
	s.next, s.streak = time.Time{}, 0
	s.mu.Unlock()
	if p != nil {
		s.Retire(p, "the configuration changed")
	}
}

// Reset closes the circuit and starts at once: an operator says that the cause is gone.
func (s *Supervisor) Reset() {
	s.mu.Lock()
	s.ends, s.streak, s.next = nil, 0, time.Time{}
	s.wake()
	s.mu.Unlock()
	s.publish()
}

// Status says how it stands now.
func (s *Supervisor) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Up: s.current != nil, Draining: len(s.retired), Violations: s.violated,
		CircuitOpen: s.circuit(time.Now()), Deaths: len(s.ends),
	}
	if s.last != nil {
		st.Identity = s.last.id
		st.Restarts = s.started - 1
	}
	if s.current != nil {
		st.Violations += s.current.Violations()
	} else if !s.closed {
		st.NextStart = s.due()
	}
	if s.lastErr != nil {
		st.LastError = s.lastErr.Error()
	}
	return st
}

func (s *Supervisor) publish() {
	if s.o.Changed == nil {
		return
	}
	s.notify.Lock()
	defer s.notify.Unlock()
	s.o.Changed(s.Status())
}
