package schedules

import (
	"hash/fnv"
	"math/bits"
	"slices"
	"time"
)

// CatchUp says what becomes of runs missed while nobody was there to start them.
type CatchUp string

// The policies. The empty value counts as once.
const (
	Once CatchUp = "once" // the newest missed run is started, the others are reported
	Skip CatchUp = "skip" // all missed runs are reported
)

// Limits of a schedule.
const (
	MinEvery      = time.Minute          // shortest "@every"
	MaxEvery      = 366 * 24 * time.Hour // longest "@every"
	MaxJitter     = 2 * time.Minute      // longest jitter
	DefaultWithin = 24 * time.Hour       // how old a missed run may be to be caught up
)

const (
	day          = 24 * time.Hour
	onTime       = time.Minute       // a run started this late is no missed run
	horizonDays  = 9 * 366           // a 29 February can be eight years away: 2096, then 2104
	maxAgoDays   = 10 * 366          // how far Due looks back
	longestShift = 26 * time.Hour    // more than any zone is off UTC or ever moved its clocks
	starBit      = uint64(1) << 63   // set by the cron parser where a field was "*"
	allHours     = uint64(1)<<24 - 1 // without the star bit
)

// Options are what a schedule takes from the configuration. The zero value is
// a schedule without jitter that catches up once within a day.
type Options struct {
	// AnyDay allows day of month and weekday to be restricted both: the job
	// runs on days that match either, as cron has it.
	AnyDay bool
	// Host and Name spread runs: the jitter is a hash of both. Without a Name
	// there is none.
	Host, Name string
	CatchUp    CatchUp
	// Within is how old a missed run may be to be caught up; 0 means a day.
	Within time.Duration
}

// Schedule is one parsed schedule. It is a value; the zero Schedule never fires.
type Schedule struct {
	spec    string
	zone    *time.Location
	every   time.Duration // above 0: "@every", and the fields below are unused
	minute  uint64
	hour    uint64
	dom     uint64
	month   uint64
	dow     uint64
	elapsed bool // hours begin with "*": by elapsed time
	catchUp CatchUp
	within  time.Duration
	period  time.Duration // the shortest distance between two runs
	jitter  time.Duration
}

// Spec returns the schedule as written.
func (s Schedule) Spec() string { return s.spec }

// Zone returns the time zone; UTC for "@every".
func (s Schedule) Zone() *time.Location { return s.zone }

// Period is the shortest distance between two runs.
func (s Schedule) Period() time.Duration { return s.period }

// Jitter is how long after its nominal time a run starts: at most a tenth of
// the period and [MaxJitter], in whole seconds, always the same for one host and name.
func (s Schedule) Jitter() time.Duration { return s.jitter }

// Start is when the run of a nominal time is started.
func (s Schedule) Start(nominal time.Time) time.Time { return nominal.Add(s.jitter) }

// Next is the first nominal time after the given moment, in the schedule's
// zone. The zero time means never.
func (s Schedule) Next(after time.Time) time.Time {
	var next time.Time
	s.each(after, horizonDays, func(t time.Time) bool {
		next = t
		return false
	})
	return next
}

// each calls yield with every nominal time after the given moment, in order,
// until yield returns false or the given number of days is over.
func (s Schedule) each(after time.Time, days int, yield func(time.Time) bool) {
	switch {
	case s.zone == nil:
	case s.every > 0:
		s.eachInterval(after, days, yield)
	default:
		s.eachDate(after, days, yield)
	}
}

func (s Schedule) eachInterval(after time.Time, days int, yield func(time.Time) bool) {
	step := int64(s.every / time.Second)
	at := floorDiv(after.Unix(), step)*step + step
	for end := after.Unix() + int64(days)*int64(day/time.Second); at <= end; at += step {
		if !yield(time.Unix(at, 0).In(s.zone)) {
			return
		}
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// eachDate goes through calendar dates. Two neighbouring dates are held at a
// time, because clocks set back over midnight give a date's last hour after
// the next date's first.
func (s Schedule) eachDate(after time.Time, days int, yield func(time.Time) bool) {
	y, m, d := after.In(s.zone).Date()
	var held []time.Time
	for i := -2; i <= days; i++ {
		date := time.Date(y, m, d+i, 0, 0, 0, 0, time.UTC)
		today := s.onDate(date, after)
		ready := held
		held = nil
		if len(today) > 0 && len(ready) > 0 && !ready[len(ready)-1].Before(today[0]) {
			ready = sorted(append(ready, today...))
			today = nil
		}
		for _, t := range ready {
			if !yield(t) {
				return
			}
		}
		held = today
	}
	for _, t := range held {
		if !yield(t) {
			return
		}
	}
}

// sorted puts times in order, without doubles.
func sorted(times []time.Time) []time.Time {
	slices.SortFunc(times, time.Time.Compare)
	return slices.CompactFunc(times, time.Time.Equal)
}

// onDate lists the nominal times of one calendar date that lie after the given
// moment, in order. date is the date's midnight as if it were UTC.
func (s Schedule) onDate(date, after time.Time) []time.Time {
	if !s.dateMatches(date) || date.Sub(after) < -day-longestShift {
		return nil
	}
	if offset, ok := steadyOffset(date, s.zone); ok {
		return s.onSteadyDate(date, offset, after)
	}
	var out []time.Time
	for h := 0; h < 24; h++ {
		for mi := 0; mi < 60; mi++ {
			if s.hour&(1<<h) == 0 || s.minute&(1<<mi) == 0 {
				continue
			}
			wall := date.Add(time.Duration(h)*time.Hour + time.Duration(mi)*time.Minute)
			for _, t := range s.moments(wall) {
				if t.After(after) {
					out = append(out, t)
				}
			}
		}
	}
	return sorted(out)
}

func (s Schedule) onSteadyDate(date time.Time, offset time.Duration, after time.Time) []time.Time {
	n := bits.OnesCount64(s.hour&allHours) * bits.OnesCount64(s.minute&^starBit)
	midnight := date.Add(-offset)
	if !midnight.Add(day).After(after) {
		return nil
	}
	out := make([]time.Time, 0, n)
	for h := 0; h < 24; h++ {
		hour := midnight.Add(time.Duration(h) * time.Hour)
		if s.hour&(1<<h) == 0 || !hour.Add(time.Hour).After(after) {
			continue
		}
		for mi := 0; mi < 60; mi++ {
			if s.minute&(1<<mi) == 0 {
				continue
			}
			if t := hour.Add(time.Duration(mi) * time.Minute); t.After(after) {
				out = append(out, t.In(s.zone))
			}
		}
	}
	return out
}

func (s Schedule) dateMatches(date time.Time) bool {
	if s.month&(1<<uint(date.Month())) == 0 {
		return false
	}
	dom, dow := s.dom&(1<<uint(date.Day())) != 0, s.dow&(1<<uint(date.Weekday())) != 0
	if s.dom&starBit != 0 || s.dow&starBit != 0 {
		return dom && dow
	}
	return dom || dow
}

// moments are the instants at which a nominal wall time is due: as a rule
// one; for fixed hours the first of two, and the end of the gap for none.
func (s Schedule) moments(wall time.Time) []time.Time {
	at, gapEnd := instants(wall, s.zone)
	switch {
	case s.elapsed:
		return at
	case len(at) > 0:
		return at[:1]
	case !gapEnd.IsZero():
		return []time.Time{gapEnd}
	}
	return nil
}

// spread is the jitter of a host and name: a stable fraction of a tenth of the
// period, at most [MaxJitter].
func spread(period time.Duration, host, name string) time.Duration {
	if name == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(host + "\x00" + name)) // a hash never fails
	seconds := uint64(min(period/10, MaxJitter) / time.Second)
	return time.Duration(h.Sum64()%(seconds+1)) * time.Second
}
