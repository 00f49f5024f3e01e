package schedules

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// maxSpec bounds the text of a schedule, in bytes.
const maxSpec = 256

// errTimezone marks faults of the time zone, not of the cron text.
var errTimezone = errors.New("time zone")

// IsTimezone reports whether an error of Parse is about the time zone.
func IsTimezone(err error) bool { return errors.Is(err, errTimezone) }

type timezoneError struct{ text string }

func (e timezoneError) Error() string        { return e.text }
func (e timezoneError) Is(target error) bool { return target == errTimezone }

// Parse reads five cron fields (minute hour day month weekday; names, lists,
// ranges and steps as usual, Sunday is 0), one of @hourly @daily @midnight
// @weekly @monthly @yearly @annually, or "@every 90m". timezone is an IANA
// name; "" is UTC. It never panics.
func Parse(spec, timezone string, o Options) (s Schedule, err error) {
	defer func() {
		// The parser is foreign code with known panics.
		if p := recover(); p != nil {
			s, err = Schedule{}, fmt.Errorf("%q is not a schedule: %v", spec, p)
		}
	}()
	zone, err := loadZone(timezone)
	if err != nil {
		return Schedule{}, err
	}
	switch o.CatchUp {
	case "", Once, Skip:
	default:
		return Schedule{}, fmt.Errorf("catch-up must be %q or %q, not %q", Once, Skip, o.CatchUp)
	}
	s = Schedule{spec: strings.Join(strings.Fields(spec), " "), zone: zone, catchUp: o.CatchUp, within: o.Within}
	if s.within <= 0 {
		s.within = DefaultWithin
	}
	if err := s.read(o.AnyDay); err != nil {
		return Schedule{}, err
	}
	s.period = s.shortest()
	if s.period == 0 {
		return Schedule{}, fmt.Errorf("%q never fires; no such day exists", spec)
	}
	s.jitter = spread(s.period, o.Host, o.Name)
	return s, nil
}

func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, timezoneError{`time zone "Local" would mean another one on another machine; write its name, as in "Europe/Zurich"`}
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, timezoneError{fmt.Sprintf("there is no time zone %q; write an IANA name, as in \"Europe/Zurich\" or \"UTC\"", name)}
	}
	return zone, nil
}

func (s *Schedule) read(anyDay bool) error {
	spec := s.spec
	switch {
	case spec == "":
		return errors.New("the schedule is empty")
	case len(spec) > maxSpec:
		return fmt.Errorf("the schedule is longer than %d bytes", maxSpec)
	case strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ="):
		return errors.New("TZ= does not belong in the schedule; use the timezone setting")
	case strings.HasPrefix(spec, "@every"):
		return s.readEvery(strings.TrimSpace(strings.TrimPrefix(spec, "@every")))
	}
	if !strings.HasPrefix(spec, "@") {
		if err := checkFields(strings.Fields(spec)); err != nil {
			return err
		}
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(spec)
	if err != nil {
		return fmt.Errorf("%q is not a schedule: %w", spec, err)
	}
	bits, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return fmt.Errorf("%q is not a schedule of this sort", spec)
	}
	s.minute, s.hour, s.dom, s.month, s.dow = bits.Minute, bits.Hour, bits.Dom, bits.Month, bits.Dow
	if s.dom&starBit == 0 && s.dow&starBit == 0 && !anyDay {
		return fmt.Errorf("%q restricts day of month and weekday, and cron runs on days that match either; write day_match = \"any\" if that is meant, or one of them as *", spec)
	}
	s.elapsed = bits.Hour&starBit != 0
	if f := strings.Fields(spec); len(f) == 5 {
		s.elapsed = strings.HasPrefix(f[1], "*") || strings.HasPrefix(f[1], "?")
	}
	return nil
}

func (s *Schedule) readEvery(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("@every %s: not a duration; write one as in \"@every 90m\"", text)
	}
	if d < MinEvery || d > MaxEvery || d%time.Second != 0 {
		return fmt.Errorf("@every %s: must be whole seconds, from 1m to a year", text)
	}
	s.every, s.zone = d, time.UTC
	return nil
}

// fieldNames are the fields and their largest step, in the order of the text.
func fieldNames() [5]struct {
	name string
	span int
} {
	return [5]struct {
		name string
		span int
	}{{"minute", 60}, {"hour", 24}, {"day of month", 31}, {"month", 12}, {"weekday", 7}}
}

// checkFields refuses what the parser would accept and read as something else:
// empty list elements are dropped, "*-5" is "*", and "*/100" minutes is "0".
func checkFields(fields []string) error {
	if len(fields) != 5 {
		return fmt.Errorf("a schedule has five fields (minute hour day month weekday), this has %d", len(fields))
	}
	shape := regexp.MustCompile(`^([*?]|[0-9]{1,2}|[A-Za-z]{3})(-([0-9]{1,2}|[A-Za-z]{3}))?(/[0-9]{1,4})?$`)
	for i, f := range fields {
		is := fieldNames()[i]
		for _, part := range strings.Split(f, ",") {
			if !shape.MatchString(part) || strings.HasPrefix(part, "*-") || strings.HasPrefix(part, "?-") {
				return fmt.Errorf("the %s %q is not understood; write *, 5, 1-5, */10 or a list of these", is.name, f)
			}
			if _, step, ok := strings.Cut(part, "/"); ok {
				n := 0
				if _, err := fmt.Sscanf(step, "%d", &n); err != nil || n < 1 || n >= is.span {
					return fmt.Errorf("the step of the %s %q must be from 1 to %d", is.name, f, is.span-1)
				}
			}
			if i == 4 && strings.ContainsRune(part, '7') {
				return fmt.Errorf("the weekday %q: Sunday is 0, there is no 7", f)
			}
		}
	}
	return nil
}

// shortest is the shortest distance between runs, 0 if there are none. It
// looks at a fixed stretch of time, so that it does not change from day to day.
func (s Schedule) shortest() time.Duration {
	if s.every > 0 {
		return s.every
	}
	const look = 200 // runs
	var last time.Time
	shortest, seen := time.Duration(0), 0
	start := time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
	utc := s
	utc.zone = time.UTC // clock changes are not the schedule's period
	utc.each(start.Add(-time.Second), horizonDays, func(t time.Time) bool {
		if seen++; !last.IsZero() && (shortest == 0 || t.Sub(last) < shortest) {
			shortest = t.Sub(last)
		}
		last = t
		return seen < look
	})
	if seen == 1 {
		return horizonDays * day
	}
	return shortest
}
