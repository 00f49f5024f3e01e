package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/settled-dev/settled/journal/sqlite"
)

// keptRuns is how many runs of one schedule the journal remembers.
const keptRuns = 100

// job is one run of a schedule. Its cursor and counts are stored with the work
// that they count, in one transaction: a run that is killed goes on from there.
type job struct {
	d       *Daemon
	item    *scheduled
	id      int64
	nominal time.Time // zero: somebody asked for it now
	told    func(SweepReport)

	mu sync.Mutex
	// protects following
	report SweepReport
	cursor int64 // everything up to this number is done
}

// saved is how far a run has come, as it is stored.
type saved struct {
	Cursor int64       `json:"cursor"`
	Report SweepReport `json:"report"`
}

// open begins a run in the journal, where the database bars a second one of
// the same schedule. A run that was interrupted not too long ago is taken up.
func (s *scheduler) open(ctx context.Context, item *scheduled, nominal time.Time, told func(SweepReport)) (*job, error) {
	j := &job{d: s.d, item: item, nominal: nominal, told: told}
	err := s.d.db.Write(ctx, func(tx *sqlite.Tx) error {
		j.cursor = 0
		j.report = SweepReport{Schedule: item.name, Do: item.conf.Do, Destination: item.conf.Destination, StartedAt: now()}
		state, err := tx.Schedule(item.name)
		if err != nil && !errors.Is(err, sqlite.ErrNotFound) {
			return err
		}
		last, err := tx.LastSweep(item.name)
		if err != nil && !errors.Is(err, sqlite.ErrNotFound) {
			return err
		}
		j.takeUp(last)
		state.Name, state.LastStarted = item.name, j.report.StartedAt
		if j.nominal.After(state.LastNominal) {
			state.LastNominal = j.nominal
		}
		if state.LastNominal.IsZero() {
			state.LastNominal = j.report.StartedAt
		}
		if err := tx.PutSchedule(state); err != nil {
			return err
		}
		if j.id, err = tx.OpenSweep(item.name, j.nominal, j.report.StartedAt); err != nil {
			return err
		}
		if err := tx.TrimSweeps(item.name, keptRuns); err != nil {
			return err
		}
		return j.save(tx, j.report, j.cursor)
	})
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", item.name, err)
	}
	return j, nil
}

// takeUp goes on where an interrupted run ended, with its counts and its nominal time.
func (j *job) takeUp(last sqlite.SweepRun) {
	var was saved
	if !last.WasInterrupted() || now().Sub(last.StartedAt) > j.item.conf.Within || json.Unmarshal([]byte(last.Progress), &was) != nil {
		return
	}
	began := j.report.StartedAt
	if was.Cursor > 0 {
		j.cursor, j.report = was.Cursor, was.Report
		j.report.StartedAt, j.report.Resumed = began, true
	}
	if j.nominal.IsZero() {
		j.nominal = last.Nominal
	}
}

// save stores how far the run is, in the transaction of the work it tells of.
func (j *job) save(tx *sqlite.Tx, rep SweepReport, cursor int64) error {
	b, err := json.Marshal(saved{Cursor: cursor, Report: rep})
	if err != nil {
		return err
	}
	return tx.SweepProgress(j.id, string(b))
}

// kept takes over what a COMMIT has made true and tells of it.
func (j *job) kept(rep SweepReport, cursor int64) {
	j.mu.Lock()
	j.report, j.cursor = rep, cursor
	j.mu.Unlock()
	j.tell()
}

func (j *job) snapshot() SweepReport {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.report
}

func (j *job) tell() {
	if j.told != nil {
		j.told(j.snapshot())
	}
}

// perform does the work of the run and closes it with its result.
func (s *scheduler) perform(ctx context.Context, j *job) (SweepReport, error) {
	runErr := j.do(ctx)
	rep := j.snapshot()
	rep.EndedAt, rep.Done = now(), runErr == nil
	if runErr != nil {
		rep.Error = runErr.Error()
	}
	stopped := runErr != nil && ctx.Err() != nil
	err := s.d.db.Write(context.WithoutCancel(ctx), func(tx *sqlite.Tx) error { return s.close(tx, j, rep, stopped) })
	if j.told != nil {
		j.told(rep)
	}
	return rep, errors.Join(runErr, err)
}

func (s *scheduler) close(tx *sqlite.Tx, j *job, rep SweepReport, stopped bool) error {
	state, err := tx.Schedule(j.item.name)
	if err != nil {
		return err
	}
	state.LastResult = summary(rep)
	if stopped {
		state.LastResult = sqlite.Interrupted + ": " + state.LastResult
	}
	if rep.Done {
		state.LastOK = rep.EndedAt
	}
	if err := tx.PutSchedule(state); err != nil {
		return err
	}
	return tx.CloseSweep(j.id, rep.EndedAt, state.LastResult)
}

// do is the work of a run, by what the schedule says.
func (j *job) do(ctx context.Context) error {
	switch j.item.conf.Do {
	case "reconcile":
		return j.reconcile(ctx)
	case "audit":
		return j.audit(ctx)
	case "submit":
		return j.submit(ctx)
	case "prune":
		return j.prune(ctx)
	case "backup":
		return j.backup(ctx)
	case "verify":
		return j.verify(ctx)
	}
	return fmt.Errorf("schedules.%s: do = %q is not known", j.item.name, j.item.conf.Do)
}

// detail sets what a run that reads nothing did, in words.
func (j *job) detail(format string, args ...any) {
	j.mu.Lock()
	j.report.Detail = fmt.Sprintf(format, args...)
	j.mu.Unlock()
	j.tell()
}

// summary is the result of a run in one line.
func summary(r SweepReport) string {
	var parts []string
	if r.Detail != "" {
		parts = append(parts, r.Detail)
	}
	if r.Do == "reconcile" || r.Do == "audit" || r.Do == "" {
		parts = append(parts, fmt.Sprintf("asked %d of %d: matches %d, absent %d, partial %d, duplicate %d, conflicts %d, unknown %d, read_failed %d, waiting for grace %d",
			r.Asked, r.Total, r.Matches, r.Absent, r.Partial, r.Duplicate, r.Conflicts, r.Unknown, r.ReadFailed, r.WaitingForGrace))
	}
	if r.Do == "audit" {
		parts = append(parts, fmt.Sprintf("raised %d", r.Raised))
	}
	if r.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("settled meanwhile %d", r.Skipped))
	}
	if r.Error != "" {
		parts = append(parts, r.Error)
	}
	return strings.Join(parts, "; ")
}
