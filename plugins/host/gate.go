package host

import (
	"context"
	"sync"
)

// gate counts the calls that run and can be shut for new ones.
type gate struct {
	mu      sync.Mutex // guards below
	running int
	closed  bool
	told    bool
	idle    chan struct{} // closed once when a shut gate has no more calls; none can begin then
}

// enter takes a place, unless the gate is shut.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.running++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.tell()
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.tell()
}

// tell wakes all who wait; the caller holds mu.
func (g *gate) tell() {
	if g.closed && g.running == 0 && !g.told {
		g.told = true
		close(g.idle)
	}
}

// await returns true when a shut gate has no more calls, false when ctx ended first.
func (g *gate) await(ctx context.Context) bool {
	select {
	case <-g.idle:
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}
