package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/systemd"
	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/journal"
)

// How the service manager is spoken to.
const (
	statusEvery = 30 * time.Second // where no watchdog sets the pace
	drainEvery  = 5 * time.Second
	drainMore   = 20 * time.Second // asked for again long before it is over
)

// manager tells the service manager how this daemon is. Outside of systemd it does nothing.
type manager struct {
	notify systemd.Notifier
	every  time.Duration
	log    *slog.Logger
}

func newManager(getenv func(string) string, log *slog.Logger) *manager {
	m := &manager{notify: systemd.NewNotifier(getenv), every: systemd.WatchdogInterval(getenv), log: log}
	if m.every == 0 {
		m.every = statusEvery
	}
	return m
}

// trouble is logged and nothing more: a manager that does not listen is no reason to stop.
func (m *manager) trouble(err error) {
	if err != nil {
		m.log.Warn("the service manager", "err", err)
	}
}

// watch says that d is ready, and then how it is, until ctx ends. Then it says
// that d drains, and asks for more time until drained is closed.
func (m *manager) watch(ctx context.Context, d *daemon.Daemon, drained <-chan struct{}) {
	if !m.notify.Listening() {
		return
	}
	m.trouble(m.notify.Ready(statusWords(ctx, d)))
	m.notify.Supervise(ctx, m.every, func(ctx context.Context) (string, error) {
		return statusWords(ctx, d), d.Turning(ctx)
	}, m.trouble)
	m.trouble(m.notify.Stopping(drainWords(d)))
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		// The stop budget bounds the drain; the manager is only kept from cutting it short.
		m.trouble(m.notify.Extend(drainMore, drainWords(d)))
		m.trouble(m.notify.Alive())
		select {
		case <-drained:
			return
		case <-tick.C:
		}
	}
}

// statusWords is the line of `systemctl status`.
func statusWords(ctx context.Context, d *daemon.Daemon) string {
	s, err := d.Status(ctx)
	if err != nil {
		return "the journal does not answer: " + err.Error()
	}
	words := "dispatch on"
	if !s.Dispatch {
		words = "dispatch OFF: " + s.DispatchReason
	}
	unknown := s.Phases[journal.Unknown] + s.Phases[journal.Reconciling]
	return fmt.Sprintf("%s; %d in flight, %d unknown, %d review(s), %d overdue", words, s.InFlight, unknown, s.ReviewsOpen, s.ReviewsOverdue)
}

func drainWords(d *daemon.Daemon) string {
	n := 0
	for _, keys := range d.Busy() {
		n += len(keys)
	}
	return fmt.Sprintf("draining: %d in flight; what is left after the stop budget is parked as unknown", n)
}
