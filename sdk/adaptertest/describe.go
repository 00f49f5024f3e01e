package adaptertest

import (
	"context"
	"errors"
	"os"

	"github.com/settled-dev/settled/sdk"
)

// Describe starts a program once, unconfigured, and asks it what it is. When it
// returns, the process is dead.
func Describe(ctx context.Context, program string, args ...string) (d sdk.Description, err error) {
	dir, err := os.MkdirTemp("", "ak-")
	if err != nil {
		return d, err
	}
	k := &kit{ctx: ctx, plan: Plan{Adapter: append([]string{program}, args...)}, dir: dir, closeDest: func() {}}
	defer k.close()
	c, err := k.spawn()
	if err != nil {
		return d, err
	}
	d, err = c.Describe(ctx)
	if err == nil && d.Name == "" {
		err = errors.New("its description has no name; set Description.Name")
	}
	return d, err
}
