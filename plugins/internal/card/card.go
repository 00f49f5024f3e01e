// Package card reads the part of an operation's configuration that answers the
// capability card and is the same for every configurable adapter: how far a
// read may be believed, what the destination deduplicates, what can be undone.
package card

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// ReadTerms says how far an answer of a read may be believed.
type ReadTerms struct {
	Consistency   string // strong, bounded, eventual; empty = advisory
	Lag           *time.Duration
	ProvesAbsence bool
	View          string
}

// ParseReadTerms reads consistency, lag, proves_absence and view of a read.
func ParseReadTerms(o *decode.Object) ReadTerms {
	t := ReadTerms{
		Consistency: o.Enum("consistency", "strong", "bounded", "eventual"),
		Lag:         o.Duration("lag"), ProvesAbsence: o.Bool("proves_absence"), View: o.String("view"),
	}
	switch {
	case t.Consistency == "bounded" && !o.Has("lag"):
		o.Faults().Errorf(o.Pointer("lag"), "consistency = \"bounded\" needs it: how late may an effect become visible?")
	case t.Consistency != "bounded" && t.Lag != nil:
		o.Faults().Errorf(o.Pointer("lag"), "belongs to consistency = \"bounded\"")
	}
	if t.ProvesAbsence && t.Consistency != "strong" && t.Consistency != "bounded" {
		o.Faults().Warnf(o.Pointer("proves_absence"), "only consistency = \"strong\" or \"bounded\" can prove absence")
	}
	return t
}

// Authority of an answer; whatever is not declared is advisory.
func (t ReadTerms) Authority() sdk.Authority {
	switch t.Consistency {
	case "strong":
		return sdk.Authoritative
	case "bounded", "eventual":
		return sdk.Eventual
	}
	return sdk.Advisory
}

// Spec is the read of the capability card, found by lookup.
func (t ReadTerms) Spec(lookup sdk.Lookup) sdk.ReadSpec {
	return sdk.ReadSpec{Lookup: lookup, Authority: t.Authority(), MaxLag: t.Lag, ProvesAbsence: t.ProvesAbsence, View: t.View}
}

// ParseDedupe reads what the destination promises about a repeated key; a nil
// object is the promise of nothing.
func ParseDedupe(o *decode.Object) sdk.Idempotency {
	if o == nil {
		return sdk.Idempotency{Mode: sdk.IdempotencyNone}
	}
	replays := map[string]sdk.Replay{"first_response": sdk.ReplayFirstResponse, "success_only": sdk.ReplaySuccessOnly, "current_state": sdk.ReplayCurrentState}
	mismatches := map[string]sdk.Mismatch{"rejects": sdk.MismatchRejects, "returns_first": sdk.MismatchReturnsFirst, "executes_again": sdk.MismatchExecutesAgain}
	i := sdk.Idempotency{
		Mode: sdk.IdempotencyKey, Retention: o.Duration("window"),
		KeyScope: o.String("scope"), Covers: o.Strings("covers"),
		CachesRejections: o.Bool("caches_rejections"), KeyMaxBytes: uint32(o.Int("key_max_bytes", 1, 1<<16)),
		Replay:              replays[o.Enum("replay", "first_response", "success_only", "current_state")],
		SameKeyOtherPayload: mismatches[o.Enum("mismatch", "rejects", "returns_first", "executes_again")],
		VerifiedOn:          o.String("verified_on"),
	}
	if len(i.VerifiedOn) > len("2006-01-02") {
		i.VerifiedOn = i.VerifiedOn[:len("2006-01-02")] // a date may arrive as a timestamp
	}
	if i.VerifiedOn != "" && !regexp.MustCompile(`^\d{4}-\d\d-\d\d$`).MatchString(i.VerifiedOn) {
		o.Faults().Errorf(o.Pointer("verified_on"), "must be a date such as 2026-11-30")
	}
	o.Done()
	return i
}

// ParseReversal reads reversible; unspecified counts as irreversible.
func ParseReversal(o *decode.Object) sdk.ReversalKind {
	kinds := map[string]sdk.ReversalKind{"reversible": sdk.Reversible, "compensatable": sdk.Compensatable, "irreversible": sdk.Irreversible}
	return kinds[o.Enum("reversible", "reversible", "compensatable", "irreversible")]
}

// ParseConsequences reads consequences.
func ParseConsequences(o *decode.Object) []sdk.Consequence {
	names := []string{"write", "publish", "send", "charge", "delete", "trigger"}
	var list []sdk.Consequence
	for _, s := range o.Strings("consequences") {
		i := slices.Index(names, s)
		if i < 0 {
			o.Faults().Errorf(o.Pointer("consequences"), "%q is not one of %s%s", s, strings.Join(names, ", "), decode.Suggestion(s, names))
			continue
		}
		list = append(list, sdk.Consequence(i+1))
	}
	return list
}
