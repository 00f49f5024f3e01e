package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/daemontest"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

func TestScenario01_answer_lost_after_commit(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.AnswerLost())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		e := run.Until(key, 2*time.Second, journal.Unknown)
		if e.Doubt.Cause != "connection_lost" || len(e.Doubt.Missing) == 0 {
			t.Errorf("doubt %+v", e.Doubt)
		}
		e = run.Until(key, time.Minute, journal.Succeeded)
		if e.Outcome.ObjectID != r.World.Objects(key)[0].ID || e.Outcome.Source != "read" {
			t.Errorf("outcome %+v", e.Outcome)
		}
		run.Once(key)
		calls(t, r, key, 1)
	})
}

func TestScenario02_request_lost_before_commit(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.RequestLost())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, 5*time.Minute, journal.Succeeded)
		e := run.Once(key)
		c := calls(t, r, key, 2)
		if c[0].Attempt == c[1].Attempt || c[0].Digest != c[1].Digest {
			t.Errorf("the second attempt must have a new id and the same payload: %+v", c)
		}
		// deadline 10s + max_processing 10s: nothing may be believed before
		if wait := c[1].At.Sub(c[0].At); wait < 20*time.Second {
			t.Errorf("sent again after %s, inside the grace", wait)
		}
		if e.Attempts[0].State != journal.AttemptSettledAbsent || e.Attempts[1].Follows != e.Attempts[0].ID {
			t.Errorf("attempts %+v", e.Attempts)
		}
		if r.World.Reads(key) < 3 {
			t.Errorf("%d reads: the early one, two that agree and the last are expected", r.World.Reads(key))
		}
	})
}

func TestScenario03_late_commit_is_not_raced(t *testing.T) {
	w := daemontest.NewWorld(daemontest.Spec(30 * time.Second))
	storyOf(t, w, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.LateCommit(35*time.Second)) // deadline 10s + 30s: still inside the bound
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		time.Sleep(34 * time.Second)
		if r.World.Reads(key) == 0 || len(r.World.Objects(key)) != 0 {
			t.Fatalf("no early empty read: the story does not happen")
		}
		run.Until(key, 5*time.Minute, journal.Succeeded)
		run.Once(key)
		calls(t, r, key, 1)
	})
}

// The answer is there and the daemon dies at every point of the journal around
// recording it. However it dies, the effect happens once and is known.
func TestScenario04_killed_at_every_point(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"batch", "op", "flush", "commit.before", "commit.after", "ack"} {
		for n := 1; n <= 7; n++ {
			t.Run(fmt.Sprintf("%s-%d", op, n), func(t *testing.T) {
				story(t, "", func(t *testing.T, r *daemontest.Rig) { killedAt(t, r, op, n) })
			})
		}
	}
}

func killedAt(t *testing.T, r *daemontest.Rig, op string, n int) {
	r.CrashAt(op, n)
	run := r.Start()
	_, err := run.Submit(t.Context(), daemontest.Request(key), daemontest.Client)
	crashed := run.WaitCrash(2 * time.Minute)
	if !crashed {
		if run.Effect(key).Phase != journal.Succeeded {
			t.Errorf("no crash and no end: %s", run.Effect(key).Phase)
		}
		run.Once(key)
		stop(t, run)
		return
	}
	acknowledged := err == nil
	run = r.Start()
	defer stop(t, run)
	if _, err := run.DB.Effect(context.Background(), key); errors.Is(err, sqlite.ErrNotFound) && acknowledged {
		t.Fatalf("an acknowledged intent is gone")
	}
	run.Ticket(key) // the source submits again what it has no answer to
	run.Until(key, 10*time.Minute, journal.Succeeded)
	run.Once(key)
}

func TestScenario05_rejected_before_commit(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.Invalid())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, time.Second, journal.Failed)
		time.Sleep(time.Hour)
		e := run.Once(key)
		if e.Finding != journal.FindingRejected || e.Attempts[0].State != journal.AttemptRejected || !strings.Contains(e.Reason, "subject is missing") {
			t.Errorf("%s %s %q", e.Finding, e.Attempts[0].State, e.Reason)
		}
		owned(t, e, journal.ReviewException)
		calls(t, r, key, 1)
	})
}

func TestScenario06_success_reported_postcondition_false(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Set(func(v *daemontest.View) { v.Postcond = sdk.PostconditionFails })
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, 5*time.Minute, journal.NeedsHuman)
		e := run.Once(key)
		if e.Finding != journal.FindingPostconditionFailed || e.Standing() != journal.Contradicted {
			t.Errorf("finding %s, standing %s", e.Finding, e.Standing())
		}
		owned(t, e, journal.ReviewContradiction)
		calls(t, r, key, 1)
	})
}

func TestScenario07_similar_objects_are_never_guessed(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.RequestLost())
		r.World.Set(func(v *daemontest.View) { v.Similar = 2 })
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, 10*time.Minute, journal.NeedsHuman)
		time.Sleep(3 * time.Hour)
		e := run.Once(key)
		if e.Phase != journal.NeedsHuman || len(e.Review.Candidates) != 2 || e.Finding != journal.FindingUnknown {
			t.Errorf("%s %s candidates %+v", e.Phase, e.Finding, e.Review.Candidates)
		}
		owned(t, e, journal.ReviewAmbiguity)
		calls(t, r, key, 1)
	})
}

func TestScenario07_two_objects_with_our_key_are_a_duplicate(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.Lies = true // somebody else uses our key
		r.World.Script(key, daemontest.AnswerLost())
		run := r.Start()
		defer stop(t, run)
		e := run.Ticket(key)
		r.World.Place(daemontest.Object{ID: "stranger", Key: key, Digest: "other"})
		e = run.Until(key, time.Minute, journal.NeedsHuman)
		if e.Finding != journal.FindingDuplicate || e.Standing() != journal.Contradicted || len(e.Review.Candidates) != 2 {
			t.Errorf("finding %s, %d candidates", e.Finding, len(e.Review.Candidates))
		}
		owned(t, e, journal.ReviewContradiction)
		calls(t, r, key, 1)
	})
}

func TestScenario08_a_limited_view_proves_no_absence(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*daemontest.View){
		"pages are missing":      func(v *daemontest.View) { v.Incomplete = true },
		"nothing proves we see":  func(v *daemontest.View) { v.Blind = true },
		"the index says outage":  func(v *daemontest.View) { v.Outage = true },
		"one look-alike is near": func(v *daemontest.View) { v.Similar = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			story(t, "", func(t *testing.T, r *daemontest.Rig) {
				r.World.Script(key, daemontest.RequestLost())
				r.World.Set(limit)
				run := r.Start()
				defer stop(t, run)
				run.Ticket(key)
				time.Sleep(3 * time.Hour)
				if e := run.Once(key); e.Phase != journal.Unknown {
					t.Errorf("after three hours: %s", e.Phase)
				}
				e := run.Until(key, 24*time.Hour, journal.NeedsHuman)
				owned(t, e, journal.ReviewAmbiguity)
				if e.Finding != journal.FindingUnknown || e.Standing() != journal.InFlight {
					t.Errorf("finding %s standing %s", e.Finding, e.Standing())
				}
				calls(t, r, key, 1)
				run.Once(key)
			})
		})
	}
}

func TestScenario08_an_empty_list_without_visibility_hides_a_commit(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.AnswerLost())
		r.World.Set(func(v *daemontest.View) { v.Blind = true })
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		time.Sleep(2 * time.Hour)
		run.Once(key)
		r.World.Set(func(v *daemontest.View) { v.Blind = false })
		run.Until(key, 2*time.Hour, journal.Succeeded)
		run.Once(key)
		calls(t, r, key, 1)
	})
}

func TestScenario09_nobody_sends_again_while_it_is_unknown(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.AnswerLost())
		r.World.Set(func(v *daemontest.View) { v.Outage, v.Blind = true, true })
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		e := run.Until(key, time.Second, journal.Unknown)
		res, err := run.Submit(t.Context(), daemontest.Request(key), daemontest.Client)
		if err != nil || res.Created || res.Effect.ID != e.ID {
			t.Errorf("submit again: %+v %v", res.Created, err)
		}
		if _, err := run.Cancel(t.Context(), key, daemontest.Person); err == nil {
			t.Error("cancelled while a call may have happened")
		}
		for _, d := range []daemon.DecideRequest{
			{Decision: journal.DecideRetry, Because: "again"},
			{Decision: journal.DecideDidNotHappen, Then: "retry", Evidence: "looked", Because: "not there"},
		} {
			if _, err := run.Decide(t.Context(), key, d, daemontest.Person); err == nil {
				t.Errorf("%s was accepted inside the grace", d.Decision)
			} else if err.Error() == "" {
				t.Errorf("%s was refused without a reason", d.Decision)
			}
		}
		gate := journal.Gate(run.Effect(key), journal.Ask{}, journal.Env{Now: time.Now()})
		if len(gate) == 0 || gate[0].Why == "" {
			t.Error("the gate stands open")
		}
		time.Sleep(10 * time.Minute)
		run.Once(key)
		calls(t, r, key, 1)
	})
}

func TestScenario10_a_lagging_replica_makes_no_duplicate(t *testing.T) {
	w := daemontest.NewWorld(daemontest.Lagging(10*time.Second, 2*time.Minute))
	storyOf(t, w, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Set(func(v *daemontest.View) { v.Lag = 2 * time.Minute })
		r.World.Script(key, daemontest.AnswerLost())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		time.Sleep(110 * time.Second)
		if r.World.Reads(key) < 2 {
			t.Fatalf("%d reads: no empty read happened", r.World.Reads(key))
		}
		run.Until(key, 30*time.Minute, journal.Succeeded)
		run.Once(key)
		calls(t, r, key, 1)
	})
}

func TestScenario10_only_a_lying_lag_makes_a_duplicate_and_reading_finds_it(t *testing.T) {
	w := daemontest.NewWorld(daemontest.Lagging(10*time.Second, 10*time.Second))
	storyOf(t, w, "", func(t *testing.T, r *daemontest.Rig) {
		r.Lies = true
		r.World.Set(func(v *daemontest.View) { v.Lag = 20 * time.Minute }) // declared: ten seconds
		r.World.Script(key, daemontest.AnswerLost())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		time.Sleep(30 * time.Minute)
		if n := len(r.World.Objects(key)); n != 2 {
			t.Fatalf("%d objects: the lie did no harm, the story does not happen", n)
		}
		run.Until(key, time.Hour, journal.NeedsHuman) // nothing is seen although it was acknowledged
		if _, err := run.Decide(t.Context(), key, daemon.DecideRequest{Decision: journal.DecideRead, Because: "look again"}, daemontest.Person); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		e := run.Effect(key)
		if e.Finding != journal.FindingDuplicate {
			t.Errorf("finding %s", e.Finding)
		}
		owned(t, e, journal.ReviewContradiction)
	})
}

func TestScenario11_answers_and_commits_after_the_deadline(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		fault daemontest.Fault
		calls int
	}{
		"the answer comes in the linger":               {daemontest.Hang(3 * time.Second), 1},
		"the answer comes when nobody waits any more":  {daemontest.Hang(20 * time.Second), 1},
		"no answer, the commit before the first read":  {daemontest.HangCommit(12 * time.Second), 1},
		"no answer, the commit between two reads":      {daemontest.HangCommit(40 * time.Second), 1},
		"no answer, no commit":                         {daemontest.HangEmpty(), 2},
		"it stays in the adapter past the deadline":    {daemontest.AnswerLost().Staying(14 * time.Second), 1},
		"it stays in the adapter until that is killed": {daemontest.AnswerLost().Staying(time.Hour), 2},
		"the process dies after the commit":            {daemontest.Dies(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := daemontest.NewWorld(daemontest.Spec(60 * time.Second))
			storyOf(t, w, "", func(t *testing.T, r *daemontest.Rig) {
				r.World.Script(key, s.fault)
				run := r.Start()
				defer stop(t, run)
				run.Ticket(key)
				run.Until(key, 30*time.Minute, journal.Succeeded)
				e := run.Once(key)
				calls(t, r, key, s.calls)
				for _, a := range e.Attempts {
					if a.ClosedAt.IsZero() {
						t.Errorf("attempt %d was never closed", a.Number)
					}
				}
			})
		})
	}
}

func TestScenario12_a_broken_answer_after_the_commit_is_unknown(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]daemontest.Fault{"500": daemontest.ServerError(), "garbled": daemontest.Garbled()} {
		t.Run(name, func(t *testing.T) {
			story(t, "", func(t *testing.T, r *daemontest.Rig) {
				r.World.Script(key, f)
				run := r.Start()
				defer stop(t, run)
				run.Ticket(key)
				run.Until(key, time.Second, journal.Unknown)
				run.Until(key, time.Minute, journal.Succeeded)
				run.Once(key)
				calls(t, r, key, 1)
			})
		})
	}
}

func TestScenario12_a_dropped_key_is_never_a_success(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.KeyDropped())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		for range 50 {
			time.Sleep(time.Hour)
			if e := run.Effect(key); e.Phase == journal.Succeeded || e.Phase == journal.Failed {
				t.Fatalf("became %s", e.Phase)
			}
		}
		e := run.Once(key)
		if e.Phase != journal.NeedsHuman {
			t.Errorf("%s", e.Phase)
		}
		owned(t, e, e.Review.Kind)
		calls(t, r, key, 1)
	})
}

func TestScenario13_one_dispatch_is_one_call(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Draw(func(_ string, n int) daemontest.Fault {
			if n == 1 {
				return daemontest.RequestLost()
			}
			return daemontest.ServerError()
		})
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, 30*time.Minute, journal.Succeeded)
		seen := map[string]int{}
		for _, c := range r.World.Calls("") {
			seen[c.Attempt]++
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("attempt %s was called %d times", id, n)
			}
		}
		run.Once(key)
	})
}

func TestScenario14_a_conflict_after_an_earlier_try_means_read(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		liar := daemontest.Busy(time.Second)
		liar.Commits = true
		r.World.Script(key, liar, daemontest.Conflict())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		e := run.Until(key, time.Minute, journal.Succeeded)
		c := calls(t, r, key, 2)
		if wait := e.Outcome.VerifiedAt.Sub(c[1].At); wait > 2*time.Second {
			t.Errorf("read %s after the conflict, not at once", wait)
		}
		run.Once(key)
	})
}
