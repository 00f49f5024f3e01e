package daemon

import (
	"context"

	"github.com/settled-dev/settled/daemon/config"
)

// scheduler runs the configured schedules; its rows in the journal come next.
type scheduler struct{}

func newScheduler(*Daemon, *config.Config) (*scheduler, error) { return &scheduler{}, nil }

func (*scheduler) run(context.Context) {}
