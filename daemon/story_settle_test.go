package daemon_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon/daemontest"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk"
)

const (
	byFence  = "[destinations.desk.grace]\nsettle = \"fence\"\n"
	byReplay = "[destinations.desk.grace]\nsettle = \"replay\"\n"
)

func fencing() *daemontest.World {
	return daemontest.NewWorld(daemontest.Spec(10*time.Minute), sdk.FeatureFence)
}

// deduping is a destination that answers a known key with its first response, for as long as window.
func deduping(window time.Duration) *daemontest.World {
	spec := daemontest.Spec(10 * time.Second)
	spec.Read.ProvesAbsence = false // nothing but a replay settles it
	spec.Idempotency = sdk.Idempotency{Mode: sdk.IdempotencyKey, Retention: &window, Replay: sdk.ReplayFirstResponse}
	w := daemontest.NewWorld(spec)
	w.Dedupes()
	return w
}

func TestScenario61_a_late_request_is_refused_after_the_fence(t *testing.T) {
	storyOf(t, fencing(), byFence, func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.LateCommit(time.Minute)) // far inside its ten minutes of grace
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		e := run.Until(key, 2*time.Minute, journal.Succeeded)
		calls(t, r, key, 2)
		time.Sleep(5 * time.Minute) // the first one has come by now
		run.Once(key)
		if asked, keptOut := r.World.Fences(key); asked != 1 || keptOut == 0 && len(r.World.Objects(key)) != 1 {
			t.Errorf("%d fences, %d kept out", asked, keptOut)
		}
		if e.Attempts[0].State != journal.AttemptSettledAbsent || e.Attempts[1].ExpectedRevision != "void-1" {
			t.Errorf("attempts %+v", e.Attempts)
		}
	})
}

func TestScenario61_a_fence_that_meets_our_object_is_a_match(t *testing.T) {
	storyOf(t, fencing(), byFence, func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.AnswerLost())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Succeeded)
		calls(t, r, key, 1)
		run.Once(key)
	})
}

func TestScenario61_an_unanswered_fence_is_read_before_it_is_asked_again(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]daemontest.FenceFault{"taken": {Taken: true}, "lost": {Lost: true}} {
		t.Run(name, func(t *testing.T) {
			storyOf(t, fencing(), byFence, func(t *testing.T, r *daemontest.Rig) {
				r.World.Script(key, daemontest.LateCommit(4*time.Minute))
				r.World.ScriptFence(key, fault)
				run := r.Start()
				defer stop(t, run)
				run.Ticket(key)
				for asked := 0; asked == 0; asked, _ = r.World.Fences(key) {
					time.Sleep(time.Second)
				}
				reads := r.World.Reads(key)
				run.Until(key, 20*time.Minute, journal.Succeeded)
				if asked, _ := r.World.Fences(key); asked < 2 || r.World.Reads(key) == reads {
					t.Errorf("%d fences, %d reads before, %d after", asked, reads, r.World.Reads(key))
				}
				time.Sleep(10 * time.Minute)
				run.Once(key)
			})
		})
	}
}

// The second attempt counts on the mark of the first fence. When its answer is
// lost as well, meeting that mark proves nothing: the attempt may land yet.
func TestScenario61_a_mark_that_an_attempt_may_replace_is_not_final(t *testing.T) {
	storyOf(t, fencing(), byFence, func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.RequestLost(), daemontest.LateCommit(2*time.Minute))
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		e := run.Until(key, 10*time.Minute, journal.Succeeded)
		calls(t, r, key, 3)
		time.Sleep(10 * time.Minute)
		run.Once(key)
		if rev := e.Attempts[2].ExpectedRevision; rev != "void-2" {
			t.Errorf("the third attempt replaces %q: the mark was not renewed", rev)
		}
	})
}

func TestScenario61_fence_and_replay_survive_a_crash_at_every_point(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		world func() *daemontest.World
		extra string
		fault daemontest.Fault
	}{
		"fence, late":  {fencing, byFence, daemontest.LateCommit(time.Minute)},
		"fence, lost":  {fencing, byFence, daemontest.RequestLost()},
		"replay, done": {func() *daemontest.World { return deduping(24 * time.Hour) }, byReplay, daemontest.LateCommit(5 * time.Second)},
		"replay, lost": {func() *daemontest.World { return deduping(24 * time.Hour) }, byReplay, daemontest.RequestLost()},
	} {
		for _, op := range []string{"commit.before", "commit.after"} {
			for n := 1; n <= 10; n++ {
				t.Run(fmt.Sprintf("%s/%s %d", name, op, n), func(t *testing.T) {
					storyOf(t, c.world(), c.extra, func(t *testing.T, r *daemontest.Rig) {
						r.World.Script(key, c.fault)
						r.CrashAt(op, n)
						run := r.Start()
						_, _ = run.Submit(t.Context(), daemontest.Request(key), daemontest.Client)
						if run.WaitCrash(30 * time.Minute) {
							run = r.Start()
							_, _ = run.Submit(t.Context(), daemontest.Request(key), daemontest.Client)
						}
						defer stop(t, run)
						run.Until(key, 3*time.Hour, journal.Succeeded)
						time.Sleep(15 * time.Minute)
						run.Once(key)
					})
				})
			}
		}
	}
}

func TestScenario61_a_replay_gets_the_first_response(t *testing.T) {
	storyOf(t, deduping(24*time.Hour), byReplay, func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.RequestLost())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		e := run.Until(key, 10*time.Minute, journal.Succeeded)
		calls(t, r, key, 2)
		if len(e.Attempts) != 2 || !e.Attempts[1].Replay {
			t.Errorf("attempts %+v", e.Attempts)
		}
		run.Once(key)
	})
}

func TestScenario19_no_replay_when_the_dedupe_window_is_about_to_end(t *testing.T) {
	storyOf(t, deduping(26*time.Second), byReplay, func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.RequestLost())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		e := run.Until(key, time.Hour, journal.NeedsHuman)
		owned(t, e, journal.ReviewAmbiguity)
		calls(t, r, key, 1)
		if e.Standing() != journal.InFlight {
			t.Errorf("standing %s", e.Standing())
		}
	})
}
