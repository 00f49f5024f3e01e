package journal

import (
	"testing"
	"time"
)

func TestEachOffsetOfTheReadTimetableIsUsedOnce(t *testing.T) {
	from := time.Date(2026, 12, 1, 1, 0, 0, 0, time.UTC)
	offsets := []time.Duration{time.Second, 3 * time.Second, 15 * time.Second, time.Minute}
	// A read that came early in its turn is followed by an asking with much jitter, and the other way round.
	for _, jitters := range [][2]float64{{0, 1}, {1, 0}, {0.5, 0.9}, {0.1, 0.2}} {
		now := from
		for i, o := range offsets {
			next := timetable(from, offsets, now, jitters[i%2])
			if early, late := from.Add(o*8/10), from.Add(o*12/10); next.Before(early) || next.After(late) {
				t.Errorf("jitter %v: read %d comes after %v, want it a fifth around %v", jitters, i+1, next.Sub(from), o)
			}
			now = next
		}
		if next := timetable(from, offsets, now, 0.5); next.Sub(now) != time.Minute {
			t.Errorf("jitter %v: after the last offset the next read comes %v later, want the last offset again", jitters, next.Sub(now))
		}
	}
}
