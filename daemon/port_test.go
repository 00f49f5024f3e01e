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

// replacedPort is a destination whose adapter's executable is another one from some time on.
type replacedPort struct {
	daemon.Port
	sha func() string
}

func (p *replacedPort) Acquire(ctx context.Context) (daemon.Live, error) {
	live, err := p.Port.Acquire(ctx)
	return replacedLive{live, p.sha()}, err
}

type replacedLive struct {
	daemon.Live
	sha string
}

func (l replacedLive) Process() daemon.Process {
	p := l.Live.Process()
	p.Adapter.SHA256 = l.sha
	return p
}
