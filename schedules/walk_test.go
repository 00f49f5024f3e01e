package schedules_test

import (
	"testing"
	"time"

	"github.com/settled-dev/settled/schedules"
)

// A second opinion: the clock is read minute by minute through the
// weeks in which clocks change, and every rule is applied to what it shows.
func TestNextAgreesWithAClockReadMinuteByMinute(t *testing.T) {
	for _, zone := range []string{"UTC", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "America/St_Johns"} {
		year := 2026
		if zone == "America/Sao_Paulo" || zone == "America/St_Johns" {
			year = 2010 // when their clocks changed at midnight
		}
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		spring := readClock(time.Date(year, 2, 10, 0, 0, 0, 0, loc), 70)
		autumn := readClock(time.Date(year, 9, 28, 0, 0, 0, 0, loc), 50)
		for _, spec := range []string{"30 * * * *", "*/20 * * * *", "30 1 * * *", "15 2 * * *", "0 0 * * *", "45 23 * * *", "1,59 0,1,2,3,23 * * *"} {
			t.Run(zone+" "+spec, func(t *testing.T) {
				agree(t, spec, zone, spring)
				agree(t, spec, zone, autumn)
			})
		}
	}
}

// reading is one minute and what the clock showed, as if it were UTC.
type reading struct{ at, wall time.Time }

func readClock(start time.Time, days int) []reading {
	var out []reading
	for t := start; t.Before(start.AddDate(0, 0, days)); t = t.Add(time.Minute) {
		_, offset := t.Zone()
		out = append(out, reading{t, t.UTC().Add(time.Duration(offset) * time.Second)})
	}
	return out
}

func agree(t *testing.T, spec, zone string, clock []reading) {
	s := parse(t, spec, zone, schedules.Options{})
	want := walk(spec, clock)
	if len(want) < 48 {
		t.Fatalf("only %d runs in the stretch", len(want))
	}
	at := clock[0].at
	for i, w := range want {
		if at = s.Next(at); !at.Equal(w) {
			t.Fatalf("run %d is %s, want %s", i, at, w)
		}
	}
}

func matches(spec string, h, m int) bool {
	in := func(x int, list ...int) bool {
		for _, l := range list {
			if x == l {
				return true
			}
		}
		return false
	}
	switch spec {
	case "30 * * * *":
		return m == 30
	case "*/20 * * * *":
		return m%20 == 0
	case "30 1 * * *":
		return h == 1 && m == 30
	case "15 2 * * *":
		return h == 2 && m == 15
	case "0 0 * * *":
		return h == 0 && m == 0
	case "45 23 * * *":
		return h == 23 && m == 45
	case "1,59 0,1,2,3,23 * * *":
		return in(h, 0, 1, 2, 3, 23) && in(m, 1, 59)
	}
	panic(spec)
}

// walk lists the runs after the first reading: fixed hours run once for every
// wall minute, the first time it is shown, and at the first minute after it
// was jumped over.
func walk(spec string, clock []reading) []time.Time {
	var runs []time.Time
	byElapsed := spec == "30 * * * *" || spec == "*/20 * * * *"
	latest := clock[0].wall // the furthest the clock ever showed
	for _, r := range clock[1:] {
		run := byElapsed && matches(spec, r.wall.Hour(), r.wall.Minute())
		for w := latest.Add(time.Minute); !byElapsed && !w.After(r.wall); w = w.Add(time.Minute) {
			run = run || matches(spec, w.Hour(), w.Minute())
		}
		if r.wall.After(latest) {
			latest = r.wall
		}
		if run {
			runs = append(runs, r.at)
		}
	}
	return runs
}
