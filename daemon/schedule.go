package daemon

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/schedules"
)

// maxNap bounds the sleep between looks at the wall clock: a suspended machine
// or a moved clock delays a schedule by no more than this.
const maxNap = 30 * time.Second

// scheduler runs the configured schedules. One goroutine owns it.
type scheduler struct {
	d     *Daemon
	items map[string]*scheduled
}

// scheduled is one schedule of the configuration.
type scheduled struct {
	name string
	conf *config.Schedule
	plan schedules.Schedule
}

func newScheduler(d *Daemon, c *config.Config) (*scheduler, error) {
	s := &scheduler{d: d, items: map[string]*scheduled{}}
	for name, conf := range c.Schedules {
		if conf.Destination != "" && d.dests[conf.Destination] == nil {
			return nil, fmt.Errorf("schedules.%s: destination %q is not configured", name, conf.Destination)
		}
		s.items[name] = &scheduled{name: name, conf: conf, plan: conf.Plan()}
	}
	return s, nil
}

// run takes up what was interrupted, starts what is due and sleeps until the
// next start, at most maxNap. The nominal time is stored in the transaction that
// opens the run, so a crash neither repeats nor forgets it.
func (s *scheduler) run(ctx context.Context) {
	if len(s.items) == 0 {
		return
	}
	for _, name := range sortedKeys(s.items) {
		s.resume(ctx, s.items[name])
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		nap := maxNap
		for _, name := range sortedKeys(s.items) {
			next, err := s.look(ctx, s.items[name])
			if err != nil && ctx.Err() == nil {
				s.d.log.Error("cannot run a schedule", "schedule", name, "err", err)
				continue
			}
			if until := time.Until(next); !next.IsZero() && until < nap {
				nap = max(until, time.Second)
			}
		}
		timer.Reset(nap)
	}
}

// resume goes on with a run that a stop or a crash ended.
func (s *scheduler) resume(ctx context.Context, item *scheduled) {
	runs, err := s.d.db.Sweeps(ctx, item.name, 1)
	if err != nil || len(runs) == 0 || !runs[0].WasInterrupted() || now().Sub(runs[0].StartedAt) > item.conf.Within {
		return
	}
	if err := s.begin(ctx, item, runs[0].Nominal); err != nil && ctx.Err() == nil {
		s.d.log.Warn("an interrupted run was not taken up", "schedule", item.name, "err", err)
	}
}

// begin opens a run and does it beside the scheduler's loop.
func (s *scheduler) begin(ctx context.Context, item *scheduled, nominal time.Time) error {
	j, err := s.open(ctx, item, nominal, nil)
	if err != nil {
		return err
	}
	s.d.spawnLate(func(ctx context.Context) {
		if _, err := s.perform(ctx, j); err != nil && ctx.Err() == nil {
			s.d.log.Warn("a scheduled run did not end well", "schedule", item.name, "nominal", nominal, "err", err)
		}
	})
	return nil
}

// look starts one schedule when it is due and returns its next start.
func (s *scheduler) look(ctx context.Context, item *scheduled) (time.Time, error) {
	at := now()
	state, err := s.d.db.Schedule(ctx, item.name)
	if err != nil && !errors.Is(err, sqlite.ErrNotFound) {
		return time.Time{}, err
	}
	if state.LastNominal.IsZero() { // the beginning: nothing before now was ever promised
		return item.plan.Start(item.plan.Next(at)), s.beginAt(ctx, item, at, "")
	}
	if back := state.LastNominal.Sub(at); back > maxBack {
		why := fmt.Sprintf("%s: the clock was set back by %s; it runs again from now on, not from %s", item.name, back.Round(time.Second), stamp(state.LastNominal))
		return item.plan.Start(item.plan.Next(at)), s.beginAt(ctx, item, at, why)
	}
	fire, missed := item.plan.Due(state.LastNominal, at)
	if len(missed) > 0 {
		if err := s.miss(ctx, item, missed, "missed"); err != nil {
			return time.Time{}, err
		}
	}
	for _, nominal := range fire {
		err := s.begin(ctx, item, nominal)
		if errors.Is(err, sqlite.ErrSweepRunning) {
			err = s.miss(ctx, item, fire, "left out, the run before was still going on")
		}
		if err != nil {
			return time.Time{}, err
		}
	}
	return item.plan.Start(item.plan.Next(at)), nil
}

// maxBack is how far the clock may go back before a schedule begins anew. Less
// than that and it waits: nothing runs twice.
const maxBack = 10 * time.Minute

// beginAt says that nothing before at is promised.
func (s *scheduler) beginAt(ctx context.Context, item *scheduled, at time.Time, why string) error {
	return s.d.db.Write(ctx, func(tx *sqlite.Tx) error {
		state, err := tx.Schedule(item.name)
		if err != nil && !errors.Is(err, sqlite.ErrNotFound) {
			return err
		}
		state.Name, state.LastNominal = item.name, at
		if err := tx.PutSchedule(state); err != nil || why == "" {
			return err
		}
		return tx.Note(journal.Entry{At: at, Kind: "schedule_clock", Actor: "settled", ActorKind: journal.System, Origin: "schedule", Because: why})
	})
}

// miss records nominal times that are passed over; none is ever silent.
func (s *scheduler) miss(ctx context.Context, item *scheduled, missed []time.Time, how string) error {
	return s.d.db.Write(ctx, func(tx *sqlite.Tx) error {
		state, err := tx.Schedule(item.name)
		if err != nil {
			return err
		}
		state.LastNominal = missed[len(missed)-1]
		state.Missed += int64(len(missed))
		if err := tx.PutSchedule(state); err != nil {
			return err
		}
		return tx.Note(journal.Entry{
			At: now(), Kind: "schedule_missed", Actor: "settled", ActorKind: journal.System, Origin: "schedule",
			Because: fmt.Sprintf("%s: %d %s, %s to %s", item.name, len(missed), how, stamp(missed[0]), stamp(missed[len(missed)-1])),
		})
	})
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// shownRuns is how many past runs of a schedule are shown.
const shownRuns = 5

// Schedules lists every schedule with its next times and last results.
func (d *Daemon) Schedules(ctx context.Context) ([]ScheduleStatus, error) {
	var out []ScheduleStatus
	for name, item := range d.sched.Load().items {
		state, err := d.db.Schedule(ctx, name)
		if err != nil && !errors.Is(err, sqlite.ErrNotFound) {
			return nil, err
		}
		st := ScheduleStatus{
			Name: name, Do: item.conf.Do, Destination: item.conf.Destination, Cron: item.conf.Cron,
			Timezone: item.plan.Zone().String(), LastNominal: state.LastNominal, LastStarted: state.LastStarted,
			LastOK: state.LastOK, LastResult: state.LastResult, Missed: state.Missed,
			Jitter: item.plan.Jitter(), Hazards: item.plan.Hazards(time.Now()),
		}
		runs, err := d.db.Sweeps(ctx, name, shownRuns)
		if err != nil {
			return nil, err
		}
		for _, r := range runs {
			st.Runs = append(st.Runs, ScheduleRun{Nominal: r.Nominal, StartedAt: r.StartedAt, EndedAt: r.Finished, Result: r.Result})
		}
		at := time.Now()
		for range 3 {
			if at = item.plan.Next(at); at.IsZero() {
				break
			}
			st.Next = append(st.Next, at)
		}
		out = append(out, st)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}
