package daemon_test

import (
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/daemontest"
	"github.com/settled-dev/settled/journal"
)

// An effect that failed long ago and was closed by a person today stays: what a
// person did lately is never pruned.
func TestPruneKeepsWhatAPersonActedOnLately(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.Config.Journal.Keep, r.Config.Journal.KeepPayload = 10*24*time.Hour, 5*24*time.Hour
		old := "ticket:SUP-2:create:v1"
		r.World.Script(key, daemontest.Invalid())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Ticket(old)
		run.Until(key, time.Minute, journal.Failed)
		run.Until(old, time.Minute, journal.Succeeded)
		time.Sleep(11 * 24 * time.Hour)
		decide(t, run, key, daemon.DecideRequest{Decision: journal.DecideClose})
		rep, err := run.Prune(t.Context())
		if err != nil || rep.Effects != 1 || rep.Payloads != 1 {
			t.Errorf("%+v, %v", rep, err)
		}
		if e := run.Effect(key); len(e.Payload) == 0 {
			t.Error("the payload of what a person closed today is gone")
		}
		if _, err := run.DB.Effect(t.Context(), old); err == nil {
			t.Error("the old one is still there")
		}
		time.Sleep(11 * 24 * time.Hour)
		if rep, err := run.Prune(t.Context()); err != nil || rep.Effects != 1 {
			t.Errorf("ten days after the decision: %+v, %v", rep, err)
		}
	})
}
