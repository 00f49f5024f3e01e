package daemon_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/settled-dev/settled/daemon/daemontest"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk"
)

// key is the one that most stories tell of.
const key = "ticket:SUP-1:create:v1"

// story runs one scenario in a bubble of its own, on a destination with a
// strongly consistent read whose requests land within ten seconds.
func story(t *testing.T, extra string, f func(*testing.T, *daemontest.Rig)) {
	t.Helper()
	storyOf(t, daemontest.NewWorld(daemontest.Spec(10*time.Second)), extra, f)
}

func storyOf(t *testing.T, w *daemontest.World, extra string, f func(*testing.T, *daemontest.Rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := daemontest.NewRig(t, w, extra)
		defer func() {
			if t.Failed() && testing.Verbose() {
				t.Log(r.Log)
			}
		}()
		f(t, r)
		r.World.Settle()
	})
}

func stop(t *testing.T, run *daemontest.Running) {
	t.Helper()
	if err := run.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	for _, b := range run.Breaches {
		t.Errorf("broken: %s", b)
	}
}

// calls asserts how many dispatches of a key reached the destination.
func calls(t *testing.T, r *daemontest.Rig, key string, want int) []daemontest.Call {
	t.Helper()
	got := r.World.Calls(key)
	if len(got) != want {
		t.Errorf("%d calls of %s, want %d: %+v", len(got), key, want, got)
	}
	return got
}

// owned asserts that somebody was asked, by when, and with what is missing.
func owned(t *testing.T, e journal.Effect, kind journal.ReviewKind) {
	t.Helper()
	if !e.Review.Live() || e.Review.Owner == "" || e.Review.DueAt.IsZero() || e.Review.Kind != kind || len(e.Review.Missing) == 0 {
		t.Errorf("%s is %s with review %+v, want one open %s", e.Key, e.Phase, e.Review, kind)
	}
}

var _ = sdk.PostconditionHolds
