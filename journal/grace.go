package journal

import (
	"time"

	"github.com/settled-dev/settled/journal/mutant"
)

// minSafety is the floor of the safety margin when configuration gives none.
const minSafety = 10 * time.Second

// SafetyOf is the safety margin of a lag: half of it, at least ten seconds.
func SafetyOf(lag time.Duration) time.Duration { return max(minSafety, lag/2) }

// SettleNotBefore is the moment before which no empty read is believed:
// last possible send + max_processing + lag + skew + safety. ok is false when
// a call is still open or nobody declared the bound; then absence is never concluded.
func SettleNotBefore(e Effect, p Policy) (t time.Time, ok bool) {
	over := processingOver(e, p)
	if over.IsZero() || p.Grace.MaxProcessing == nil {
		return time.Time{}, false
	}
	if mutant.NoGrace {
		return over, true
	}
	return over.Add(declaredLag(p) + p.Grace.Skew + safety(p)), true
}

// safety is the configured margin; without one it follows the lag.
func safety(p Policy) time.Duration {
	if p.Grace.Safety > 0 {
		return p.Grace.Safety
	}
	return SafetyOf(declaredLag(p))
}

// processingOver is when no unanswered request can take effect any more:
// the last possible send of the unsettled attempts plus max_processing. Zero when unbounded.
func processingOver(e Effect, p Policy) time.Time {
	if p.Grace.MaxProcessing == nil {
		return time.Time{}
	}
	var last time.Time
	for _, a := range e.Attempts {
		if a.State.NoEffect() {
			continue
		}
		t, closed := a.LastPossibleSend()
		if !closed {
			return time.Time{}
		}
		if t.After(last) {
			last = t
		}
	}
	switch {
	case last.IsZero():
		return last
	case mutant.NoGrace:
		return e.FirstSent()
	}
	return last.Add(*p.Grace.MaxProcessing)
}

// nextRead is the next point of the read timetable after now: the configured
// offsets from when the doubt began, each jittered by a fifth, the last
// repeating; plus one read at settle_not_before and, once a first read
// supports absence, one a lag (at least a second) after it.
func nextRead(d Doubt, p Policy, now time.Time, jitter float64) time.Time {
	next := timetable(d.ReadsFrom, p.Grace.Reads, now, jitter)
	if d.SettleNotBefore.After(now) && d.SettleNotBefore.Before(next) {
		next = d.SettleNotBefore
	}
	if f := d.FirstAbsent; f != nil {
		again := f.EndedAt.Add(confirmLag(p))
		if !again.After(now) { // it was missed, or the answer lags more than declared: soon, but ever more rarely
			again = now.Add(max(confirmLag(p), now.Sub(f.EndedAt)))
		}
		next = earliest(next, again)
	}
	if d.ResolveBy.After(now) && d.ResolveBy.Before(next) {
		next = d.ResolveBy
	}
	return next
}

// minPause is the shortest time between two reads of one doubt.
const minPause = time.Second

// confirmLag is how long after the first supporting read the second one begins.
func confirmLag(p Policy) time.Duration {
	return max(declaredLag(p), minPause)
}

// timetable returns the first offset whose turn has not come yet. Without
// offsets it reads once an hour. Each offset is used once, whatever the jitter
// of each asking is: its turn has come as soon as its earliest time is past.
func timetable(from time.Time, offsets []time.Duration, now time.Time, jitter float64) time.Time {
	at := func(d time.Duration, share float64) time.Duration {
		return time.Duration(float64(d) * (0.8 + 0.4*share))
	}
	last := time.Hour
	for _, o := range offsets {
		last = max(o, time.Millisecond)
		if from.Add(at(o, 0)).After(now) {
			return from.Add(at(o, jitter))
		}
	}
	return now.Add(at(last, jitter))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earliest returns the earlier of two times, where zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
