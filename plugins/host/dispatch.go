package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/wire"
)

// defaultDispatch is the time for a dispatch whose request and context name none.
const defaultDispatch = 30 * time.Second

// Unanswered is the error of a call with an effect that ended without an
// answer. It means unknown. The attempt may be closed only once Ended is closed:
// until then the adapter, or what it started, can still send.
type Unanswered struct {
	Cause   sdk.UnknownCause // a hint for people
	Overdue bool             // the deadline and the linger passed
	Process Identity
	Err     error

	end *ending
}

func (e *Unanswered) Error() string { return "no answer: " + e.Err.Error() }
func (e *Unanswered) Unwrap() error { return e.Err }

// Ended is closed once the call can send no more: its process is proven dead,
// or, after the caller stopped waiting, the adapter answered.
func (e *Unanswered) Ended() <-chan struct{} { return e.end.closed }

// EndedAt is the time from which late effects are counted; zero until Ended is closed.
func (e *Unanswered) EndedAt() time.Time { return e.end.time() }

// Wait waits for Ended and returns its time.
func (e *Unanswered) Wait(ctx context.Context) (time.Time, error) {
	select {
	case <-e.end.closed:
		return e.end.time(), nil
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// ending is the end of one call.
type ending struct {
	closed chan struct{}
	mu     sync.Mutex
	at     time.Time // written once, before closed is closed
}

func (e *ending) finish(at time.Time) {
	e.mu.Lock()
	e.at = at
	e.mu.Unlock()
	close(e.closed)
}

func (e *ending) time() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
}

// Dispatch performs one effect. It returns
//   - an outcome and nil, as soon as the adapter answers, up to r.Deadline plus the linger;
//   - an [*Unanswered], at once when the answer is lost or overdue, or when ctx is
//     cancelled. Nothing is returned that the adapter may still contradict: an
//     answer after the Unanswered is dropped.
//
// r.Deadline counts, and without it the deadline of ctx, or 30 s. The deadline
// of ctx does not cut the linger short. Cancelling ctx stops the waiting, never the effect.
// A process that takes no more calls answers not executed, not sent.
func (p *Process) Dispatch(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	if r.Deadline.IsZero() {
		r.Deadline = deadlineOf(ctx)
	}
	if why := p.admit(ctx, r.Deadline); why != nil {
		return sdk.Response{Outcome: &sdk.NotExecuted{Basis: sdk.BasisNotSent, Message: why.Error()}}, nil
	}
	return effect(p, ctx, r.Deadline, func(ctx context.Context) (sdk.Response, error) { return p.client.Dispatch(ctx, r) })
}

// Fence needs [sdk.FeatureFence]. It is a write, so it ends as Dispatch does.
// An error that wraps [sdk.ErrNotSent] is a fence that was not tried.
func (p *Process) Fence(ctx context.Context, r sdk.FenceRequest) (sdk.FenceResponse, error) {
	if !p.description.HasFeature(sdk.FeatureFence) {
		return sdk.FenceResponse{}, sdk.NotSent(errors.New("this adapter has no fence"))
	}
	if r.Deadline.IsZero() {
		r.Deadline = deadlineOf(ctx)
	}
	if why := p.admit(ctx, r.Deadline); why != nil {
		return sdk.FenceResponse{}, sdk.NotSent(why)
	}
	return effect(p, ctx, r.Deadline, func(ctx context.Context) (sdk.FenceResponse, error) { return p.client.Fence(ctx, r) })
}

func deadlineOf(ctx context.Context) time.Time {
	if d, ok := ctx.Deadline(); ok {
		return d
	}
	return time.Now().Add(defaultDispatch)
}

// admit says why an effect cannot even be begun; nil has entered the gate.
func (p *Process) admit(ctx context.Context, deadline time.Time) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the call was over before it began: %w", ctx.Err())
	case !time.Now().Before(deadline):
		return errors.New("the deadline passed before the call began")
	case !p.gate.enter():
		return errRetired
	}
	return nil
}

type answered[T any] struct {
	value T
	err   error
}

// effect runs one call with an effect to its end in a goroutine of its own, and
// waits for the answer as long as the caller does. The caller has entered the gate.
func effect[T any](p *Process, ctx context.Context, deadline time.Time, f func(context.Context) (T, error)) (T, error) {
	last := deadline.Add(p.linger)
	end := &ending{closed: make(chan struct{})}
	answer := make(chan answered[T], 1)
	p.watch.Go(func() {
		callCtx, cancel := context.WithDeadline(context.WithoutCancel(ctx), last)
		v, err := f(callCtx)
		overdue := err != nil && !time.Now().Before(last)
		cancel()
		p.gate.leave() // before waiting for the death: draining waits for the gate
		if err == nil || errors.Is(err, sdk.ErrNotSent) {
			p.judge(v)
			end.finish(time.Now())
			answer <- answered[T]{v, err}
			return
		}
		answer <- answered[T]{err: p.unanswered(err, overdue, end)}
		p.fault(overdue, err)
		<-p.run.done
		end.finish(p.DiedAt())
	})
	gone, forget := cancelled(ctx)
	defer forget()
	select {
	case a := <-answer:
		return a.value, a.err
	case <-gone:
		var zero T
		return zero, &Unanswered{
			Cause: sdk.CauseCancelled, Process: p.id, Err: fmt.Errorf("nobody waits for the call any more: %w", context.Cause(ctx)), end: end,
		}
	}
}

// cancelled is closed when ctx is cancelled; that its deadline passed is no
// wish to stop waiting. The caller calls the function when it is done.
func cancelled(ctx context.Context) (<-chan struct{}, func() bool) {
	out := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			close(out)
		}
	})
	return out, stop
}

func (p *Process) unanswered(err error, overdue bool, end *ending) *Unanswered {
	u := wire.UnknownOf(err)
	if overdue {
		u.Cause = sdk.CauseTimeout
	}
	return &Unanswered{Cause: u.Cause, Overdue: overdue, Process: p.id, Err: err, end: end}
}

func (p *Process) fault(overdue bool, err error) {
	if overdue {
		p.onFault(FaultOverdue, err)
		return
	}
	p.onFault(FaultLost, err)
}

// judge has the process replaced after a panic: what the panic left locked or half written is not known.
func (p *Process) judge(v any) {
	r, ok := v.(sdk.Response)
	if !ok {
		return
	}
	if u, ok := r.Outcome.(*sdk.Unknown); ok && u.Cause == sdk.CauseAdapterPanic {
		p.onFault(FaultPanic, errors.New(u.Message))
	}
}
