package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// sweepPage is how many effects one page of a sweep takes.
const sweepPage = 200

// sweepPhases are what a reconcile sweep looks at, in this order.
func sweepPhases() []journal.Phase {
	return []journal.Phase{journal.Unknown, journal.Verifying, journal.Acknowledged}
}

// Sweep runs a schedule now. A sweep only brings reads forward: what it finds
// is judged by the same guard as every other read.
func (d *Daemon) Sweep(ctx context.Context, name string, progress func(SweepReport)) (SweepReport, error) {
	item := d.sched.Load().items[name]
	if item == nil {
		return SweepReport{}, fmt.Errorf("schedule %q is not configured; see: settled schedule list: %w", name, ErrNotFound)
	}
	return d.sched.Load().start(ctx, item, time.Time{}, progress)
}

// reconcileSweep reads every unsettled effect of one destination once, in id
// order, within the destination's read slots. It is killed at no cost: what
// was recorded stays, the rest is read by the next one.
func (d *Daemon) reconcileSweep(ctx context.Context, rep SweepReport, progress func(SweepReport)) (SweepReport, error) {
	s := d.dests[rep.Destination]
	r := &sweepRun{dest: s, report: rep, progress: progress}
	counts, err := d.db.Counts(ctx)
	if err != nil {
		return r.report, err
	}
	for _, p := range sweepPhases() {
		r.report.Total += int(counts.Phases[rep.Destination][p])
	}
	r.tell()
	for _, p := range sweepPhases() {
		if err := r.phase(ctx, p); err != nil {
			return r.report, err
		}
	}
	return r.report, nil
}

// sweepRun counts what a sweep saw.
type sweepRun struct {
	dest     *destination
	progress func(SweepReport)

	mu sync.Mutex
	// protects following
	report SweepReport
}

func (r *sweepRun) phase(ctx context.Context, p journal.Phase) error {
	filter := journal.Filter{Destinations: []string{r.dest.name}, Phases: []journal.Phase{p}}
	cursor := ""
	for {
		list, next, err := r.dest.d.db.List(ctx, filter, cursor, sweepPage)
		if err != nil {
			return fmt.Errorf("list %s: %w", p, err)
		}
		var wait sync.WaitGroup
		for _, e := range list {
			if r.dest.breaker.open() && r.failing() {
				return fmt.Errorf("destination %s is down; the timed reads go on", r.dest.name)
			}
			select {
			case <-ctx.Done():
				wait.Wait()
				return ctx.Err()
			case r.dest.reads <- struct{}{}:
			}
			wait.Go(func() {
				defer func() { <-r.dest.reads }()
				r.one(ctx, e.Key)
			})
		}
		wait.Wait()
		r.tell()
		if next == "" {
			return nil
		}
		cursor = next
	}
}

func (r *sweepRun) failing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.ReadFailed > 0 && r.report.ReadFailed == r.report.Asked
}

// one brings the read of one effect forward and lets it go as far as it may.
func (r *sweepRun) one(ctx context.Context, key string) {
	s := r.dest
	if !s.claim(key) {
		return // somebody reads it right now
	}
	defer s.release(key)
	before, err := s.d.db.Effect(ctx, key)
	if err != nil {
		return
	}
	op := s.d.policyFor(before)
	_, err = s.d.write(ctx, key, func(tx *sqlite.Tx, e journal.Effect) (journal.Effect, error) {
		return tx.Apply(e, journal.ReadAgain{At: now()}, s.d.env(op.policy, by("sweep")))
	})
	if err != nil {
		return // settled meanwhile
	}
	e, _ := s.tend(ctx, key, "sweep")
	r.count(ctx, before, e)
	s.settleDue(e)
}

// count adds the newest verdict of an effect to the report.
func (r *sweepRun) count(ctx context.Context, before, after journal.Effect) {
	recs, err := r.dest.d.db.Reconciliations(ctx, after.Key)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Asked++
	if err != nil || len(recs) == 0 || after.Reads == before.Reads {
		r.report.Unknown++
		return
	}
	switch recs[len(recs)-1].Verdict {
	case journal.VerdictMatches:
		r.report.Matches++
	case journal.VerdictAbsent:
		r.report.Absent++
	case journal.VerdictPartial:
		r.report.Partial++
	case journal.VerdictDuplicate:
		r.report.Duplicate++
	case journal.VerdictConflicts:
		r.report.Conflicts++
	case journal.VerdictReadFailed:
		r.report.ReadFailed++
	default:
		r.report.Unknown++
		if d := after.Doubt; d != nil && d.SettleNotBefore.After(now()) {
			r.report.WaitingForGrace++
		}
	}
}

func (r *sweepRun) tell() {
	if r.progress == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress(r.report)
}
