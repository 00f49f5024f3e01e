package sqlite

import (
	"context"
	"fmt"
	"time"
)

// ScheduleState is what is kept of a schedule. The next start is computed, never stored.
type ScheduleState struct {
	Name        string
	LastNominal time.Time // the newest nominal time that was started or passed over
	LastStarted time.Time
	LastOK      time.Time
	LastResult  string
	Missed      int64 // nominal times that were passed over
}

const sqlSchedule = "SELECT name, last_nominal, last_started, last_ok, last_result, missed FROM schedule"

func scheduleFrom(r row) ScheduleState {
	return ScheduleState{
		Name: r.str(0), LastNominal: micros(r.int(1)).time(), LastStarted: micros(r.int(2)).time(), LastOK: micros(r.int(3)).time(),
		LastResult: r.str(4), Missed: r.int(5),
	}
}

// Schedule returns the state of a schedule, or [ErrNotFound].
func (tx *Tx) Schedule(name string) (ScheduleState, error) {
	r, err := tx.db.w.one(context.Background(), sqlSchedule+" WHERE name=?", name)
	if err != nil {
		return ScheduleState{Name: name}, tx.seen(err)
	}
	return scheduleFrom(r), nil
}

// PutSchedule stores the state of a schedule.
func (tx *Tx) PutSchedule(s ScheduleState) error {
	if err := tx.begin(); err != nil {
		return err
	}
	_, err := tx.db.w.exec(`INSERT INTO schedule (name, last_nominal, last_started, last_ok, last_result, missed) VALUES (?1,?2,?3,?4,?5,?6)
		ON CONFLICT DO UPDATE SET last_nominal=?2, last_started=?3, last_ok=?4, last_result=?5, missed=?6`,
		s.Name, us(s.LastNominal).null(), us(s.LastStarted).null(), us(s.LastOK).null(), s.LastResult, s.Missed)
	return tx.seen(err)
}

// OpenSweep begins a run of a schedule and returns its number. While a run of
// the same schedule is open it is [ErrSweepRunning]. A restart closes runs that
// were open, with the result "interrupted".
func (tx *Tx) OpenSweep(schedule string, nominal, at time.Time) (int64, error) {
	if err := tx.begin(); err != nil {
		return 0, err
	}
	_, err := tx.db.w.exec(`INSERT INTO sweep_run (schedule, epoch, nominal, started_at, result, progress) VALUES (?,?,?,?,'','{}')`,
		schedule, tx.db.epoch, us(nominal).null(), us(at))
	if conflictOf(err) {
		return 0, fmt.Errorf("%w: %s", ErrSweepRunning, schedule)
	}
	if err != nil {
		return 0, tx.seen(err)
	}
	id, err := tx.db.w.oneInt(context.Background(), "SELECT last_insert_rowid()")
	return id, tx.seen(err)
}

// SweepProgress stores how far an open run has come, as JSON.
func (tx *Tx) SweepProgress(id int64, progress string) error {
	if err := tx.begin(); err != nil {
		return err
	}
	n, err := tx.db.w.exec("UPDATE sweep_run SET progress=? WHERE id=? AND finished_at IS NULL", progress, id)
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return tx.seen(err)
}

// CloseSweep ends a run with its result.
func (tx *Tx) CloseSweep(id int64, at time.Time, result string) error {
	if err := tx.begin(); err != nil {
		return err
	}
	n, err := tx.db.w.exec("UPDATE sweep_run SET finished_at=?, result=? WHERE id=? AND finished_at IS NULL", us(at), result, id)
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return tx.seen(err)
}

// Schedule returns the state of a schedule, or [ErrNotFound].
func (db *DB) Schedule(ctx context.Context, name string) (s ScheduleState, err error) {
	s.Name = name
	err = db.read(ctx, func(c *conn) error {
		r, err := c.one(ctx, sqlSchedule+" WHERE name=?", name)
		if err == nil {
			s = scheduleFrom(r)
		}
		return err
	})
	return s, err
}

// Schedules lists what is kept of every schedule, by name.
func (db *DB) Schedules(ctx context.Context) (out []ScheduleState, err error) {
	err = db.read(ctx, func(c *conn) error {
		return c.each(ctx, sqlSchedule+" ORDER BY name", nil, func(r row) error {
			out = append(out, scheduleFrom(r))
			return nil
		})
	})
	return out, err
}

// SweepRun is one run of a schedule.
type SweepRun struct {
	ID                           int64
	Schedule                     string
	Epoch                        int64
	Nominal, StartedAt, Finished time.Time // Finished is zero while it runs
	Result, Progress             string
}

// Sweeps lists the runs of a schedule, newest first ("" = of all), at most limit (0 = 20).
func (db *DB) Sweeps(ctx context.Context, schedule string, limit int) (out []SweepRun, err error) {
	if limit <= 0 {
		limit = 20
	}
	w := where{}
	if schedule != "" {
		w.add("schedule = ?", schedule)
	}
	err = db.read(ctx, func(c *conn) error {
		return c.each(ctx, "SELECT id, schedule, epoch, nominal, started_at, finished_at, result, progress FROM sweep_run"+w.sql()+
			" ORDER BY id DESC LIMIT ?", append(w.vals, limit), func(r row) error {
			out = append(out, SweepRun{
				r.int(0), r.str(1), r.int(2), micros(r.int(3)).time(), micros(r.int(4)).time(), micros(r.int(5)).time(), r.str(6), r.str(7),
			})
			return nil
		})
	})
	return out, err
}
