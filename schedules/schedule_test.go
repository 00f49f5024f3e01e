package schedules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/settled-dev/settled/schedules"
)

const layout = "2006-01-02 15:04 MST"

func parse(t *testing.T, spec, zone string, o schedules.Options) schedules.Schedule {
	t.Helper()
	s, err := schedules.Parse(spec, zone, o)
	if err != nil {
		t.Fatalf("Parse(%q, %q): %v", spec, zone, err)
	}
	return s
}

func in(t *testing.T, zone, text string) time.Time {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation("2006-01-02 15:04", text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestNextAcrossChangesOfClocks(t *testing.T) {
	for _, c := range []struct {
		story, spec, zone, after string
		want                     []string
	}{
		{
			"a skipped fixed time runs once, right after the gap", "30 2 * * *", "America/New_York", "2026-03-07 12:00",
			[]string{"2026-03-08 03:00 EDT", "2026-03-09 02:30 EDT"},
		},
		{
			"two skipped minutes of one hour run once", "10,40 2 * * *", "America/New_York", "2026-03-07 12:00",
			[]string{"2026-03-08 03:00 EDT", "2026-03-09 02:10 EDT"},
		},
		{
			"the stand-in and a run of its own at the same moment are one", "0 2,3 * * *", "America/New_York", "2026-03-07 12:00",
			[]string{"2026-03-08 03:00 EDT", "2026-03-09 02:00 EDT", "2026-03-09 03:00 EDT"},
		},
		{
			"a doubled fixed time runs once, the first time", "30 1 * * *", "America/New_York", "2026-10-31 12:00",
			[]string{"2026-11-01 01:30 EDT", "2026-11-02 01:30 EST"},
		},
		{
			"every hour counts doubled hours twice", "0 * * * *", "America/New_York", "2026-11-01 00:30",
			[]string{"2026-11-01 01:00 EDT", "2026-11-01 01:00 EST", "2026-11-01 02:00 EST"},
		},
		{
			"every half hour goes through a doubled hour in order", "*/30 * * * *", "America/New_York", "2026-11-01 00:40",
			[]string{"2026-11-01 01:00 EDT", "2026-11-01 01:30 EDT", "2026-11-01 01:00 EST", "2026-11-01 01:30 EST", "2026-11-01 02:00 EST"},
		},
		{
			"every hour has nothing to make up for a gap", "30 * * * *", "America/New_York", "2026-03-08 00:40",
			[]string{"2026-03-08 01:30 EST", "2026-03-08 03:30 EDT"},
		},
		{
			"half an hour is skipped on Lord Howe", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00",
			[]string{"2026-10-04 02:30 +11", "2026-10-05 02:15 +11"},
		},
		{
			"half an hour is doubled on Lord Howe", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00",
			[]string{"2026-04-05 01:45 +11", "2026-04-06 01:45 +1030"},
		},
		{
			"elapsed time through a doubled half hour", "45 * * * *", "Australia/Lord_Howe", "2026-04-05 00:50",
			[]string{"2026-04-05 01:45 +11", "2026-04-05 01:45 +1030", "2026-04-05 02:45 +1030"},
		},
		{
			"Sao Paulo once had days without midnight", "0 0 * * *", "America/Sao_Paulo", "2018-11-03 12:00",
			[]string{"2018-11-04 01:00 -02", "2018-11-05 00:00 -02"},
		},
		{
			"and days whose last hour came twice", "30 23 * * *", "America/Sao_Paulo", "2018-02-17 12:00",
			[]string{"2018-02-17 23:30 -02", "2018-02-18 23:30 -03"},
		},
		{
			"which every hour counts twice", "30 * * * *", "America/Sao_Paulo", "2018-02-17 22:40",
			[]string{"2018-02-17 23:30 -02", "2018-02-17 23:30 -03", "2018-02-18 00:30 -03"},
		},
		{
			"Saint John's set clocks back over midnight: order is by moment, not by date", "*/30 * * * *", "America/St_Johns", "2010-11-06 23:10",
			[]string{"2010-11-06 23:30 NDT", "2010-11-07 00:00 NDT", "2010-11-06 23:30 NST", "2010-11-07 00:00 NST", "2010-11-07 00:30 NST"},
		},
		{
			"Samoa left out a whole day", "0 12 * * *", "Pacific/Apia", "2011-12-29 13:00",
			[]string{"2011-12-31 00:00 +14", "2011-12-31 12:00 +14"},
		},
		{
			"UTC has no changes", "30 2 * * *", "UTC", "2026-03-07 12:00",
			[]string{"2026-03-08 02:30 UTC", "2026-03-09 02:30 UTC"},
		},
		{"leap days", "0 0 29 2 *", "", "2096-03-01 00:00", []string{"2104-02-29 00:00 UTC"}},
		{"any day, when said", "0 0 13 * 5", "UTC", "2026-02-01 00:00", []string{"2026-02-06 00:00 UTC", "2026-02-13 00:00 UTC"}},
		{
			"@every counts from the epoch", "@every 90m", "Europe/Zurich", "2026-01-01 00:10",
			[]string{"2026-01-01 00:00 UTC", "2026-01-01 01:30 UTC"},
		},
	} {
		t.Run(c.story, func(t *testing.T) {
			s := parse(t, c.spec, c.zone, schedules.Options{AnyDay: strings.Contains(c.story, "any day")})
			at := in(t, c.zone, c.after)
			for _, want := range c.want {
				at = s.Next(at)
				if got := at.Format(layout); got != want {
					t.Fatalf("Next = %s, want %s", got, want)
				}
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ spec, zone, because string }{
		{"", "UTC", "empty"},
		{"   ", "UTC", "empty"},
		{"TZ=x", "UTC", "timezone setting"},
		{"CRON_TZ=Europe/Zurich 0 0 * * *", "UTC", "timezone setting"},
		{"0 0 30 2 *", "UTC", "never fires"},
		{"0 0 31 4,6,9,11 *", "UTC", "never fires"},
		{"@every 500ms", "UTC", "from 1m"},
		{"@every 59s", "UTC", "from 1m"},
		{"@every -1h", "UTC", "from 1m"},
		{"@every 90.5s", "UTC", "whole seconds"},
		{"@every 9000h", "UTC", "to a year"},
		{"@every soon", "UTC", "not a duration"},
		{"0 0 13 * 5", "UTC", `day_match = "any"`},
		{"0 0 */2 * 1", "UTC", `day_match = "any"`},
		{"0 0 * * 7", "UTC", "Sunday is 0"},
		{"*/100 * * * *", "UTC", "from 1 to 59"},
		{"0 */24 * * *", "UTC", "from 1 to 23"},
		{"1,,2 * * * *", "UTC", "not understood"},
		{"*-5 * * * *", "UTC", "not understood"},
		{"60 * * * *", "UTC", "not a schedule"},
		{"0 0 * *", "UTC", "five fields"},
		{"0 0 0 * * *", "UTC", "five fields"},
		{"@reboot", "UTC", "not a schedule"},
		{"0 0 * * *", "Local", "another machine"},
		{"0 0 * * *", "Mars/Olympus", "no time zone"},
		{strings.Repeat("1,", 200) + "1 * * * *", "UTC", "longer than"},
	} {
		if _, err := schedules.Parse(c.spec, c.zone, schedules.Options{}); err == nil || !strings.Contains(err.Error(), c.because) {
			t.Errorf("Parse(%q, %q) = %v, want a refusal that says %q", c.spec, c.zone, err, c.because)
		}
	}
	if _, err := schedules.Parse("0 0 * * *", "", schedules.Options{CatchUp: "twice"}); err == nil {
		t.Error("an unknown catch-up was accepted")
	}
	if _, err := schedules.Parse("0 0 * * *", "Mars/Olympus", schedules.Options{}); !schedules.IsTimezone(err) {
		t.Errorf("IsTimezone(%v) = false", err)
	}
	if _, err := schedules.Parse("0 0 30 2 *", "", schedules.Options{}); schedules.IsTimezone(err) {
		t.Errorf("IsTimezone(%v) = true", err)
	}
}

func times(t *testing.T, list []time.Time) string {
	t.Helper()
	var out []string
	for _, x := range list {
		out = append(out, x.Format("02 15:04"))
	}
	return strings.Join(out, ", ")
}

func TestDueCatchesUpTheNewestAndReportsTheRest(t *testing.T) {
	for _, c := range []struct {
		story, spec, last, now string
		catchUp                schedules.CatchUp
		within                 time.Duration
		fire, missed           string
	}{
		{"nothing is due", "0 * * * *", "2026-05-01 10:00", "2026-05-01 10:59", schedules.Once, 0, "", ""},
		{"on time", "0 * * * *", "2026-05-01 10:00", "2026-05-01 11:00", schedules.Once, 0, "01 11:00", ""},
		{"on time also with skip", "0 * * * *", "2026-05-01 10:00", "2026-05-01 11:01", schedules.Skip, 0, "01 11:00", ""},
		{"late with skip is missed", "0 * * * *", "2026-05-01 10:00", "2026-05-01 11:02", schedules.Skip, 0, "", "01 11:00"},
		{"late with once is caught up", "0 * * * *", "2026-05-01 10:00", "2026-05-01 13:30", schedules.Once, 0, "01 13:00", "01 11:00, 01 12:00"},
		{"too old to be caught up", "0 3 * * *", "2026-05-01 03:00", "2026-05-02 09:00", schedules.Once, time.Hour, "", "02 03:00"},
		{"young enough", "0 3 * * *", "2026-05-01 03:00", "2026-05-02 03:59", schedules.Once, time.Hour, "02 03:00", ""},
		{"the clock went back", "0 * * * *", "2026-05-01 10:00", "2026-05-01 08:00", schedules.Once, 0, "", ""},
		{"the default catches up", "0 * * * *", "2026-05-01 10:00", "2026-05-01 11:30", "", 0, "01 11:00", ""},
	} {
		t.Run(c.story, func(t *testing.T) {
			s := parse(t, c.spec, "UTC", schedules.Options{CatchUp: c.catchUp, Within: c.within})
			fire, missed := s.Due(in(t, "UTC", c.last), in(t, "UTC", c.now))
			if times(t, fire) != c.fire || times(t, missed) != c.missed {
				t.Fatalf("fire [%s] missed [%s], want [%s] and [%s]", times(t, fire), times(t, missed), c.fire, c.missed)
			}
		})
	}
}

func TestDueWithoutABeginningFiresNothing(t *testing.T) {
	s := parse(t, "* * * * *", "UTC", schedules.Options{})
	if fire, missed := s.Due(time.Time{}, in(t, "UTC", "2026-05-01 10:00")); fire != nil || missed != nil {
		t.Fatalf("fire %v, missed %v", fire, missed)
	}
	if !(schedules.Schedule{}).Next(in(t, "UTC", "2026-05-01 10:00")).IsZero() {
		t.Fatal("the zero Schedule fires")
	}
}

func TestDueAfterAYearIsBoundedAndCounted(t *testing.T) {
	s := parse(t, "* * * * *", "UTC", schedules.Options{})
	last, now := in(t, "UTC", "2025-05-01 00:00"), in(t, "UTC", "2026-05-01 00:00")
	fire, missed := s.Due(last, now)
	if len(fire) != 1 || !fire[0].Equal(now) {
		t.Fatalf("fire = %v", fire)
	}
	if len(missed) > schedules.MaxMissed {
		t.Fatalf("%d missed times listed", len(missed))
	}
	if total := len(missed) + s.OlderMissed(last, now); total != 365*24*60-1 {
		t.Fatalf("%d missed in all, want every minute but the last", total)
	}
	if got := missed[len(missed)-1]; !got.Equal(now.Add(-time.Minute)) {
		t.Fatalf("the newest missed is %s", got)
	}
}

func TestDueWaitsForTheJitter(t *testing.T) {
	s := parse(t, "0 * * * *", "UTC", schedules.Options{Host: "a", Name: "sweep"})
	if s.Jitter() == 0 {
		t.Skip("this host and name have no jitter")
	}
	last, nominal := in(t, "UTC", "2026-05-01 10:00"), in(t, "UTC", "2026-05-01 11:00")
	if fire, _ := s.Due(last, nominal.Add(s.Jitter()-time.Nanosecond)); len(fire) != 0 {
		t.Fatalf("fired %s before its start", fire[0])
	}
	if fire, _ := s.Due(last, nominal.Add(s.Jitter())); len(fire) != 1 || !fire[0].Equal(nominal) {
		t.Fatalf("fire = %v, want the nominal time", fire)
	}
}

func TestJitterIsStableBoundedAndSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 200 {
		o := schedules.Options{Host: fmt.Sprint("host", i), Name: "sweep"}
		hourly, minutely := parse(t, "0 * * * *", "UTC", o), parse(t, "* * * * *", "UTC", o)
		if j := hourly.Jitter(); j < 0 || j > schedules.MaxJitter {
			t.Fatalf("hourly jitter %s", j)
		}
		if j := minutely.Jitter(); j < 0 || j > 6*time.Second {
			t.Fatalf("minutely jitter %s is above a tenth of the period", j)
		}
		if again := parse(t, "0 * * * *", "UTC", o); again.Jitter() != hourly.Jitter() {
			t.Fatal("the jitter changed")
		}
		seen[hourly.Jitter()] = true
	}
	if len(seen) < 50 {
		t.Fatalf("200 hosts share %d jitters", len(seen))
	}
	if j := parse(t, "0 * * * *", "UTC", schedules.Options{Host: "a"}).Jitter(); j != 0 {
		t.Fatalf("a schedule without a name has jitter %s", j)
	}
}

func TestPeriodIsTheShortestDistance(t *testing.T) {
	for spec, want := range map[string]time.Duration{
		"* * * * *": time.Minute, "*/5 * * * *": 5 * time.Minute, "0,1 0 * * *": time.Minute,
		"@hourly": time.Hour, "0 0 * * *": 24 * time.Hour, "@every 90m": 90 * time.Minute, "@monthly": 29 * 24 * time.Hour,
	} {
		got := parse(t, spec, "America/New_York", schedules.Options{}).Period()
		if spec == "@monthly" {
			want = 28 * 24 * time.Hour // February of a common year
		}
		if got != want {
			t.Errorf("%s: period %s, want %s", spec, got, want)
		}
	}
}

func TestHazards(t *testing.T) {
	for _, c := range []struct{ spec, zone, from, want string }{
		{"30 2 * * *", "America/New_York", "2026-01-01 00:00", "skipped 2026-03-08 02:30 -> 2026-03-08 03:00 EDT"},
		{"30 1 * * *", "America/New_York", "2026-01-01 00:00", "doubled 2026-11-01 01:30 -> 2026-11-01 01:30 EDT"},
		{
			"*/10 1,2 * * *", "America/New_York", "2026-01-01 00:00",
			"skipped 2026-03-08 02:00 -> 2026-03-08 03:00 EDT; doubled 2026-11-01 01:00 -> 2026-11-01 01:00 EDT",
		},
		{"0 */2 * * *", "America/New_York", "2026-01-01 00:00", "skipped 2026-03-08 02:00 ->"},
		{"15 2 * * *", "Australia/Lord_Howe", "2026-05-01 00:00", "skipped 2026-10-04 02:15 -> 2026-10-04 02:30 +11"},
		{"0 0 * * *", "America/Sao_Paulo", "2018-06-01 00:00", "skipped 2018-11-04 00:00 -> 2018-11-04 01:00 -02"},
		{"30 2 * * 1", "America/New_York", "2026-01-01 00:00", ""},
		{"30 4 * * *", "America/New_York", "2026-01-01 00:00", ""},
		{"*/5 * * * *", "America/New_York", "2026-01-01 00:00", ""},
		{"@every 1h", "America/New_York", "2026-01-01 00:00", ""},
		{"30 2 * * *", "UTC", "2026-01-01 00:00", ""},
		{"0 0 * * *", "America/Sao_Paulo", "2026-01-01 00:00", ""},
	} {
		var got []string
		for _, h := range parse(t, c.spec, c.zone, schedules.Options{}).Hazards(in(t, c.zone, c.from)) {
			line := fmt.Sprintf("%s %s ->", h.Kind, h.Wall)
			for _, r := range h.Runs {
				line += " " + r.Format(layout)
			}
			got = append(got, line)
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s %s: %q, want %q", c.spec, c.zone, strings.Join(got, "; "), c.want)
		}
	}
}
