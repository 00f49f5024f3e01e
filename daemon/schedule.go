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

// run starts what is due and sleeps until the next start, at most maxNap. The
// nominal time is stored in the transaction that opens the run, so a crash
// neither repeats nor forgets it.
func (s *scheduler) run(ctx context.Context) {
	if len(s.items) == 0 {
		return
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
		for _, item := range s.items {
			next, err := s.look(ctx, item)
			if err != nil && ctx.Err() == nil {
				s.d.log.Error("cannot run a schedule", "schedule", item.name, "err", err)
				continue
			}
			if until := time.Until(next); !next.IsZero() && until < nap {
				nap = max(until, time.Second)
			}
		}
		timer.Reset(nap)
	}
}

// look starts one schedule when it is due and returns its next start.
func (s *scheduler) look(ctx context.Context, item *scheduled) (time.Time, error) {
	at := now()
	state, err := s.d.db.Schedule(ctx, item.name)
	if err != nil && !errors.Is(err, sqlite.ErrNotFound) {
		return time.Time{}, err
	}
	if state.LastNominal.IsZero() { // the beginning: nothing before now was ever promised
		err := s.d.db.Write(ctx, func(tx *sqlite.Tx) error {
			state, err := tx.Schedule(item.name)
			if err != nil && !errors.Is(err, sqlite.ErrNotFound) {
				return err
			}
			state.Name, state.LastNominal = item.name, at
			return tx.PutSchedule(state)
		})
		return item.plan.Start(item.plan.Next(at)), err
	}
	fire, missed := item.plan.Due(state.LastNominal, at)
	if len(missed) > 0 {
		if err := s.miss(ctx, item, missed); err != nil {
			return time.Time{}, err
		}
	}
	for _, nominal := range fire {
		s.d.spawnLate(func(ctx context.Context) {
			if _, err := s.start(ctx, item, nominal, nil); err != nil && ctx.Err() == nil {
				s.d.log.Warn("a scheduled run did not end well", "schedule", item.name, "nominal", nominal, "err", err)
			}
		})
		return time.Now().Add(time.Second), nil // the run stores its nominal time; look again soon
	}
	return item.plan.Start(item.plan.Next(at)), nil
}

// miss records nominal times that are passed over; none is ever silent.
func (s *scheduler) miss(ctx context.Context, item *scheduled, missed []time.Time) error {
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
			Because: fmt.Sprintf("%s: %d missed, %s to %s", item.name, len(missed), stamp(missed[0]), stamp(missed[len(missed)-1])),
		})
	})
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// start opens a run in the journal, where the database bars a second one of
// the same schedule, does it and closes it with its result.
func (s *scheduler) start(ctx context.Context, item *scheduled, nominal time.Time, progress func(SweepReport)) (SweepReport, error) {
	rep := SweepReport{Schedule: item.name, Destination: item.conf.Destination, StartedAt: now()}
	var id int64
	err := s.d.db.Write(ctx, func(tx *sqlite.Tx) error {
		state, err := tx.Schedule(item.name)
		if err != nil && !errors.Is(err, sqlite.ErrNotFound) {
			return err
		}
		state.Name, state.LastStarted = item.name, rep.StartedAt
		if nominal.After(state.LastNominal) {
			state.LastNominal = nominal
		}
		if state.LastNominal.IsZero() {
			state.LastNominal = rep.StartedAt
		}
		if err := tx.PutSchedule(state); err != nil {
			return err
		}
		id, err = tx.OpenSweep(item.name, nominal, rep.StartedAt)
		return err
	})
	if err != nil {
		return rep, fmt.Errorf("schedule %s: %w", item.name, err)
	}
	rep, runErr := s.d.reconcileSweep(ctx, rep, progress)
	rep.EndedAt, rep.Done = now(), runErr == nil
	if runErr != nil {
		rep.Error = runErr.Error()
	}
	err = s.d.db.Write(context.WithoutCancel(ctx), func(tx *sqlite.Tx) error { return s.close(tx, item, id, rep) })
	if progress != nil {
		progress(rep)
	}
	return rep, errors.Join(runErr, err)
}

func (s *scheduler) close(tx *sqlite.Tx, item *scheduled, id int64, rep SweepReport) error {
	state, err := tx.Schedule(item.name)
	if err != nil {
		return err
	}
	state.LastResult = summary(rep)
	if rep.Done {
		state.LastOK = rep.EndedAt
	}
	if err := tx.PutSchedule(state); err != nil {
		return err
	}
	return tx.CloseSweep(id, rep.EndedAt, state.LastResult)
}

func summary(r SweepReport) string {
	s := fmt.Sprintf("asked %d of %d: matches %d, absent %d, partial %d, duplicate %d, conflicts %d, unknown %d, read_failed %d, waiting for grace %d",
		r.Asked, r.Total, r.Matches, r.Absent, r.Partial, r.Duplicate, r.Conflicts, r.Unknown, r.ReadFailed, r.WaitingForGrace)
	if r.Error != "" {
		s += "; " + r.Error
	}
	return s
}

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
