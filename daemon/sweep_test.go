package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/daemontest"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk"
)

// quiet is a destination whose timed reads stay away, so that what is read is
// read by the sweep, and a sweep that only runs when asked.
const quiet = `
concurrency = 64
rate = "1000/s"
[destinations.desk.breaker]
open_after = 1000
[destinations.desk.grace]
reads = ["12h"]
override_reason = "sweeps do the reading"
[schedules.desk-sweep]
do = "reconcile"
destination = "desk"
cron = "0 0 1 1 *"
`

// lister gives the world's adapter a listing that settles many.
type lister struct {
	mu sync.Mutex
	// protects following
	sizes  []int
	before func(n int) error // called with the number of the listing, from 1
}

func (l *lister) wrap(p daemon.Port) daemon.Port { return listPort{p, l} }

func (l *lister) listings() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int(nil), l.sizes...)
}

type listPort struct {
	daemon.Port
	l *lister
}

func (p listPort) Acquire(ctx context.Context) (daemon.Live, error) {
	live, err := p.Port.Acquire(ctx)
	return listLive{live, p.l}, err
}

type listLive struct {
	daemon.Live
	l *lister
}

func (a listLive) ReadMany(ctx context.Context, reads []sdk.ReadRequest, answer func(int, sdk.ReadResponse)) error {
	a.l.mu.Lock()
	a.l.sizes = append(a.l.sizes, len(reads))
	n, before := len(a.l.sizes), a.l.before
	a.l.mu.Unlock()
	if before != nil {
		if err := before(n); err != nil {
			return err
		}
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	for i := range reads {
		wait.Go(func() {
			r, err := a.Read(ctx, reads[i])
			if err != nil {
				return // the listing says nothing about it
			}
			mu.Lock()
			defer mu.Unlock()
			answer(i, r)
		})
	}
	wait.Wait()
	return ctx.Err()
}

func listing() *daemontest.World {
	return daemontest.NewWorld(daemontest.Spec(10*time.Second), sdk.FeatureReadMany)
}

// tickets submits n effects whose answers are lost, and waits until all are unknown.
func tickets(run *daemontest.Running, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("ticket:SUP-%d:create:v1", i)
		run.Ticket(keys[i])
	}
	for _, k := range keys {
		run.Until(k, time.Minute, journal.Unknown)
	}
	return keys
}

func lost(string, int) daemontest.Fault { return daemontest.AnswerLost() }

func TestSweepSettlesManyByOneListing(t *testing.T) {
	storyOf(t, listing(), quiet, func(t *testing.T, r *daemontest.Rig) {
		l := &lister{}
		r.Ports(l.wrap)
		r.World.Draw(lost)
		run := r.Start()
		defer stop(t, run)
		keys := tickets(run, 620)
		var told []daemon.SweepReport
		rep, err := run.Sweep(t.Context(), "desk-sweep", func(p daemon.SweepReport) { told = append(told, p) })
		if err != nil || !rep.Done {
			t.Fatalf("sweep: %v %+v", err, rep)
		}
		if rep.Total != 620 || rep.Asked != 620 || rep.Matches != 620 {
			t.Errorf("report %+v", rep)
		}
		if got := fmt.Sprint(l.listings()); got != "[500 120]" {
			t.Errorf("listings %s", got)
		}
		if len(told) < 5 || told[0].Total != 620 || !told[len(told)-1].Done {
			t.Errorf("%d reports, the first %+v", len(told), told[0])
		}
		for i, k := range keys {
			if e := run.Effect(k); e.Phase != journal.Succeeded {
				t.Fatalf("%s is %s", k, e.Phase)
			}
			if i == 0 {
				run.Once(k)
			}
		}
	})
}

func TestSweepKilledInTheMiddleGoesOnFromItsPlace(t *testing.T) {
	storyOf(t, listing(), quiet, func(t *testing.T, r *daemontest.Rig) {
		stuck := make(chan struct{})
		l := &lister{before: func(n int) error {
			if n == 2 {
				close(stuck)
				time.Sleep(time.Hour)
				return errors.New("gone")
			}
			return nil
		}}
		r.Ports(l.wrap)
		r.World.Draw(lost)
		run := r.Start()
		keys := tickets(run, 700)
		swept := make(chan struct{})
		go func() {
			defer close(swept)
			_, _ = run.Sweep(context.Background(), "desk-sweep", nil)
		}()
		<-stuck
		run.Until(keys[499], time.Minute, journal.Succeeded)
		run.Crash()
		<-swept
		run = r.Start() // an interrupted run is taken up by itself
		defer stop(t, run)
		for _, k := range keys {
			run.Until(k, time.Minute, journal.Succeeded)
		}
		if got := l.listings(); len(got) != 3 || got[2] > 200 {
			t.Errorf("listings %v: the first page was asked for again", got)
		}
		for _, k := range keys[:500] {
			if n := r.World.Reads(k); n != 1 {
				t.Fatalf("%s was read %d times", k, n)
			}
		}
		time.Sleep(time.Second)
		runs, err := run.DB.Sweeps(t.Context(), "desk-sweep", 5)
		if err != nil || len(runs) != 2 || runs[1].Result != "interrupted" {
			t.Fatalf("runs %+v, %v", runs, err)
		}
		// A few of the rest are read by the timetable, which begins anew after a restart.
		asked := 0
		if _, err := fmt.Sscanf(runs[0].Result, "asked %d of", &asked); err != nil || asked < 600 || asked > 700 {
			t.Errorf("result %q: the counts of the first part are lost", runs[0].Result)
		}
	})
}

func TestSweepBelievesNoAbsenceBeforeItsGrace(t *testing.T) {
	storyOf(t, listing(), quiet, func(t *testing.T, r *daemontest.Rig) {
		r.Ports((&lister{}).wrap)
		r.World.Script(key, daemontest.RequestLost())
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Unknown)
		rep, err := run.Sweep(t.Context(), "desk-sweep", nil)
		if err != nil || rep.Unknown != 1 || rep.WaitingForGrace != 1 || rep.Absent != 0 {
			t.Fatalf("the early sweep: %+v, %v", rep, err)
		}
		time.Sleep(time.Until(run.Effect(key).Doubt.SettleNotBefore) + time.Second)
		for range 2 { // two agreeing reads
			if rep, err = run.Sweep(t.Context(), "desk-sweep", nil); err != nil {
				t.Fatal(err)
			}
			if rep.Absent == 1 {
				break
			}
			time.Sleep(2 * time.Second)
		}
		if rep.Absent != 1 || rep.WaitingForGrace != 0 {
			t.Errorf("the late sweep: %+v", rep)
		}
		run.Until(key, time.Minute, journal.Succeeded)
		calls(t, r, key, 2)
		run.Once(key)
	})
}

func TestSweepReadsOneByOneWhereNothingLists(t *testing.T) {
	story(t, quiet, func(t *testing.T, r *daemontest.Rig) {
		r.World.Draw(lost)
		run := r.Start()
		defer stop(t, run)
		tickets(run, 70)
		rep, err := run.Sweep(t.Context(), "desk-sweep", nil)
		if err != nil || rep.Asked != 70 || rep.Matches != 70 || r.World.Reads("") != 70 {
			t.Errorf("%+v, %v, %d reads", rep, err, r.World.Reads(""))
		}
	})
}

func TestSweepKeepsWithinItsReadBudget(t *testing.T) {
	slow := strings.Replace(quiet, `"1000/s"`, `"10/s"`, 1)
	story(t, slow, func(t *testing.T, r *daemontest.Rig) {
		r.World.Draw(lost)
		run := r.Start()
		defer stop(t, run)
		tickets(run, 60)
		began := time.Now()
		if _, err := run.Sweep(t.Context(), "desk-sweep", nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 4900*time.Millisecond {
			t.Errorf("60 reads at ten a second took %s", took)
		}
	})
}

func TestSweepIsShedWhileTheDestinationIsDown(t *testing.T) {
	story(t, quiet, func(t *testing.T, r *daemontest.Rig) {
		r.World.Draw(lost)
		run := r.Start()
		defer stop(t, run)
		keys := tickets(run, 100)
		r.World.Set(func(v *daemontest.View) { v.Down = true })
		before := r.World.Reads("")
		rep, err := run.Sweep(t.Context(), "desk-sweep", nil)
		if err == nil || !strings.Contains(err.Error(), "does not answer reads") || rep.Done {
			t.Fatalf("%+v, %v", rep, err)
		}
		if n := r.World.Reads("") - before; n > 40 {
			t.Errorf("%d reads of a destination that is down", n)
		}
		if rep.Matches+rep.Absent > 0 {
			t.Errorf("a failed read proved something: %+v", rep)
		}
		if e := run.Effect(keys[0]); e.Phase != journal.Unknown {
			t.Errorf("%s after a failed read", e.Phase)
		}
	})
}

func TestSweepLeavesWhatWasSettledMeanwhile(t *testing.T) {
	storyOf(t, listing(), quiet, func(t *testing.T, r *daemontest.Rig) {
		var run *daemontest.Running
		l := &lister{before: func(int) error {
			_, err := run.Decide(context.Background(), key, daemon.DecideRequest{Decision: journal.DecideHappened, Object: "obj-1", Because: "seen"}, daemontest.Person)
			return err
		}}
		r.Ports(l.wrap)
		r.World.Script(key, daemontest.AnswerLost())
		run = r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Unknown)
		rep, err := run.Sweep(t.Context(), "desk-sweep", nil)
		if err != nil || rep.Skipped != 1 || rep.Asked != 0 {
			t.Errorf("%+v, %v", rep, err)
		}
	})
}

const audited = `
[schedules.desk-audit]
do = "audit"
destination = "desk"
cron = "0 4 * * *"
`

func TestScenario10_an_audit_finds_what_a_lie_has_doubled(t *testing.T) {
	storyOf(t, listing(), audited, func(t *testing.T, r *daemontest.Rig) {
		r.Lies = true // it says ten seconds
		r.Ports((&lister{}).wrap)
		r.World.Script(key, daemontest.LateCommit(20*time.Minute))
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		honest := "ticket:SUP-2:create:v1"
		run.Ticket(honest)
		run.Until(key, 10*time.Minute, journal.Succeeded) // the second attempt; the first comes later
		time.Sleep(30 * time.Minute)
		if n := len(r.World.Objects(key)); n != 2 {
			t.Fatalf("%d objects: the lie did no harm, the story does not happen", n)
		}
		rep, err := run.Sweep(t.Context(), "desk-audit", nil)
		if err != nil || rep.Asked != 2 || rep.Duplicate != 1 || rep.Matches != 1 || rep.Raised != 1 {
			t.Fatalf("%+v, %v", rep, err)
		}
		e := run.Effect(key)
		if e.Phase != journal.NeedsHuman || e.Finding != journal.FindingDuplicate || e.Standing() != journal.Contradicted || len(e.Review.Candidates) != 2 {
			t.Errorf("%s %s", e.Phase, e.Finding)
		}
		owned(t, e, journal.ReviewContradiction)
		if e := run.Effect(honest); e.Phase != journal.Succeeded {
			t.Errorf("the honest one is %s", e.Phase)
		}
		calls(t, r, key, 2)
	})
}

func TestAuditFindsWhatVanishedAndReadsWhatPeopleSettledForEver(t *testing.T) {
	story(t, audited, func(t *testing.T, r *daemontest.Rig) {
		r.Lies = true
		r.World.Script(key, daemontest.AnswerLost())
		run := r.Start()
		defer stop(t, run)
		gone, old := "ticket:SUP-2:create:v1", "ticket:SUP-3:create:v1"
		run.Ticket(old)
		run.Ticket(key)
		run.Until(old, time.Minute, journal.Succeeded)
		run.Until(key, time.Minute, journal.Unknown)
		decide(t, run, key, daemon.DecideRequest{Decision: journal.DecideHappened, Object: "obj-2"})
		run.Until(key, time.Minute, journal.Succeeded)
		time.Sleep(48 * time.Hour)
		run.Ticket(gone)
		run.Until(gone, time.Minute, journal.Succeeded)
		time.Sleep(10 * time.Minute)
		r.World.Set(func(v *daemontest.View) { v.Lag = 1000 * time.Hour }) // what was there is not shown any more
		rep, err := run.Sweep(t.Context(), "desk-audit", nil)
		if err != nil || rep.Asked != 2 || rep.Raised != 2 {
			t.Errorf("%+v, %v", rep, err)
		}
		if e := run.Effect(gone); e.Phase != journal.NeedsHuman || e.Finding != journal.FindingConflicts {
			t.Errorf("what vanished is %s (%s)", e.Phase, e.Finding)
		}
		if e := run.Effect(key); e.Phase != journal.NeedsHuman {
			t.Errorf("what a person settled is %s", e.Phase)
		}
		if e := run.Effect(old); e.Phase != journal.Succeeded {
			t.Errorf("what lies before the window is %s", e.Phase)
		}
	})
}

func decide(t *testing.T, run *daemontest.Running, key string, req daemon.DecideRequest) {
	t.Helper()
	if req.Because == "" {
		req.Because = "looked at it"
	}
	if _, err := run.Decide(t.Context(), key, req, daemontest.Person); err != nil {
		t.Fatalf("decide %s: %v", req.Decision, err)
	}
}

func TestScheduledSubmitIsOneEffectPerNominalTime(t *testing.T) {
	const hourly = `
[schedules.report]
do = "submit"
destination = "desk"
operation = "create"
key = "report:hourly"
payload = '{"for": "${nominal}"}'
cron = "@hourly"
`
	story(t, hourly, func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		time.Sleep(2*time.Hour + 10*time.Minute)
		stop(t, run)
		if n := len(r.World.All()); n != 2 {
			t.Fatalf("%d objects after two hours", n)
		}
		time.Sleep(5 * time.Hour) // nobody is there
		run = r.Start()
		time.Sleep(10 * time.Minute) // the newest is caught up, the others are told
		stop(t, run)
		var keys []string
		for _, o := range r.World.All() {
			keys = append(keys, o.Key)
		}
		want := "[report:hourly:20000101T010000Z:v1 report:hourly:20000101T020000Z:v1 report:hourly:20000101T070000Z:v1]"
		if fmt.Sprint(keys) != want {
			t.Errorf("keys %v, want %s", keys, want)
		}
		db, err := r.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if got := notes(t, db, "schedule_missed"); len(got) != 1 || !strings.HasPrefix(got[0], "report: 4 missed") {
			t.Errorf("missed runs in the chain: %q", got)
		}
	})
}

func TestScheduleCaughtUpTwiceSubmitsOnce(t *testing.T) {
	const hourly = `
[schedules.report]
do = "submit"
destination = "desk"
operation = "create"
key = "report:hourly"
cron = "@hourly"
`
	story(t, hourly, func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		time.Sleep(time.Hour + 10*time.Minute)
		stop(t, run)
		// The run is made to look as if a crash had ended it after its submit.
		db, err := r.Open()
		if err != nil {
			t.Fatal(err)
		}
		interrupt(t, db, "report")
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		run = r.Start()
		time.Sleep(time.Minute)
		defer stop(t, run)
		if n := len(r.World.All()); n != 1 {
			t.Errorf("%d objects", n)
		}
		runs, err := run.DB.Sweeps(t.Context(), "report", 1)
		if err != nil || !strings.Contains(runs[0].Result, "was recorded before") {
			t.Errorf("%+v, %v", runs, err)
		}
	})
}

func TestScheduleDoesNotOverlapAndSaysWhatItLeftOut(t *testing.T) {
	every := strings.Replace(quiet, `cron = "0 0 1 1 *"`, `cron = "@every 1m"`, 1)
	storyOf(t, listing(), every, func(t *testing.T, r *daemontest.Rig) {
		l := &lister{before: func(n int) error {
			if n == 1 {
				time.Sleep(3*time.Minute + 30*time.Second)
			}
			return nil
		}}
		r.Ports(l.wrap)
		r.World.Draw(func(string, int) daemontest.Fault { return daemontest.RequestLost() })
		r.World.Set(func(v *daemontest.View) { v.Incomplete = true })  // so that it stays unknown
		r.Config.Destinations["desk"].RecordReserve = 10 * time.Minute // a long listing
		run := r.Start()
		defer stop(t, run)
		tickets(run, 1)
		time.Sleep(6 * time.Minute)
		if got := l.listings(); len(got) > 2 {
			t.Errorf("%d listings: runs overlapped", len(got))
		}
		left := notes(t, run.DB, "schedule_missed")
		if len(left) < 2 || !strings.Contains(left[0], "the run before was still going on") {
			t.Errorf("left out: %q", left)
		}
	})
}

func TestScheduleWhoseClockWentBackBeginsAnew(t *testing.T) {
	story(t, strings.Replace(quiet, `cron = "0 0 1 1 *"`, `cron = "@hourly"`, 1), func(t *testing.T, r *daemontest.Rig) {
		db, err := r.Open()
		if err != nil {
			t.Fatal(err)
		}
		ahead(t, db, "desk-sweep", time.Now().Add(365*24*time.Hour))
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		run := r.Start()
		defer stop(t, run)
		time.Sleep(time.Hour + 10*time.Minute)
		runs, err := run.DB.Sweeps(t.Context(), "desk-sweep", 5)
		if err != nil || len(runs) != 1 {
			t.Errorf("%d runs in the hour after the clock was put right, %v", len(runs), err)
		}
		if got := notes(t, run.DB, "schedule_clock"); len(got) != 1 {
			t.Errorf("the chain says %q", got)
		}
	})
}

func TestUpkeepPrunesBacksUpAndVerifies(t *testing.T) {
	dir := t.TempDir()
	upkeep := fmt.Sprintf(`
[schedules.old]
do = "prune"
cron = "@daily"
[schedules.copy]
do = "backup"
directory = %q
keep_copies = 2
cron = "@daily"
[schedules.whole]
do = "verify"
cron = "@daily"
`, dir)
	story(t, upkeep, func(t *testing.T, r *daemontest.Rig) {
		r.Config.Journal.Keep = 10 * 24 * time.Hour
		run := r.Start()
		defer stop(t, run)
		other := "ticket:SUP-9:create:v1"
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Succeeded)
		time.Sleep(8*24*time.Hour + 10*time.Minute)
		if e := run.Effect(key); len(e.Payload) != 0 || e.PayloadDigest == "" {
			t.Errorf("after keep_payload: payload %q", e.Payload)
		}
		copies, err := filepath.Glob(filepath.Join(dir, "copy-*.db"))
		if err != nil || len(copies) != 2 || filepath.Base(copies[1]) != "copy-20000109T000000Z.db" {
			t.Errorf("copies %v, %v", copies, err)
		}
		time.Sleep(3 * 24 * time.Hour)
		if _, err := run.DB.Effect(t.Context(), key); err == nil {
			t.Error("the effect outlived keep")
		}
		res, err := run.Submit(t.Context(), daemontest.Request(key), daemontest.Client)
		if err == nil && res.Created {
			t.Error("the ledger forgot the key")
		}
		calls(t, r, key, 1)
		run.Ticket(other)
		for _, name := range []string{"old", "copy", "whole"} {
			rep, err := run.Sweep(t.Context(), name, nil)
			if err != nil || rep.Detail == "" {
				t.Errorf("%s: %+v, %v", name, rep, err)
			}
		}
	})
}
