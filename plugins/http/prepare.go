package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// baseline is what the daemon journals before the write. Snapshot is the prior
// state; IDs are the objects seen in the same view, for identify = "snapshot".
type baseline struct {
	HasSnapshot bool     `json:"has_snapshot,omitempty"`
	Snapshot    any      `json:"snapshot,omitempty"`
	HasIDs      bool     `json:"has_ids,omitempty"`
	IDs         []string `json:"ids,omitempty"`
	View        string   `json:"view,omitempty"`
	Filter      string   `json:"filter,omitempty"`
	Principal   string   `json:"principal,omitempty"`
	At          string   `json:"at,omitempty"`
}

func parseBaseline(raw []byte) (baseline, error) {
	var b baseline
	if len(raw) == 0 {
		return b, nil
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return b, fmt.Errorf("the stored baseline cannot be read: %w", err)
	}
	if b.HasSnapshot {
		// Once more, so that numbers keep their digits.
		var exact struct {
			Snapshot json.RawMessage `json:"snapshot"`
		}
		if err := json.Unmarshal(raw, &exact); err != nil {
			return b, err
		}
		if len(exact.Snapshot) > 0 {
			v, err := parseJSON(exact.Snapshot)
			if err != nil {
				return b, err
			}
			b.Snapshot = v
		}
	}
	return b, nil
}

// Prepare evaluates all that can be known before the write: the request itself,
// the target, the precondition, the prior state. It only reads.
func (a *Adapter) Prepare(ctx context.Context, o sdk.Operation) (sdk.Prepared, error) {
	s := a.configured()
	if s == nil {
		return sdk.Prepared{Deferred: &sdk.NotExecuted{Basis: sdk.BasisNotStarted, Message: notConfigured}}, nil
	}
	op, undo, err := s.action(o.Action)
	if err != nil {
		return sdk.Prepared{Rejected: &sdk.Rejected{Reason: sdk.ReasonUnsupported, Code: "unknown_action", Message: err.Error()}}, nil
	}
	if undo {
		// Its prior state is the baseline of the effect that is undone.
		return sdk.Prepared{Ready: &sdk.Ready{}}, nil
	}
	ready, err := s.prepare(ctx, op, o)
	if err != nil && ctx.Err() != nil {
		err = laterError{err} // whatever was found wrong may be the deadline's doing
	}
	if err != nil {
		return s.unprepared(err), nil
	}
	return sdk.Prepared{Ready: ready}, nil
}

// laterError is a fault of the moment: the same Prepare may succeed later.
type laterError struct{ error }

// Unwrap returns the fault itself.
func (e laterError) Unwrap() error { return e.error }

func (s *state) unprepared(err error) sdk.Prepared {
	var later laterError
	if !errors.As(err, &later) {
		return sdk.Prepared{Rejected: &sdk.Rejected{Reason: sdk.ReasonValidation, Code: "prepare", Message: s.text(err.Error(), 1024)}}
	}
	deferred := &sdk.NotExecuted{Basis: sdk.BasisNotStarted, Message: s.text(err.Error(), 1024)}
	var status *statusError
	if errors.As(err, &status) {
		deferred.RetryAfter = status.retryAfter
	}
	return sdk.Prepared{Deferred: deferred}
}

func (s *state) prepare(ctx context.Context, op *operation, o sdk.Operation) (*sdk.Ready, error) {
	objectID := ""
	if o.Target != nil {
		objectID = o.Target.ID
	}
	sc, err := s.scope(o, op.name, nil, objectID, "")
	if err != nil {
		return nil, err
	}
	ready := &sdk.Ready{}
	if op.dispatch.target != nil {
		if ready.Target, err = op.dispatch.target.runText(ctx, nil, sc); err != nil {
			return nil, fmt.Errorf("target: %w", err)
		}
	}
	if op.precondition != nil {
		if err := s.checkPrecondition(ctx, op.precondition, sc, ready); err != nil {
			return nil, fmt.Errorf("precondition: %w", err)
		}
	}
	base := baseline{At: time.Now().UTC().Format(time.RFC3339Nano)}
	if op.snapshot != nil {
		if err := s.takeSnapshot(ctx, op.snapshot, sc, &base); err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
	}
	if _, err := s.render(ctx, op.dispatch.request, sc.with("$snapshot", base.Snapshot)); err != nil {
		return nil, err
	}
	if op.read != nil && op.read.identify == bySnapshot {
		if err := s.takeIDs(ctx, op, sc, &base, ready); err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
	}
	if base.HasSnapshot || base.HasIDs {
		if ready.Baseline, err = json.Marshal(base); err != nil {
			return nil, err
		}
		if len(ready.Baseline) > sdk.MaxBaseline {
			return nil, fmt.Errorf("what must be stored before the write has %d bytes, more than %d; narrow the read", len(ready.Baseline), sdk.MaxBaseline)
		}
	}
	return ready, nil
}

// checkPrecondition reads what must still hold. That it does not hold is an
// answer, not an error.
func (s *state) checkPrecondition(ctx context.Context, p *precondition, sc scope, ready *sdk.Ready) error {
	a, err := s.getNow(ctx, p.request, sc)
	if err != nil {
		return err
	}
	sc = sc.with("$response", a.value)
	if p.value != nil {
		holds, err := p.value.runBool(ctx, nil, sc)
		if err != nil {
			return err
		}
		ready.PreconditionFailed = !holds
	}
	if p.etag == nil || ready.PreconditionFailed {
		return nil
	}
	if ready.Revision, err = p.etag.runText(ctx, nil, sc); err != nil {
		return err
	}
	if ready.Revision == "" {
		return fmt.Errorf("`%s` gives no revision", p.etag.source)
	}
	return nil
}

// getNow is get for Prepare: the network, 5xx and 429 are faults of the moment.
func (s *state) getNow(ctx context.Context, r request, sc scope) (*answer, error) {
	req, err := s.render(ctx, r, sc)
	if err != nil {
		return nil, err
	}
	a, err := s.fetch(ctx, req)
	if err != nil {
		return nil, laterError{err}
	}
	if err := a.readable(); isMomentary(err) {
		return nil, laterError{err}
	}
	if a.ok() && a.bad != nil {
		return nil, laterError{a.bad}
	}
	return a, nil
}

func (s *state) takeSnapshot(ctx context.Context, sn *snapshot, sc scope, base *baseline) error {
	a, err := s.getNow(ctx, sn.request, sc)
	if err != nil {
		return err
	}
	sc = sc.with("$response", a.value)
	base.HasSnapshot = true
	if sn.none != nil {
		none, err := sn.none.runBool(ctx, nil, sc)
		if err != nil || none {
			return err
		}
	}
	if err := a.readable(); err != nil {
		return err
	}
	base.Snapshot = a.value["body"]
	if sn.items != nil {
		if base.Snapshot, err = sn.items.run(ctx, nil, sc); err != nil {
			return err
		}
	}
	return nil
}

// takeIDs lists the objects that are there before the write.
func (s *state) takeIDs(ctx context.Context, op *operation, sc scope, base *baseline, ready *sdk.Ready) error {
	l, err := s.list(ctx, op.read, sc)
	if err != nil {
		if !isMomentary(err) {
			return err
		}
		return laterError{err}
	}
	if l.coverage != sdk.CoverageComplete {
		return errors.New("the listing before the write is not complete, so that nothing could be told from it later")
	}
	for _, item := range l.items {
		id, err := op.read.objectID.runText(ctx, item.value, item.scope)
		if err != nil {
			return err
		}
		if id == "" {
			return errors.New("an object without id")
		}
		base.IDs = append(base.IDs, id)
	}
	base.HasIDs = true
	base.View, base.Filter, base.Principal = op.read.viewName(op), hexDigest(l.filter), s.principal
	ready.View = &sdk.View{ID: base.View, FilterSHA256: l.filter, Principal: s.principal, ScannedFrom: unbounded(), ScannedTo: l.begun}
	return nil
}

// isMomentary tells the network, 5xx and 429 from what would fail again.
func isMomentary(err error) bool {
	var wire *sdk.WireError
	var status *statusError
	if errors.As(err, &status) {
		return status.status >= 500 || status.status == 429
	}
	return errors.As(err, &wire) || errors.Is(err, sdk.ErrNotSent)
}
