package daemon_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/daemontest"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk"
)

func TestScenario15_eight_clients_one_effect(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		var wg sync.WaitGroup
		results := make([]daemon.SubmitResult, 8)
		for i := range results {
			wg.Go(func() {
				var err error
				if results[i], err = run.Submit(t.Context(), daemontest.Request(key), daemontest.Client); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		created := 0
		for _, res := range results {
			if res.Created {
				created++
			}
			if res.Effect.ID != results[0].Effect.ID || res.Effect.Fingerprint != results[0].Effect.Fingerprint {
				t.Errorf("two effects: %d and %d", res.Effect.ID, results[0].Effect.ID)
			}
		}
		if created != 1 {
			t.Errorf("%d were told that they created it", created)
		}
		run.Until(key, time.Minute, journal.Succeeded)
		run.Once(key)
		calls(t, r, key, 1)
	})
}

func TestScenario16_the_same_key_for_something_else_is_a_conflict(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Succeeded)
		before := run.Effect(key)
		other := daemontest.Request(key)
		other.Payload = []byte(`{"subject":"ticket","amount":"topsecret"}`)
		actor := daemontest.Request(key)
		actor.Actor = "token:other"
		for name, req := range map[string]daemon.SubmitRequest{"payload": other, "actor": actor} {
			_, err := run.Submit(t.Context(), req, daemontest.Client)
			var conflict *journal.ConflictError
			if !errors.As(err, &conflict) {
				t.Errorf("another %s: %v", name, err)
				continue
			}
			if strings.Contains(err.Error(), "topsecret") || strings.Contains(err.Error(), "subject") {
				t.Errorf("the refusal tells a payload: %v", err)
			}
		}
		if e := run.Effect(key); e.Seq != before.Seq || e.Fingerprint != before.Fingerprint {
			t.Errorf("the effect changed by a refused submit")
		}
		run.Once(key)
		calls(t, r, key, 1)
	})
}

func TestScenario17_keys_with_personal_data_are_refused(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		for _, bad := range []string{"ticket:ada@example.org:v1", "ticket:+4915112345678:v1", "pay:4111111111111111:v1", "ticket: a:v1", ""} {
			var inv *daemon.InvalidError
			if _, err := run.Submit(t.Context(), daemontest.Request(bad), daemontest.Client); !errors.As(err, &inv) || !strings.HasPrefix(inv.Faults[0], "key:") {
				t.Errorf("%q: %v", bad, err)
			}
		}
		if n := len(r.World.Calls("")); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestScenario20_retry_after_is_waited_out(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.Busy(40*time.Second))
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, 5*time.Minute, journal.Succeeded)
		c := calls(t, r, key, 2)
		if wait := c[1].At.Sub(c[0].At); wait < 40*time.Second || wait > 60*time.Second {
			t.Errorf("sent again after %s", wait)
		}
		run.Once(key)
	})
}

func TestScenario20_attempts_and_elapsed_time_cap(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		extra, why string
		max        int
	}{
		"attempts": {"", "attempts spent", 3},
		"elapsed":  {"[destinations.desk.retry]\nattempts = 50\nelapsed = \"1m\"\n", "retry time spent", 49},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, s.extra, func(t *testing.T, r *daemontest.Rig) {
				r.World.Draw(func(string, int) daemontest.Fault { return daemontest.Busy(0) })
				run := r.Start()
				defer stop(t, run)
				run.Ticket(key)
				e := run.Until(key, time.Hour, journal.Failed)
				if !strings.Contains(e.Reason, s.why) || len(r.World.Calls(key)) > s.max {
					t.Errorf("%q after %d calls", e.Reason, len(r.World.Calls(key)))
				}
				owned(t, e, journal.ReviewException)
				run.Once(key)
			})
		})
	}
}

func TestScenario20_retry_tokens_bound_what_retries_add(t *testing.T) {
	extra := "rate = \"1000/s\"\nconcurrency = 64\n[destinations.desk.retry]\nattempts = 5\nelapsed = \"30m\"\ntokens = \"0% + 10/m\"\n"
	story(t, extra, func(t *testing.T, r *daemontest.Rig) {
		r.World.Draw(func(_ string, n int) daemontest.Fault {
			if n < 3 {
				return daemontest.Busy(0)
			}
			return daemontest.Honest()
		})
		run := r.Start()
		defer stop(t, run)
		const n = 60
		for i := range n {
			run.Ticket(fmt.Sprintf("ticket:%d:create:v1", i))
		}
		time.Sleep(2 * time.Minute)
		if got := len(r.World.Calls("")); got > n+10+2*10+2 {
			t.Errorf("%d calls in two minutes for %d effects and 10 tokens a minute", got, n)
		}
		time.Sleep(15 * time.Minute)
		for i := range n {
			run.Once(fmt.Sprintf("ticket:%d:create:v1", i))
		}
	})
}

func TestScenario21_what_each_answer_means(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		fault daemontest.Fault
		phase journal.Phase
		why   string
	}{
		"422":      {daemontest.Invalid(), journal.Failed, "rejected"},
		"401":      {daemontest.Denied("401"), journal.Failed, "denied"},
		"403":      {daemontest.Denied("403"), journal.Failed, "denied"},
		"unlisted": {daemontest.Unlisted(), journal.Unknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, "", func(t *testing.T, r *daemontest.Rig) {
				r.World.Script(key, s.fault)
				run := r.Start()
				defer stop(t, run)
				run.Ticket(key)
				e := run.Until(key, time.Second, s.phase)
				if !strings.HasPrefix(e.Reason, s.why) {
					t.Errorf("reason %q", e.Reason)
				}
				if s.phase == journal.Failed {
					owned(t, e, journal.ReviewException)
				}
				calls(t, r, key, 1)
				run.Once(key)
			})
		})
	}
}

func TestScenario22_a_read_that_times_out_spends_no_attempt(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.AnswerLost())
		r.World.Set(func(v *daemontest.View) { v.ReadsHang = true })
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		time.Sleep(10 * time.Minute)
		e := run.Once(key)
		if e.Doubt == nil || e.Doubt.ReadFailed == 0 {
			t.Errorf("no failed read is counted: %+v", e.Doubt)
		}
		r.World.Set(func(v *daemontest.View) { v.ReadsHang = false })
		e = run.Until(key, time.Hour, journal.Succeeded)
		if len(e.Attempts) != 1 || e.Budget.Attempts != 1 {
			t.Errorf("%d attempts, %d spent", len(e.Attempts), e.Budget.Attempts)
		}
		run.Once(key)
		calls(t, r, key, 1)
	})
}

func TestScenario23_deadlines_that_do_not_nest_are_refused(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		req := daemontest.Request(key)
		req.NotAfter = time.Now().Add(40 * time.Second) // timeout 10s + reserve 30s
		var inv *daemon.InvalidError
		if _, err := run.Submit(t.Context(), req, daemontest.Client); !errors.As(err, &inv) || !strings.HasPrefix(inv.Faults[0], "not_after:") {
			t.Errorf("%v", err)
		}
		req.NotAfter = time.Now().Add(50 * time.Second)
		if _, err := run.Submit(t.Context(), req, daemontest.Client); err != nil {
			t.Errorf("deadlines that nest: %v", err)
		}
		run.Until(key, time.Minute, journal.Succeeded)
		run.Once(key)
	})
}

func TestScenario24_half_an_hour_down_with_three_hundred_queued(t *testing.T) { outage(t, 300) }

func TestScenario24_half_an_hour_down_with_ten_thousand_queued(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	outage(t, 10000)
}

func outage(t *testing.T, n int) {
	extra := "rate = \"100/s\"\n[destinations.desk.limits]\nqueue = 20000\n"
	story(t, extra, func(t *testing.T, r *daemontest.Rig) {
		r.World.Set(func(v *daemontest.View) { v.Down = true })
		run := r.Start()
		defer stop(t, run)
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprintf("ticket:%d:create:v1", i)
			run.Ticket(keys[i])
		}
		time.Sleep(30 * time.Minute)
		breaker(t, run, "open")
		down := len(r.World.Calls(""))
		if down > 60 {
			t.Errorf("%d calls while it was down", down)
		}
		r.World.Set(func(v *daemontest.View) { v.Down = false })
		back := time.Now()
		for i := range keys {
			if e := run.Effect(keys[i]); e.Phase == journal.Succeeded {
				t.Fatalf("%s succeeded while the destination was down", keys[i])
			}
		}
		for _, k := range keys {
			run.Until(k, time.Until(back.Add(time.Hour)), journal.Succeeded, journal.Failed)
		}
		failed := 0
		for _, k := range keys {
			if e := run.Once(k); e.Phase == journal.Failed {
				failed++
			}
		}
		if failed > n/10 {
			t.Errorf("%d of %d failed though none was sent", failed, n)
		}
		breaker(t, run, "closed")
	})
}

func TestScenario25_a_deadline_passes(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script("b:v1", daemontest.AnswerLost())
		r.World.Set(func(v *daemontest.View) { v.Blind = true })
		run := r.Start()
		defer stop(t, run)
		req := daemontest.Request("b:v1")
		req.NotAfter = time.Now().Add(2 * time.Minute)
		if _, err := run.Submit(t.Context(), req, daemontest.Client); err != nil {
			t.Fatal(err)
		}
		if err := run.Hold(t.Context(), "all", daemontest.Person); err != nil {
			t.Fatal(err)
		}
		req.Key = "a:v1"
		if _, err := run.Submit(t.Context(), req, daemontest.Client); err != nil {
			t.Fatal(err)
		}
		e := run.Until("a:v1", 3*time.Minute, journal.Failed)
		if !strings.Contains(e.Reason, "deadline") {
			t.Errorf("reason %q", e.Reason)
		}
		owned(t, e, journal.ReviewException)
		calls(t, r, "a:v1", 0)
		time.Sleep(time.Hour)
		if e := run.Once("b:v1"); e.Phase != journal.Unknown {
			t.Errorf("the one that may have been sent is %s", e.Phase)
		}
	})
}

func TestScenario54_refused_before_any_call(t *testing.T) {
	w := daemontest.NewWorld(daemontest.Spec(10*time.Second), sdk.FeaturePrepare)
	storyOf(t, w, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Prepares(func(sdk.Operation) sdk.Prepared {
			return sdk.Prepared{Rejected: &sdk.Rejected{Reason: sdk.ReasonPermission, Message: "may not create"}}
		})
		run := r.Start()
		defer stop(t, run)
		unsupported := daemontest.Request(key)
		unsupported.Operation = "erase"
		nowhere := daemontest.Request(key)
		nowhere.Destination = "moon"
		garbage := daemontest.Request(key)
		garbage.Payload = []byte(`{"a":`)
		for place, req := range map[string]daemon.SubmitRequest{"operation:": unsupported, "destination:": nowhere, "payload:": garbage} {
			var inv *daemon.InvalidError
			if _, err := run.Submit(t.Context(), req, daemontest.Client); !errors.As(err, &inv) || !strings.HasPrefix(inv.Faults[0], place) {
				t.Errorf("%s %v", place, err)
			}
		}
		run.Ticket(key)
		e := run.Until(key, time.Minute, journal.Failed)
		if !strings.Contains(e.Reason, "may not create") {
			t.Errorf("reason %q", e.Reason)
		}
		owned(t, e, journal.ReviewException)
		calls(t, r, key, 0)
		run.Once(key)
	})
}

func TestScenario55_spent_budgets_have_an_owner(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		left  time.Duration
		fault daemontest.Fault
		why   string
	}{
		"attempts after absence": {24 * time.Hour, daemontest.RequestLost(), "attempts spent"},
		"deadline after absence": {65 * time.Second, daemontest.RequestLost(), "deadline passed"},
		"never sent":             {24 * time.Hour, daemontest.Refused(), "retry time spent"},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, "", func(t *testing.T, r *daemontest.Rig) {
				r.World.Draw(func(string, int) daemontest.Fault { return s.fault })
				run := r.Start()
				defer stop(t, run)
				req := daemontest.Request(key)
				req.NotAfter = time.Now().Add(s.left)
				if _, err := run.Submit(t.Context(), req, daemontest.Client); err != nil {
					t.Fatal(err)
				}
				e := run.Until(key, 24*time.Hour, journal.Failed)
				if !strings.Contains(e.Reason, s.why) {
					t.Errorf("reason %q", e.Reason)
				}
				owned(t, e, journal.ReviewException)
				run.Once(key)
				if len(r.World.Objects(key)) != 0 {
					t.Error("it happened")
				}
			})
		})
	}
}

func TestScenario56_containment_decides_what_waits(t *testing.T) {
	t.Parallel()
	for scope, waits := range map[string]bool{"target": true, "key": false} {
		t.Run(scope, func(t *testing.T) {
			w := daemontest.NewWorld(daemontest.Spec(10*time.Second), sdk.FeaturePrepare)
			storyOf(t, w, "contain = { unknown = \""+scope+"\" }\n", func(t *testing.T, r *daemontest.Rig) {
				r.World.Prepares(func(sdk.Operation) sdk.Prepared { return sdk.Prepared{Ready: &sdk.Ready{Target: "customer-7"}} })
				r.World.Script(key, daemontest.AnswerLost())
				r.World.Set(func(v *daemontest.View) { v.Blind = true })
				run := r.Start()
				defer stop(t, run)
				run.Ticket(key)
				run.Until(key, time.Minute, journal.Unknown)
				const second = "ticket:SUP-2:create:v1"
				run.Ticket(second)
				time.Sleep(5 * time.Minute)
				if n := len(r.World.Calls(second)); waits != (n == 0) {
					t.Errorf("%d calls of the second while the first is unknown", n)
				}
				r.World.Set(func(v *daemontest.View) { v.Blind = false })
				run.Until(key, 2*time.Hour, journal.Succeeded)
				if waits {
					run.Until(second, 10*time.Second, journal.Succeeded) // woken by the end of the hold
				}
				run.Until(second, 2*time.Hour, journal.Succeeded)
				run.Once(key)
				run.Once(second)
				calls(t, r, second, 1)
			})
		})
	}
}

func breaker(t *testing.T, run *daemontest.Running, want string) {
	t.Helper()
	s, err := run.Destination(t.Context(), "desk")
	if err != nil || s.Breaker != want {
		t.Errorf("breaker %s, want %s (%v)", s.Breaker, want, err)
	}
}

func TestScenario29_somebody_changed_the_object_and_the_write_is_stopped(t *testing.T) {
	w := daemontest.NewWorld(daemontest.Spec(10*time.Second), sdk.FeaturePrepare)
	storyOf(t, w, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Prepares(func(sdk.Operation) sdk.Prepared { return sdk.Prepared{Ready: &sdk.Ready{PreconditionFailed: true}} })
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		e := run.Until(key, time.Minute, journal.Failed)
		if !strings.Contains(e.Reason, "precondition") {
			t.Errorf("reason %q", e.Reason)
		}
		owned(t, e, journal.ReviewException)
		calls(t, r, key, 0)
		run.Once(key)
	})
}

func TestAnAcceptedRequestIsPolledAndVerified(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.Accepted(3*time.Minute))
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		e := run.Until(key, time.Second, journal.Acknowledged)
		if e.Ack == nil || e.Ack.Handle != "op-1" || e.Ack.Deadline.IsZero() {
			t.Errorf("acknowledgement %+v", e.Ack)
		}
		run.Until(key, 10*time.Minute, journal.Succeeded)
		run.Once(key)
		calls(t, r, key, 1)
	})
}

func TestAnAcceptedRequestThatNeverHappensIsAskedOfAPersonAndNeverSentAgain(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		f := daemontest.Accepted(0)
		f.Commits = false
		r.World.Script(key, f)
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		e := run.Until(key, 30*time.Hour, journal.NeedsHuman)
		owned(t, e, e.Review.Kind)
		time.Sleep(24 * time.Hour)
		run.Once(key)
		calls(t, r, key, 1)
	})
}
