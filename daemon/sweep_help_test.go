package daemon_test

import (
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon/daemontest"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/schedules"
)

// notes lists the reasons of all lines of a kind in the chain.
func notes(t *testing.T, db *sqlite.DB, kind string) (out []string) {
	t.Helper()
	list, err := db.Events(t.Context(), 0, journal.Filter{Kinds: []string{kind}}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		out = append(out, x.Because)
	}
	return out
}

// interrupt opens a run as the newest one had it, so that the next start finds it interrupted.
func interrupt(t *testing.T, db *sqlite.DB, schedule string) {
	t.Helper()
	err := db.Write(t.Context(), func(tx *sqlite.Tx) error {
		last, err := tx.LastSweep(schedule)
		if err != nil {
			return err
		}
		_, err = tx.OpenSweep(schedule, last.Nominal, last.StartedAt)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ahead makes a schedule believe that it ran in the future.
func ahead(t *testing.T, db *sqlite.DB, schedule string, at time.Time) {
	t.Helper()
	err := db.Write(t.Context(), func(tx *sqlite.Tx) error {
		return tx.PutSchedule(sqlite.ScheduleState{Name: schedule, LastNominal: at})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSchedulesTellWhatAChangeOfClocksDoes(t *testing.T) {
	const nightly = `
[schedules.nightly]
do = "verify"
cron = "30 2 * * *"
timezone = "America/New_York"
`
	story(t, nightly, func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		list, err := run.Schedules(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		h := list[0].Hazards
		if len(h) != 1 || h[0].Wall != "2000-04-02 02:30" || h[0].Kind != schedules.Skipped || len(h[0].Runs) != 1 {
			t.Errorf("hazards %+v", h)
		}
	})
}
