package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	errUnfinished = errors.New("the answer ended early")
	errNotSent    = errors.New("nothing was sent")
)

// Done: the effect happened once and was confirmed.
type Done struct{ Effect Effect }

// NotDone: the effect is known not to have happened. Effect is the zero value
// when it was never recorded; Err then says why.
type NotDone struct {
	Effect Effect
	Err    error
}

// Unknown: nothing proves either way yet, or a person has it or closed it. It
// may have happened or may still happen: never do the work another way.
type Unknown struct {
	Effect Effect // as last seen; the zero value when nothing was seen
	Why    string
	Err    error // why the caller stopped looking; nil = the effect rests with a person
}

// Result is exactly one of [Done], [NotDone] and [Unknown]. It is read with
// [Result.Match]; there is no other way in, so that no case is forgotten. The
// zero Result is unknown.
type Result struct {
	done    *Done
	notDone *NotDone
	unknown *Unknown
}

// Match calls the one function that fits. All three must be given; a nil one panics at once, whatever the result is.
func (r Result) Match(done func(Done), notDone func(NotDone), unknown func(Unknown)) {
	if done == nil || notDone == nil || unknown == nil {
		panic("client: Match needs all three of done, notDone and unknown")
	}
	switch {
	case r.done != nil:
		done(*r.done)
	case r.notDone != nil:
		notDone(*r.notDone)
	case r.unknown != nil:
		unknown(*r.unknown)
	default:
		unknown(Unknown{Why: "nothing was asked"})
	}
}

// ResultOf says what an effect amounts to now. ended is why the caller looks no
// longer at an effect that does not rest yet.
func ResultOf(e Effect, ended error) Result {
	switch e.Phase {
	case "succeeded":
		return Result{done: &Done{e}}
	case "failed", "rolled_back":
		return Result{notDone: &NotDone{Effect: e, Err: fmt.Errorf("%s: %s", e.Key, e.Words)}}
	case "compensated", "abandoned":
		return Result{unknown: &Unknown{Effect: e, Why: "closed by a person, look at it: " + e.Words}}
	}
	return Result{unknown: &Unknown{Effect: e, Why: e.Words, Err: ended}}
}

// submitTries bounds how often Do sends a request whose recording is in doubt.
const submitTries = 3

// Do submits and waits until the effect rests or the context ends. It returns
// no error: what it cannot find out is [Unknown], and only what is known not to
// have been recorded, or not to have happened, is [NotDone]. A submit without an
// answer is sent again with the same key, which is safe, a few times.
func (c *Client) Do(ctx context.Context, req SubmitRequest) Result {
	var doubt error
	for range submitTries {
		_, err := c.Submit(ctx, req)
		switch {
		case err == nil:
			return c.await(ctx, req.Key)
		case mayBeRecorded(err):
			doubt = err
		case doubt == nil || isConflict(err): // bound to another request: ours never was recorded
			return Result{notDone: &NotDone{Err: err}}
		}
		if !pause(ctx, 100*time.Millisecond) {
			break
		}
	}
	return Result{unknown: &Unknown{Why: "may be recorded: submit again with the same key", Err: doubt}}
}

func (c *Client) await(ctx context.Context, key string) Result {
	e, err := c.Wait(ctx, key)
	if e.Key == "" {
		return Result{unknown: &Unknown{Why: "recorded, but its state could not be read", Err: err}}
	}
	return ResultOf(e, err)
}

// mayBeRecorded reports whether a submit that returned err may have been committed.
func mayBeRecorded(err error) bool {
	var p *Problem
	if errors.As(err, &p) {
		return p.Code == CodeSubmissionUnknown || p.Code == CodeInternal
	}
	var gone *UnreachableError
	return !errors.As(err, &gone) && !errors.Is(err, errNotSent)
}

func isConflict(err error) bool {
	var p *Problem
	return errors.As(err, &p) && p.Code == CodeKeyConflict
}

// pause waits, and reports false when the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
