package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settled-dev/settled/sdk/client"
)

func (a *App) showCmd() *cobra.Command {
	payload := false
	c := verb("show KEY", "Shows everything known of an effect, what is missing, and what happens next", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		var opts []client.EffectOption
		if payload {
			opts = append(opts, client.WithPayload())
		}
		e, err := d.Effect(c.Context(), args[0], opts...)
		if err != nil {
			return err
		}
		if a.flags.json {
			return a.object(e)
		}
		if a.flags.plain {
			return a.showPlain(e)
		}
		a.show(e, a.heldUp(c.Context(), d, e))
		return nil
	})
	c.Flags().BoolVar(&payload, "payload", false, "the payload too")
	return c
}

func (a *App) showPlain(e client.Effect) error {
	rows := [][]string{
		{"key", e.Key},
		{"phase", e.Phase},
		{"standing", e.Standing},
		{"finding", e.Finding},
		{"seq", fmt.Sprint(e.Seq)},
		{"words", clean(e.Words)},
		{"destination", e.Destination},
		{"account", e.Account},
		{"operation", e.Operation},
		{"owner", e.Owner},
		{"actor", e.Actor},
		{"object_id", or(e.ObjectID, "")},
		{"fingerprint", e.Fingerprint},
		{"attempts", fmt.Sprint(len(e.Attempts))},
	}
	if e.Next != nil {
		rows = append(rows, []string{"next", e.Next.What}, []string{"next_at", e.Next.At.UTC().Format(time.RFC3339)})
	}
	return a.table(nil, rows)
}

// show writes for somebody who was woken up: what is true, then what was done,
// then what is missing, what happens by itself, and what may be typed.
func (a *App) show(e client.Effect, heldUp string) {
	a.printf("%s   %s (%s)\n  %s\n", e.Key, a.paint(e.Phase), e.Standing, clean(e.Words))
	a.intent(e)
	a.attempts(e)
	a.known(e)
	a.missing(e)
	a.next(e)
	if heldUp != "" {
		a.printf("  not yet: %s\n", heldUp)
	}
	a.choices(e)
}

// heldUp says why an effect is not sent though its time has come; "" when
// nothing is known to be in its way. It is a help for the eye: what cannot be
// asked is left out.
func (a *App) heldUp(ctx context.Context, c *client.Client, e client.Effect) string {
	if e.Phase != "authorized" || e.Next == nil || e.Next.What != "dispatch" || e.Next.At.After(a.Now()) {
		return ""
	}
	if s, err := c.Status(ctx); err == nil && !s.Dispatch.Enabled {
		return "dispatch is off: " + clean(s.Dispatch.Because)
	}
	d, err := c.Destination(ctx, e.Destination)
	if err != nil {
		return ""
	}
	if why := a.closed(d); why != "" {
		return why + "   (settled destination show " + quote(d.Name) + ")"
	}
	return ""
}

// closed says why nothing is sent to a destination; "" when it is.
func (a *App) closed(d client.Destination) string {
	switch {
	case d.Paused:
		return clean(d.Name) + " is paused"
	case !d.Up:
		return clean(d.Name) + " is down: " + clean(d.Why)
	case d.Breaker != "" && d.Breaker != "closed":
		return fmt.Sprintf("the breaker of %s is %s since %s; sends wait until a read succeeds", clean(d.Name), d.Breaker, a.at(d.BreakerSince))
	}
	return ""
}

func (a *App) intent(e client.Effect) {
	a.printf("\nAsked\n  %s at %s", clean(e.Operation), clean(e.Destination))
	if e.Account != "" {
		a.printf(", account %s", clean(e.Account))
	}
	a.printf(", by %s; owner %s\n", clean(e.Actor), e.Owner)
	a.printf("  submitted %s\n", a.at(&e.SubmittedAt))
	if e.Deadline != nil && !e.Closed() {
		a.printf("  not sent after %s\n", a.at(e.Deadline))
	}
	a.printf("  fingerprint %s\n", e.Fingerprint)
	if e.Supersedes != nil {
		a.printf("  replaces %s\n", *e.Supersedes)
	}
	for _, k := range slices.Sorted(maps.Keys(e.Context)) {
		a.printf("  %s = %s\n", clean(k), clean(e.Context[k]))
	}
	if len(e.Payload) > 0 {
		a.printf("  payload %s\n", clean(string(e.Payload)))
	}
}

func (a *App) attempts(e client.Effect) {
	a.printf("\nSent\n")
	if len(e.Attempts) == 0 {
		a.printf("  never\n")
	}
	for _, t := range e.Attempts {
		a.printf("  %d. %s: %s", t.Number, a.at(t.SentAt), t.State)
		if t.Cause != nil {
			a.printf(" (%s)", clean(*t.Cause))
		}
		if t.ClosedAt == nil && t.State == "sent" {
			a.printf(", no answer yet")
		} else if t.ClosedAt != nil && t.SentAt != nil {
			a.printf(", closed after %s", t.ClosedAt.Sub(*t.SentAt).Round(time.Millisecond))
		}
		a.printf("; %s %s", t.Adapter.Name, t.Adapter.Version)
		if t.ProviderRequestID != nil {
			a.printf(", their request id %s", clean(*t.ProviderRequestID))
		}
		a.printf("\n")
		if t.Message != nil {
			a.printf("     %s\n", clean(*t.Message))
		}
	}
}

func (a *App) known(e client.Effect) {
	a.printf("\nKnown\n  finding: %s\n", e.Finding)
	if o := e.Outcome; o.ObjectID != nil {
		a.printf("  object %s", clean(*o.ObjectID))
		if o.URL != nil {
			a.printf("  %s", clean(*o.URL))
		}
		a.printf("\n")
		if o.VerifiedAt != nil {
			a.printf("  verified %s, from %s\n", a.at(o.VerifiedAt), or(o.Source, "?"))
		}
	}
	for _, r := range e.Reconciliations {
		whole := "not complete"
		if r.Complete {
			whole = "complete"
		}
		a.printf("  read %d, %s: %s; view %s (%s, %s), %d object(s)\n", r.Number, a.at(r.ObservedAt), verdict(r.Verdict), clean(r.View), whole, r.Consistency, r.Objects)
	}
	for _, r := range e.Repairs {
		a.printf("  repair %s: %s, %s, by %s because %s\n", r.ID, r.Kind, r.State, clean(r.By), clean(r.Because))
	}
	if e.Reason != nil {
		a.printf("  reason: %s\n", clean(*e.Reason))
	}
}

// verdict keeps a read without an answer apart from an answer.
func verdict(v string) string {
	if v == "read_failed" {
		return "the read itself brought nothing (no evidence)"
	}
	return v
}

func (a *App) missing(e client.Effect) {
	var lack []string
	if e.Unknown != nil {
		lack = e.Unknown.Missing
	}
	if r := e.Review; r != nil && r.State != "decided" && len(r.Missing) > 0 {
		lack = r.Missing
	}
	if e.Unknown == nil && len(lack) == 0 {
		return
	}
	a.printf("\nMissing\n")
	for _, m := range lack {
		a.printf("  - %s\n", clean(m))
	}
	if u := e.Unknown; u != nil {
		a.printf("  would prove that it happened: %s\n", clean(or(u.ProvesCommit, "a person's word")))
		a.printf("  would prove that it did not:  %s\n", clean(or(u.ProvesAbsence, "a person's word")))
	}
}

func (a *App) next(e client.Effect) {
	a.printf("\nNext\n")
	if e.WaitingFor != nil {
		a.printf("  waits for %s\n", clean(*e.WaitingFor))
	}
	if e.Next != nil {
		a.printf("  %s: %s\n", a.at(&e.Next.At), nextWords(e.Next.What))
	}
	if u := e.Unknown; u != nil {
		if u.SettleNotBefore != nil {
			a.printf("  %s: from then on an empty read counts\n", a.at(u.SettleNotBefore))
		} else {
			a.printf("  an empty read never counts: a call is open, or nobody declared how late it can take effect\n")
		}
		if u.DedupeExpiresAt != nil {
			a.printf("  %s: the destination forgets the key\n", a.at(u.DedupeExpiresAt))
		}
		if u.ResolveBy != nil && e.Phase != "needs_human" {
			a.printf("  %s: %s is asked, if nothing is known by then\n", a.at(u.ResolveBy), e.Owner)
		}
		a.printf("  nothing is sent while this stands\n")
	}
	if r := e.Review; r != nil && r.State != "decided" {
		late := ""
		if r.Overdue {
			late = ", overdue"
		}
		a.printf("  %s decides, %s severity, by %s%s\n", r.Owner, r.Severity, a.at(r.DueAt), late)
	}
	if e.Next == nil && e.Unknown == nil && (e.Review == nil || e.Review.State == "decided") && e.WaitingFor == nil {
		a.printf("  nothing; it is closed\n")
	}
}

func nextWords(what string) string {
	switch what {
	case "dispatch":
		return "send"
	case "read":
		return "read what the destination holds"
	case "lease":
		return "the read under way ends, or is given up"
	case "expire":
		return "its time is over; it then does not happen"
	case "resend":
		return "decide about another attempt"
	case "escalate":
		return "the review is overdue"
	case "held":
		return "its time is over; a hold covers it until then (settled hold)"
	case "call":
		return "the call under way ends at the latest"
	}
	return what
}

// choices says what to type. For what is not known the first choice is to read now.
func (a *App) choices(e client.Effect) {
	key := quote(e.Key)
	var lines []string
	if r := e.Review; r != nil && r.State != "decided" {
		lines = append(lines, "settled review "+key+"   (evidence side by side)")
		for _, d := range r.Allowed {
			lines = append(lines, "settled decide "+key+" "+d+decisionHint(d)+" --because WHY")
		}
	} else if e.Phase == "unknown" || e.Phase == "reconciling" {
		lines = append(lines, "settled decide "+key+" read --because WHY   (read now)", "settled wait "+key)
	} else if (e.Phase == "prepared" || e.Phase == "authorized") && !e.MayHaveBeenSent() {
		lines = append(lines, "settled cancel "+key+" --because WHY")
	}
	if len(lines) > 0 {
		a.printf("\nYou can type\n  %s\n", strings.Join(lines, "\n  "))
	}
}

func decisionHint(d string) string {
	switch d {
	case "happened", "complete":
		return " --object ID"
	case "did-not-happen":
		return " --then retry|close --evidence TEXT|FILE|URL"
	case "retire":
		return " --object DUP --keep ID"
	case "fix":
		return " --operation O --payload F"
	case "assign":
		return " --to OWNER"
	case "keep-waiting":
		return " --until T"
	}
	return ""
}
