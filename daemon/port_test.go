package daemon_test

import (
	"context"
	"errors"

	"github.com/settled-dev/settled/daemon"
)

// flakyPort is a destination whose adapter does not always come up.
type flakyPort struct {
	daemon.Port
	down func() bool
}

func (p *flakyPort) Acquire(ctx context.Context) (daemon.Live, error) {
	if p.down() {
		return nil, errors.New("it does not start")
	}
	return p.Port.Acquire(ctx)
}
