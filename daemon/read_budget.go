package daemon

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk"
)

// oneRead is an effect that a sweep asks for, and what it was told.
type oneRead struct {
	effect journal.Effect
	op     operation
	begun  time.Time // zero: left for another time
	ended  time.Time
	resp   sdk.ReadResponse
	err    error
}

// readBudget is what one sweep may ask of a destination: as many calls a second
// as the destination takes writes, of its own, and at most half of the read
// slots. The timed reads and the dispatches have theirs beside it.
type readBudget struct {
	s       *destination
	limiter *rate.Limiter
	lanes   chan struct{}
}

func newReadBudget(s *destination) *readBudget {
	return &readBudget{
		s: s, limiter: rate.NewLimiter(s.limiter.Limit(), s.limiter.Burst()), lanes: make(chan struct{}, max(1, cap(s.reads)/2)),
	}
}

// many reports whether one listing settles many.
func (b *readBudget) many(ctx context.Context) (bool, error) {
	live, err := b.s.port.Acquire(ctx)
	if err != nil {
		return false, err
	}
	if err := b.s.describe(ctx); err != nil {
		return false, err
	}
	_, ok := live.(sdk.ManyReader)
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return ok && b.s.desc.HasFeature(sdk.FeatureReadMany), nil
}

// take waits for the sweep's turn and for a slot.
func (b *readBudget) take(ctx context.Context) error {
	if err := b.limiter.Wait(ctx); err != nil {
		return err
	}
	select {
	case b.lanes <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case b.s.reads <- struct{}{}:
		return nil
	case <-ctx.Done():
		<-b.lanes
		return ctx.Err()
	}
}

func (b *readBudget) put() {
	<-b.s.reads
	<-b.lanes
	poke(b.s.care)
}

var (
	errNotAnswered   = errors.New("the listing said nothing about it")
	errAnsweredTwice = errors.New("the listing answered twice for it")
)

// listing asks for all at once. A call that fails is a failed read of each that
// it did not answer. Its own error says that the sweep ends.
func (b *readBudget) listing(ctx context.Context, reads []oneRead) error {
	if err := b.take(ctx); err != nil {
		return err
	}
	defer b.put()
	asks := make([]sdk.ReadRequest, len(reads))
	longest := time.Duration(0)
	for i := range reads {
		asks[i] = readRequest(reads[i].effect, reads[i].op)
		longest = max(longest, reads[i].op.policy.Timeout+reads[i].op.policy.RecordReserve)
	}
	begun := now()
	answered := make([]bool, len(reads))
	err := b.ask(ctx, longest, asks, func(i int, r sdk.ReadResponse) {
		if i < 0 || i >= len(reads) {
			return
		}
		reads[i].resp, reads[i].err = r, nil
		if answered[i] {
			reads[i].resp, reads[i].err = sdk.ReadResponse{}, errAnsweredTwice
		}
		answered[i] = true
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		err = errNotAnswered
	}
	ended := now()
	for i := range reads {
		reads[i].begun, reads[i].ended = begun, ended
		if !answered[i] {
			reads[i].err = err
		}
	}
	return nil
}

func (b *readBudget) ask(ctx context.Context, limit time.Duration, asks []sdk.ReadRequest, answer func(int, sdk.ReadResponse)) error {
	live, err := b.s.port.Acquire(ctx)
	if err != nil {
		return err
	}
	many, ok := live.(sdk.ManyReader)
	if !ok {
		return errors.New("the adapter cannot list any more")
	}
	call, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return many.ReadMany(call, asks, answer)
}

// singly asks one by one, side by side within the budget. After some failures
// in a row the rest is left for another time.
func (b *readBudget) singly(ctx context.Context, reads []oneRead) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	var failed atomic.Int64
	for i := range reads {
		if failed.Load() >= maxFailures {
			break
		}
		if err := b.take(ctx); err != nil {
			return err
		}
		r := &reads[i]
		wait.Go(func() {
			defer b.put()
			r.begun = now()
			r.resp, r.err = b.s.ask1(ctx, r.effect, r.op)
			r.ended = now()
			if failed.Add(1); r.err == nil {
				failed.Store(0)
			}
		})
	}
	wait.Wait()
	return ctx.Err()
}
