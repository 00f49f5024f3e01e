package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// Acquire returns the current process, waiting for one until ctx ends or
// AcquireMax is over; while the circuit is open it does not wait. The error wraps [ErrDown].
//
// The process may be retired at any moment. A call to it is then not executed.
// Journal its identity, then call it: the attempt and the process surely belong together.
func (s *Supervisor) Acquire(ctx context.Context) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.AcquireMax)
	defer cancel()
	for {
		s.mu.Lock()
		p, changed, closed, err := s.current, s.changed, s.closed, s.lastErr
		open, next := s.circuit(time.Now()), s.next
		s.mu.Unlock()
		switch {
		case closed:
			return nil, fmt.Errorf("%w: it was stopped", ErrDown)
		case p != nil:
			return p, nil
		case !open.IsZero():
			return nil, &DownError{Until: open, Err: err}
		case time.Until(next) > s.o.AcquireMax:
			return nil, &DownError{Until: next, Err: err}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, &DownError{Until: next, Err: errors.Join(err, ctx.Err())}
		}
	}
}

// DownError is an [ErrDown] that knows when a start is due.
type DownError struct {
	Until time.Time // zero = not known
	Err   error     // why the last process ended
}

func (e *DownError) Error() string {
	text := ErrDown.Error()
	if !e.Until.IsZero() {
		text += " before " + e.Until.UTC().Format(time.RFC3339)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap makes it an [ErrDown], and proof that nothing was sent.
func (e *DownError) Unwrap() []error { return []error{ErrDown, sdk.ErrNotSent, e.Err} }

func (e *DownError) retryAfter() time.Duration {
	return max(time.Second, time.Until(e.Until))
}

// Identity says which process is current, or was last.
func (s *Supervisor) Identity() Identity { return s.Status().Identity }

// Describe returns the description of the current process, or of the last one while it restarts.
func (s *Supervisor) Describe(ctx context.Context) (sdk.Description, error) {
	s.mu.Lock()
	p := s.last
	s.mu.Unlock()
	if p == nil {
		var err error
		if p, err = s.Acquire(ctx); err != nil {
			return sdk.Description{}, err
		}
	}
	return p.Describe(ctx)
}

// Configure fails; see [Supervisor.Reconfigure].
func (s *Supervisor) Configure(context.Context, sdk.Configuration) (sdk.Configured, error) {
	return sdk.Configured{}, errors.New("the supervisor configures its processes itself")
}

// Check asks whether the destination can be reached.
func (s *Supervisor) Check(ctx context.Context, actions []string) (sdk.Health, error) {
	p, err := s.Acquire(ctx)
	if err != nil {
		return sdk.Health{}, err
	}
	return p.Check(ctx, actions)
}

// Prepare has no effect; an error means not executed.
func (s *Supervisor) Prepare(ctx context.Context, op sdk.Operation) (sdk.Prepared, error) {
	p, err := s.Acquire(ctx)
	if err != nil {
		return sdk.Prepared{}, err
	}
	return p.Prepare(ctx, op)
}

// Dispatch is [Process.Dispatch] on the current process. Without one it answers
// not executed, not sent, and when to come again.
func (s *Supervisor) Dispatch(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	p, err := s.acquireBefore(ctx, r.Deadline)
	if err != nil {
		n := &sdk.NotExecuted{Basis: sdk.BasisNotSent, Message: err.Error(), WholeDestination: true}
		var down *DownError
		if errors.As(err, &down) {
			n.RetryAfter = down.retryAfter()
		}
		return sdk.Response{Outcome: n}, nil
	}
	return p.Dispatch(ctx, r)
}

// acquireBefore waits no longer than the effect's own deadline.
func (s *Supervisor) acquireBefore(ctx context.Context, deadline time.Time) (*Process, error) {
	if deadline.IsZero() {
		return s.Acquire(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return s.Acquire(ctx)
}

// Read asks what the destination holds; an error is a failed read.
func (s *Supervisor) Read(ctx context.Context, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	p, err := s.Acquire(ctx)
	if err != nil {
		return sdk.ReadResponse{}, err
	}
	return p.Read(ctx, r)
}

// ReadMany needs [sdk.FeatureReadMany].
func (s *Supervisor) ReadMany(ctx context.Context, reads []sdk.ReadRequest, answer func(int, sdk.ReadResponse)) error {
	p, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	return p.ReadMany(ctx, reads, answer)
}

// Fence needs [sdk.FeatureFence]; see [Process.Fence].
func (s *Supervisor) Fence(ctx context.Context, r sdk.FenceRequest) (sdk.FenceResponse, error) {
	p, err := s.acquireBefore(ctx, r.Deadline)
	if err != nil {
		return sdk.FenceResponse{}, err
	}
	return p.Fence(ctx, r)
}
