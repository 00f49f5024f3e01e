package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// reloads is what is remembered of reloads.
type reloads struct {
	mu sync.Mutex // one reload at a time
	// protects following
	stopSchedules context.CancelFunc

	failed bool // the last reload kept the old configuration
}

// Settings is the configuration that rules now.
func (d *Daemon) Settings() *config.Config { return d.settings.Load() }

// Reload makes a checked configuration rule from now on. It must differ from
// the present one only in what [config.Config.Reloaded] leaves in merged:
// processes, sockets and queues stay as they are. What is in flight ends under
// the policy that it began with. The change is in the audit chain before it holds.
func (d *Daemon) Reload(ctx context.Context, next *config.Config, changed []string, who journal.By) error {
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	sched, err := newScheduler(d, next)
	if err != nil {
		return err
	}
	for name := range d.dests {
		if next.Destinations[name] == nil {
			return fmt.Errorf("reload: destination %s cannot leave without a restart", name)
		}
	}
	if err := d.db.Write(ctx, func(tx *sqlite.Tx) error {
		return tx.Note(journal.Entry{
			At: now(), Kind: "reload", Actor: who.Actor, ActorKind: who.Kind, Origin: who.Origin,
			Because: fmt.Sprintf("changed: %v", changed), PolicySHA256: next.PolicySHA256(),
		})
	}); err != nil {
		return fmt.Errorf("record the reload: %w", err)
	}
	d.settings.Store(next)
	for name, s := range d.dests {
		s.reload(next.Destinations[name])
	}
	d.sched.Store(sched)
	d.runSchedulesLocked(sched)
	d.reloads.failed = false
	return nil
}

// ReloadFailed notes that a reload was refused and the old configuration kept;
// /metrics shows it until one succeeds.
func (d *Daemon) ReloadFailed() {
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	d.reloads.failed = true
}

func (d *Daemon) reloadOK() bool {
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	return !d.reloads.failed
}

// reload gives a destination its new settings and looks at everything again.
func (s *destination) reload(conf *config.Destination) {
	s.mu.Lock()
	s.conf.Store(conf)
	s.resolveLocked()
	s.mu.Unlock()
	eff := conf.ForOperation("")
	limit := rate.Limit(eff.RatePerSecond)
	if eff.RatePerSecond <= 0 {
		limit = rate.Inf
	}
	s.limiter.SetLimit(limit)
	s.limiter.SetBurst(max(1, int(eff.RatePerSecond)))
	poke(s.wake)
	poke(s.care)
}

// runSchedules starts the scheduler in place of the one before. Runs that are
// under way go on to their end.
func (d *Daemon) runSchedules(s *scheduler) {
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	d.runSchedulesLocked(s)
}

func (d *Daemon) runSchedulesLocked(s *scheduler) {
	if d.reloads.stopSchedules != nil {
		d.reloads.stopSchedules()
	}
	ctx, stop := context.WithCancel(d.runCtx)
	d.reloads.stopSchedules = stop
	d.spawnLate(func(context.Context) {
		defer stop()
		s.run(ctx)
	})
}

// Turning reports whether every loop of the daemon comes round, within ctx. It
// asks each to look at its queue once, which reads the journal and waits for no
// write: a slow disk is not a hung daemon.
func (d *Daemon) Turning(ctx context.Context) error {
	type look struct {
		name string
		done func() bool
	}
	var looks []look
	for _, s := range d.dests {
		for i, wake := range []chan struct{}{s.wake, s.care} {
			before, turns := s.turns[i].Load(), &s.turns[i]
			looks = append(looks, look{[]string{"dispatch", "care"}[i] + " of " + s.name, func() bool { return turns.Load() > before }})
			poke(wake)
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		looks = slices.DeleteFunc(looks, func(l look) bool { return l.done() })
		if len(looks) == 0 || d.runCtx.Err() != nil { // the loops end with the drain
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("the loop for " + looks[0].name + " does not turn")
		}
	}
}

// Busy lists the keys that workers hold now, by destination: calls in flight,
// reads, and what is about to be sent.
func (d *Daemon) Busy() map[string][]string {
	out := map[string][]string{}
	for name, s := range d.dests {
		s.mu.Lock()
		keys := slices.Sorted(maps.Keys(s.busy))
		s.mu.Unlock()
		out[name] = append([]string{}, keys...)
	}
	return out
}
