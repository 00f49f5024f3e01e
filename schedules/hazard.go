package schedules

import "time"

// HazardKind is what a change of clocks does to a schedule.
type HazardKind string

// The kinds.
const (
	Skipped HazardKind = "skipped" // the nominal time does not exist on that day
	Doubled HazardKind = "doubled" // the nominal time exists twice on that day
)

// Hazard is a nominal time that a change of clocks touches.
type Hazard struct {
	Kind HazardKind  `json:"kind"`
	At   time.Time   `json:"at"`   // the change
	Wall string      `json:"wall"` // the first nominal time touched, "2026-03-08 02:30"
	Runs []time.Time `json:"runs"` // what is run for it: right after the gap, or the first of two; empty = nothing
}

// Hazards lists the nominal times that clock changes touch in the year from
// the given moment, one for each change. Schedules that run every hour are by
// elapsed time: no change touches them.
func (s Schedule) Hazards(from time.Time) []Hazard {
	if s.zone == nil || s.every > 0 || s.elapsed && s.hour&allHours == allHours {
		return nil
	}
	var out []Hazard
	end := from.Add(366 * day)
	for t := from; ; {
		_, next := t.In(s.zone).ZoneBounds()
		if next.IsZero() || next.After(end) {
			return out
		}
		if h, ok := s.hazardAt(next); ok {
			out = append(out, h)
		}
		t = next
	}
}

func (s Schedule) hazardAt(change time.Time) (Hazard, bool) {
	before, after := offsetAt(change.Add(-time.Second), s.zone), offsetAt(change, s.zone)
	from, to := change.UTC().Add(before), change.UTC().Add(after)
	h := Hazard{Kind: Skipped, At: change}
	if after < before {
		h.Kind, from, to = Doubled, to, from
	}
	// Wall times are whole minutes; offsets of old zones are not.
	for wall := from.Add(time.Minute - 1).Truncate(time.Minute); wall.Before(to); wall = wall.Add(time.Minute) {
		date := wall.Truncate(day)
		if s.hour&(1<<uint(wall.Hour())) != 0 && s.minute&(1<<uint(wall.Minute())) != 0 && s.dateMatches(date) {
			h.Wall, h.Runs = wall.Format("2006-01-02 15:04"), s.moments(wall)
			return h, true
		}
	}
	return Hazard{}, false
}
