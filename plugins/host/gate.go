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
	idle    chan struct{} // capacity 1; gets a value when a shut gate has no more calls
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

// tell wakes one waiter; the caller holds mu.
func (g *gate) tell() {
	if g.closed && g.running == 0 {
		select {
		case g.idle <- struct{}{}:
		default:
		}
	}
}

// await returns true when a shut gate has no more calls, false when ctx ended first.
func (g *gate) await(ctx context.Context) bool {
	select {
	case <-g.idle:
		g.idle <- struct{}{} // for the next waiter; no call can begin any more
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
