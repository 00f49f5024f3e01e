package sql

import (
	"context"
	"crypto/sha256"
	dbsql "database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// effectRow is the row of one effect.
type effectRow struct {
	key, digest, attempt string
	at                   time.Time
}

func (r effectRow) void() bool { return r.digest == voidDigest }

// pollAfter is when an open transaction of a key is looked at again.
const pollAfter = 2 * time.Second

// Read looks for the row of the key. It writes nothing and waits for nothing.
func (a *Adapter) Read(ctx context.Context, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	s := a.configured()
	if s == nil {
		return sdk.ReadResponse{Finding: &sdk.Indeterminate{Message: notConfigured}}, nil
	}
	op, w, err := s.action(r.Operation.Action)
	if err != nil {
		return sdk.ReadResponse{Finding: &sdk.Indeterminate{Message: err.Error()}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	begun := time.Now().UTC()
	response := sdk.ReadResponse{Authority: sdk.Authoritative, Coverage: sdk.CoverageComplete, AsOf: begun}
	fields := map[string]string{}
	if err := s.read(ctx, op, w, r, &response, fields); err != nil {
		message := s.text("the read failed: "+s.db.classify(err).message, 1024)
		response = sdk.ReadResponse{Finding: &sdk.Indeterminate{Message: message}}
		fields["error"] = message
	}
	evidence := sdk.Evidence{At: begun, Kind: "sql.read", Summary: s.queries.read, Fields: fields}
	response.Evidence = []sdk.Evidence{evidence}
	return response, nil
}

func (s *state) read(ctx context.Context, op *operation, w *write, r sdk.ReadRequest, response *sdk.ReadResponse, fields map[string]string) error {
	on, err := s.db.open(ctx)
	if err != nil {
		return err
	}
	defer on.close()
	seen, err := s.db.guard(ctx, on)
	if err != nil {
		return err
	}
	response.View = s.view(r.Operation.Key, seen, response.AsOf)
	fields["guard"] = seen.how
	if !seen.complete {
		response.Coverage = sdk.CoveragePermissionLimited
	}
	row, open, err := s.find(ctx, on, r.Operation.Key)
	switch {
	case err != nil:
		return err
	case row != nil:
		fields["digest"], fields["attempt"] = row.digest, s.text(row.attempt, 255)
		return s.found(ctx, on, op, w, r, *row, response)
	case open:
		response.Finding = &sdk.Pending{PollAfter: pollAfter, Message: "a transaction of this key is still open on the server"}
	default:
		response.Finding = &sdk.NoneSeen{ScopesSearched: []string{response.View.ID}}
	}
	return nil
}

func (s *state) view(key string, seen sight, begun time.Time) *sdk.View {
	sum := sha256.Sum256([]byte(s.queries.read + "\x00" + key))
	return &sdk.View{
		ID: strings.Join(s.cfg.table, "."), FilterSHA256: sum[:], Principal: s.principal,
		ScannedFrom: time.Unix(1, 0).UTC(), ScannedTo: begun, VisibilityProven: seen.complete, How: seen.how,
	}
}

// find looks for the row, then for an open transaction, then for the row again:
// a transaction that ended between the first two looks is seen by the third.
func (s *state) find(ctx context.Context, on *session, key string) (row *effectRow, open bool, err error) {
	if row, err = s.row(ctx, on, key); err != nil || row != nil {
		return row, false, err
	}
	if open, err = s.db.held(ctx, on, lockOf(s.cfg.table, key)); err != nil || open {
		return nil, open, err
	}
	row, err = s.row(ctx, on, key)
	return row, false, err
}

// row reads the row of a key; nil = there is none. A database that calls other
// keys equal has no answer here.
func (s *state) row(ctx context.Context, on *session, key string) (*effectRow, error) {
	var r effectRow
	var at any
	err := on.row(ctx, s.queries.read, []any{key}, &r.key, &r.digest, &r.attempt, &at)
	switch {
	case errors.Is(err, dbsql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	case r.key != key:
		return nil, fmt.Errorf("the column key compares %q and %q as equal; make it binary", r.key, key)
	}
	r.at, err = momentOf(at)
	return &r, err
}

func momentOf(v any) (time.Time, error) {
	switch v := v.(type) {
	case time.Time:
		return v.UTC(), nil
	case []byte:
		return momentOf(string(v))
	case string:
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999"} {
			if at, err := time.Parse(layout, v); err == nil {
				return at.UTC(), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("the column at holds %v, which is no time", v)
}

// found describes the row, its object and the postcondition.
func (s *state) found(ctx context.Context, on *session, op *operation, w *write, r sdk.ReadRequest, row effectRow, response *sdk.ReadResponse) error {
	m := s.match(r.Operation, row)
	response.Finding = &sdk.Found{Matches: []sdk.Match{m}}
	if m.Void || m.Agreement != sdk.AgreementSame {
		return nil
	}
	sc, err := s.scopeOf(r.Operation, r.Operation.Action)
	if err != nil {
		return err
	}
	if w == op.undo {
		m.Object = sdk.ObjectRef{ID: r.Operation.Key}
		if r.Operation.Target != nil {
			m.Object = *r.Operation.Target
		}
	} else {
		id, found, err := s.objectID(ctx, on, op, r.Operation, sc)
		if err != nil {
			return err
		}
		if m.Object.ID = id; !found {
			// The effect happened and its object has gone since.
			m.Agreement, m.Differences = sdk.AgreementPartial, []string{"object"}
			if r.Object != nil {
				m.Object = *r.Object
			}
		}
	}
	response.Finding = &sdk.Found{Matches: []sdk.Match{m}}
	response.Postcondition, err = s.holds(ctx, on, w.holds, op, r.Operation, sc, m.Object.ID)
	return err
}

// match compares the digest. The row of a fence is void.
func (s *state) match(o sdk.Operation, row effectRow) sdk.Match {
	m := sdk.Match{Object: sdk.ObjectRef{ID: row.key}, Strength: sdk.StrengthKey, CreatedAt: row.at, Agreement: sdk.AgreementSame}
	if observed, err := json.Marshal(map[string]string{"key": row.key, "digest": row.digest, "attempt": row.attempt, "at": row.at.Format(time.RFC3339Nano)}); err == nil {
		m.Observed = s.redact.Bytes(observed)
	}
	switch {
	case row.void():
		m.Void, m.Agreement, m.Object.Revision = true, sdk.AgreementNotCompared, row.attempt
	case row.digest != digestOf(o):
		m.Agreement, m.Differences = sdk.AgreementDiffers, []string{"/digest"}
	}
	return m
}
