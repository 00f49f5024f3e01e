package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

func TestAGateFailsOnlyWhenItsBoundIsNeverHeld(t *testing.T) {
	for name, c := range map[string]struct {
		fsyncs []float64 // of each try
		open   bool
		tries  int
		word   string
		broken bool
	}{
		"held at once":     {fsyncs: []float64{2.1}, tries: 1, word: "ok"},
		"held in the end":  {fsyncs: []float64{3, 2.2, 2.05}, tries: 3, word: "ok"},
		"never held":       {fsyncs: []float64{2.2, 2.3, 2.2}, tries: 3, word: "BROKEN", broken: true},
		"open, never held": {fsyncs: []float64{2.2, 2.3, 2.2}, open: true, tries: 3, word: "OPEN"},
	} {
		gates := []gate{{inFlight: 1, what: "fsyncs per effect", value: func(l benchLine) float64 { return l.Fsyncs }, limit: 2.1, open: c.open}}
		tries := 0
		var out bytes.Buffer
		err := runGates(context.Background(), gates, &out, func(_ context.Context, inFlight []int, show func(benchLine) error) error {
			if len(inFlight) != 1 || inFlight[0] != 1 {
				t.Errorf("%s: levels %v", name, inFlight)
			}
			tries++
			return errors.Join(show(benchLine{InFlight: 1, Fsyncs: c.fsyncs[tries-1]}), show(benchLine{InFlight: 64}))
		})
		if errors.Is(err, errGate) != c.broken || tries != c.tries || !strings.HasPrefix(out.String(), c.word+" ") {
			t.Errorf("%s: %v after %d tries: %s", name, err, tries, out.String())
		}
	}
}
