// Package docs writes what an adapter says of itself as Markdown: its
// configuration, and for every operation what identifies the effect, what proves
// that it happened or did not, and what its answers mean. The text depends on
// the description alone, so a committed copy can be compared byte for byte.
package docs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// Markdown describes an adapter.
func Markdown(d sdk.Description) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s %s\n\nAn adapter of settled.\n", d.Name, d.Version)
	if len(d.Egress) > 0 {
		fmt.Fprintf(&b, "\nIt connects to: %s.\n", strings.Join(d.Egress, ", "))
	}
	if len(d.Features) > 0 {
		fmt.Fprintf(&b, "\nOptional features: %s.\n", strings.Join(d.Features, ", "))
	}
	b.WriteString("\n## Configuration\n\n")
	properties(&b, d.ConfigSchema, "It takes none.")
	if len(d.Actions) == 0 {
		b.WriteString("\n## Operations\n\nThey are the keys of `operations` in the configuration.\n")
	}
	for _, a := range d.Actions {
		action(&b, a)
	}
	return b.Bytes()
}

func action(b *bytes.Buffer, a sdk.ActionSpec) {
	fmt.Fprintf(b, "\n## Operation `%s`\n\n", a.Name)
	if a.Summary != "" {
		fmt.Fprintf(b, "%s\n\n", a.Summary)
	}
	if a.Deprecated != "" {
		fmt.Fprintf(b, "Deprecated: %s\n\n", a.Deprecated)
	}
	b.WriteString("| question | answer |\n|---|---|\n")
	row := func(question, answer string) {
		fmt.Fprintf(b, "| %s | %s |\n", question, strings.ReplaceAll(answer, "|", "\\|"))
	}
	row("deduplicated by the destination", dedupe(a.Idempotency))
	row("found again", lookup(a.Read))
	row("an absence can be proven", map[bool]string{true: "yes", false: "no"}[a.Read.ProvesAbsence])
	row("an unanswered request may take effect", late(a.LateEffectBound))
	row("taken back", reversal(a.Reversal))
	row("afterwards", cmp.Or(a.Postcondition, "the object is found as it was meant"))
	row("does", consequences(a.Consequences))
	if a.HumanOnly {
		row("decided by", "people only")
	}
	if a.Limits != (sdk.Limits{}) {
		row("limits", limits(a.Limits))
	}
	b.WriteString("\n### Payload\n\n")
	properties(b, a.PayloadSchema, "Any.")
	if len(a.Outcomes) > 0 {
		b.WriteString("\n### Answers\n\n| answer | means |\n|---|---|\n")
		for _, o := range a.Outcomes {
			row("`"+o.Code+"`", [...]string{"unknown", "it did not happen, and may be sent again", "it did not happen, and never will", "it happened"}[min(o.Class, sdk.ClassExecuted)])
		}
		row("anything else", "unknown")
	}
}

func dedupe(i sdk.Idempotency) string {
	mode := [...]string{"no", "no", "by idempotency key", "by a natural identity", "by a condition"}[min(i.Mode, sdk.IdempotencyConditional)]
	if mode == "no" {
		return mode
	}
	if i.Retention != nil {
		mode += ", for " + words(*i.Retention)
	}
	switch i.SameKeyOtherPayload {
	case sdk.MismatchRejects:
		mode += "; the same key with another payload is refused"
	case sdk.MismatchReturnsFirst:
		mode += "; the same key with another payload is answered as the first"
	case sdk.MismatchExecutesAgain:
		mode += "; the same key with another payload is executed again"
	}
	if i.VerifiedOn != "" {
		mode += "; verified on " + i.VerifiedOn
	}
	return mode
}

func lookup(r sdk.ReadSpec) string {
	how := [...]string{"never", "never", "by key", "by marker", "by natural identity", "by content", "by request id", "in a window of time"}[min(r.Lookup, sdk.LookupWindow)]
	if how == "never" {
		return "never: there is no read, a person decides"
	}
	how += [...]string{"; proves nothing about absence", "; strongly consistent", "; after a lag", "; advisory"}[min(r.Authority, sdk.Advisory)]
	if r.MaxLag != nil {
		how += " of at most " + words(*r.MaxLag)
	}
	if r.Horizon > 0 {
		how += "; no further back than " + words(r.Horizon)
	}
	if len(r.Permissions) > 0 {
		how += "; needs " + strings.Join(r.Permissions, ", ")
	}
	return how
}

func late(d *time.Duration) string {
	if d == nil {
		return "at any time: no bound is known"
	}
	return "no later than " + words(*d) + " after its connection is gone"
}

func reversal(r sdk.Reversal) string {
	switch r.Kind {
	case sdk.Reversible:
		return "by `" + r.Action + "`, which restores what was"
	case sdk.Compensatable:
		return "by `" + r.Action + "`, which makes up for it"
	}
	return "never"
}

func consequences(list []sdk.Consequence) string {
	var out []string
	for _, c := range list {
		out = append(out, [...]string{"something", "write", "publish", "send", "charge", "delete", "trigger"}[min(c, sdk.ConsequenceTrigger)])
	}
	if out == nil {
		return "not said"
	}
	return strings.Join(out, ", ")
}

func limits(l sdk.Limits) string {
	var out []string
	if l.MaxPayload > 0 {
		out = append(out, fmt.Sprintf("payload of %d bytes", l.MaxPayload))
	}
	if l.MaxConcurrency > 0 {
		out = append(out, fmt.Sprintf("%d at once", l.MaxConcurrency))
	}
	if l.PerSecond > 0 {
		out = append(out, fmt.Sprintf("%g a second, bursts of %d", l.PerSecond, l.Burst))
	}
	return strings.Join(out, ", ")
}

// words spells a duration without the zeros at its end.
func words(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if cut := strings.TrimSuffix(text, zero); cut != text && cut != "" && !strings.ContainsAny(cut[len(cut)-1:], "0123456789") {
			text = cut
		}
	}
	return text
}

// properties lists the top level of a schema; what is deeper stays in the schema itself.
func properties(b *bytes.Buffer, schema []byte, none string) {
	var s struct {
		Properties map[string]struct {
			Type        any
			Description string
			WriteOnly   bool `json:"writeOnly"`
			Enum        []any
		}
		Required []string
	}
	if json.Unmarshal(schema, &s) != nil || len(s.Properties) == 0 {
		b.WriteString(none + "\n")
		return
	}
	b.WriteString("| property | type | required | meaning |\n|---|---|---|---|\n")
	names := make([]string, 0, len(s.Properties))
	for n := range s.Properties {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		p := s.Properties[n]
		kind, need := fmt.Sprint(p.Type), "no"
		if p.Type == nil {
			kind = "any"
		}
		if p.WriteOnly {
			kind = "name of a credential"
		}
		if slices.Contains(s.Required, n) {
			need = "yes"
		}
		text := p.Description
		if len(p.Enum) > 0 {
			text = strings.TrimSpace(fmt.Sprintf("%s one of %v", text, p.Enum))
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", n, kind, need, strings.ReplaceAll(text, "|", "\\|"))
	}
}
