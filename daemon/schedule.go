package daemon

import (
	"context"

	"github.com/settled-dev/settled/daemon/config"
)

// scheduler runs the configured schedules; its rows in the journal come next.
type scheduler struct{}

func newScheduler(*Daemon, *config.Config) (*scheduler, error) { return &scheduler{}, nil }

func (*scheduler) run(context.Context) {}

// Sweep, Schedules, Verify and Backup follow with their rows in the journal.
func (d *Daemon) Sweep(context.Context, string, func(SweepReport)) (SweepReport, error) {
	return SweepReport{}, ErrNotBuilt
}

// Schedules follows.
func (d *Daemon) Schedules(context.Context) ([]ScheduleStatus, error) { return nil, nil }

// Verify follows.
func (d *Daemon) Verify(context.Context, string) (VerifyReport, error) {
	return VerifyReport{}, ErrNotBuilt
}

// Backup follows.
func (d *Daemon) Backup(context.Context, string) error { return ErrNotBuilt }
