package daemontest

import (
	"context"
	"fmt"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// Submit submits one ticket and fails the test when that is refused.
func (run *Running) Ticket(key string) journal.Effect {
	run.rig.T.Helper()
	res, err := run.Submit(run.rig.T.Context(), Request(key), Client)
	if err != nil {
		run.rig.T.Fatalf("submit %s: %v", key, err)
	}
	return res.Effect
}

// Client is who submits, Person is who decides.
var (
	Client = journal.By{Actor: "uid:1000", Kind: journal.Service, Origin: "api"}
	Person = journal.By{Actor: "ada", Kind: journal.Human, Origin: "cli", Because: "looked at it"}
)

// Request is one intent whose payload follows from its key.
func Request(key string) daemon.SubmitRequest {
	return daemon.SubmitRequest{
		Destination: "desk", Operation: "create", Key: key, Payload: []byte(fmt.Sprintf(`{"subject":%q}`, key)),
	}
}

// Effect is the effect as the journal has it now.
func (run *Running) Effect(key string) journal.Effect {
	run.rig.T.Helper()
	e, err := run.DB.Effect(context.Background(), key)
	if err != nil {
		run.rig.T.Fatalf("read %s: %v", key, err)
	}
	return e
}

// Until waits until the effect is in one of the phases, for at most within of the bubble's time.
func (run *Running) Until(key string, within time.Duration, phases ...journal.Phase) journal.Effect {
	run.rig.T.Helper()
	changes, stop := run.Follow(key)
	defer stop()
	end := time.NewTimer(within)
	defer end.Stop()
	e := run.Effect(key)
	for over := false; ; {
		for _, p := range phases {
			if e.Phase == p {
				return e
			}
		}
		if over {
			break
		}
		select {
		case e = <-changes:
		case <-end.C:
			e, over = run.Effect(key), true
		case <-run.done:
			e, over = run.Effect(key), true
		}
	}
	run.rig.T.Fatalf("%s is %s (%s) after %s, not %v: %s\n%s", key, e.Phase, e.Finding, within, phases, journal.Words(e), run.rig.History(run, key))
	return e
}

// History tells the story of one key for a failing test: the chain's lines, the calls and the objects.
func (r *Rig) History(run *Running, key string) string {
	out := ""
	lines, err := run.DB.EventsOf(context.Background(), key, 200)
	if err != nil {
		out = err.Error() + "\n"
	}
	for _, x := range lines {
		out += fmt.Sprintf("  %s %-12s %2d %s→%s %s %s by %s/%s\n", x.At.Format("15:04:05.000"), x.Kind, x.Transition, x.From, x.To, x.Attempt, x.Because, x.Actor, x.Origin)
	}
	for _, c := range r.World.Calls(key) {
		out += fmt.Sprintf("  %s call %s of process %d: %s %s\n", c.At.UTC().Format("15:04:05.000"), c.Attempt, c.Process, c.Fault, c.Undurable)
	}
	for _, o := range r.World.Objects(key) {
		out += fmt.Sprintf("  %s object %s by %s\n", o.At.UTC().Format("15:04:05.000"), o.ID, o.Attempt)
	}
	return out
}

// Once asserts what every story must end with: at most one effect of the key in
// the world, no call without its durable row, no second call while the one
// before was in doubt, and a success that the world bears out.
func (run *Running) Once(key string) journal.Effect {
	t := run.rig.T
	t.Helper()
	e := run.Effect(key)
	for _, v := range run.rig.Violations(run, e) {
		t.Errorf("%s: %s\n%s", key, v, run.rig.History(run, key))
	}
	return e
}

// Violations lists what contradicts the invariants in one effect, against the world.
func (r *Rig) Violations(run *Running, e journal.Effect) (out []string) {
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	objects, calls := r.World.Objects(e.Key), r.World.Calls(e.Key)
	if len(objects) > 1 {
		bad("%d effects in the world (I11)", len(objects))
	}
	open := 0
	for i, a := range e.Attempts {
		if a.State == journal.AttemptSent && a.ClosedAt.IsZero() {
			open++
		}
		if i > 0 && !e.Attempts[i-1].State.NoEffect() && !a.Replay {
			bad("attempt %d follows attempt %d, which is %s (I4)", a.Number, i, e.Attempts[i-1].State)
		}
		if a.Key != e.Key && a.Key != "" { // a presumed attempt carries none
			bad("attempt %d was sent with key %s", a.Number, a.Key)
		}
	}
	if open > 1 {
		bad("%d attempts are open (I1)", open)
	}
	if len(calls) > len(e.Attempts) {
		bad("%d calls, %d attempts (I3)", len(calls), len(e.Attempts))
	}
	for _, c := range calls {
		if c.Undurable != "" {
			bad("a call without its durable row: %s (I2)", c.Undurable)
		}
		if c.Digest != "" && c.Digest != calls[0].Digest && calls[0].Digest != "" {
			bad("a later call carried another payload")
		}
	}
	r.standing(e, len(objects), bad)
	return append(out, r.limbo(e)...)
}

// standing compares what the record says with the truth.
func (r *Rig) standing(e journal.Effect, objects int, bad func(string, ...any)) {
	switch {
	case e.Phase == journal.Succeeded && !e.Outcome.Waived && (e.Outcome.VerifiedAt.IsZero() || e.Finding != journal.FindingMatches):
		bad("succeeded without matching evidence (I5): %+v", e.Outcome)
	case e.Phase == journal.Succeeded && objects != 1:
		bad("succeeded, and the world holds %d (I5)", objects)
	case e.Phase == journal.Failed && objects > 0:
		bad("failed, and the world holds %d", objects)
	case e.Phase == journal.ConfirmedAbsent && objects > 0:
		bad("confirmed absent, and the world holds %d (I6)", objects)
	}
}

// limbo is I8: everything that is open has somebody or something that moves it.
func (r *Rig) limbo(e journal.Effect) (out []string) {
	bad := func(s string) { out = append(out, s+" (I8)") }
	switch e.Phase {
	case journal.Unknown:
		if e.Doubt == nil || e.Doubt.NextReadAt.IsZero() || e.Doubt.ResolveBy.IsZero() || len(e.Doubt.Missing) == 0 {
			bad("unknown without next read, end or missing evidence")
		}
	case journal.NeedsHuman, journal.Failed:
		if e.Phase == journal.NeedsHuman || e.Review != nil {
			if !e.Review.Live() || e.Review.Owner == "" || e.Review.DueAt.IsZero() {
				bad("a review without owner and due time")
			}
		}
	case journal.Prepared:
		if e.WaitingFor == "" || e.Owner == "" {
			bad("prepared without what it waits for")
		}
	}
	return out
}

// Collect gathers everything that can be observed: the journal's effects, chain
// and reads, the world's calls and objects.
func (r *Rig) Collect(run *Running) (journal.History, error) {
	ctx := context.Background()
	h := journal.History{Honest: !r.Lies}
	for cursor := ""; ; {
		list, next, err := run.DB.List(ctx, journal.Filter{}, cursor, 500)
		if err != nil {
			return h, err
		}
		h.Effects = append(h.Effects, list...)
		if cursor = next; next == "" {
			break
		}
	}
	for after := int64(0); ; {
		lines, err := run.DB.Events(ctx, after, sqlite.EventFilter{}, 1000)
		if err != nil {
			return h, err
		}
		if len(lines) == 0 {
			break
		}
		h.Entries, after = append(h.Entries, lines...), lines[len(lines)-1].Seq
	}
	for _, e := range h.Effects {
		h.Bound = append(h.Bound, journal.Binding{Key: e.Key, Fingerprint: e.Fingerprint})
		if e.Reads == 0 {
			continue
		}
		reads, err := run.DB.Reconciliations(ctx, e.Key)
		if err != nil {
			return h, err
		}
		h.Reads = append(h.Reads, reads...)
	}
	for _, c := range r.World.Calls("") {
		h.Calls = append(h.Calls, journal.Call{Key: c.Key, Attempt: c.Attempt, Epoch: c.Epoch, At: c.At})
		if c.Undurable == "" {
			h.Sent = append(h.Sent, journal.SentRow{Key: c.Key, Attempt: c.Attempt, Epoch: c.Epoch, At: c.At})
		}
	}
	for _, o := range r.World.All() {
		if o.Key != "" {
			h.Objects = append(h.Objects, journal.Object{Key: o.Key, ID: o.ID})
		}
	}
	return h, nil
}

// breaches holds the whole history against the invariants, twice: by
// [journal.Check] and by what this package knows of the world.
func (r *Rig) breaches(run *Running) (out []string) {
	if run.crash.happened() {
		return nil // its journal is not the one that goes on
	}
	h, err := r.Collect(run)
	if err != nil {
		return []string{err.Error()}
	}
	for _, v := range journal.Check(h) {
		out = append(out, v.String())
	}
	for _, e := range h.Effects {
		for _, v := range r.Violations(run, e) {
			if !r.Lies {
				out = append(out, e.Key+": "+v)
			}
		}
	}
	return out
}
