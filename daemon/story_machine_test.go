package daemon_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/daemontest"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

func TestScenario45_a_stop_drains_what_ends_and_parks_the_rest(t *testing.T) {
	story(t, "concurrency = 8\n[daemon]\nstop_budget = \"12s\"\n", func(t *testing.T, r *daemontest.Rig) {
		const hung, slow, lost = "hung:v1", "slow:v1", "lost:v1"
		r.World.Script(hung, daemontest.HangEmpty())
		r.World.Script(slow, daemontest.Hang(time.Second)) // eleven seconds
		r.World.Script(lost, daemontest.AnswerLost())
		run := r.Start()
		for _, k := range []string{hung, slow, lost} {
			run.Ticket(k)
		}
		time.Sleep(100 * time.Millisecond)
		begun := time.Now()
		if err := run.Stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 10*time.Second || took > 13*time.Second {
			t.Errorf("the stop took %s; the budget is 12s", took)
		}
		if !strings.Contains(r.Log.String(), "parked as unknown") {
			t.Error("nobody said what was left")
		}
		db, err := r.Open()
		if err != nil {
			t.Fatal(err)
		}
		e, err := db.Effect(t.Context(), hung)
		if err != nil || e.Phase != journal.Unknown || e.Doubt.Cause != "stop" {
			t.Errorf("%s %+v %v", e.Phase, e.Doubt, err)
		}
		if e, err = db.Effect(t.Context(), slow); err != nil || e.Finding != journal.FindingAccepted {
			t.Errorf("the one that answered within the budget is %s (%v)", e.Phase, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Submit(t.Context(), daemontest.Request("late:v1"), daemontest.Client); !errors.Is(err, daemon.ErrDraining) {
			t.Errorf("a submit to a stopped daemon: %v", err)
		}
		run = r.Start()
		defer stop(t, run)
		for _, k := range []string{hung, slow, lost} {
			run.Until(k, 10*time.Minute, journal.Succeeded)
			run.Once(k)
		}
		calls(t, r, hung, 2)
		calls(t, r, slow, 1)
		calls(t, r, lost, 1)
	})
}

func TestAStopInTheMiddleOfAReadLeavesNothingHalfWay(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.AnswerLost())
		r.World.Set(func(v *daemontest.View) { v.ReadsHang = true })
		run := r.Start()
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Reconciling)
		begun := time.Now()
		stop(t, run)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the stop waited %s for a read", took)
		}
		r.World.Set(func(v *daemontest.View) { v.ReadsHang = false })
		run = r.Start()
		defer stop(t, run)
		if e := run.Effect(key); e.Phase != journal.Unknown {
			t.Errorf("%s after the restart", e.Phase)
		}
		run.Until(key, time.Minute, journal.Succeeded)
		run.Once(key)
	})
}

func TestScenario46_no_call_before_its_row_is_committed(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"batch", "op", "commit.before"} {
		t.Run(op, func(t *testing.T) {
			story(t, "", func(t *testing.T, r *daemontest.Rig) {
				var full atomic.Bool
				r.FaultWith(func(at string) error {
					if at == op && full.Load() {
						if n := len(r.World.Calls("")); n != 0 {
							t.Errorf("%d calls before COMMIT", n)
						}
						return sqlite3.Error{Code: sqlite3.ErrFull}
					}
					return nil
				})
				run := r.Start()
				defer stop(t, run)
				full.Store(true)
				if _, err := run.Submit(t.Context(), daemontest.Request(key), daemontest.Client); !errors.Is(err, daemon.ErrJournalFull) {
					t.Errorf("submit: %v", err)
				}
				time.Sleep(time.Minute)
				calls(t, r, key, 0)
				full.Store(false)
				run.Ticket(key)
				run.Until(key, time.Minute, journal.Succeeded)
				run.Once(key)
			})
		})
	}
}

func TestScenario46_a_blocked_commit_holds_the_call_back(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.FaultWith(func(at string) error {
			if at == "commit.before" && len(r.World.Calls("")) == 0 {
				time.Sleep(30 * time.Second) // a slow disk
				calls(t, r, key, 0)
			}
			return nil
		})
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, 5*time.Minute, journal.Succeeded)
		run.Once(key)
	})
}

func TestScenario46_a_failed_commit_stops_the_daemon_and_sends_nothing(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		var broken atomic.Bool
		broken.Store(true)
		r.FaultWith(func(at string) error {
			if at == "commit.after" && broken.Load() {
				return sqlite3.Error{Code: sqlite3.ErrIoErr}
			}
			return nil
		})
		run := r.Start()
		if _, err := run.Submit(t.Context(), daemontest.Request(key), daemontest.Client); !errors.Is(err, daemon.ErrSubmissionUnknown) {
			t.Errorf("submit: %v", err)
		}
		<-run.Done()
		if err := run.Stop(); sqlite.ExitCode(err) != 74 {
			t.Errorf("Run returned %v", err)
		}
		calls(t, r, key, 0)
		broken.Store(false)
		run = r.Start()
		defer stop(t, run)
		// the row was durable after all: it is in doubt, read, absent, and sent once
		run.Until(key, 10*time.Minute, journal.Succeeded)
		run.Once(key)
		calls(t, r, key, 1)
	})
}

func TestScenario46_a_full_disk_keeps_the_outcome_and_recovers(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		var full atomic.Bool
		r.FaultWith(func(at string) error {
			if at == "commit.before" && full.Load() {
				return sqlite3.Error{Code: sqlite3.ErrFull}
			}
			return nil
		})
		r.World.Script("b:v1", daemontest.Busy(time.Second))
		run := r.Start()
		defer stop(t, run)
		run.Ticket("b:v1") // authorized again when the disk fills
		time.Sleep(100 * time.Millisecond)
		run.Ticket(key)
		full.Store(true) // the call is under way, its answer cannot be written
		time.Sleep(time.Minute)
		if _, err := run.Submit(t.Context(), daemontest.Request("c:v1"), daemontest.Client); !errors.Is(err, daemon.ErrJournalFull) {
			t.Errorf("submit: %v", err)
		}
		if e := run.Effect(key); e.Phase != journal.Dispatching {
			t.Errorf("%s while nothing can be written", e.Phase)
		}
		calls(t, r, key, 1)
		calls(t, r, "b:v1", 1)
		full.Store(false)
		for _, k := range []string{key, "b:v1"} {
			run.Until(k, time.Minute, journal.Succeeded)
			run.Once(k)
		}
		run.Ticket("c:v1")
		run.Until("c:v1", time.Minute, journal.Succeeded)
		if n := strings.Count(r.Log.String(), "\n"); n > 400 {
			t.Errorf("%d lines were logged in a minute of a full disk", n)
		}
	})
}

func TestScenario46_a_full_disk_does_not_keep_the_daemon_from_stopping(t *testing.T) {
	story(t, "[daemon]\nstop_budget = \"20s\"\n", func(t *testing.T, r *daemontest.Rig) {
		var full atomic.Bool
		r.FaultWith(func(at string) error {
			if at == "commit.before" && full.Load() {
				return sqlite3.Error{Code: sqlite3.ErrFull}
			}
			return nil
		})
		run := r.Start()
		run.Ticket(key)
		full.Store(true)
		time.Sleep(time.Second)
		begun := time.Now()
		_ = run.Stop() // closing a full journal may fail
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("the stop took %s", took)
		}
		full.Store(false)
		run = r.Start()
		defer stop(t, run)
		run.Until(key, time.Minute, journal.Succeeded)
		run.Once(key)
		calls(t, r, key, 1)
	})
}

func TestScenario47_a_second_daemon_is_locked_out(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		if db, err := r.Open(); !errors.Is(err, sqlite.ErrLocked) || sqlite.ExitCode(err) != 75 {
			t.Errorf("the second one: %v", err)
			if err == nil {
				_ = db.Close()
			}
		}
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Succeeded)
		run.Once(key)
	})
}

func TestScenario47_after_a_clock_jump_grace_begins_again(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.RequestLost())
		r.World.Set(func(v *daemontest.View) { v.Outage = true }) // nothing is concluded before the restart
		run := r.Start()
		run.Ticket(key)
		time.Sleep(10 * time.Minute)
		stop(t, run)
		r.World.Set(func(v *daemontest.View) { v.Outage = false })
		r.Options(func(o *daemon.Options) { o.ClockJumped = true })
		again := time.Now()
		run = r.Start()
		defer stop(t, run)
		if e := run.Effect(key); e.Doubt == nil || e.Doubt.SettleNotBefore.Before(again.Add(10*time.Second)) {
			t.Errorf("the grace did not begin again: %+v", e.Doubt)
		}
		run.Until(key, 10*time.Minute, journal.Succeeded)
		run.Once(key)
		c := calls(t, r, key, 2)
		if wait := c[1].At.Sub(again); wait < 10*time.Second {
			t.Errorf("sent %s after the jump was found", wait)
		}
	})
}

func TestScenario47_a_restored_backup_sends_nothing_until_confirmed(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		const after = "after:v1"
		run := r.Start()
		r.World.Script(key, daemontest.Busy(time.Hour))
		run.Ticket(key) // authorized in the backup, sent after it
		time.Sleep(time.Minute)
		stop(t, run)
		backup := r.Backup()
		run = r.Start()
		run.Until(key, 2*time.Hour, journal.Succeeded, journal.Failed)
		run.Ticket(after) // unknown to the backup
		run.Until(after, time.Minute, journal.Succeeded)
		sent := len(r.World.Calls(""))
		stop(t, run)
		dead := time.Now()
		r.Restore(backup)

		run = r.Start()
		defer stop(t, run)
		if s, err := run.Status(t.Context()); err != nil || s.Dispatch {
			t.Errorf("dispatch is on after a restore: %+v %v", s, err)
		}
		run.Ticket(after)
		time.Sleep(time.Hour)
		run.Ticket("new:v1")
		time.Sleep(5 * time.Minute)
		if n := len(r.World.Calls("")); n != sent {
			t.Errorf("%d calls before anybody confirmed", n-sent)
		}
		if err := run.ConfirmRestore(t.Context(), dead, daemontest.Person); err != nil {
			t.Fatal(err)
		}
		run.Until(after, 3*time.Hour, journal.Succeeded)
		run.Until("new:v1", 3*time.Hour, journal.Succeeded)
		time.Sleep(time.Hour)
		for _, k := range []string{key, after, "new:v1"} {
			run.Once(k)
		}
		calls(t, r, after, 1)
	})
}

// A reservation that turns out to be for a key that exists must give back the
// one trial of a half-open breaker.
func TestASubmitOfAKnownKeyGivesTheTrialBack(t *testing.T) {
	story(t, "[destinations.desk.breaker]\nopen_after = 1\n", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		run.Ticket("old:v1")
		run.Until("old:v1", time.Minute, journal.Succeeded)
		r.World.Script("trip:v1", daemontest.AnswerLost())
		run.Ticket("trip:v1")
		run.Until("trip:v1", time.Minute, journal.Succeeded)
		time.Sleep(time.Minute)
		breaker(t, run, "half-open")
		run.Ticket("old:v1")
		run.Ticket("next:v1")
		run.Until("next:v1", 10*time.Second, journal.Succeeded)
		breaker(t, run, "closed")
	})
}

// What a person holds is sent when the hold is released, at once and all of it.
func TestAReleaseWakesEverythingThatWasHeld(t *testing.T) {
	story(t, "rate = \"1000/s\"\n", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		if err := run.Hold(t.Context(), "destination:desk", daemontest.Person); err != nil {
			t.Fatal(err)
		}
		const n = 700 // more than one transaction wakes
		for i := range n {
			run.Ticket(fmt.Sprintf("t:%d:v1", i))
		}
		time.Sleep(time.Hour)
		calls(t, r, "", 0)
		if _, err := run.Release(t.Context(), "destination:desk", daemontest.Person); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for i := range n {
			if e := run.Once(fmt.Sprintf("t:%d:v1", i)); e.Phase != journal.Succeeded {
				t.Fatalf("%s is %s (%s) a minute after the release", e.Key, e.Phase, e.Due)
			}
		}
	})
}

// What an operator types twice is answered in words, not as a fault of the daemon.
func TestWhatIsTypedTwiceIsAnsweredInWords(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		for _, scope := range []string{"all", "destination:desk"} {
			if _, err := run.Release(t.Context(), scope, daemontest.Person); !errors.Is(err, daemon.ErrNotFound) {
				t.Errorf("release of %s, which nobody holds: %v", scope, err)
			}
		}
		if err := run.PauseDestination(t.Context(), "desk", false, daemontest.Person); err != nil {
			t.Errorf("resume of what is not paused: %v", err)
		}
		file := filepath.Join(t.TempDir(), "backup.db")
		if err := run.Backup(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		var invalid *daemon.InvalidError
		for name, says := range map[string]string{file: "give another name", filepath.Join(file+"-none", "b.db"): file + "-none: no such file"} {
			if err := run.Backup(t.Context(), name); !errors.As(err, &invalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("backup to %s: %v", name, err)
			}
		}
	})
}

// An adapter that does not come up is asked again in good time, not all the time.
func TestAnAdapterThatIsDownIsNotAskedAllTheTime(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Succeeded)
		if err := run.Hold(t.Context(), "all", daemontest.Person); err != nil {
			t.Fatal(err)
		}
		run.Ticket("b:v1")
		stop(t, run)
		var mu sync.Mutex
		asked, down := 0, true
		r.Ports(func(p daemon.Port) daemon.Port {
			return &flakyPort{Port: p, down: func() bool { mu.Lock(); defer mu.Unlock(); asked++; return down }}
		})
		run = r.Start()
		defer stop(t, run)
		if _, err := run.Release(t.Context(), "all", daemontest.Person); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		mu.Lock()
		if asked > 2000 {
			t.Errorf("asked %d times in ten minutes", asked)
		}
		down = false
		mu.Unlock()
		run.Until("b:v1", time.Minute, journal.Succeeded)
		run.Once("b:v1")
	})
}

// Two effects of one account are in doubt and hold each other: when one is
// proved absent, the other's end lets it go on at once, not when its proof is stale.
func TestEffectsThatHeldEachOtherGoOnWhenTheHoldEnds(t *testing.T) {
	story(t, "contain = { unknown = \"account\" }\n", func(t *testing.T, r *daemontest.Rig) {
		keys := []string{"a:v1", "b:v1", "c:v1"}
		run := r.Start()
		defer stop(t, run)
		for _, k := range keys {
			r.World.Script(k, daemontest.RequestLost())
			run.Ticket(k)
		}
		for _, k := range keys {
			run.Until(k, 5*time.Minute, journal.Succeeded)
			run.Once(k)
		}
	})
}

// A daemon with nothing to do does nothing: the journal is written once for each read.
func TestAnOpenDoubtCostsNothingBetweenReads(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		var batches atomic.Int64
		r.FaultWith(func(at string) error {
			if at == "batch" {
				batches.Add(1)
			}
			return nil
		})
		r.World.Script(key, daemontest.AnswerLost())
		r.World.Set(func(v *daemontest.View) { v.Blind = true })
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		time.Sleep(20 * time.Hour)
		if n := batches.Load(); n > 120 {
			t.Errorf("%d transactions in twenty hours with one effect in doubt", n)
		}
		if n := r.World.Reads(key); n < 20 || n > 60 {
			t.Errorf("%d reads in twenty hours", n)
		}
	})
}

// A waking that fails, as on a full disk, is tried again in good time, not all the time.
func TestAWakingThatFailsDoesNotSpin(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		if err := run.Hold(t.Context(), "all", daemontest.Person); err != nil {
			t.Fatal(err)
		}
		run.Ticket(key)
		time.Sleep(time.Minute)
		stop(t, run)
		var full atomic.Bool
		var batches atomic.Int64
		full.Store(true)
		r.FaultWith(func(at string) error {
			if at == "commit.before" && full.Load() {
				if batches.Add(1) > 10_000 {
					panic("the committer spins")
				}
				return sqlite3.Error{Code: sqlite3.ErrFull}
			}
			return nil
		})
		run = r.Start()
		defer stop(t, run)
		time.Sleep(10 * time.Minute)
		if n := batches.Load(); n < 2 || n > 700 {
			t.Errorf("%d transactions failed in ten minutes", n)
		}
		full.Store(false)
		if _, err := run.Release(t.Context(), "all", daemontest.Person); err != nil {
			t.Fatal(err)
		}
		run.Until(key, time.Minute, journal.Succeeded)
		run.Once(key)
	})
}

func TestAJournalThatFailsDuringTheDrainEndsItAtOnce(t *testing.T) {
	story(t, "[daemon]\nstop_budget = \"2m\"\n", func(t *testing.T, r *daemontest.Rig) {
		var broken atomic.Bool
		r.FaultWith(func(at string) error {
			if at == "commit.before" && broken.Load() {
				return sqlite3.Error{Code: sqlite3.ErrIoErr}
			}
			return nil
		})
		r.World.Script("slow:v1", daemontest.Hang(time.Second))
		r.World.Script("hung:v1", daemontest.Honest().Staying(time.Minute))
		run := r.Start()
		run.Ticket("slow:v1")
		time.Sleep(5 * time.Second)
		run.Ticket("hung:v1")
		time.Sleep(time.Second)
		broken.Store(true)
		begun := time.Now()
		if err := run.Stop(); sqlite.ExitCode(err) != 74 {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("the drain went on for %s after the journal had failed", took)
		}
	})
}

// What was authorized under one adapter is not sent by another without a new grant.
func TestAReplacedAdapterNeedsANewGrant(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		var sha atomic.Value
		sha.Store("world-1")
		r.Ports(func(p daemon.Port) daemon.Port {
			return &replacedPort{Port: p, sha: func() string { return sha.Load().(string) }}
		})
		run := r.Start()
		defer stop(t, run)
		if err := run.Hold(t.Context(), "all", daemontest.Person); err != nil {
			t.Fatal(err)
		}
		before := run.Ticket(key)
		sha.Store("world-2")
		if _, err := run.Release(t.Context(), "all", daemontest.Person); err != nil {
			t.Fatal(err)
		}
		run.Until(key, time.Minute, journal.Succeeded)
		e := run.Once(key)
		if e.Attempts[0].Adapter.SHA256 != "world-2" || e.Authority == nil || e.Authority.ContractSHA256 == before.Authority.ContractSHA256 {
			t.Errorf("sent by %s under the old grant", e.Attempts[0].Adapter.SHA256)
		}
		lines, err := run.DB.EventsOf(t.Context(), key, 100)
		if err != nil {
			t.Fatal(err)
		}
		withdrawn := false
		for _, x := range lines {
			withdrawn = withdrawn || x.Transition == 5
		}
		if !withdrawn {
			t.Error("the old grant was never withdrawn")
		}
	})
}
