package schedules

import "time"

// MaxMissed bounds how many missed times one Due lists.
const MaxMissed = 10_000

// Due says what to do at now when last was the newest nominal time handled:
// fire lists the nominal times to run (at most one, since overlapping runs of
// one schedule make no sense), missed those that are passed over and must be
// recorded. Both are in order, and nothing between last and now is left out
// but for [MaxMissed]: then the oldest are dropped and OlderMissed counts them.
//
// A run is on time up to a minute after its start. Later ones are missed;
// with [Once] the newest missed run still fires if it is not older than
// Options.Within. A zero last, or one after now, gives nothing: the caller
// records now as the beginning.
func (s Schedule) Due(last, now time.Time) (fire, missed []time.Time) {
	fire, missed, _ = s.due(last, now)
	return fire, missed
}

// OlderMissed counts the missed times that Due leaves out of its list.
func (s Schedule) OlderMissed(last, now time.Time) int {
	_, _, older := s.due(last, now)
	return older
}

func (s Schedule) due(last, now time.Time) (fire, missed []time.Time, older int) {
	if last.IsZero() || !last.Before(now) {
		return nil, nil, 0
	}
	if earliest := now.Add(-maxAgoDays * day); last.Before(earliest) {
		last = earliest
	}
	s.each(last, maxAgoDays+2, func(t time.Time) bool {
		if s.Start(t).After(now) {
			return false
		}
		if len(missed) == 2*MaxMissed {
			missed = append(missed[:0], missed[MaxMissed:]...)
			older += MaxMissed
		}
		missed = append(missed, t)
		return true
	})
	if n := len(missed); n > 0 {
		newest := missed[n-1]
		late := now.Sub(s.Start(newest))
		if late <= onTime || s.catchUp != Skip && late <= s.within {
			fire, missed = []time.Time{newest}, missed[:n-1]
		}
	}
	if n := len(missed); n > MaxMissed {
		older += n - MaxMissed
		missed = missed[n-MaxMissed:]
	}
	return fire, missed, older
}
