package daemon_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/settled-dev/settled/daemon/daemontest"
)

// simFlags are parsed by the testing package.
type simFlags struct{ seed, n *uint64 }

func newSimFlags() simFlags {
	return simFlags{
		seed: flag.Uint64("sim.seed", 0, "run the simulation of this seed only"),
		n:    flag.Uint64("sim.n", 0, "run this many seeds; 0 = 40, or 200 without -short"),
	}
}

var sims = newSimFlags()

// TestSimulator runs one bubble for each seed: a failing bubble ends its test.
func TestSimulator(t *testing.T) {
	t.Parallel()
	first, n := uint64(1), *sims.n
	if n == 0 {
		n = 40
		if !testing.Short() {
			n = 200
		}
	}
	if *sims.seed != 0 {
		first, n = *sims.seed, 1
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				breaches, story := daemontest.Sim{Seed: seed, Effects: 12, Crashes: 6}.Run(t)
				for _, b := range breaches {
					t.Error(b)
				}
				if len(breaches) > 0 {
					t.Logf("%s\nreplay: go test ./daemon -run TestSimulator -sim.seed=%d", story, seed)
				}
			})
		})
	}
}
