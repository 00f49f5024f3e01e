package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settled-dev/settled/sdk/client"
)

func (a *App) eventsCmd() *cobra.Command {
	var follow bool
	var after int64
	c := verb("events [FILTER…]", "The audit chain, live with -f", cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		return d.Events(c.Context(), after, filter(args), follow, a.event)
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events")
	c.Flags().Int64Var(&after, "after", 0, "only events after this seq")
	return c
}

func (a *App) event(e client.Event) error {
	switch {
	case a.flags.json:
		return a.object(e)
	case a.flags.plain:
		a.printf("%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Seq, e.At.UTC().Format(time.RFC3339Nano), e.Kind, e.Key, e.From, e.To, e.Actor, clean(e.Because))
		return nil
	}
	move := ""
	if e.From != "" || e.To != "" {
		move = fmt.Sprintf("  %s → %s", orNew(e.From), orNew(e.To))
	}
	why := ""
	if e.Because != "" {
		why = ": " + clean(e.Because)
	}
	a.printf("%6d  %s  %-12s %s%s  %s%s\n", e.Seq, e.At.UTC().Format("2006-01-02 15:04:05.000Z"), e.Kind, e.Key, move, e.Actor, why)
	return nil
}

func orNew(phase string) string {
	if phase == "" {
		return "new"
	}
	return phase
}

func (a *App) statusCmd() *cobra.Command {
	return verb("status", "The daemon's own condition", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		return a.status(c.Context(), d)
	})
}

func (a *App) status(ctx context.Context, d *client.Client) error {
	s, err := d.Status(ctx)
	if err != nil {
		return err
	}
	if a.flags.json {
		return a.object(s)
	}
	if a.flags.plain {
		return a.statusPlain(s)
	}
	if s.Dispatch.Enabled {
		a.printf("dispatch is on")
	} else {
		a.printf("dispatch is OFF: %s", clean(s.Dispatch.Because))
	}
	a.printf("; settled %s, epoch %d, started %s, %d call(s) in flight\n", s.Version, s.Epoch, a.at(s.StartedAt), s.InFlight)
	if n := s.Phases["unknown"] + s.Phases["reconciling"]; n > 0 {
		a.printf("%d unknown, the oldest for %s   (settled list phase:unknown)\n", n, short(time.Duration(s.UnknownOldestS*float64(time.Second))))
	} else {
		a.printf("nothing is in doubt\n")
	}
	a.printf("%d review(s) open, %d overdue   (settled review)\n", s.Reviews.Open, s.Reviews.Overdue)
	if err := a.inTheWay(ctx, d); err != nil {
		return err
	}
	for _, p := range slices.Sorted(maps.Keys(s.Phases)) {
		if s.Phases[p] > 0 {
			a.printf("  %8d  %s\n", s.Phases[p], p)
		}
	}
	a.printf("head %s\n", s.Head)
	return nil
}

// inTheWay tells what keeps sends back although dispatch is on: holds, and
// destinations that are down, paused or behind an open breaker.
func (a *App) inTheWay(ctx context.Context, c *client.Client) error {
	holds, err := c.Holds(ctx)
	if err != nil {
		return err
	}
	if len(holds) > 0 {
		a.printf("%d hold(s) in force   (settled hold)\n", len(holds))
	}
	dests, err := c.Destinations(ctx)
	if err != nil {
		return err
	}
	for _, d := range dests {
		if why := a.closed(d); why != "" {
			a.printf("%s   (settled destination show %s)\n", why, quote(d.Name))
		}
	}
	return nil
}

func (a *App) statusPlain(s client.Status) error {
	rows := [][]string{
		{"dispatch", fmt.Sprint(s.Dispatch.Enabled)},
		{"because", clean(s.Dispatch.Because)},
		{"unknown_oldest_s", fmt.Sprint(s.UnknownOldestS)},
		{"reviews_open", fmt.Sprint(s.Reviews.Open)},
		{"reviews_overdue", fmt.Sprint(s.Reviews.Overdue)},
		{"head", s.Head},
		{"epoch", fmt.Sprint(s.Epoch)},
	}
	for _, p := range slices.Sorted(maps.Keys(s.Phases)) {
		rows = append(rows, []string{"phase_" + p, fmt.Sprint(s.Phases[p])})
	}
	return a.table(nil, rows)
}

func (a *App) sweepCmd() *cobra.Command {
	var watch bool
	c := verb("sweep NAME", "Runs a schedule now", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		r, err := d.Sweep(c.Context(), args[0], func(r client.SweepReport) {
			if watch && !r.Done {
				a.sweepProgress(r)
			}
		})
		if err != nil {
			return err
		}
		if a.flags.json {
			if err := a.object(r); err != nil {
				return err
			}
		} else {
			a.printf("%s: %s\n", r.Schedule, sweepWords(r))
		}
		if r.Error != "" {
			return &exit{exitError, fmt.Errorf("the sweep ended early: %s", clean(r.Error)), "settled schedule explain " + quote(args[0])}
		}
		return nil
	})
	c.Flags().BoolVar(&watch, "watch", false, "show progress")
	return c
}

func (a *App) scheduleCmd() *cobra.Command {
	list := verb("list", "Next times and last results", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		ss, err := a.schedules(c.Context(), "")
		if err != nil {
			return err
		}
		rows := [][]string{}
		for _, s := range ss {
			if a.flags.json {
				if err := a.object(s); err != nil {
					return err
				}
			}
			next := "-"
			if len(s.Next) > 0 {
				next = a.at(&s.Next[0])
			}
			rows = append(rows, []string{s.Name, s.Do, s.Destination, s.Cron, s.Timezone, next, a.at(s.LastOKAt), s.LastResult, fmt.Sprint(s.Missed)})
		}
		if a.flags.json {
			return nil
		}
		if len(rows) == 0 && !a.flags.plain {
			a.printf("no schedules; add a table [schedules.NAME] to the configuration\n")
			return nil
		}
		return a.table([]string{"NAME", "DO", "DESTINATION", "CRON", "ZONE", "NEXT", "LAST OK", "RESULT", "MISSED"}, rows)
	})
	explain := verb("explain NAME", "Next times in its zone and UTC, last results, missed runs", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		ss, err := a.schedules(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.explain(ss[0])
	})
	return group("schedule", "Repeated work", list, explain)
}

// schedules returns all, or the named one.
func (a *App) schedules(ctx context.Context, name string) ([]client.Schedule, error) {
	d, err := a.daemon()
	if err != nil {
		return nil, err
	}
	ss, err := d.Schedules(ctx)
	if err != nil || name == "" {
		return ss, err
	}
	for _, s := range ss {
		if s.Name == name {
			return []client.Schedule{s}, nil
		}
	}
	return nil, &exit{exitError, fmt.Errorf("there is no schedule %q", name), "settled schedule list"}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return clean(s)
}

func (a *App) destinationCmd() *cobra.Command {
	list := verb("list", "The destinations", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		ds, err := d.Destinations(c.Context())
		if err != nil {
			return err
		}
		return a.destinations(ds)
	})
	show := verb("show DESTINATION", "Limits, breaker and capability card", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		dest, err := d.Destination(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.destination(dest)
	})
	return group("destination", "Where effects happen", list, show, a.pauseCmd("pause", "Stops sends to a destination; reads go on"), a.pauseCmd("resume", "Lets sends go on"))
}

func (a *App) pauseCmd(name, short string) *cobra.Command {
	var why string
	c := verb(name+" DESTINATION", short, cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		act := d.Pause
		if name == "resume" {
			act = d.Resume
		}
		if err := act(c.Context(), args[0], why); err != nil {
			return err
		}
		dest, err := d.Destination(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.destination(dest)
	})
	c.Flags().StringVar(&why, "because", name, "why; it goes into the audit chain")
	return c
}

func (a *App) destinations(ds []client.Destination) error {
	rows := [][]string{}
	for _, d := range ds {
		if a.flags.json {
			if err := a.object(d); err != nil {
				return err
			}
		}
		rows = append(rows, []string{d.Name, d.Adapter + " " + d.Version, upWords(d), d.Breaker, fmt.Sprintf("%d/%d", d.InFlight, d.Concurrency), fmt.Sprint(d.Queued), fmt.Sprint(d.Unknown)})
	}
	if a.flags.json {
		return nil
	}
	return a.table([]string{"NAME", "ADAPTER", "STATE", "BREAKER", "IN FLIGHT", "QUEUED", "UNKNOWN"}, rows)
}

func upWords(d client.Destination) string {
	switch {
	case d.Paused:
		return "paused"
	case d.Up:
		return "up"
	}
	return "down: " + clean(d.Why)
}

func (a *App) destination(d client.Destination) error {
	if a.flags.json {
		return a.object(d)
	}
	a.printf("%s: %s %s %s, %s\n", d.Name, d.Adapter, d.Version, d.SHA256, clean(d.Identity))
	a.printf("  %s; breaker %s; %d of %d in flight, rate %s, %.1f retry tokens\n", upWords(d), d.Breaker, d.InFlight, d.Concurrency, orDash(d.Rate), d.RetryTokens)
	a.printf("  %d queued, %d unknown\n", d.Queued, d.Unknown)
	for _, c := range d.Operations {
		a.printf("  %s\n", clean(c.Operation))
		for _, q := range [][2]string{
			{"identified by", c.Identifies},
			{"proves it happened", c.ProvesCommit},
			{"proves it did not", c.ProvesAbsence},
			{"asked when neither", c.OwnerWhenNot},
			{"deduplicates", c.Dedupe},
			{"may be sent again after", c.RetryableAnswer},
			{"taken back by", c.Reversal},
			{"triggers", c.Triggers},
		} {
			a.printf("    %-24s %s\n", q[0], orDash(q[1]))
		}
		if len(c.Unanswered) > 0 {
			a.printf("    %-24s %s\n", "NOT ANSWERED", clean(strings.Join(c.Unanswered, ", ")))
		}
	}
	return nil
}

func (a *App) versionCmd() *cobra.Command {
	return verb("version", "The version of this program", cobra.NoArgs, func(*cobra.Command, []string) error {
		if a.flags.json {
			return a.object(map[string]string{"version": a.Version})
		}
		a.printf("settled %s\n", a.Version)
		return nil
	})
}

// absolute makes a path that means the same to the daemon.
func absolute(file string) (string, error) {
	p, err := filepath.Abs(file)
	if err != nil {
		return "", usage(err, "settled journal backup /path/to/file")
	}
	return p, nil
}

func number(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
