package schedules_test

import (
	"testing"
	"time"

	"github.com/settled-dev/settled/schedules"
)

// Whatever is given: an error, or a schedule that fires later and later.
func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"*/5 * * * *", "30 2 * * *", "0 0 29 2 *", "TZ=x", "CRON_TZ=", "@every 90m", "@every", "@daily", "@", "1,,2 * * * *",
		"*/99999999999999999999 * * * *", "*-*-* * * * *", "mon * * * *", "0 0 * jan mon", "? ? ? ? ?", "0 0 1-31/30 * *",
	} {
		for _, zone := range []string{"UTC", "America/New_York", "Australia/Lord_Howe", "../etc/passwd", "Local"} {
			f.Add(spec, zone, int64(1772900000), true)
		}
	}
	f.Fuzz(func(t *testing.T, spec, zone string, unix int64, anyDay bool) {
		s, err := schedules.Parse(spec, zone, schedules.Options{AnyDay: anyDay, Host: "h", Name: spec})
		if err != nil {
			return
		}
		at := time.Unix(unix%4_000_000_000, 0) // years 1843 to 2096
		now := at
		for range 3 {
			next := s.Next(at)
			if !next.After(at) {
				t.Fatalf("Parse(%q, %q).Next(%s) = %s", spec, zone, at, next)
			}
			at = next
		}
		fire, missed := s.Due(now, at.Add(s.Jitter()))
		if len(fire) != 1 || !fire[0].Equal(at) || len(missed) != 2 {
			t.Fatalf("Due = %v and %v, want the third run and two missed", fire, missed)
		}
		s.Hazards(now)
	})
}
