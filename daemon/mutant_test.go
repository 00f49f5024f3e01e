package daemon_test

import (
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon/daemontest"
	"github.com/settled-dev/settled/journal/mutant"
)

// The four mutants of the model. In a normal build these are four more
// stories; with
//
//	SETTLED_MUTANT=noGrace go test -count=1 -tags mutants ./daemon -run TestMutant
//
// (and unknownToAuthorized, orphanNotKilled, sentAfterCall) the product is
// wrong in one way, the story of that way must end with two effects, and the
// check of the history must say so.

// only skips the stories of the other mutants when one is selected.
func only(t *testing.T, on bool) {
	t.Helper()
	if !on && (mutant.NoGrace || mutant.UnknownToAuthorized || mutant.OrphanNotKilled || mutant.SentAfterCall) {
		t.Skip("another mutant is selected")
	}
}

// caught asserts that a second effect was made and found exactly when the mutant is on.
func caught(t *testing.T, r *daemontest.Rig, run *daemontest.Running, on bool) {
	t.Helper()
	r.World.Settle()
	if err := run.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	n, found := len(r.World.Objects(key)), false
	for _, b := range run.Breaches {
		found = found || strings.HasPrefix(b, "I11 ")
	}
	switch {
	case on && (n < 2 || !found):
		t.Errorf("the mutant is on: %d effects, and the check says %q", n, run.Breaches)
	case !on && (n != 1 || len(run.Breaches) > 0):
		t.Errorf("%d effects: %q", n, run.Breaches)
	}
}

func TestMutant_noGrace_against_a_late_committer(t *testing.T) {
	only(t, mutant.NoGrace)
	w := daemontest.NewWorld(daemontest.Spec(30 * time.Second))
	storyOf(t, w, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.LateCommit(29*time.Second))
		run := r.Start()
		run.Ticket(key)
		time.Sleep(30 * time.Minute)
		caught(t, r, run, mutant.NoGrace)
	})
}

func TestMutant_unknownToAuthorized_sends_again(t *testing.T) {
	only(t, mutant.UnknownToAuthorized)
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.AnswerLost())
		run := r.Start()
		run.Ticket(key)
		time.Sleep(30 * time.Minute)
		caught(t, r, run, mutant.UnknownToAuthorized)
	})
}

func TestMutant_orphanNotKilled_sends_after_recovery(t *testing.T) {
	only(t, mutant.OrphanNotKilled)
	story(t, "timeout = \"60s\"\nrecord_reserve = \"10s\"\n", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.AnswerLost().Staying(50*time.Second))
		run := r.Start()
		run.Ticket(key)
		time.Sleep(time.Second)
		run.Crash()
		run = r.Start()
		time.Sleep(30 * time.Minute)
		caught(t, r, run, mutant.OrphanNotKilled)
	})
}

func TestMutant_sentAfterCall_forgets_a_call(t *testing.T) {
	only(t, mutant.SentAfterCall)
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.CrashAt("commit.before", 2) // after the call; its answer, or its row, is not written
		run := r.Start()
		run.Ticket(key)
		if !run.WaitCrash(time.Minute) {
			t.Fatal("no crash: the story does not happen")
		}
		run = r.Start()
		time.Sleep(30 * time.Minute)
		caught(t, r, run, mutant.SentAfterCall)
	})
}
