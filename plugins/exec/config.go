package exec

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/settled-dev/settled/plugins/internal/card"
	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// undoSuffix makes the name of the action that takes an operation back.
const undoSuffix = ".undo"

// configuration is destinations.NAME.with.
type configuration struct {
	dispatch, read, undo, check, describe []string // argv; nil when absent
	trustExit                             bool
	settings                              any // with.config: handed to every command
	names                                 []string
	operations                            map[string]*operation
}

type operation struct {
	name, summary string
	terms         card.ReadTerms
	dedupe        sdk.Idempotency
	reversal      sdk.ReversalKind
	consequences  []sdk.Consequence
	sensitive     []string
	humanOnly     bool
}

func parse(raw []byte, secrets map[string]string, faults *decode.Faults) *configuration {
	with := decode.Parse(raw, faults)
	c := &configuration{
		dispatch: argv(with, "dispatch", secrets), read: argv(with, "read", secrets), undo: argv(with, "undo", secrets),
		check: argv(with, "check", secrets), describe: argv(with, "describe", secrets),
		trustExit: with.Bool("trust_exit"), operations: map[string]*operation{},
	}
	if settings := with.Object("config"); settings != nil {
		c.settings = settings.Values()
	}
	if !with.Has("dispatch") {
		faults.Errorf("/dispatch", "is required: which command writes?")
	}
	if !with.Has("read") {
		faults.Warnf("/read", "without a read an unknown outcome can only be settled by a person")
	}
	operations := with.Object("operations")
	c.names = operations.Keys()
	if len(c.names) == 0 && !faults.Failed() {
		faults.Errorf("/operations", "at least one operation is needed, if only an empty table")
	}
	for _, name := range c.names {
		if strings.HasSuffix(name, undoSuffix) {
			faults.Errorf(operations.Pointer(name), "a name may not end with %q: it is the name of an undo", undoSuffix)
		}
		if o := operations.Object(name); o != nil {
			c.operations[name] = c.operation(name, o)
		}
	}
	with.Done()
	return c
}

func (c *configuration) operation(name string, o *decode.Object) *operation {
	op := &operation{
		name: name, summary: o.String("summary"), dedupe: card.ParseDedupe(o.Object("dedupe")),
		reversal: card.ParseReversal(o), consequences: card.ParseConsequences(o),
		sensitive: o.Strings("sensitive"), humanOnly: o.Bool("human_only"),
	}
	if r := o.Object("read"); r != nil {
		op.terms = card.ParseReadTerms(r)
		if c.read == nil {
			o.Faults().Errorf(r.Pointer(), "there is no command with.read that it could describe")
		}
		r.Done()
	}
	switch {
	case op.reversal == sdk.Reversible && c.undo == nil:
		o.Faults().Errorf(o.Pointer("reversible"), "reversible needs a command with.undo, or say irreversible")
	case op.reversal == sdk.ReversalUnspecified && c.undo != nil:
		o.Faults().Warnf(o.Pointer("reversible"), "there is a command with.undo, but the operation is not called reversible or compensatable; the undo is not offered")
	}
	o.Done()
	return op
}

// argv reads a command: a list whose first entry is an absolute path or a name
// to be found in PATH. A secret in it would be shown to everyone on the machine.
func argv(o *decode.Object, key string, secrets map[string]string) []string {
	list := o.Strings(key)
	if !o.Has(key) {
		return nil
	}
	if len(list) == 0 || list[0] == "" {
		o.Faults().Errorf(o.Pointer(key), "must be a list: the command and its arguments")
		return nil
	}
	if strings.Contains(list[0], "/") && !filepath.IsAbs(list[0]) {
		o.Faults().Errorf(o.Pointer(key, "0"), "must be an absolute path or a name in PATH")
	}
	for _, arg := range list {
		if strings.ContainsRune(arg, 0) {
			o.Faults().Errorf(o.Pointer(key), "holds a zero byte")
		}
		for name, value := range secrets {
			if len(value) >= 4 && strings.Contains(arg, value) {
				o.Faults().Errorf(o.Pointer(key), "holds the credential %q; commands get credentials on standard input", name)
			}
		}
	}
	return list
}

// actions are the capability cards of every operation and every undo.
func (c *configuration) actions() []sdk.ActionSpec {
	var list []sdk.ActionSpec
	for _, name := range c.names {
		op := c.operations[name]
		spec := sdk.ActionSpec{
			Name: name, Summary: op.summary, Idempotency: op.dedupe, Read: c.readSpec(op, name),
			Reversal: sdk.Reversal{Kind: op.reversal}, Outcomes: c.outcomes(),
			Consequences: op.consequences, Sensitive: op.sensitive, HumanOnly: op.humanOnly,
		}
		if spec.Summary == "" {
			spec.Summary = strings.Join(c.dispatch, " ")
		}
		if spec.Reversal.Kind == sdk.ReversalUnspecified {
			spec.Reversal.Kind = sdk.Irreversible
		}
		if len(spec.Consequences) == 0 {
			spec.Consequences = []sdk.Consequence{sdk.ConsequenceWrite}
		}
		if c.undo != nil && spec.Reversal.Kind != sdk.Irreversible {
			spec.Reversal.Action = name + undoSuffix
		}
		list = append(list, spec)
		if c.undo != nil {
			list = append(list, c.undoSpec(op))
		}
	}
	return list
}

func (c *configuration) undoSpec(op *operation) sdk.ActionSpec {
	name := op.name + undoSuffix
	return sdk.ActionSpec{
		Name: name, Summary: "takes " + op.name + " back: " + strings.Join(c.undo, " "),
		Idempotency: sdk.Idempotency{Mode: sdk.IdempotencyNone}, Read: c.readSpec(op, name),
		Reversal: sdk.Reversal{Kind: sdk.Irreversible}, Outcomes: c.outcomes(), Consequences: slices.Clone(op.consequences),
		Postcondition: "the read answers postcondition = \"holds\" for the object that was undone",
	}
}

func (c *configuration) readSpec(op *operation, view string) sdk.ReadSpec {
	if c.read == nil {
		return sdk.ReadSpec{Lookup: sdk.LookupNone, Authority: sdk.Advisory}
	}
	spec := op.terms.Spec(sdk.LookupByKey)
	if spec.View == "" {
		spec.View = view
	}
	return spec
}

// outcomes is the table of answers: by word, or by exit status without JSON.
func (c *configuration) outcomes() []sdk.OutcomeRule {
	rules := []sdk.OutcomeRule{
		{Code: "done", Class: sdk.ClassExecuted},
		{Code: "rejected", Class: sdk.ClassNotExecutedFinal},
		{Code: "not_executed", Class: sdk.ClassNotExecutedRetryable},
		{Code: "exit 65", Class: sdk.ClassNotExecutedFinal},
		{Code: "exit 77", Class: sdk.ClassNotExecutedFinal},
		{Code: "exit 69", Class: sdk.ClassNotExecutedRetryable},
		{Code: "exit 75", Class: sdk.ClassNotExecutedRetryable},
	}
	if c.trustExit {
		rules = append(rules, sdk.OutcomeRule{Code: "exit 0", Class: sdk.ClassExecuted})
	}
	return rules
}
