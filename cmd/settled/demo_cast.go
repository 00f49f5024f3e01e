package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
)

// part is one effect of the demo, with what its destination will do to it.
type part struct {
	key, destination string
	line             []byte     // as submitted
	fault            desk.Fault // of the first call
	title            string     // not empty: it is shown
	truth            string     // what the destination does, in words
	needsPerson      bool       // the outcome is wrong, and a person is the right end
}

// demoLate is when a late commit happens: after the connection died and after
// the first reads, before the end of the grace.
const demoLate = 5 * time.Second

// shownTickets are the tickets that are narrated: one for every kind of fault,
// so that each appears for certain.
func shownTickets() []part {
	return []part{
		{fault: desk.Fault{Kind: desk.LostAnswer}, title: "answer lost", truth: "the desk commits it and drops the answer"},
		{fault: desk.Fault{Kind: desk.LostRequest}, title: "request lost", truth: "the desk never gets it"},
		{fault: desk.Fault{Kind: desk.LateCommit, Delay: demoLate}, title: "late commit", truth: "the desk drops the line and commits it 5 s later"},
		{fault: desk.Fault{Kind: desk.Error500}, title: "500 after commit", truth: "the desk commits it and answers 500"},
		{fault: desk.Fault{Kind: desk.Busy, Delay: time.Second}, title: "throttled", truth: "the desk answers 429"},
		{fault: desk.Fault{Kind: desk.DropBody}, title: "done, but wrong", truth: "the desk drops the text and answers 201", needsPerson: true},
		{fault: desk.Fault{Kind: desk.HangCommit}, title: "killed after commit", truth: "the daemon is killed before the answer"},
		{fault: desk.Fault{Kind: desk.Hang}, title: "killed before commit", truth: "the daemon is killed before the desk acts"},
	}
}

// shownTags are the same for the repository.
func shownTags() []part {
	return []part{
		{fault: desk.Fault{Kind: desk.LostAnswer}, title: "push, no answer", truth: "git pushes the tag, the command dies before it can say so"},
	}
}

// newCast takes tickets and tags from the samples; the first ones are shown.
func newCast(o demoOptions) ([]part, error) {
	tags := o.effects / 3
	tickets := o.effects - tags
	random := rand.New(rand.NewPCG(o.seed, 0))
	want := map[string][]part{
		"desk":     spread(shownTickets(), tickets, random, deskFaults()),
		"releases": spread(shownTags(), tags, random, gitFaults()),
	}
	var cast []part
	for line := range bytes.Lines(demoEffects) {
		var head struct{ Destination, Key string }
		if err := json.Unmarshal(line, &head); err != nil {
			return nil, fmt.Errorf("read the sample effects: %w", err)
		}
		if queue := want[head.Destination]; len(queue) > 0 {
			p := queue[0]
			want[head.Destination] = queue[1:]
			p.key, p.destination, p.line = head.Key, head.Destination, line
			cast = append(cast, p)
		}
	}
	if left := len(want["desk"]) + len(want["releases"]); left > 0 {
		return nil, fmt.Errorf("the samples hold %d effects too few", left)
	}
	return cast, nil
}

// spread fills up to n parts with effects that are not shown.
func spread(shown []part, n int, random *rand.Rand, kinds []desk.Fault) []part {
	for len(shown) < n {
		shown = append(shown, part{fault: kinds[random.IntN(len(kinds))]})
	}
	return shown
}

// deskFaults are what happens to tickets that are not shown; half of them nothing.
func deskFaults() []desk.Fault {
	return []desk.Fault{
		{},
		{},
		{},
		{},
		{},
		{Kind: desk.LostAnswer},
		{Kind: desk.LostRequest},
		{Kind: desk.LateCommit, Delay: demoLate},
		{Kind: desk.Error500},
		{Kind: desk.Truncated},
		{Kind: desk.Busy, Delay: time.Second},
	}
}

func gitFaults() []desk.Fault {
	return []desk.Fault{{}, {}, {}, {Kind: desk.LostAnswer}, {Kind: desk.LostRequest}}
}

// injectFaults tells the destinations what to do wrong. The daemon never learns of it.
func (d *demo) injectFaults(ctx context.Context) error {
	for _, p := range d.cast {
		var err error
		switch {
		case p.fault.Kind == desk.None:
		case p.destination == "desk":
			err = d.stage.Inject(ctx, p.key, p.fault)
		default:
			err = d.stage.InjectGit(p.key, p.fault.Kind)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lines are the effects as JSONL: those that are shown from the start, the two
// in whose middle the daemon is killed, and all others.
func (d *demo) lines() (first, victims, rest [][]byte) {
	for _, p := range d.cast {
		switch {
		case p.fault.Kind == desk.Hang, p.fault.Kind == desk.HangCommit:
			victims = append(victims, p.line)
		case p.title != "":
			first = append(first, p.line)
		default:
			rest = append(rest, p.line)
		}
	}
	return first, victims, rest
}

// find returns the first part with the fault at the desk.
func (d *demo) find(kind desk.Kind) part {
	for _, p := range d.cast {
		if p.destination == "desk" && p.fault.Kind == kind {
			return p
		}
	}
	return part{}
}

// short is a key without its operation and version.
func short(key string) string {
	parts := strings.SplitN(key, ":", 3)
	if len(parts) < 2 {
		return key
	}
	return parts[0] + ":" + parts[1]
}
