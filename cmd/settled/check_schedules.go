package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/schedules"
)

// shownTimes is how many next times of a schedule are shown.
const shownTimes = 3

// checkedSchedule is when a schedule runs next, and what a change of clocks does to it.
type checkedSchedule struct {
	Cron     string             `json:"cron"`
	Timezone string             `json:"timezone"`
	Next     []scheduleTime     `json:"next"`
	Hazards  []schedules.Hazard `json:"hazards"`
}

// scheduleTime is one moment on two clocks.
type scheduleTime struct {
	Local time.Time `json:"local"`
	UTC   time.Time `json:"utc"`
}

// schedules tells the next times of every schedule, and its hazards within a year.
func (r *checkReport) schedules(cfg *config.Config, o checkOptions) {
	for _, name := range sortedKeys(cfg.Schedules) {
		s := cfg.Schedules[name]
		c := &checkedSchedule{Cron: s.Cron, Timezone: s.Timezone, Next: []scheduleTime{}, Hazards: []schedules.Hazard{}}
		r.Schedules[name] = c
		plan, now := s.Plan(), o.now()
		for at := plan.Next(now); !at.IsZero() && len(c.Next) < shownTimes; at = plan.Next(at) {
			c.Next = append(c.Next, scheduleTime{at, at.UTC()})
		}
		if len(c.Next) == 0 {
			r.add(checkItem{Group: "schedules", Level: levelFault, Key: "schedules." + name, Message: name + " (" + s.Cron + ") never runs", Hint: "write another cron"})
			continue
		}
		r.add(checkItem{Group: "schedules", Level: levelOK, Key: "schedules." + name, Message: fmt.Sprintf("%s: %s %s; next %s", name, s.Do, s.Cron, nextTimes(c.Next))})
		c.Hazards = append(c.Hazards, plan.Hazards(now)...)
		for _, h := range c.Hazards {
			r.add(checkItem{
				Group: "schedules", Level: levelWarn, Key: "schedules." + name, Message: name + ": " + hazardWords(h, s.Timezone),
				Hint: `a cron in UTC (timezone = "UTC") knows no such days`,
			})
		}
	}
}

// nextTimes shows each time in the schedule's zone, and in UTC where that differs.
func nextTimes(times []scheduleTime) string {
	parts := make([]string, 0, len(times))
	for _, t := range times {
		s := t.Local.Format("2006-01-02 15:04 MST")
		if _, offset := t.Local.Zone(); offset != 0 || t.Local.Location() != time.UTC && t.Local.Format("MST") != "UTC" {
			s += t.UTC.Format(" (2006-01-02 15:04 UTC)")
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}

func hazardWords(h schedules.Hazard, zone string) string {
	what := "does not exist in " + zone + " that day"
	if h.Kind == schedules.Doubled {
		what = "exists twice in " + zone + " that day"
	}
	runs := make([]string, 0, len(h.Runs))
	for _, at := range h.Runs {
		runs = append(runs, at.Format("15:04 MST")+at.UTC().Format(" (15:04 UTC)"))
	}
	if len(runs) == 0 {
		return h.Wall + " " + what + ", so it does not run"
	}
	return h.Wall + " " + what + "; it runs once, at " + strings.Join(runs, " and ")
}
