package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"
)

// Define is a whole adapter as its author writes it: a configuration type C, a
// type A made from it, and for each operation one function that writes and one
// that reads back. [Define.Adapter] makes of it what the daemon talks to, so the
// main function is
//
//	serve.Main(sdk.Define[Config, *acme]{…}.Adapter())
//
// The schemas of configuration and payloads come from the types, see
// [JSONSchema]; both are decoded strictly, and every fault is answered with its
// JSON pointer before anything is sent.
//
// If A has the methods of [Preparer], [Fencer] or [ManyReader], the adapter has
// that feature.
type Define[C, A any] struct {
	Name    string // lower-case letters, digits and dashes
	Version string // semantic version of the adapter
	// Open makes A from a configuration that fits its schema. It does no effect.
	Open func(ctx context.Context, env Env, config C) (A, error)
	// Check reaches the destination with the credentials, read-only. nil = the
	// configuration alone counts as healthy.
	Check func(a A, ctx context.Context) error
	// Guard asks, with the credentials of the reads, something that fails when
	// they may not see every object. It runs after a read that saw nothing;
	// without it such a read never proves absence.
	Guard func(a A, ctx context.Context) error
	// Identity names the account ("acct_123 as bot@x"), for people. May be nil.
	Identity func(a A, ctx context.Context) (string, error)
	Actions  []Action[A]
	Egress   []string // host:port patterns that it needs
}

// Preparer is implemented by an A that must read or fetch something before a
// dispatch. Prepare has no external effect, ever.
type Preparer interface {
	Prepare(ctx context.Context, op Operation) (Prepared, error)
}

// Spec is the capability card of an action. What it does not say counts as not
// known: no deduplication, no read, no bound, irreversible.
type Spec struct {
	Summary     string
	Idempotent  Idempotency // see [ByKey]
	Read        ReadSpec    // see [StrongRead] and [LaggingRead]
	LateEffect  time.Duration
	Timeout     time.Duration // of a dispatch; 0 = the host's
	Reversal    string        // the action that takes this one back; empty = irreversible
	Compensates bool          // Reversal makes up for the effect instead of restoring what was
	Limits      Limits
	// Outcomes says what answers mean. nil = the table of [StatusOutcome].
	Outcomes      []OutcomeRule
	Postcondition string        // in words; empty = the match itself
	Consequences  []Consequence // nil = it writes
	HumanOnly     bool
	Sensitive     []string // JSON pointers into payload and observed
	Precondition  bool     // the write honours Op.ExpectedRevision
}

// Op is one write. Key and Marker are the same in every attempt.
type Op[P any] struct {
	Payload P
	Operation
	Baseline         []byte // of Prepare
	ExpectedRevision string
	Deadline         time.Time
}

// Query is one read.
type Query[P any] struct {
	Payload P
	Operation
	Purpose  ReadPurpose
	Handle   string     // of an accepted write
	Object   *ObjectRef // if it is known already
	From, To time.Time  // when the writes may have been sent
	Baseline []byte
	Cursor   string
}

// Action is one operation of an adapter; [NewAction] makes it.
type Action[A any] struct {
	spec  ActionSpec
	shape *shape
	err   error
	write func(a A, ctx context.Context, r DispatchRequest) (Outcome, error)
	read  func(a A, ctx context.Context, r ReadRequest) (*ReadResponse, error)
}

// NewAction defines an operation by its payload type P and two functions,
// usually method expressions: (*acme).create.
//
// write performs at most one effect. It returns an outcome, or an error, which
// means unknown unless it carries the proof of the wire ([ErrNotSent]).
//
// read tells what the destination holds, see [FoundAll]; its error is a failed
// read, never an empty one. read may be nil when nothing can be read back. A
// read ignores payload properties that it does not know, so that effects of an
// older version can still be read.
func NewAction[A, P any](name string, s Spec,
	write func(a A, ctx context.Context, op Op[P]) (Outcome, error),
	read func(a A, ctx context.Context, q Query[P]) (*ReadResponse, error),
) Action[A] {
	sh, err := shapeOf(reflect.TypeFor[P](), nil)
	act := Action[A]{spec: s.actionSpec(name), shape: sh, err: err}
	switch {
	case err != nil:
		act.err = fmt.Errorf("action %s: its payload type: %w", name, err)
		return act
	case sh.holdsSecret():
		act.err = fmt.Errorf("action %s: a payload is journaled and must not hold a secret", name)
	case write == nil:
		act.err = fmt.Errorf("action %s: its write function is nil", name)
	case read == nil && act.spec.Read.Lookup != LookupNone:
		act.err = fmt.Errorf("action %s: it declares a read, but its read function is nil", name)
	}
	if act.spec.PayloadSchema, err = sh.document(); err != nil && act.err == nil {
		act.err = fmt.Errorf("action %s: its schema: %w", name, err)
	}
	act.write = func(a A, ctx context.Context, r DispatchRequest) (Outcome, error) {
		op := Op[P]{Operation: r.Operation, Baseline: r.Baseline, ExpectedRevision: r.ExpectedRevision, Deadline: r.Deadline}
		if faults := strictly(r.Operation.Payload, sh, &op.Payload); len(faults) > 0 {
			return &Rejected{Reason: ReasonValidation, Code: "payload", Message: said(faults[0]), Diagnostics: faults}, nil
		}
		return write(a, ctx, op)
	}
	if read != nil {
		act.read = func(a A, ctx context.Context, r ReadRequest) (*ReadResponse, error) {
			q := Query[P]{
				Operation: r.Operation, Purpose: r.Purpose, Handle: r.Handle, Object: r.Object,
				From: r.DispatchedFrom, To: r.DispatchedTo, Baseline: r.Baseline, Cursor: r.Cursor,
			}
			if err := leniently(r.Operation.Payload, &q.Payload); err != nil {
				return nil, err
			}
			return read(a, ctx, q)
		}
	}
	return act
}

func (s Spec) actionSpec(name string) ActionSpec {
	a := ActionSpec{
		Name: name, Summary: s.Summary, Idempotency: s.Idempotent, Read: s.Read, Limits: s.Limits,
		DispatchTimeout: s.Timeout, Precondition: s.Precondition, Outcomes: s.Outcomes,
		Postcondition: s.Postcondition, Consequences: s.Consequences, HumanOnly: s.HumanOnly, Sensitive: s.Sensitive,
		Reversal: Reversal{Kind: Irreversible},
	}
	if a.Idempotency.Mode == IdempotencyUnspecified {
		a.Idempotency.Mode = IdempotencyNone
	}
	if a.Read.Lookup == LookupUnspecified {
		a.Read = ReadSpec{Lookup: LookupNone, Authority: Advisory}
	} else if a.Read.View == "" {
		a.Read.View = name
	}
	if s.LateEffect > 0 {
		a.LateEffectBound = &s.LateEffect
	}
	if s.Reversal != "" {
		a.Reversal = Reversal{Kind: Reversible, Action: s.Reversal}
		if s.Compensates {
			a.Reversal.Kind = Compensatable
		}
	}
	if a.Outcomes == nil {
		a.Outcomes = statusRules()
	}
	if a.Consequences == nil {
		a.Consequences = []Consequence{ConsequenceWrite}
	}
	return a
}

// statusRules is [StatusOutcome] as the card shows it.
func statusRules() []OutcomeRule {
	rules := []OutcomeRule{{Code: "done", Class: ClassExecuted}, {Code: "429", Class: ClassNotExecutedRetryable}}
	for _, code := range []string{"400", "401", "403", "404", "422"} {
		rules = append(rules, OutcomeRule{Code: code, Class: ClassNotExecutedFinal})
	}
	return rules
}

func said(d Diagnostic) string {
	if d.Pointer == "" {
		return "the document " + d.Summary
	}
	return d.Pointer + " " + d.Summary
}

// Adapter makes the adapter. Faults of the definition itself (a type without a
// schema, a reversal that does not exist) are answered by its Describe, which
// the kit and the host call first.
func (d Define[C, A]) Adapter() Adapter {
	a := &defined[C, A]{d: d}
	a.description, a.config, a.fault = d.describe()
	base := Adapter(a)
	_, fences := reflect.Zero(reflect.TypeFor[A]()).Interface().(Fencer)
	_, many := reflect.Zero(reflect.TypeFor[A]()).Interface().(ManyReader)
	switch {
	case fences && many:
		return struct {
			Adapter
			Fencer
			ManyReader
		}{base, fencer[C, A]{a}, manyReader[C, A]{a}}
	case fences:
		return struct {
			Adapter
			Fencer
		}{base, fencer[C, A]{a}}
	case many:
		return struct {
			Adapter
			ManyReader
		}{base, manyReader[C, A]{a}}
	}
	return base
}

func (d Define[C, A]) describe() (Description, *shape, error) {
	out := Description{Name: d.Name, Version: d.Version, Egress: slices.Clone(d.Egress)}
	var faults []error
	config, err := shapeOf(reflect.TypeFor[C](), nil)
	switch {
	case err != nil:
		faults = append(faults, fmt.Errorf("its configuration type: %w", err))
	case config.kind != "object":
		faults = append(faults, errors.New("its configuration type must be a struct"))
	default:
		out.ConfigSchema, err = config.document()
		faults = append(faults, err)
	}
	if d.Open == nil {
		faults = append(faults, errors.New("it has no Open function"))
	}
	if d.Name == "" || len(d.Actions) == 0 {
		faults = append(faults, errors.New("it needs a name and at least one action"))
	}
	known := map[string]bool{}
	for _, act := range d.Actions {
		if known[act.spec.Name] || act.spec.Name == "" {
			faults = append(faults, fmt.Errorf("the action name %q is empty or there twice", act.spec.Name))
		}
		known[act.spec.Name] = true
		faults = append(faults, act.err)
		out.Actions = append(out.Actions, act.spec)
	}
	for _, act := range d.Actions {
		if r := act.spec.Reversal.Action; r != "" && !known[r] {
			faults = append(faults, fmt.Errorf("action %s: its reversal %q is no action of this adapter", act.spec.Name, r))
		}
	}
	zero := reflect.Zero(reflect.TypeFor[A]()).Interface()
	if _, ok := zero.(Preparer); ok {
		out.Features = append(out.Features, FeaturePrepare)
	}
	if _, ok := zero.(Fencer); ok {
		out.Features = append(out.Features, FeatureFence)
	}
	if _, ok := zero.(ManyReader); ok {
		out.Features = append(out.Features, FeatureReadMany)
	}
	return out, config, errors.Join(faults...)
}

func logger(e Env) *slog.Logger {
	return slog.Default().With("destination", e.Destination)
}
