package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// ConfirmRestore takes the operator's word for when the daemon that wrote the
// backup's successor was dead. Grace of everything that was open runs from
// that moment, and dispatch is on again.
func (d *Daemon) ConfirmRestore(ctx context.Context, deadAt time.Time, who journal.By) error {
	switch {
	case !d.db.Restored():
		return &InvalidError{Faults: []string{"the journal was not restored from a backup, or that is confirmed already"}}
	case deadAt.IsZero() || deadAt.After(now()):
		return &InvalidError{Faults: []string{"old-daemon-dead-at: give the time at which the old daemon was surely dead, not in the future"}}
	case who.Because == "":
		return &InvalidError{Faults: []string{"because: say how you know (--because)"}}
	}
	open, err := d.db.OpenAttempts(ctx)
	if err != nil {
		return err
	}
	for len(open) > 0 {
		n := min(recoverBatch, len(open))
		if err := d.endPresumed(ctx, open[:n], micro(deadAt), who); err != nil {
			return err
		}
		open = open[n:]
	}
	if err := d.db.Write(ctx, func(tx *sqlite.Tx) error { return tx.ClearRestored(who) }); err != nil {
		return fmt.Errorf("confirm the restore: %w", err)
	}
	d.released(ctx)
	return nil
}

func (d *Daemon) endPresumed(ctx context.Context, open []sqlite.OpenAttempt, deadAt time.Time, who journal.By) error {
	return d.db.Write(ctx, func(tx *sqlite.Tx) error {
		for _, o := range open {
			if o.State != journal.AttemptLost || o.Record.PID != 0 {
				continue // a call of this daemon's own
			}
			e, err := tx.Effect(o.Key)
			if err != nil {
				return err
			}
			if _, err = tx.Apply(e, journal.CallEnded{Attempt: o.Attempt, At: deadAt}, d.env(d.policyFor(e).policy, who)); err != nil {
				return fmt.Errorf("%s: %w", o.Key, err)
			}
		}
		return nil
	})
}
