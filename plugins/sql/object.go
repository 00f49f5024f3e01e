package sql

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// valueError is a fault of the configuration or payload, not of the server.
type valueError struct{ err error }

func (e *valueError) Error() string { return e.err.Error() }

// Unwrap returns the fault itself.
func (e *valueError) Unwrap() error { return e.err }

// objectID names the object of an effect, the same way after the statement and
// in every read. found is false when the object query has no row.
func (s *state) objectID(ctx context.Context, on *session, op *operation, o sdk.Operation, sc scope) (id string, found bool, err error) {
	var first any
	if op.object != nil {
		args, err := s.args(ctx, op.object, op, o, sc, "")
		if err != nil {
			return "", false, &valueError{err}
		}
		columns, values, err := on.object(ctx, op.object.render(s.db.placeholder), args)
		if err != nil || columns == nil {
			return "", false, err
		}
		row := make(map[string]any, len(columns))
		for i, column := range columns {
			row[column] = jsonOf(values[i])
		}
		sc.row, first = row, jsonOf(values[0])
	}
	var text any = o.Key
	switch {
	case op.objectID != nil:
		if text, err = op.objectID.eval(ctx, sc); err != nil {
			return "", false, &valueError{fmt.Errorf("object_id: %w", err)}
		}
	case op.object != nil:
		text = first
	}
	id, err = asText(text)
	if err != nil || id == "" {
		return "", false, &valueError{fmt.Errorf("object_id gives nothing")}
	}
	return id, true, nil
}

// jsonOf is a column's value as jq sees it.
func jsonOf(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case int64:
		return int(v)
	case nil, bool, string, float64:
		return v
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	var decoded any
	if decoded, err = parseJSON(text); err != nil {
		return fmt.Sprint(v)
	}
	return decoded
}

// holds runs a postcondition: it holds when the first column of its first row is true.
func (s *state) holds(ctx context.Context, on *session, st *statement, op *operation, o sdk.Operation, sc scope, objectID string) (sdk.Postcondition, error) {
	if st == nil {
		return sdk.Postcondition{}, nil
	}
	args, err := s.args(ctx, st, op, o, sc, objectID)
	if err != nil {
		return sdk.Postcondition{}, err
	}
	columns, values, err := on.object(ctx, st.render(s.db.placeholder), args)
	if err != nil {
		return sdk.Postcondition{}, err
	}
	p := sdk.Postcondition{State: sdk.PostconditionFails, Seen: "no row"}
	if columns == nil {
		return p, nil
	}
	seen, err := asText(jsonOf(values[0]))
	if err != nil {
		return p, err
	}
	p.Seen = s.text(columns[0]+" = "+seen, 256)
	switch strings.ToLower(seen) {
	case "true", "t", "1", "yes":
		p.State = sdk.PostconditionHolds
	}
	return p, nil
}
