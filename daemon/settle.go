package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

// fenceMark is how an absence names the mark that made it final.
const fenceMark = "fence:"

// settle is one step towards certainty: a fence or a replay where the operator
// opted in and it may be tried now, an authoritative read everywhere else.
func (s *destination) settle(ctx context.Context, e journal.Effect, op operation, source string, do journal.StepKind) (journal.Effect, error) {
	var next journal.Effect
	var err error
	switch do {
	case journal.StepFence:
		next, err = s.fence(ctx, e, op)
	case journal.StepReplay:
		next, err = s.replay(ctx, e, op)
	default:
		return s.read(ctx, e, op, source)
	}
	if err == nil && next.Seq != e.Seq {
		return next, nil
	}
	if err != nil {
		s.d.log.Info("read instead", "key", e.Key, "step", do, "why", err)
	}
	return s.read(ctx, e, op, source)
}

// fence takes the effect's key at the destination with a void mark, so that no
// earlier request can land any more. Its intent is on disk before the call; an
// unanswered fence is read before it is tried again.
func (s *destination) fence(ctx context.Context, e journal.Effect, op operation) (journal.Effect, error) {
	live, err := s.port.Acquire(ctx)
	if err != nil {
		return e, fmt.Errorf("the adapter is not up: %w", err)
	}
	fencer, ok := live.(sdk.Fencer)
	if !ok || !s.offers(sdk.FeatureFence) {
		return e, fmt.Errorf("the adapter of %s cannot fence", s.name)
	}
	e, err = s.d.write(ctx, e.Key, func(tx *sqlite.Tx, cur journal.Effect) (journal.Effect, error) {
		return tx.Apply(cur, journal.FenceBegin{Lease: op.policy.Timeout + op.policy.RecordReserve}, s.d.env(op.policy, by("sweep")))
	})
	if err != nil {
		return e, fmt.Errorf("record the fence's intent: %w", err)
	}
	done := s.takeKey(fencer, e, op)
	return s.d.record(e.Key, func(tx *sqlite.Tx, cur journal.Effect) (journal.Effect, error) {
		next, err := tx.Apply(cur, done, s.d.env(op.policy, by("sweep")))
		var illegal *journal.IllegalError
		if errors.As(err, &illegal) && cur.Seq != e.Seq {
			return cur, nil // settled while the fence was under way
		}
		return next, err
	})
}

// offers reports whether the adapter declares a feature.
func (s *destination) offers(feature string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desc.HasFeature(feature)
}

// takeKey asks for the mark. A mark of ours that stands already is final only if
// no attempt may still replace it: one that was sent on condition of just that
// version could land yet, so the mark is first replaced by a new one.
func (s *destination) takeKey(fencer sdk.Fencer, e journal.Effect, op operation) journal.FenceDone {
	ask := func(replaces string) (sdk.FenceResponse, error) {
		call, cancel := context.WithTimeout(s.d.callCtx, op.policy.Timeout)
		defer cancel()
		return fencer.Fence(call, sdk.FenceRequest{
			Operation: operationOf(e, "", len(e.Attempts)), Deadline: now().Add(op.policy.Timeout), ReplacesRevision: replaces,
		})
	}
	resp, err := ask("")
	if rev, ours := voidOf(resp); err == nil && ours && awaited(e, rev) {
		if resp, err = ask(rev); err == nil {
			if again, _ := voidOf(resp); again == rev {
				return journal.FenceDone{}
			}
		}
	}
	return fenceDone(resp, err)
}

// voidOf is the version of our own mark, when the fence met nothing else.
func voidOf(r sdk.FenceResponse) (revision string, ours bool) {
	if r.Found == nil || len(r.Found.Matches) == 0 {
		return "", false
	}
	for _, m := range r.Found.Matches {
		if !m.Void {
			return "", false
		}
	}
	return r.Found.Matches[0].Object.Revision, true
}

// awaited reports whether an attempt that is not settled counts on this version of the mark.
func awaited(e journal.Effect, revision string) bool {
	for _, a := range e.Attempts {
		if !a.State.NoEffect() && (revision == "" || a.ExpectedRevision == revision) {
			return true
		}
	}
	return false
}

// fenceDone maps the answer of a fence. No answer is no certainty.
func fenceDone(r sdk.FenceResponse, err error) journal.FenceDone {
	if err != nil {
		return journal.FenceDone{}
	}
	if rev, ours := voidOf(r); ours {
		return journal.FenceDone{Fenced: true, Revision: rev}
	}
	if r.Found != nil {
		for _, m := range matchesOf(r.Found.Matches) {
			if !m.Void {
				return journal.FenceDone{Object: &m}
			}
		}
		return journal.FenceDone{}
	}
	if r.Fenced != nil {
		return journal.FenceDone{Fenced: true, Revision: r.Fenced.Revision}
	}
	return journal.FenceDone{}
}

// revisionOf is the version of our own mark that the next attempt replaces; "" without a fence.
func revisionOf(e journal.Effect) string {
	if e.Absence == nil || e.Absence.How != "fence" {
		return ""
	}
	rev, _ := strings.CutPrefix(e.Absence.Ref, fenceMark)
	return rev
}

// replay sends the same key and payload again to a destination that promises
// its first response. It is a write while unknown, the one named exception; it
// spends an attempt, and its `sent` row is on disk first.
func (s *destination) replay(ctx context.Context, e journal.Effect, op operation) (journal.Effect, error) {
	live, err := s.port.Acquire(ctx)
	if err != nil {
		return e, fmt.Errorf("the adapter is not up: %w", err)
	}
	select {
	case s.slots <- struct{}{}:
	default:
		return e, nil // dispatch comes first; the read is tried again
	}
	defer func() {
		<-s.slots
		poke(s.wake)
	}()
	id := s.d.opts.NewID()
	wait, token := s.tokens.take(time.Now())
	if !token {
		return e, fmt.Errorf("no retry token for a replay; the next in %s", wait)
	}
	out, err := s.d.write(ctx, e.Key, func(tx *sqlite.Tx, cur journal.Effect) (journal.Effect, error) {
		ask := s.ask(tx, cur, op)
		ask.BreakerOpen = s.breaker.open()
		return tx.Apply(cur, journal.ReplaySend{Ask: ask, Attempt: s.attempt(cur, live, id)}, s.d.env(op.policy, by("dispatcher")))
	})
	if err != nil {
		s.tokens.giveBack()
		return e, err
	}
	if done := s.call(s.begun(out, op, live)); done != nil {
		return *done, nil
	}
	return out, nil
}
