package http

import (
	"fmt"
	"strconv"

	"github.com/settled-dev/settled/sdk"
)

// actions are the capability cards of every operation and every undo.
func (c *configuration) actions() []sdk.ActionSpec {
	var list []sdk.ActionSpec
	for _, name := range c.names {
		op := c.operations[name]
		list = append(list, op.spec())
		if op.undo != nil {
			list = append(list, op.undoSpec())
		}
	}
	return list
}

func (o *operation) spec() sdk.ActionSpec {
	spec := sdk.ActionSpec{
		Name: o.name, Summary: o.summary,
		Idempotency: o.idempotency(), Read: o.readSpec(),
		Reversal:     sdk.Reversal{Kind: o.reversal},
		Outcomes:     o.dispatch.outcomes(),
		Precondition: o.precondition != nil && o.precondition.etag != nil,
		Consequences: o.consequences, HumanOnly: o.humanOnly, Sensitive: o.sensitive,
	}
	if spec.Summary == "" {
		spec.Summary = o.dispatch.method + " " + o.dispatch.path.source
	}
	if spec.Reversal.Kind == sdk.ReversalUnspecified {
		spec.Reversal.Kind = sdk.Irreversible
	}
	if o.undo != nil && spec.Reversal.Kind != sdk.Irreversible {
		spec.Reversal.Action = o.name + undoSuffix
	}
	if o.postcondition != nil {
		spec.Postcondition = fmt.Sprintf("%s %s satisfies %s", o.postcondition.method, o.postcondition.path.source, o.postcondition.when.source)
	}
	if len(spec.Consequences) == 0 {
		spec.Consequences = consequencesOf(o.dispatch.method)
	}
	return spec
}

func consequencesOf(method string) []sdk.Consequence {
	if method == "DELETE" {
		return []sdk.Consequence{sdk.ConsequenceDelete}
	}
	return []sdk.Consequence{sdk.ConsequenceWrite}
}

func (o *operation) idempotency() sdk.Idempotency {
	i := o.dedupe
	switch {
	case o.read != nil && o.read.identify == byNatural:
		i.Mode = sdk.IdempotencyNatural
	case i.Mode == sdk.IdempotencyNone && o.precondition != nil && o.precondition.etag != nil:
		i.Mode = sdk.IdempotencyConditional
	}
	return i
}

func (o *operation) readSpec() sdk.ReadSpec {
	if o.read == nil {
		return sdk.ReadSpec{Lookup: sdk.LookupNone, Authority: sdk.Advisory}
	}
	lookups := map[identify]sdk.Lookup{byMarker: sdk.LookupByMarker, byNatural: sdk.LookupByNaturalID, bySnapshot: sdk.LookupWindow}
	spec := o.read.terms.Spec(lookups[o.read.identify])
	spec.View = o.read.viewName(o)
	return spec
}

// outcomes is the table of answers: the programs as they are written, the lists by code.
func (w *write) outcomes() []sdk.OutcomeRule {
	var rules []sdk.OutcomeRule
	if w.done != nil {
		rules = append(rules, sdk.OutcomeRule{Code: w.done.source, Class: sdk.ClassExecuted})
	} else {
		rules = append(rules, sdk.OutcomeRule{Code: "2xx except 202", Class: sdk.ClassExecuted})
	}
	for _, code := range w.retryable {
		rules = append(rules, sdk.OutcomeRule{Code: strconv.Itoa(code), Class: sdk.ClassNotExecutedRetryable})
	}
	for _, code := range w.final {
		rules = append(rules, sdk.OutcomeRule{Code: strconv.Itoa(code), Class: sdk.ClassNotExecutedFinal})
	}
	for _, code := range []string{"409", "412"} {
		rules = append(rules, sdk.OutcomeRule{Code: code, Class: sdk.ClassUnknown})
	}
	return rules
}

// undoSpec is the action that takes the operation back. It is proved by verify.
func (o *operation) undoSpec() sdk.ActionSpec {
	spec := sdk.ActionSpec{
		Name: o.name + undoSuffix, Summary: "takes " + o.name + " back: " + o.undo.method + " " + o.undo.path.source,
		Idempotency: sdk.Idempotency{Mode: sdk.IdempotencyNone}, Read: sdk.ReadSpec{Lookup: sdk.LookupNone, Authority: sdk.Advisory},
		Reversal: sdk.Reversal{Kind: sdk.Irreversible}, Outcomes: o.undo.outcomes(), Consequences: consequencesOf(o.undo.method),
	}
	if o.verify == nil {
		return spec
	}
	if o.read != nil {
		spec.Read = o.read.terms.Spec(sdk.LookupByKey)
	}
	spec.Read.Lookup, spec.Read.View = sdk.LookupByKey, spec.Name
	spec.Postcondition = fmt.Sprintf("%s %s satisfies %s", o.verify.method, o.verify.path.source, o.verify.when.source)
	return spec
}
