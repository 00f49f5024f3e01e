package http

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	nethttp "net/http"

	"github.com/settled-dev/settled/sdk"
)

// classifyTimeout bounds the reading of an answer that is already here, which
// must succeed even when the call's own deadline has passed meanwhile.
const classifyTimeout = 5 * time.Second

// Dispatch makes exactly one request, or none.
func (a *Adapter) Dispatch(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	s := a.configured()
	if s == nil {
		return sdk.Response{Outcome: &sdk.NotExecuted{Basis: sdk.BasisNotStarted, Message: notConfigured}}, nil
	}
	op, undo, err := s.action(r.Operation.Action)
	if err != nil {
		return sdk.Response{Outcome: &sdk.Rejected{Reason: sdk.ReasonUnsupported, Code: "unknown_action", Message: err.Error()}}, nil
	}
	if !r.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.Deadline)
		defer cancel()
	}
	sc, req, rejected := s.ready(ctx, op, undo, r)
	if err := ctx.Err(); err != nil {
		// Whatever was found wrong may be the deadline's doing.
		return sdk.Response{Outcome: &sdk.NotExecuted{Basis: sdk.BasisNotSent, Message: err.Error()}}, nil
	}
	if rejected != nil {
		return sdk.Response{Outcome: rejected}, nil
	}
	resp, err := s.client.Write(ctx, req)
	if err != nil {
		outcome := sdk.ErrorOutcome(err)
		s.redactOutcome(outcome)
		return sdk.Response{Outcome: outcome, Evidence: []sdk.Evidence{s.evidence("http.dispatch", req, nil, err.Error())}}, nil
	}
	return s.conclude(ctx, op, undo, r.Operation, req, sc, resp), nil
}

// conclude reads an answer that is here, even when the deadline passed meanwhile.
func (s *state) conclude(ctx context.Context, op *operation, undo bool, o sdk.Operation, req sdk.HTTPRequest, sc scope, resp *sdk.HTTPResponse) sdk.Response {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), classifyTimeout)
	defer cancel()
	answer := newAnswer(resp)
	w := op.dispatch
	if undo {
		w = op.undo
	}
	outcome, requestID := s.classify(ctx, op, w, undo, o, answer, sc.with("$response", answer.value))
	s.redactOutcome(outcome)
	return sdk.Response{
		Outcome: outcome, ProviderRequestID: s.text(requestID, 255),
		Evidence: []sdk.Evidence{s.evidence("http.dispatch", req, answer, "")},
	}
}

// ready evaluates everything the request needs; a fault rejects, for nothing was sent.
func (s *state) ready(ctx context.Context, op *operation, undo bool, r sdk.DispatchRequest) (scope, sdk.HTTPRequest, *sdk.Rejected) {
	reject := func(code string, err error) (scope, sdk.HTTPRequest, *sdk.Rejected) {
		return nil, sdk.HTTPRequest{}, &sdk.Rejected{Reason: sdk.ReasonValidation, Code: code, Message: s.text(err.Error(), 1024)}
	}
	base, err := parseBaseline(r.Baseline)
	if err != nil {
		return reject("baseline", err)
	}
	w, objectID := op.dispatch, ""
	if r.Operation.Target != nil {
		objectID = r.Operation.Target.ID
	}
	if undo {
		w = op.undo
		if op.snapshot != nil && !base.HasSnapshot {
			return reject("no_prior_state", fmt.Errorf("no prior state is stored for %s; it cannot be rolled back", op.name))
		}
	}
	sc, err := s.scope(r.Operation, op.name, base.Snapshot, objectID, "")
	if err != nil {
		return reject("payload", err)
	}
	req, err := s.render(ctx, w.request, sc)
	if err != nil {
		return reject("request", err)
	}
	if r.ExpectedRevision != "" {
		if undo || op.precondition == nil || op.precondition.etag == nil {
			return nil, req, &sdk.Rejected{Reason: sdk.ReasonUnsupported, Code: "revision", Message: "an expected revision needs precondition.etag"}
		}
		if slices.ContainsFunc([]rune(r.ExpectedRevision), isControl) {
			return reject("revision", fmt.Errorf("the expected revision holds a control character"))
		}
		req.Header.Set("If-Match", r.ExpectedRevision)
	}
	return sc, req, nil
}

// classify reads what an answer means, in this order: "read now" (409, 412), a
// refusing status on a list, done, accepted, unknown.
func (s *state) classify(ctx context.Context, op *operation, w *write, undo bool, o sdk.Operation, a *answer, sc scope) (sdk.Outcome, string) {
	requestID := ""
	if w.requestID != nil {
		var err error
		if requestID, err = w.requestID.runText(ctx, nil, sc); err != nil {
			return programFailed("request_id", err), ""
		}
	}
	if outcome := s.refusal(ctx, op, w, undo, a, sc); outcome != nil {
		return outcome, requestID
	}
	if a.ok() && a.bad != nil {
		return &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: fmt.Sprintf("answered %d, but %v", a.Status, a.bad)}, requestID
	}
	done, err := s.isDone(ctx, w, a, sc)
	if err != nil {
		return programFailed("done", err), requestID
	}
	if done {
		return s.committed(ctx, w, undo, o, a, sc), requestID
	}
	if w.accepted != nil {
		accepted, err := w.accepted.runBool(ctx, nil, sc)
		if err != nil {
			return programFailed("accepted", err), requestID
		}
		if accepted {
			return s.accepted(ctx, op, o, a, sc), requestID
		}
	}
	return unlisted(a), requestID
}

func programFailed(name string, err error) sdk.Outcome {
	return &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: fmt.Sprintf("the answer came, but %s could not read it: %v", name, err)}
}

func unlisted(a *answer) sdk.Outcome {
	cause := sdk.CauseBadResponse
	if a.Status >= 500 {
		cause = sdk.CauseServerError
	}
	return &sdk.Unknown{Cause: cause, Message: fmt.Sprintf("answered %d, which no rule names", a.Status)}
}

// isDone evaluates done; without one (undo only) every 2xx but 202 is done.
func (s *state) isDone(ctx context.Context, w *write, a *answer, sc scope) (bool, error) {
	if w.done == nil {
		return a.ok() && a.Status != nethttp.StatusAccepted, nil
	}
	return w.done.runBool(ctx, nil, sc)
}

// refusal is the outcome of a status that says "no", or nil.
func (s *state) refusal(ctx context.Context, op *operation, w *write, undo bool, a *answer, sc scope) sdk.Outcome {
	code, text := strconv.Itoa(a.Status), s.refusalText(a)
	readNow := a.Status == nethttp.StatusConflict || a.Status == nethttp.StatusPreconditionFailed ||
		// The object of an undo may be gone because an earlier undo of ours worked.
		(undo && op.verify != nil && (a.Status == nethttp.StatusNotFound || a.Status == nethttp.StatusGone))
	if readNow {
		reason := sdk.ReasonConflict
		if a.Status == nethttp.StatusPreconditionFailed {
			reason = sdk.ReasonPrecondition
		}
		return &sdk.Rejected{Reason: reason, Code: code, Message: text}
	}
	retryable := slices.Contains(w.retryable, a.Status)
	if !retryable && !slices.Contains(w.final, a.Status) {
		return nil
	}
	// A list and done that claim the same answer contradict each other.
	if w.done != nil {
		if done, err := w.done.runBool(ctx, nil, sc); err == nil && done {
			return &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: fmt.Sprintf("answered %d, which is both done and on a not-executed list", a.Status)}
		}
	}
	if retryable {
		basis := sdk.BasisRefused
		if a.Status >= 500 {
			basis = sdk.BasisBusy
		}
		return &sdk.NotExecuted{Basis: basis, RetryAfter: sdk.RetryAfter(a.Header, time.Now()), Message: text}
	}
	// Credentials that are wrong for one request are wrong for all.
	return &sdk.Rejected{Reason: sdk.StatusReason(a.Status), Code: code, Message: text, WholeDestination: a.Status == nethttp.StatusUnauthorized}
}

func (s *state) refusalText(a *answer) string {
	text := fmt.Sprintf("%d %s", a.Status, nethttp.StatusText(a.Status))
	if len(a.Body) > 0 {
		text += ": " + s.text(string(a.Body), 200)
	}
	return text
}

// committed needs the object id wherever one is configured: done without it is unknown.
func (s *state) committed(ctx context.Context, w *write, undo bool, o sdk.Operation, a *answer, sc scope) sdk.Outcome {
	c := &sdk.Committed{At: time.Now().UTC(), Result: s.document(a.value["body"], sdk.MaxResult)}
	if undo && o.Target != nil {
		c.Object = *o.Target
	}
	if w.objectID != nil {
		id, err := w.objectID.runText(ctx, nil, sc)
		if err != nil {
			return programFailed("object_id", err)
		}
		if id == "" {
			return &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: fmt.Sprintf("answered %d and done, but without an object id", a.Status)}
		}
		c.Object.ID = id
	}
	if location := a.Header.Get("Location"); location != "" && !undo {
		if u, err := s.cfg.base.Parse(location); err == nil && u.User == nil {
			c.Object.URL = s.text(u.String(), 1024)
		}
	}
	return c
}

// accepted finds the handle to poll with: handle, else the object id, else the key.
func (s *state) accepted(ctx context.Context, op *operation, o sdk.Operation, a *answer, sc scope) sdk.Outcome {
	result := &sdk.Accepted{PollAfter: sdk.RetryAfter(a.Header, time.Now())}
	if op.dispatch.objectID != nil {
		// The object often does not exist yet: no id here is no fault.
		if id, err := op.dispatch.objectID.runText(ctx, nil, sc); err == nil && id != "" {
			result.Object = &sdk.ObjectRef{ID: id}
			result.Handle = id
		}
	}
	if op.handle == nil {
		if result.Handle == "" {
			result.Handle = o.Key
		}
		return result
	}
	handle, err := op.handle.runText(ctx, nil, sc)
	if err != nil {
		return programFailed("handle", err)
	}
	if handle == "" {
		return &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: fmt.Sprintf("answered %d and accepted, but without a handle", a.Status)}
	}
	result.Handle = handle
	return result
}

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

func hexDigest(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }
