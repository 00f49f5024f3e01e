package journal

import "time"

// KindGraceRestart names the event of a clock that cannot be trusted over a gap.
const KindGraceRestart Kind = "grace_restart"

// GraceRestart says that the wall clock jumped or the machine booted anew: every
// window that was measured across the gap starts again at At. It never shortens one.
type GraceRestart struct{ At time.Time }

// Kind names the event.
func (GraceRestart) Kind() Kind { return KindGraceRestart }

func (ev GraceRestart) apply(b *builder) error {
	switch b.from.Phase {
	case Unknown, Reconciling, NeedsHuman, Verifying, Acknowledged:
	default:
		return b.illegal("no grace is running")
	}
	for i := range b.e.Attempts {
		a := &b.e.Attempts[i]
		if !a.State.NoEffect() && !a.ClosedAt.IsZero() && a.ClosedAt.Before(ev.At) {
			b.touch(i)
			a.ClosedAt = ev.At
		}
	}
	if d := b.e.Doubt; d != nil {
		d.FirstAbsent = nil
		d.ReadsFrom, d.Reads = ev.At, 0
	}
	b.entry("grace_restart", nil)
	b.refreshSettle()
	return nil
}
