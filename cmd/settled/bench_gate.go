package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// gate is an upper bound of a count: what one effect may cost, whatever the
// machine's speed. Rates are no gates.
type gate struct {
	inFlight int
	what     string
	value    func(benchLine) float64
	limit    float64
	// open: the bound is wanted and not held yet. It is shown and fails nothing.
	open bool
}

// benchGates are the bounds. None is open.
func benchGates() []gate {
	fsyncs := func(l benchLine) float64 { return l.Fsyncs }
	return []gate{
		{inFlight: 1, what: "fsyncs per effect", value: fsyncs, limit: 2.1},
		{inFlight: 16, what: "fsyncs per effect", value: fsyncs, limit: 0.5},
		{inFlight: 64, what: "fsyncs per effect", value: fsyncs, limit: 0.16},
		{inFlight: 256, what: "fsyncs per effect", value: fsyncs, limit: 0.06},
		{inFlight: 64, what: "KiB on disk per effect", value: func(l benchLine) float64 { return l.DiskBytes / 1024 }, limit: 15},
		{inFlight: 64, what: "CPU us per effect", value: func(l benchLine) float64 { return l.CPU }, limit: 500},
	}
}

// gateTries is how often a level is measured before its gates count as broken:
// a machine that is busy for a moment makes smaller groups.
const gateTries = 3

// errGate is a bound that was not held.
var errGate = errors.New("an effect costs more than its bound")

// runGates measures until every gate has held once, at most gateTries times,
// and writes a line for each. measure runs the given levels.
func runGates(ctx context.Context, gates []gate, w io.Writer, measure func(ctx context.Context, inFlight []int, show func(benchLine) error) error) error {
	best := make([]float64, len(gates))
	for i := range best {
		best[i] = -1
	}
	held := func(i int) bool { return best[i] >= 0 && best[i] <= gates[i].limit }
	for range gateTries {
		var levels []int
		for i, g := range gates {
			if !held(i) && !slices.Contains(levels, g.inFlight) {
				levels = append(levels, g.inFlight)
			}
		}
		if len(levels) == 0 {
			break
		}
		slices.Sort(levels)
		err := measure(ctx, levels, func(l benchLine) error {
			for i, g := range gates {
				if v := g.value(l); g.inFlight == l.InFlight && (best[i] < 0 || v < best[i]) {
					best[i] = v
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	var broken error
	for i, g := range gates {
		word := "ok"
		switch {
		case held(i):
		case g.open:
			word = "OPEN"
		default:
			word, broken = "BROKEN", errGate
		}
		if _, err := fmt.Fprintf(w, "%-6s  %3d in flight: %.3f %s, bound %g\n", word, g.inFlight, best[i], g.what, g.limit); err != nil {
			return err
		}
	}
	return broken
}
