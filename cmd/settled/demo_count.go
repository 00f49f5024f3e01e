package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/sdk/client"
)

// demoCounts are the numbers of one destination, or of both. Calls, objects,
// duplicates and lost come from the destinations' own ledgers.
type demoCounts struct {
	Effects       int `json:"effects"`
	Calls         int `json:"calls"`      // that arrived at the destination
	Attempts      int `json:"attempts"`   // that the journal knows
	Objects       int `json:"objects"`    // that ever came into being
	Duplicates    int `json:"duplicates"` // objects beyond the first of a key
	Lost          int `json:"lost"`       // effects without an object
	Unknown       int `json:"unknown_for_a_time"`
	SettledByRead int `json:"settled_by_read"` // of those: found, and not sent again
	SentAgain     int `json:"confirmed_absent_and_sent_again"`
	Waiting       int `json:"waiting_for_a_person"`
	Expected      int `json:"expected_to_wait"`
}

func (a demoCounts) plus(b demoCounts) demoCounts {
	return demoCounts{
		a.Effects + b.Effects, a.Calls + b.Calls, a.Attempts + b.Attempts, a.Objects + b.Objects, a.Duplicates + b.Duplicates,
		a.Lost + b.Lost, a.Unknown + b.Unknown, a.SettledByRead + b.SettledByRead, a.SentAgain + b.SentAgain,
		a.Waiting + b.Waiting, a.Expected + b.Expected,
	}
}

// demoResult is what the demo proves. Wrong is empty when every number is right.
type demoResult struct {
	OK           bool                  `json:"ok"`
	Seed         uint64                `json:"seed"`
	Seconds      float64               `json:"seconds"`
	Faults       map[string]int        `json:"faults"` // calls by what was done to them
	All          demoCounts            `json:"all"`
	Destinations map[string]demoCounts `json:"destinations"`
	Events       int64                 `json:"audit_events"` // of an audit chain that was verified
	Wrong        []string              `json:"wrong"`
}

func (r demoResult) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// count asks the destinations for the truth and the journal for its word, and
// compares them key by key.
func (d *demo) count(ctx context.Context, c *client.Client, late []string) (demoResult, error) {
	r := demoResult{Seed: d.o.seed, Faults: map[string]int{}, Destinations: map[string]demoCounts{}, Wrong: []string{}}
	r.Seconds = float64(time.Since(d.tell.started).Milliseconds()) / 1000
	for _, key := range late {
		r.Wrong = append(r.Wrong, key+" did not come to rest in time")
	}
	truth, err := d.stage.Truth(ctx)
	if err != nil {
		return r, err
	}
	for _, p := range d.cast {
		e, err := c.Effect(ctx, p.key)
		if err != nil {
			return r, fmt.Errorf("show %s: %w", p.key, err)
		}
		t := truth[p.key]
		delete(truth, p.key)
		if p.destination != "desk" {
			if t.Calls, err = d.stage.GitCalls(p.key); err != nil {
				return r, err
			}
		}
		one := countOne(p, e, t.Calls, t.Objects)
		r.Destinations[p.destination] = r.Destinations[p.destination].plus(one)
		r.All = r.All.plus(one)
		r.Faults[faultName(p.fault)]++
		r.Wrong = append(r.Wrong, wrongWith(p, e, one)...)
	}
	for key := range truth {
		r.Wrong = append(r.Wrong, key+" exists at a destination, but nobody submitted it")
	}
	v, err := c.Verify(ctx, "")
	if err != nil {
		return r, fmt.Errorf("verify the audit chain: %w", err)
	}
	if !v.OK {
		r.Wrong = append(r.Wrong, "the audit chain: "+strings.Join(append(v.Problems, v.CouldNotRun), "; "))
	}
	r.Events = v.Checked
	slices.Sort(r.Wrong)
	r.OK = len(r.Wrong) == 0
	return r, nil
}

func faultName(f desk.Fault) string {
	if f.Kind == desk.None {
		return "none"
	}
	return string(f.Kind)
}

func countOne(p part, e client.Effect, calls, objects int) demoCounts {
	n := demoCounts{Effects: 1, Calls: calls, Attempts: len(e.Attempts), Objects: objects, Duplicates: max(0, objects-1)}
	if objects == 0 {
		n.Lost = 1
	}
	if wasUnknown(e) {
		n.Unknown = 1
		switch {
		case slices.ContainsFunc(e.Attempts, func(a client.Attempt) bool { return a.State == "settled_absent" }):
			n.SentAgain = 1
		case e.Phase == "succeeded":
			n.SettledByRead = 1
		}
	}
	if e.Phase != "succeeded" {
		n.Waiting = 1
	}
	if p.needsPerson {
		n.Expected = 1
	}
	return n
}

// wasUnknown: some call ended without an answer that says what happened.
func wasUnknown(e client.Effect) bool {
	return slices.ContainsFunc(e.Attempts, func(a client.Attempt) bool {
		return a.State == "settled_absent" || a.State == "settled_present" || a.State == "timed_out" || a.State == "lost"
	})
}

// wrongWith names what should be otherwise.
func wrongWith(p part, e client.Effect, n demoCounts) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, p.key+" "+fmt.Sprintf(format, args...)) }
	if n.Objects != 1 {
		say("has %d objects at the destination instead of 1", n.Objects)
	}
	if n.Calls > n.Attempts {
		say("was called %d times, but the journal knows %d attempts", n.Calls, n.Attempts)
	}
	want := "succeeded"
	if p.needsPerson {
		want = "needs_human"
	}
	if e.Phase != want {
		say("is %s instead of %s: %s", e.Phase, want, e.Words)
	}
	return wrong
}

// table prints the numbers at the end.
func (t *teller) table(r demoResult) {
	desk, git := r.Destinations["desk"], r.Destinations["releases"]
	fmt.Fprintf(t.w, "\n%-46s %8s %8s %8s\n", fmt.Sprintf("after %.0f s", r.Seconds), "desk", "git", "all")
	row := func(name string, get func(demoCounts) int) {
		fmt.Fprintf(t.w, "%-46s %8d %8d %8d\n", name, get(desk), get(git), get(r.All))
	}
	row("effects", func(c demoCounts) int { return c.Effects })
	row("calls that the destination saw", func(c demoCounts) int { return c.Calls })
	row("objects at the destination", func(c demoCounts) int { return c.Objects })
	row("duplicates", func(c demoCounts) int { return c.Duplicates })
	row("lost", func(c demoCounts) int { return c.Lost })
	row("outcome unknown for a time", func(c demoCounts) int { return c.Unknown })
	row("  settled by a read, not sent again", func(c demoCounts) int { return c.SettledByRead })
	row("  confirmed not executed, sent once more", func(c demoCounts) int { return c.SentAgain })
	row("waiting for a person", func(c demoCounts) int { return c.Waiting })
	fmt.Fprintln(t.w, "\nCalls, objects, duplicates and lost are counted by the desk's own ledger and the repository's own log.")
	fmt.Fprintf(t.w, "The audit chain of %d events is whole.\n", r.Events)
	if !r.OK {
		fmt.Fprintln(t.w, t.paint("31", fmt.Sprintf("%d things are wrong; they are listed below.", len(r.Wrong))))
		return
	}
	fmt.Fprintln(t.w, t.paint("32", fmt.Sprintf("Every number is right: %d effects, %d objects, 0 duplicates, 0 lost, %d with a person as expected.", r.All.Effects, r.All.Objects, r.All.Waiting)))
}
