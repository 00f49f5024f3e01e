package schedules

import "time"

// A wall time is written as a UTC time with the same digits, so that it can be
// counted with before any offset is known.

func offsetAt(t time.Time, zone *time.Location) time.Duration {
	_, seconds := t.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// steadyOffset returns the zone's offset on a date, if no clock is changed on
// it or near it.
func steadyOffset(date time.Time, zone *time.Location) (time.Duration, bool) {
	from, to := date.Add(-longestShift), date.Add(day+longestShift)
	_, end := from.In(zone).ZoneBounds()
	if !end.IsZero() && end.Before(to) {
		return 0, false
	}
	return offsetAt(from, zone), true
}

// instants lists the moments at which a zone's clocks show the wall time, in
// order: none, one or two. For none, gapEnd is the moment after the gap.
func instants(wall time.Time, zone *time.Location) (at []time.Time, gapEnd time.Time) {
	t := wall.Add(-longestShift)
	for end := wall.Add(longestShift); ; {
		offset := offsetAt(t, zone)
		start, next := t.In(zone).ZoneBounds()
		c := wall.Add(-offset)
		if (start.IsZero() || !c.Before(start)) && (next.IsZero() || c.Before(next)) {
			at = append(at, c.In(zone))
		}
		if next.IsZero() || next.After(end) {
			return at, gapEnd
		}
		after := offsetAt(next, zone)
		if !wall.Before(next.Add(offset)) && wall.Before(next.Add(after)) {
			gapEnd = next.In(zone)
		}
		t = next
	}
}
