package daemon

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

// recoverBatch bounds the effects that one recovery transaction touches.
const recoverBatch = 256

// recover brings every effect that an earlier daemon left half-way into a
// state that says so. It runs before anything is sent: an attempt that is
// `sent` without an answer is lost and its effect unknown; nothing is ever
// inferred to be not sent. By then the old processes are proved dead.
func (d *Daemon) recover(ctx context.Context) error {
	begun := time.Now()
	open, err := d.db.OpenAttempts(ctx)
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	for len(open) > 0 {
		n := min(recoverBatch, len(open))
		if err := d.loseAll(ctx, open[:n]); err != nil {
			return fmt.Errorf("recover: %w", err)
		}
		open = open[n:]
	}
	counts := map[journal.Phase]int{}
	if err := d.eachInPhase(ctx, journal.Reconciling, func(e journal.Effect) journal.Event {
		counts[journal.Reconciling]++
		return journal.LeaseEnd{}
	}); err != nil {
		return err
	}
	if d.db.Restored() {
		if err := d.afterRestore(ctx); err != nil {
			return err
		}
	}
	if d.opts.ClockJumped {
		if err := d.restartGrace(ctx, "the machine booted anew or its clock jumped"); err != nil {
			return err
		}
	}
	d.log.Info("recovered", "dead_leases", counts[journal.Reconciling], "took", time.Since(begun))
	return nil
}

// loseAll turns attempts without an answer into lost ones, and closes those
// that were overdue: their processes are dead.
func (d *Daemon) loseAll(ctx context.Context, open []sqlite.OpenAttempt) error {
	return d.db.Write(ctx, func(tx *sqlite.Tx) error {
		for _, o := range open {
			e, err := tx.Effect(o.Key)
			if err != nil {
				return err
			}
			op := d.policyFor(e)
			env := d.env(op.policy, by("recovery"))
			var ev journal.Event = journal.CallEnded{Attempt: o.Attempt, At: d.opts.DeadAt}
			if o.State != journal.AttemptSent && d.db.Restored() {
				continue // presumed attempts end with the operator's word
			}
			if o.State == journal.AttemptSent {
				ev = journal.Lost{Attempt: o.Attempt, DeadAt: d.opts.DeadAt, Cause: "crash"}
			}
			if _, err = tx.Apply(e, ev, env); err != nil {
				return fmt.Errorf("%s: %w", o.Key, err)
			}
			d.log.Warn("an attempt was in flight when the daemon stopped; reading before anything else", "key", o.Key, "attempt", o.Attempt, "was", o.State)
		}
		return nil
	})
}

// policyFor resolves an effect's policy even while its adapter is down:
// recovery must not wait for it. Without the adapter's word nothing is
// declared, so no absence can be concluded from what is computed here; the next
// look at the effect uses the full policy.
func (d *Daemon) policyFor(e journal.Effect) operation {
	s := d.dests[e.Destination]
	if s == nil {
		return operation{policy: journal.Policy{
			Owner: e.Owner, Severity: e.Severity, HasRead: true,
			ReconcileBudget: 24 * time.Hour, VerifyDeadline: time.Hour, AckDeadline: time.Hour,
			Timeout: time.Minute, RecordReserve: time.Minute,
		}}
	}
	s.mu.Lock()
	op, ok := s.ops[e.Operation]
	s.mu.Unlock()
	if ok {
		return op
	}
	unread := sdk.ActionSpec{Name: e.Operation}
	op = resolve(s.conf.Load().ForOperation(e.Operation), unread, "", d.settings.Load().PolicySHA256())
	op.policy.HasRead = true // it is asked again when it is due; a person is not needed yet
	return op
}

// eachInPhase applies one event, unless it is nil, to every effect of a phase, in batches and in id order.
func (d *Daemon) eachInPhase(ctx context.Context, phase journal.Phase, event func(journal.Effect) journal.Event) error {
	cursor := ""
	for page := 0; page < math.MaxInt32; page++ {
		list, next, err := d.db.List(ctx, journal.Filter{Phases: []journal.Phase{phase}}, cursor, recoverBatch)
		if err != nil {
			return fmt.Errorf("list %s: %w", phase, err)
		}
		if len(list) == 0 {
			return nil
		}
		err = d.db.Write(ctx, func(tx *sqlite.Tx) error {
			for _, seen := range list {
				e, err := tx.Effect(seen.Key)
				if err != nil {
					return err
				}
				if e.Phase != phase {
					continue
				}
				ev := event(e)
				if ev == nil {
					continue
				}
				if _, err = tx.Apply(e, ev, d.env(d.policyFor(e).policy, by("recovery"))); err != nil {
					return fmt.Errorf("%s: %w", e.Key, err)
				}
			}
			return nil
		})
		if err != nil || next == "" {
			return err
		}
		cursor = next
	}
	return nil
}

// afterRestore is transition 41: the journal is older than the world. Dispatch
// stays off until a person says when the old daemon was dead.
func (d *Daemon) afterRestore(ctx context.Context) error {
	if err := d.db.Write(ctx, func(tx *sqlite.Tx) error {
		return tx.SetDispatchOff("the journal was restored from a backup; run: settled journal confirm-restore --old-daemon-dead-at TIME --because WHY")
	}); err != nil {
		return err
	}
	for _, p := range []journal.Phase{
		journal.Prepared, journal.Authorized, journal.Dispatching, journal.Acknowledged,
		journal.Verifying, journal.ConfirmedAbsent,
	} {
		err := d.eachInPhase(ctx, p, func(e journal.Effect) journal.Event {
			return journal.Restore{Attempt: journal.Attempt{ID: d.opts.NewID(), Epoch: d.db.Epoch(), Key: e.Key, Marker: e.Key, Account: e.Account}}
		})
		if err != nil {
			return err
		}
	}
	d.log.Error("the journal was restored from a backup: dispatch is off until an operator confirms")
	return nil
}

// restartGrace begins every running grace window anew: wall time cannot be trusted across a jump.
func (d *Daemon) restartGrace(ctx context.Context, why string) error {
	at := now()
	for _, p := range []journal.Phase{journal.Unknown, journal.Reconciling, journal.NeedsHuman, journal.Verifying, journal.Acknowledged} {
		err := d.eachInPhase(ctx, p, func(journal.Effect) journal.Event { return journal.GraceRestart{At: at} })
		if err != nil {
			return err
		}
	}
	for _, p := range []journal.Phase{journal.ConfirmedAbsent, journal.Authorized} {
		if err := d.eachInPhase(ctx, p, func(e journal.Effect) journal.Event {
			if e.Absence == nil {
				return nil // nothing rests on a time before the jump
			}
			return journal.DoubtAbsence{Reason: "the clock jumped"}
		}); err != nil {
			return err
		}
	}
	d.log.Warn("grace windows start again", "why", why)
	return nil
}
