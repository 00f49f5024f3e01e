package sql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// timeLimit of a call without a deadline.
const timeLimit = time.Minute

// rollbackLimit bounds the courtesy of a ROLLBACK; closing the connection does the same.
const rollbackLimit = 2 * time.Second

// work is one transaction to be made, with everything evaluated.
type work struct {
	op       *operation
	write    *write
	o        sdk.Operation
	sc       scope
	args     []any
	replaces string // revision of the void row that is replaced; empty = the key must be free
}

// Dispatch makes one transaction, or none.
func (a *Adapter) Dispatch(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	s := a.configured()
	if s == nil {
		return sdk.Response{Outcome: &sdk.NotExecuted{Basis: sdk.BasisNotStarted, Message: notConfigured}}, nil
	}
	limit := time.Now().Add(timeLimit)
	if !r.Deadline.IsZero() && r.Deadline.Before(limit) {
		limit = r.Deadline
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	w, rejected := s.ready(ctx, r)
	if err := ctx.Err(); err != nil {
		return sdk.Response{Outcome: &sdk.NotExecuted{Basis: sdk.BasisNotSent, Message: err.Error()}}, nil
	}
	if rejected != nil {
		rejected.Message = s.text(rejected.Message, 1024)
		return sdk.Response{Outcome: rejected}, nil
	}
	t := &transaction{state: s, fields: map[string]string{}}
	outcome := t.run(ctx, w)
	s.redactOutcome(outcome)
	t.fields["stage"] = t.stage
	for name, value := range t.fields {
		t.fields[name] = s.text(value, 512)
	}
	evidence := sdk.Evidence{At: time.Now().UTC(), Kind: "sql.dispatch", Summary: s.text(w.write.statement.source, 512), Fields: t.fields}
	return sdk.Response{Outcome: outcome, ProviderRequestID: t.fields["transaction"], Evidence: []sdk.Evidence{evidence}}, nil
}

// ready evaluates everything the transaction needs; a fault rejects, for nothing was sent.
func (s *state) ready(ctx context.Context, r sdk.DispatchRequest) (work, *sdk.Rejected) {
	reject := func(reason sdk.RejectReason, code, message string) (work, *sdk.Rejected) {
		return work{}, &sdk.Rejected{Reason: reason, Code: code, Message: message}
	}
	op, w, err := s.action(r.Operation.Action)
	switch {
	case err != nil:
		return reject(sdk.ReasonUnsupported, "unknown_action", err.Error())
	case r.ExpectedRevision != "" && !strings.HasPrefix(r.ExpectedRevision, voidPrefix):
		return reject(sdk.ReasonUnsupported, "revision", "only the revision of a fence can be expected")
	case r.Operation.Key == "" || len(r.Operation.Key) > sdk.MaxKey || strings.ContainsRune(r.Operation.Key, 0):
		return reject(sdk.ReasonValidation, "key", "the key must have 1 to 255 bytes, none of them zero")
	case w == op.undo && w != op.do && (r.Operation.Target == nil || r.Operation.Target.ID == ""):
		return reject(sdk.ReasonValidation, "object", "an undo needs the object that it acts on")
	}
	sc, err := s.scopeOf(r.Operation, r.Operation.Action)
	if err != nil {
		return reject(sdk.ReasonValidation, "payload", err.Error())
	}
	args, err := s.args(ctx, w.statement, op, r.Operation, sc, targetID(r.Operation))
	if err != nil {
		return reject(sdk.ReasonValidation, "parameters", err.Error())
	}
	return work{op: op, write: w, o: r.Operation, sc: sc, args: args, replaces: r.ExpectedRevision}, nil
}

func targetID(o sdk.Operation) string {
	if o.Target == nil {
		return ""
	}
	return o.Target.ID
}

// args are the values of a statement's parameters, in its order.
func (s *state) args(ctx context.Context, st *statement, op *operation, o sdk.Operation, sc scope, objectID string) ([]any, error) {
	args := make([]any, 0, len(st.names))
	for _, name := range st.names {
		var v any
		switch name {
		case "effect_key":
			v = o.Key
		case "effect_digest":
			v = digestOf(o)
		case "effect_attempt":
			v = o.AttemptID
		case "effect_account":
			v = o.Account
		case "object_id":
			if objectID != "" {
				v = objectID
			}
		default:
			raw, err := op.params[name].eval(ctx, sc)
			if err != nil {
				return nil, fmt.Errorf(":%s: %w", name, err)
			}
			if v, err = plain(raw); err != nil {
				return nil, fmt.Errorf(":%s: %w", name, err)
			}
		}
		args = append(args, s.db.bind(v))
	}
	return args, nil
}

// transaction is one attempt on a connection of its own. stage is how far it
// came; from "commit" on nothing but an answer proves anything.
type transaction struct {
	*state
	session *session
	stage   string
	fields  map[string]string // evidence
}

// run goes through the stages. Every stage waits for the answer of the one before it.
func (t *transaction) run(ctx context.Context, w work) sdk.Outcome {
	t.stage = "connect"
	session, err := t.db.open(ctx)
	if err != nil {
		f := t.db.classify(err)
		t.fields["code"] = f.code
		return f.atOpen()
	}
	t.session = session
	defer session.close()
	id, outcome := t.uncommitted(ctx, w)
	if outcome == nil && ctx.Err() != nil {
		outcome = t.failed(ctx.Err())
	}
	if outcome != nil {
		t.rollback(ctx)
		return outcome
	}
	t.stage = "commit"
	if _, err := session.exec(ctx, "COMMIT"); err != nil {
		return t.commitFailed(ctx, err)
	}
	t.stage = "committed"
	return &sdk.Committed{Object: id, At: time.Now().UTC()}
}

// uncommitted does everything but the commit. An outcome ends the attempt.
func (t *transaction) uncommitted(ctx context.Context, w work) (sdk.ObjectRef, sdk.Outcome) {
	none := sdk.ObjectRef{}
	t.stage = "begin"
	xid, err := t.db.begin(ctx, t.session, lockOf(t.cfg.table, w.o.Key))
	if err != nil {
		return none, t.failed(err)
	}
	if xid != "" {
		t.fields["transaction"] = xid
	}
	t.stage = "key"
	if outcome := t.takeKey(ctx, w); outcome != nil {
		return none, outcome
	}
	t.stage = "statement"
	rows, err := t.session.exec(ctx, w.write.statement.render(t.db.placeholder), w.args...)
	if err != nil {
		return none, t.failed(err)
	}
	t.fields["rows"] = strconv.FormatInt(rows, 10)
	if w.write.rows != anyRows && rows != int64(w.write.rows) {
		return none, &sdk.Rejected{
			Reason: sdk.ReasonValidation, Code: "precondition",
			Message: fmt.Sprintf("the statement affects %d rows, not %d; it was rolled back", rows, w.write.rows),
		}
	}
	if w.write == w.op.undo {
		return *w.o.Target, nil
	}
	t.stage = "object"
	id, found, err := t.objectID(ctx, t.session, w.op, w.o, w.sc)
	var own *valueError
	switch {
	case errors.As(err, &own):
		return none, &sdk.Rejected{Reason: sdk.ReasonValidation, Code: "object", Message: own.Error() + "; it was rolled back"}
	case err != nil:
		return none, t.failed(err)
	case !found:
		return none, &sdk.Rejected{Reason: sdk.ReasonValidation, Code: "object", Message: "object gives no row after the statement; it was rolled back"}
	}
	return sdk.ObjectRef{ID: id}, nil
}

// takeKey inserts the row that proves the effect, or replaces a fence.
func (t *transaction) takeKey(ctx context.Context, w work) sdk.Outcome {
	taken := &sdk.Rejected{Reason: sdk.ReasonKeyReused, Code: "key", Message: "the key is taken in " + strings.Join(t.cfg.table, ".")}
	at := t.db.moment(time.Now())
	if w.replaces != "" {
		n, err := t.session.exec(ctx, t.queries.replace, digestOf(w.o), w.o.AttemptID, at, w.o.Key, w.replaces)
		switch {
		case err != nil:
			return t.failed(err)
		case n != 1:
			return taken
		}
		return nil
	}
	n, err := t.session.exec(ctx, t.queries.insert, w.o.Key, digestOf(w.o), w.o.AttemptID, at)
	if err != nil && t.db.classify(err).class == classDuplicate {
		t.fields["code"] = t.db.classify(err).code
		return taken
	}
	if err != nil {
		return t.failed(err)
	}
	if n != 1 { // a rule or trigger swallowed it: without the row nothing would be proof
		return &sdk.Rejected{Reason: sdk.ReasonValidation, Code: "key", Message: "the row was not inserted; it was rolled back"}
	}
	return nil
}

// failed is the outcome of an error before COMMIT.
func (t *transaction) failed(err error) sdk.Outcome {
	f := t.db.classify(err)
	if f.code != "" {
		t.fields["code"] = f.code
	}
	return f.beforeCommit(t.stage)
}

// rollback frees the server's locks at once. Whether it is answered decides
// nothing: the connection is closed after it.
func (t *transaction) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	if _, err := t.session.exec(ctx, "ROLLBACK"); err != nil {
		t.fields["rollback"] = "not answered; the server does it when the connection is gone"
	}
}

// commitFailed is unknown, but for SQLite's own word that a reader was in the
// way: then the transaction is still open and a ROLLBACK ends it.
func (t *transaction) commitFailed(ctx context.Context, err error) sdk.Outcome {
	f := t.db.classify(err)
	if f.code != "" {
		t.fields["code"] = f.code
	}
	if t.cfg.driver == driverSQLite && f.class == classBusy && slices.Contains([]string{"SQLITE_5", "SQLITE_6"}, f.code) {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
		defer cancel()
		if _, undone := t.session.exec(undo, "ROLLBACK"); undone == nil {
			return &sdk.NotExecuted{Basis: sdk.BasisBusy, Message: "commit: " + f.message + "; it was rolled back"}
		}
	}
	u := &sdk.Unknown{Cause: sdk.CauseConnectionLost, Message: "no answer to COMMIT: " + f.message}
	switch {
	case f.class != classLost:
		u.Cause, u.Message = sdk.CauseServerError, "COMMIT was answered by "+f.message
	case errors.Is(ctx.Err(), context.Canceled):
		u.Cause = sdk.CauseCancelled
	case ctx.Err() != nil:
		u.Cause = sdk.CauseTimeout
	}
	return u
}

// redactOutcome removes secrets from what servers say.
func (s *state) redactOutcome(o sdk.Outcome) {
	switch o := o.(type) {
	case *sdk.Rejected:
		o.Message = s.text(o.Message, 1024)
	case *sdk.NotExecuted:
		o.Message = s.text(o.Message, 1024)
	case *sdk.Unknown:
		o.Message = s.text(o.Message, 1024)
	}
}
