package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// object prints one JSON object on a line.
func (a *App) object(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = fmt.Fprintf(a.Stdout, "%s\n", data)
	return err
}

// table prints rows in columns; with --plain tab-separated and without the heading.
func (a *App) table(head []string, rows [][]string) error {
	if a.flags.plain {
		for _, r := range rows {
			a.printf("%s\n", strings.Join(r, "\t"))
		}
		return nil
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// at shows a moment in UTC, and how far away it is.
func (a *App) at(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "not known"
	}
	s := t.UTC().Format("2006-01-02 15:04:05Z")
	d := t.Sub(a.Now()).Round(time.Second)
	switch {
	case d > 0:
		return s + " (in " + short(d) + ")"
	case d == 0:
		return s + " (now)"
	}
	return s + " (" + short(-d) + " ago)"
}

// short spells a duration in its two largest units.
func short(d time.Duration) string {
	d = d.Round(time.Second)
	day := 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

func or(s *string, otherwise string) string {
	if s == nil || *s == "" {
		return otherwise
	}
	return *s
}

// clean keeps what a destination or another user wrote from steering the
// terminal. The end of the last line is no part of what was said.
func clean(s string) string {
	s = strings.TrimRight(s, "\r\n")
	return strings.Map(func(r rune) rune {
		if r < 0x20 || (r >= 0x7f && r < 0xa0) {
			return '·'
		}
		return r
	}, s)
}

// paint colours a phase on a terminal: violet with "?" for what is not known,
// never red; red is for nothing that people must not take for a failure.
func (a *App) paint(phase string) string {
	mark, colour := markOf(phase)
	if !a.terminal(a.Stdout) {
		return phase
	}
	if colour == "" || a.Getenv("NO_COLOR") != "" {
		return mark + " " + phase
	}
	return "\x1b[" + colour + "m" + mark + " " + phase + "\x1b[0m"
}

// marked is paint without colour, for columns: escape sequences have no width.
func (a *App) marked(phase string) string {
	if !a.terminal(a.Stdout) {
		return phase
	}
	mark, _ := markOf(phase)
	return mark + " " + phase
}

func markOf(phase string) (mark, colour string) {
	mark, colour = "·", ""
	switch phase {
	case "unknown", "reconciling":
		mark, colour = "◆?", "35"
	case "needs_human":
		mark, colour = "◆?", "33"
	case "succeeded":
		mark, colour = "✓", "32"
	case "failed":
		mark = "✕"
	}
	return mark, colour
}
