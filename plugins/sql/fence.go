package sql

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// A void row has voidDigest for its digest and a revision that begins with
// voidPrefix for its attempt.
const (
	voidDigest = "void"
	voidPrefix = "void:"
)

// Fence takes the key with a void row. It waits for an open transaction of the
// key, as long as a statement may take. A void row that is there already gets a
// new revision, so that no dispatch that counted on the old one can land.
func (a *Adapter) Fence(ctx context.Context, r sdk.FenceRequest) (sdk.FenceResponse, error) {
	s := a.configured()
	if s == nil {
		return sdk.FenceResponse{}, sdk.NotSent(fmt.Errorf("%s", notConfigured))
	}
	op, w, err := s.action(r.Operation.Action)
	if err != nil {
		return sdk.FenceResponse{}, sdk.NotSent(err)
	}
	limit := time.Now().Add(timeLimit)
	if !r.Deadline.IsZero() && r.Deadline.Before(limit) {
		limit = r.Deadline
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	on, err := s.db.open(ctx)
	if err != nil {
		return sdk.FenceResponse{}, sdk.NotSent(fmt.Errorf("no connection: %s", s.text(err.Error(), 512)))
	}
	t := &transaction{state: s, session: on, fields: map[string]string{}}
	defer on.close()
	response, err := t.fence(ctx, op, w, r)
	if err != nil {
		t.rollback(ctx)
		response = sdk.FenceResponse{Indeterminate: &sdk.Indeterminate{Message: s.text("the fence failed: "+s.db.classify(err).message, 512), RetryAfter: pollAfter}}
	}
	return response, nil
}

func (t *transaction) fence(ctx context.Context, op *operation, w *write, r sdk.FenceRequest) (sdk.FenceResponse, error) {
	none := sdk.FenceResponse{}
	key := r.Operation.Key
	if _, err := t.db.begin(ctx, t.session, lockOf(t.cfg.table, key)); err != nil {
		return none, err
	}
	row, err := t.row(ctx, t.session, key)
	if err != nil {
		return none, err
	}
	if row != nil && !row.void() {
		t.rollback(ctx)
		var seen sdk.ReadResponse
		if err := t.found(ctx, t.session, op, w, sdk.ReadRequest{Operation: r.Operation}, *row, &seen); err != nil {
			return none, err
		}
		met, _ := seen.Finding.(*sdk.Found)
		return sdk.FenceResponse{Found: met}, nil
	}
	if row != nil && r.ReplacesRevision != "" && row.attempt != r.ReplacesRevision {
		return none, fmt.Errorf("the key carries another fence, %s", row.attempt)
	}
	revision, at := voidPrefix+rand.Text(), t.db.moment(time.Now())
	if row == nil {
		_, err = t.session.exec(ctx, t.queries.insert, key, voidDigest, revision, at)
	} else {
		var n int64
		if n, err = t.session.exec(ctx, t.queries.replace, voidDigest, revision, at, key, row.attempt); err == nil && n != 1 {
			err = fmt.Errorf("the fence %s was replaced meanwhile", row.attempt)
		}
	}
	if err != nil {
		return none, err
	}
	if _, err := t.session.exec(ctx, "COMMIT"); err != nil {
		return none, err
	}
	return sdk.FenceResponse{Fenced: &sdk.ObjectRef{Type: "fence", ID: key, Revision: revision}}, nil
}
