package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

// Process says which process performed a call. It is stored with the attempt
// before the call is made.
type Process struct {
	Adapter  journal.AdapterRef
	Identity string // the account as the adapter identified itself
	PID      int
	Start    string // process start, as the system counts it
	BootID   string
}

// Live is one running, configured adapter.
type Live interface {
	sdk.Adapter
	Process() Process
}

// Port is where the daemon gets a destination's running adapter. It is a
// value handed in: the daemon starts no process itself.
type Port interface {
	// Acquire returns the live adapter, starting it when needed. An error means
	// that nothing was sent and nothing can be sent now.
	Acquire(ctx context.Context) (Live, error)
	// Up reports whether it is running, and why not.
	Up() (bool, string)
}

// Options is what a daemon is made of. Every field is needed unless it says otherwise.
type Options struct {
	Settings *config.Config
	Journal  *sqlite.DB
	Ports    map[string]Port // by destination
	Log      *slog.Logger
	Version  string
	Host     string // spreads schedules; any stable name

	// DeadAt is when every process of an earlier daemon was proved dead.
	// Attempts found without an answer are closed at that time.
	DeadAt time.Time
	// ClockJumped says that another boot, or a clock far from the last one, was
	// found: grace windows start again.
	ClockJumped bool
	// Hold starts with dispatch off, for this reason. Optional.
	Hold string

	Rand  func() float64 // in [0,1); default math/rand/v2
	NewID func() string  // default ULID
}

// Daemon is the shell around the pure core: it owns no decision and every effect.
//
// Who writes: every journal write goes through the journal's one committer.
// Destinations own their slots, breaker and timers, each under its own lock.
type Daemon struct {
	opts  Options
	log   *slog.Logger
	db    *sqlite.DB
	dests map[string]*destination
	// settings and sched are replaced whole by a reload.
	settings atomic.Pointer[config.Config]
	sched    atomic.Pointer[scheduler]
	reloads  reloads
	// followers has its own lock; every write tells it after COMMIT.
	followers *followers
	counters  *counters
	started   time.Time

	work     sync.WaitGroup // every goroutine that the daemon started
	calls    sync.WaitGroup // calls in flight, waited for within the stop budget
	inFlight atomic.Int64

	// startMu orders the start of late work and the stop: nothing is added to
	// work or calls once Run has begun to wait for them.
	startMu  sync.Mutex
	stopping atomic.Bool
	full     atomic.Bool // the disk is full: no submit, no dispatch
	// callCtx is cancelled, with a cause, when the stop budget is over.
	callCtx  context.Context
	stopCall context.CancelCauseFunc
	// runCtx ends when the daemon is asked to stop: no new work is taken.
	runCtx  context.Context
	stopRun context.CancelFunc
}

// errHurry is why a call in flight is given up at a second signal.
var errHurry = errors.New("the operator asked twice to stop")

// Hurry ends the drain now: what is in flight is parked as unknown.
func (d *Daemon) Hurry() { d.stopCall(errHurry) }

// errStopBudget is why a call in flight is given up at a stop.
var errStopBudget = errors.New("the stop budget is over")

// New checks that every destination's adapter answers to its configuration and
// resolves the policy of each operation. It sends nothing.
func New(ctx context.Context, o Options) (*Daemon, error) {
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.NewID == nil {
		o.NewID = func() string { return ulid.Make().String() }
	}
	d := &Daemon{opts: o, log: o.Log, db: o.Journal, dests: map[string]*destination{}, followers: newFollowers(), started: time.Now()}
	d.settings.Store(o.Settings)
	d.runCtx, d.stopRun = context.WithCancel(context.WithoutCancel(ctx))
	d.callCtx, d.stopCall = context.WithCancelCause(context.WithoutCancel(ctx))
	for name, conf := range o.Settings.Destinations {
		port := o.Ports[name]
		if port == nil {
			return nil, fmt.Errorf("daemon: destination %s has no adapter", name)
		}
		d.dests[name] = newDestination(d, name, conf, port)
	}
	d.counters = newCounters(sortedKeys(d.dests))
	sched, err := newScheduler(d, o.Settings)
	if err != nil {
		return nil, err
	}
	d.sched.Store(sched)
	return d, nil
}

// Run recovers, then works until ctx ends, then drains: it stops taking work,
// waits for calls in flight within the stop budget and parks what is left as
// unknown. It returns when every goroutine it started has ended. ready is
// called once recovery has classified every open attempt.
func (d *Daemon) Run(ctx context.Context, ready func()) error {
	d.learn(ctx)
	if err := d.recover(ctx); err != nil {
		return err
	}
	if d.opts.Hold != "" {
		if err := d.holdAll(ctx, d.opts.Hold); err != nil {
			return err
		}
	}
	for _, dest := range d.dests {
		d.spawn(dest.dispatchLoop)
		d.spawn(dest.careLoop)
	}
	d.runSchedules(d.sched.Load())
	d.spawn(d.watchClock)
	if ready != nil {
		ready()
	}
	select {
	case <-ctx.Done():
	case <-d.db.Fatal():
		d.log.Error("the journal failed; stopping at once", "err", d.db.FatalErr())
		d.stopTaking()
		d.stopCall(d.db.FatalErr())
		d.work.Wait()
		d.calls.Wait()
		return d.db.FatalErr()
	}
	return d.drain()
}

// learn asks every adapter that is up what it offers, so that recovery knows
// the full policy. One that is down is asked when its first effect is due.
func (d *Daemon) learn(ctx context.Context) {
	var wait sync.WaitGroup
	for _, s := range d.dests {
		if up, _ := s.port.Up(); !up {
			continue
		}
		wait.Go(func() {
			if err := s.describe(ctx); err != nil {
				d.log.Warn("an adapter did not describe itself; it is asked again when needed", "destination", s.name, "err", err)
			}
		})
	}
	wait.Wait()
}

// spawn runs f until the daemon stops taking work; Run waits for it.
func (d *Daemon) spawn(f func(context.Context)) {
	d.work.Add(1)
	go func() {
		defer d.work.Done()
		f(d.runCtx)
	}()
}

// spawnLate runs f from a worker. It is like spawn, but may come while the
// daemon stops; then f is not run.
func (d *Daemon) spawnLate(f func(context.Context)) {
	d.startMu.Lock()
	defer d.startMu.Unlock()
	if d.runCtx.Err() != nil {
		return
	}
	d.spawn(f)
}

// enter counts a request that may start a call. It reports false once the
// daemon stops; true must be paid back with calls.Done.
func (d *Daemon) enter() bool {
	d.startMu.Lock()
	defer d.startMu.Unlock()
	if d.stopping.Load() {
		return false
	}
	d.calls.Add(1)
	return true
}

// stopTaking ends the taking of new work; what is under way goes on.
func (d *Daemon) stopTaking() {
	d.startMu.Lock()
	defer d.startMu.Unlock()
	d.stopping.Store(true)
	d.stopRun()
}

// drain is the orderly stop: stop taking work, then give up calls with a cause.
func (d *Daemon) drain() error {
	d.stopTaking()
	done := make(chan struct{})
	go func() {
		d.work.Wait()
		d.calls.Wait()
		close(done)
	}()
	budget := d.settings.Load().Daemon.StopBudget
	timer := time.NewTimer(budget)
	defer timer.Stop()
	if n := d.inFlight.Load(); n > 0 {
		d.log.Info("draining", "in_flight", n, "budget", budget)
	}
	select {
	case <-done:
		d.log.Info("drained; nothing was in flight at the end")
	case <-d.db.Fatal():
		d.stopCall(d.db.FatalErr())
		<-done
		return d.db.FatalErr()
	case <-timer.C:
		d.log.Warn("stop budget over; what is in flight is parked as unknown", "in_flight", d.inFlight.Load())
		d.stopCall(errStopBudget)
		<-done
	}
	return d.db.FatalErr()
}

// env is what the core needs to know besides the effect.
func (d *Daemon) env(p journal.Policy, by journal.By) journal.Env {
	return journal.Env{Now: now(), Jitter: d.opts.Rand(), By: by, Policy: p}
}

// now is the wall clock as the journal stores it: UTC, microseconds, no monotonic part.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// by names the daemon itself as the actor.
func by(origin string) journal.By {
	return journal.By{Actor: "settled", Kind: journal.System, Origin: origin}
}

// write applies events to one effect in one transaction, deciding on its present state.
func (d *Daemon) write(ctx context.Context, key string, f func(*sqlite.Tx, journal.Effect) (journal.Effect, error)) (journal.Effect, error) {
	var out journal.Effect
	held := ""
	err := d.db.Write(ctx, func(tx *sqlite.Tx) error {
		e, err := tx.Effect(key)
		if err != nil {
			return err
		}
		held = e.HoldScope
		out, err = f(tx, e)
		return err
	})
	if err == nil {
		d.followers.tell(out)
		if held != "" && held != out.HoldScope {
			d.released(ctx)
		}
	}
	return out, err
}

// released looks again at everything that was held back. The journal makes it
// due in a transaction of its own right after the one that ended the hold; an
// empty one that is queued behind it is the signal that it is done.
func (d *Daemon) released(ctx context.Context) {
	if err := d.db.Write(ctx, func(*sqlite.Tx) error { return nil }); err != nil {
		d.unexpected(ctx, "wait for what a hold had kept back", "", err)
	}
	for _, s := range d.dests {
		poke(s.wake)
		poke(s.care)
	}
}

// record writes what must not be lost, whatever the disk does: a full disk
// stops dispatch and refuses submits, and the outcome is kept and tried again
// until there is room or the journal fails for good.
func (d *Daemon) record(key string, f func(*sqlite.Tx, journal.Effect) (journal.Effect, error)) (journal.Effect, error) {
	wait := 50 * time.Millisecond
	for {
		e, err := d.write(context.Background(), key, f)
		if !errors.Is(err, sqlite.ErrFull) {
			if err == nil && d.full.CompareAndSwap(true, false) {
				d.log.Info("the journal has room again; dispatch is on")
			}
			return e, err
		}
		if d.full.CompareAndSwap(false, true) {
			d.log.Error("journal full: dispatch is off, outcomes are kept and tried again; free disk space", "key", key)
		}
		select {
		case <-d.db.Fatal():
			return journal.Effect{}, d.db.FatalErr()
		case <-d.callCtx.Done(): // the stop budget is over; the next start finds it open
			return journal.Effect{}, fmt.Errorf("%w: %w", context.Cause(d.callCtx), err)
		case <-time.After(wait):
		}
		wait = min(wait*2, 5*time.Second)
	}
}
