package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk/client"
)

// barWidth is how many characters the progress bar of a sweep takes.
const barWidth = 24

// sweepProgress shows how far a run is: a line that is overwritten on a
// terminal, a line each elsewhere.
func (a *App) sweepProgress(r client.SweepReport) {
	switch {
	case a.flags.json:
		_ = a.object(r) // the last report tells of a broken output
	case a.terminal(a.Stderr):
		fmt.Fprintf(a.Stderr, "\r\x1b[K%s %s", bar(r.Asked+r.Skipped, r.Total), sweepShort(r))
	default:
		fmt.Fprintln(a.Stderr, sweepWords(r))
	}
}

// bar draws a share; an empty whole is done.
func bar(done, total int) string {
	full := barWidth
	if total > 0 {
		full = min(barWidth, barWidth*done/total)
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

func sweepShort(r client.SweepReport) string {
	return fmt.Sprintf("%d of %d, %d match, %d absent, %d unknown", r.Asked+r.Skipped, r.Total, r.Matches, r.Absent, r.Unknown)
}

// sweepWords is the whole summary.
func sweepWords(r client.SweepReport) string {
	var parts []string
	if r.Resumed {
		parts = append(parts, "goes on from where it was interrupted")
	}
	if r.Detail != "" {
		parts = append(parts, clean(r.Detail))
	}
	if r.Do == "" || r.Do == "reconcile" || r.Do == "audit" {
		parts = append(parts, fmt.Sprintf("%d of %d asked: %d match, %d absent, %d partial, %d duplicate, %d conflicting, %d still unknown (%d wait for their grace), %d reads brought nothing",
			r.Asked, r.Total, r.Matches, r.Absent, r.Partial, r.Duplicate, r.Conflicts, r.Unknown, r.WaitingForGrace, r.ReadFailed))
	}
	if r.Do == "audit" {
		parts = append(parts, fmt.Sprintf("%d handed to a person", r.Raised))
	}
	if r.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d settled meanwhile", r.Skipped))
	}
	return strings.Join(parts, "; ")
}

// explain tells when a schedule runs next, what a change of clocks does to it
// within a year, and how it went.
func (a *App) explain(s client.Schedule) error {
	if a.flags.json {
		return a.object(s)
	}
	zone, err := time.LoadLocation(s.Timezone)
	if err != nil {
		zone = time.UTC
	}
	const inZone = "Mon 2006-01-02 15:04:05 MST"
	a.printf("%s: %s %s, %s in %s\n", s.Name, s.Do, s.Destination, s.Cron, s.Timezone)
	for _, t := range s.Next {
		a.printf("  next  %s   %s\n", t.In(zone).Format(inZone), a.at(&t))
	}
	if s.JitterS > 0 {
		a.printf("  each starts %s later, so that not everybody asks at once\n", time.Duration(s.JitterS)*time.Second)
	}
	for _, h := range s.Hazards {
		a.printf("  clocks change %s: %s %s\n", h.At.In(zone).Format(inZone), h.Wall, hazardWords(h, zone))
	}
	a.printf("  last started %s, last ok %s, result %s, %d missed\n", a.at(s.LastStartedAt), a.at(s.LastOKAt), orDash(s.LastResult), s.Missed)
	for _, r := range s.Runs {
		end := "still going on"
		if r.EndedAt != nil {
			end = orDash(r.Result)
		}
		a.printf("  ran   %s   %s\n", a.at(&r.StartedAt), end)
	}
	return nil
}

func hazardWords(h client.Hazard, zone *time.Location) string {
	at := make([]string, 0, len(h.Runs))
	for _, t := range h.Runs {
		at = append(at, t.In(zone).Format("15:04 MST"))
	}
	runs := "and is not run"
	if len(at) > 0 {
		runs = "and is run at " + strings.Join(at, " and ")
	}
	if h.Kind == "doubled" {
		return "exists twice, " + runs
	}
	return "does not exist, " + runs
}
