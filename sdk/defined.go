package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"
)

// defined is a [Define] at work. Configure sets live once; nothing else changes.
type defined[C, A any] struct {
	d           Define[C, A]
	description Description
	config      *shape
	fault       error
	live        atomic.Pointer[opened[A]]
}

type opened[A any] struct {
	a        A
	identity string
}

var errNotConfigured = errors.New("the adapter is not configured")

func (a *defined[C, A]) Describe(context.Context) (Description, error) { return a.description, a.fault }

// Configure decodes the configuration strictly and opens the adapter.
func (a *defined[C, A]) Configure(ctx context.Context, c Configuration) (Configured, error) {
	if a.fault != nil {
		return Configured{}, a.fault
	}
	raw := c.Config
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	var config C
	rest, faults := fillSecrets(raw, a.config, reflect.ValueOf(&config).Elem(), c.Secrets)
	faults = append(faults, strictly(rest, a.config, &config)...)
	if len(faults) > 0 {
		return Configured{Diagnostics: faults}, nil
	}
	env := Env{Destination: c.Destination, StateDir: c.StateDir, ProxyURL: c.ProxyURL, ExtraCAPEM: c.ExtraCAPEM}
	env.Log = logger(env)
	made, err := a.d.Open(ctx, env, config)
	if err != nil {
		return Configured{}, err
	}
	live := &opened[A]{a: made}
	if a.d.Identity != nil {
		if live.identity, err = a.d.Identity(made, ctx); err != nil {
			return Configured{}, fmt.Errorf("the destination does not say who we are: %w", err)
		}
	}
	a.live.Store(live)
	return Configured{Identity: live.identity}, nil
}

func (a *defined[C, A]) Check(ctx context.Context, _ []string) (Health, error) {
	live := a.live.Load()
	if live == nil {
		return Health{}, errNotConfigured
	}
	if a.d.Check != nil {
		if err := a.d.Check(live.a, ctx); err != nil {
			return Health{}, err
		}
	}
	h := Health{Status: HealthOK}
	if a.d.Guard != nil {
		if err := a.d.Guard(live.a, ctx); err != nil {
			return Health{Status: HealthDegraded, Diagnostics: []Diagnostic{{Warning: true, Summary: "it may not see every object, so no read proves absence: " + err.Error()}}}, nil
		}
	}
	for _, act := range a.d.Actions {
		h.Permissions = append(h.Permissions, act.spec.Read.Permissions...)
	}
	return h, nil
}

func (a *defined[C, A]) Prepare(ctx context.Context, op Operation) (Prepared, error) {
	live := a.live.Load()
	if live == nil {
		return Prepared{}, errNotConfigured
	}
	if p, ok := any(live.a).(Preparer); ok {
		return p.Prepare(ctx, op)
	}
	return Prepared{Ready: &Ready{}}, nil
}

func (a *defined[C, A]) action(name string) *Action[A] {
	for i := range a.d.Actions {
		if a.d.Actions[i].spec.Name == name {
			return &a.d.Actions[i]
		}
	}
	return nil
}

// Dispatch calls the write function once.
func (a *defined[C, A]) Dispatch(ctx context.Context, r DispatchRequest) (Response, error) {
	live := a.live.Load()
	if live == nil {
		return Response{Outcome: &NotExecuted{Basis: BasisNotStarted, Message: errNotConfigured.Error()}}, nil
	}
	act := a.action(r.Operation.Action)
	if act == nil {
		return Response{Outcome: Reject(ReasonUnsupported, "unknown_action", fmt.Sprintf("there is no action %q", r.Operation.Action))}, nil
	}
	limit := act.spec.Limits.MaxPayload
	if limit > 0 && len(r.Operation.Payload) > int(limit) {
		return Response{Outcome: Reject(ReasonValidation, "payload_size", fmt.Sprintf("the payload has %d bytes, the limit is %d", len(r.Operation.Payload), limit))}, nil
	}
	if r.ExpectedRevision != "" && !act.spec.Precondition {
		return Response{Outcome: Reject(ReasonUnsupported, "revision", r.Operation.Action+" cannot be given an expected revision")}, nil
	}
	ctx, sent := countSends(ctx)
	outcome, err := act.write(live.a, ctx, r)
	return Response{Outcome: a.outcome(act, outcome, err, int(sent.Load()))}, nil
}

// outcome judges what a write function returned. An error wins over an outcome;
// the proof that nothing was sent holds only if no earlier write of this dispatch left.
func (a *defined[C, A]) outcome(act *Action[A], o Outcome, err error, sent int) Outcome {
	if err == nil {
		if o == nil || reflect.ValueOf(o).IsNil() {
			return noOutcome(act.spec.Name)
		}
		return o
	}
	out := ErrorOutcome(err)
	var gone *NotExecuted
	if n, ok := out.(*NotExecuted); ok {
		gone = n
	}
	switch {
	case gone != nil && sent > 0:
		return &Unknown{Cause: CausePartial, Message: "an earlier request of this dispatch was sent: " + err.Error()}
	case errors.Is(err, context.DeadlineExceeded) && gone == nil:
		return &Unknown{Cause: CauseTimeout, Message: err.Error()}
	case errors.Is(err, context.Canceled) && gone == nil:
		return &Unknown{Cause: CauseCancelled, Message: err.Error()}
	}
	return out
}

// Read calls the read function and completes its answer with what the card
// says. A read that saw nothing asks the guard.
func (a *defined[C, A]) Read(ctx context.Context, r ReadRequest) (ReadResponse, error) {
	live := a.live.Load()
	if live == nil {
		return ReadResponse{}, errNotConfigured
	}
	act := a.action(r.Operation.Action)
	if act == nil || act.read == nil {
		return ReadResponse{}, fmt.Errorf("there is no read for the action %q", r.Operation.Action)
	}
	begun := time.Now().UTC()
	out, err := act.read(live.a, ctx, r)
	if err != nil {
		return ReadResponse{}, err
	}
	if out == nil {
		return ReadResponse{}, fmt.Errorf("the read function of %s returned neither an answer nor an error", act.spec.Name)
	}
	answer := *out
	if answer.Authority == AuthorityUnspecified {
		answer.Authority = act.spec.Read.Authority
	}
	if answer.AsOf.IsZero() {
		answer.AsOf = begun
	}
	if answer.View == nil {
		answer.View = &View{ID: act.spec.Read.View, Principal: live.identity, ScannedTo: answer.AsOf}
		if h := act.spec.Read.Horizon; h > 0 {
			answer.View.ScannedFrom = answer.AsOf.Add(-h)
		}
	}
	if _, nothing := answer.Finding.(*NoneSeen); nothing && !answer.View.VisibilityProven {
		a.guard(ctx, live.a, &answer)
	}
	return answer, nil
}

func (a *defined[C, A]) guard(ctx context.Context, live A, answer *ReadResponse) {
	if a.d.Guard == nil {
		return
	}
	if err := a.d.Guard(live, ctx); err != nil {
		answer.View.How = "the guard failed: " + err.Error()
		answer.Coverage = CoveragePermissionLimited
		return
	}
	answer.View.VisibilityProven, answer.View.How = true, "the adapter's guard"
}

func leniently(raw []byte, v any) error {
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("the payload cannot be read: %w", err)
	}
	return nil
}

type fencer[C, A any] struct{ a *defined[C, A] }

// Fence is the author's own.
func (f fencer[C, A]) Fence(ctx context.Context, r FenceRequest) (FenceResponse, error) {
	live := f.a.live.Load()
	if live == nil {
		return FenceResponse{}, errNotConfigured
	}
	own, ok := any(live.a).(Fencer)
	if !ok {
		return FenceResponse{}, errors.New("this adapter has no fence")
	}
	return own.Fence(ctx, r)
}

type manyReader[C, A any] struct{ a *defined[C, A] }

// ReadMany is the author's own.
func (m manyReader[C, A]) ReadMany(ctx context.Context, reads []ReadRequest, answer func(int, ReadResponse)) error {
	live := m.a.live.Load()
	if live == nil {
		return errNotConfigured
	}
	own, ok := any(live.a).(ManyReader)
	if !ok {
		return errors.New("this adapter reads one by one")
	}
	return own.ReadMany(ctx, reads, answer)
}
