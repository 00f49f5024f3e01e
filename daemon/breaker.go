package daemon

import (
	"sync"
	"time"
)

// Breaker timing. A probe is a read; the pause between probes doubles.
const (
	probeFirst = 5 * time.Second
	probeMax   = 5 * time.Minute
)

// breaker stops writing to a destination that does not answer. It opens after
// a streak of unknowns or errors, half-opens with a read and never with a
// write, and closes when the one write it then lets through is answered.
type breaker struct {
	openAfter int

	mu sync.Mutex
	// protects following
	state   breakerState
	streak  int
	since   time.Time
	pause   time.Duration
	probeAt time.Time
	probing bool
	trial   bool // half-open: the one write is under way
}

type breakerState string

const (
	breakerClosed   breakerState = "closed"
	breakerOpen     breakerState = "open"
	breakerHalfOpen breakerState = "half-open"
)

func newBreaker(openAfter int) *breaker {
	return &breaker{openAfter: max(1, openAfter), state: breakerClosed}
}

// allows reports whether a write may go, and if not how long to wait before asking again.
func (b *breaker) allows(now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case breakerClosed:
		return 0, true
	case breakerHalfOpen:
		if !b.trial {
			return 0, true
		}
		return time.Second, false
	}
	return max(b.probeAt.Sub(now), time.Second), false // a probe that ends pokes
}

// begin notes that a write goes; it reports false when another got in between.
func (b *breaker) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state == breakerClosed:
		return true
	case b.state == breakerHalfOpen && !b.trial:
		b.trial = true
		return true
	}
	return false
}

// answered records a write that got a definite answer. While the breaker is
// open it closes nothing: the call left before, and only a read half-opens.
func (b *breaker) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != breakerOpen {
		b.state, b.streak, b.trial, b.pause = breakerClosed, 0, false, 0
	}
}

// notSent takes back a begin that led to no call.
func (b *breaker) notSent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trial = false
}

// failed records an unknown or an error; it reports whether the breaker opened by it.
func (b *breaker) failed(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streak++
	if b.state == breakerHalfOpen || (b.state == breakerClosed && b.streak >= b.openAfter) {
		b.trip(now)
		return true
	}
	return false
}

// force opens the breaker whatever the streak: a finding on the trip list.
func (b *breaker) force(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trip(now)
}

func (b *breaker) trip(now time.Time) {
	if b.state != breakerOpen {
		b.since = now
	}
	b.state, b.trial = breakerOpen, false
	b.pause = min(max(b.pause*2, probeFirst), probeMax)
	b.probeAt = now.Add(b.pause)
}

// wantsProbe reports whether a read should be tried now, or how long until then.
func (b *breaker) wantsProbe(now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != breakerOpen || b.probing {
		return 0, false
	}
	if now.Before(b.probeAt) {
		return b.probeAt.Sub(now), false
	}
	b.probing = true
	return 0, true
}

// read records what a read showed: a good one half-opens.
func (b *breaker) read(ok bool, now time.Time) (halfOpened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != breakerOpen || now.Before(b.probeAt) {
		return false // too early to believe that it is back, or to wait longer for it
	}
	if !ok {
		b.trip(now)
		return false
	}
	b.state, b.trial = breakerHalfOpen, false
	return true
}

// probed ends a probe.
func (b *breaker) probed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == breakerOpen
}

func (b *breaker) show() (breakerState, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state, b.since
}

// tokens is the destination's retry-token bucket: a share of first attempts
// plus a floor per minute. It bounds how much retries add to a load that is
// already in trouble.
type tokens struct {
	share, perMinute float64

	mu sync.Mutex
	// protects following
	have float64
	last time.Time
}

func newTokens(share, perMinute float64) *tokens {
	return &tokens{share: share, perMinute: perMinute, have: max(perMinute, 1)}
}

// capacity bounds what a quiet time can save up.
func (t *tokens) capacity() float64 { return max(10, t.perMinute) + 100*t.share }

func (t *tokens) refill(now time.Time) {
	if !t.last.IsZero() {
		t.have += now.Sub(t.last).Minutes() * t.perMinute
	}
	t.last = now
	t.have = min(t.have, t.capacity())
}

// first credits a first attempt.
func (t *tokens) first(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refill(now)
	t.have = min(t.have+t.share, t.capacity())
}

// take spends one token for a retry, or says how long until there is one.
func (t *tokens) take(now time.Time) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refill(now)
	if t.have >= 1 {
		t.have--
		return 0, true
	}
	if t.perMinute <= 0 {
		return time.Minute, false
	}
	return time.Duration((1 - t.have) / t.perMinute * float64(time.Minute)), false
}

// giveBack returns a token whose retry was not sent.
func (t *tokens) giveBack() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.have = min(t.have+1, t.capacity())
}

func (t *tokens) left(now time.Time) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refill(now)
	return t.have
}
