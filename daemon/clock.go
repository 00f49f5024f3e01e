package daemon

import (
	"context"
	"time"
)

// clockTick is how often wall and monotonic time are compared; clockJump is
// how far they may drift apart in one tick before windows start again.
const (
	clockTick = 10 * time.Second
	clockJump = 5 * time.Second
)

// watchClock compares wall and monotonic time. Windows are stored as wall
// time, so a jump would end them early or late: after one they start again.
func (d *Daemon) watchClock(ctx context.Context) {
	tick := time.NewTicker(clockTick)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		at := time.Now()
		mono := at.Sub(last)                   // monotonic reading
		wall := at.Round(0).Sub(last.Round(0)) // wall clock only
		last = at
		if drift := (wall - mono).Abs(); drift > clockJump {
			d.log.Warn("the clock jumped", "by", wall-mono)
			if err := d.restartGrace(ctx, "the clock jumped by "+(wall-mono).String()); err != nil {
				d.unexpected(ctx, "restart grace windows", "", err)
			}
			for _, s := range d.dests {
				poke(s.wake)
				poke(s.care)
			}
		}
	}
}
