package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// Decide records a person's decision and what follows from it, in one
// transaction. IfSeq makes it conditional: a sweep that settled the effect
// meanwhile wins, and the caller gets ErrStale.
func (d *Daemon) Decide(ctx context.Context, key string, req DecideRequest, who journal.By) (journal.Effect, error) {
	switch req.Decision {
	case journal.DecideRollback, journal.DecideCompensate, journal.DecideFix, journal.DecideRetire:
		return journal.Effect{}, fmt.Errorf("decision %s: %w; decide happened, did-not-happen, complete or abandon", req.Decision, ErrNotBuilt)
	case journal.DecideRead, journal.DecideHappened, journal.DecideDidNotHappen, journal.DecideComplete, journal.DecideRetry,
		journal.DecideClose, journal.DecideAbandon, journal.DecideAssign, journal.DecideKeepWaiting, journal.DecideClaim:
	default:
		return journal.Effect{}, &InvalidError{Faults: []string{fmt.Sprintf("decision: %q is not one; see: settled decide --help", req.Decision)}}
	}
	if req.Because == "" {
		return journal.Effect{}, &InvalidError{Faults: []string{"because: say why (--because)"}}
	}
	if req.To != "" && d.settings.Load().Owners[req.To] == nil {
		return journal.Effect{}, &InvalidError{Faults: []string{fmt.Sprintf("to: owner %q is not configured", req.To)}}
	}
	who.Because = req.Because
	e, err := d.write(ctx, key, func(tx *sqlite.Tx, e journal.Effect) (journal.Effect, error) {
		if req.IfSeq != 0 && req.IfSeq != e.Seq {
			return e, fmt.Errorf("%s has seq %d, not %d: %w", key, e.Seq, req.IfSeq, ErrStale)
		}
		return d.decide(tx, e, req, who)
	})
	if err != nil {
		return e, notFound(key, err)
	}
	d.wakeFor(e)
	if s := d.dests[e.Destination]; s != nil && req.Decision == journal.DecideRead && e.Phase == journal.Reconciling {
		s.goRead(e, who.Origin)
	}
	return e, nil
}

func (d *Daemon) decide(tx *sqlite.Tx, e journal.Effect, req DecideRequest, who journal.By) (journal.Effect, error) {
	op := d.policyFor(e)
	ev := journal.Decision{
		Decision: req.Decision, Object: req.Object, Keep: req.Keep, Then: req.Then, LookedAt: micro(req.LookedAt),
		NoBound: req.NoBound, Record: req.Record, To: req.To, Until: micro(req.Until), Approver: req.Approver,
	}
	if req.Evidence != "" {
		digest, err := tx.PutEvidence(e.Key, journal.Evidence{At: now(), Source: journal.FromPerson, Kind: string(req.Decision), Summary: req.Because, Body: []byte(req.Evidence)})
		if err != nil {
			return e, err
		}
		ev.Evidence = digest
	}
	retry := req.Decision == journal.DecideRetry || (req.Decision == journal.DecideDidNotHappen && req.Then == "retry")
	if retry {
		e.Deadline = later(e.Deadline, now().Add(op.eff.Deadline))
		ev.NewExpires = e.Deadline
		grant := authorize(e, op).Authority
		ev.Authority = &grant
	}
	env := d.env(op.policy, who)
	out, err := tx.Apply(e, ev, env)
	if err != nil || !retry || out.Phase != journal.Prepared {
		return out, err
	}
	env.By = by("engine")
	return tx.Apply(out, authorize(out, op), env)
}

// Cancel ends an effect while nothing is unsettled.
func (d *Daemon) Cancel(ctx context.Context, key string, who journal.By) (journal.Effect, error) {
	if who.Because == "" {
		return journal.Effect{}, &InvalidError{Faults: []string{"because: say why (--because)"}}
	}
	e, err := d.write(ctx, key, func(tx *sqlite.Tx, e journal.Effect) (journal.Effect, error) {
		return tx.Apply(e, journal.Cancel{}, d.env(d.policyFor(e).policy, who))
	})
	return e, notFound(key, err)
}

// wakeFor pokes whoever must act on the effect now.
func (d *Daemon) wakeFor(e journal.Effect) {
	if s := d.dests[e.Destination]; s != nil {
		s.settleDue(e)
	}
}

func notFound(key string, err error) error {
	if errors.Is(err, sqlite.ErrNotFound) {
		return fmt.Errorf("no effect has the key %s: %w", key, ErrNotFound)
	}
	return err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
