package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// The exit statuses that mean something, from sysexits.h.
const (
	exitDataErr     = 65 // rejected
	exitUnavailable = 69 // provably not sent
	exitTempFail    = 75 // not executed, try later
	exitNoPerm      = 77 // not permitted
)

// Dispatch starts the command once, or not at all.
func (a *Adapter) Dispatch(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	s := a.configured()
	if s == nil {
		return sdk.Response{Outcome: &sdk.NotExecuted{Basis: sdk.BasisNotStarted, Message: notConfigured}}, nil
	}
	op, undo, err := s.action(r.Operation.Action)
	if err != nil {
		return sdk.Response{Outcome: &sdk.Rejected{Reason: sdk.ReasonUnsupported, Code: "unknown_action", Message: err.Error()}}, nil
	}
	c, rejected := s.call(op, r.Operation)
	switch {
	case rejected != nil:
		return sdk.Response{Outcome: rejected}, nil
	case r.ExpectedRevision != "":
		return sdk.Response{Outcome: &sdk.Rejected{Reason: sdk.ReasonUnsupported, Code: "revision", Message: "a command cannot be given an expected revision"}}, nil
	case undo && c.Operation.ObjectID == nil:
		return sdk.Response{Outcome: &sdk.Rejected{Reason: sdk.ReasonValidation, Code: "object", Message: "an undo needs the object that it acts on"}}, nil
	}
	c.Method, c.Snapshot = "dispatch", snapshotOf(r.Baseline)
	argv := s.cfg.dispatch
	if undo {
		c.Method, argv = "undo", s.cfg.undo
	}
	limit := time.Now().Add(timeLimit)
	if !r.Deadline.IsZero() && r.Deadline.Before(limit) {
		limit = r.Deadline
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	res, err := s.run(ctx, argv, c)
	if err != nil {
		return sdk.Response{Outcome: &sdk.NotExecuted{Basis: sdk.BasisNotSent, Message: s.text("the command was not started: "+err.Error(), 512)}}, nil
	}
	response := s.conclude(r.Operation, undo, argv, res)
	if !executed(response.Outcome) && !killMarked(attemptMark+"="+r.Operation.AttemptID) {
		res.undead = true
		response = s.conclude(r.Operation, undo, argv, res)
	}
	return response, nil
}

// executed outcomes leave nothing to fear from a process that left the group:
// the effect is there. After any other it could still bring it about, and a
// second attempt would then be a second effect.
func executed(o sdk.Outcome) bool {
	switch o.(type) {
	case *sdk.Committed, *sdk.Accepted:
		return true
	}
	return false
}

func snapshotOf(baseline []byte) json.RawMessage {
	if json.Valid(baseline) {
		return baseline
	}
	return nil
}

// call fills in the operation; a payload that cannot be handed over is rejected.
func (s *state) call(op *operation, o sdk.Operation) (call, *sdk.Rejected) {
	payload, err := payloadJSON(o)
	if err == nil && strings.ContainsRune(o.Key+o.AttemptID, 0) {
		err = errors.New("the key holds a zero byte")
	}
	if err != nil {
		return call{}, &sdk.Rejected{Reason: sdk.ReasonValidation, Code: "payload", Message: err.Error()}
	}
	c := call{Operation: &callOperation{
		Key: o.Key, ID: o.ID, AttemptID: o.AttemptID, Operation: o.Action, Account: o.Account,
		Destination: s.destination, Digest: digest(o.PayloadSHA256), Payload: payload,
	}}
	if o.Target != nil && o.Target.ID != "" {
		c.Operation.ObjectID = &o.Target.ID
	}
	return c, nil
}

// conclude reads what a process that ran has proved.
func (s *state) conclude(o sdk.Operation, undo bool, argv []string, r result) sdk.Response {
	var w written
	isJSON, err := answered(r.stdout, &w)
	response := sdk.Response{ProviderRequestID: s.text(string(w.ProviderRequestID), 255), Evidence: []sdk.Evidence{s.evidence(argv, r, w.Evidence)}}
	switch why := r.broken(); {
	case why != "":
		response.Outcome = &sdk.Unknown{Cause: r.cause(), Message: s.ending(r)}
	case isJSON && err != nil:
		response.Outcome = &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: s.text(err.Error(), 512)}
	case isJSON:
		response.Outcome = s.word(o, undo, w)
	default:
		response.Outcome = s.status(o, undo, r)
	}
	return response
}

// word is the outcome that the command itself names; an unknown word is unknown.
func (s *state) word(o sdk.Operation, undo bool, w written) sdk.Outcome {
	message := s.text(w.Message, 1024)
	switch w.Outcome {
	case "done":
		return s.committed(o, undo, string(w.ObjectID))
	case "accepted":
		accepted := &sdk.Accepted{Handle: o.Key, PollAfter: time.Duration(w.RetryAfter)}
		if w.ObjectID != "" {
			accepted.Handle, accepted.Object = string(w.ObjectID), &sdk.ObjectRef{ID: string(w.ObjectID)}
		}
		return accepted
	case "rejected":
		reason := rejectReason(w.Reason)
		return &sdk.Rejected{Reason: reason, Code: "rejected", Message: message, WholeDestination: reason == sdk.ReasonAuthentication}
	case "not_executed":
		basis := sdk.BasisRefused
		if w.Reason == "not_sent" {
			basis = sdk.BasisNotSent
		}
		return &sdk.NotExecuted{Basis: basis, RetryAfter: time.Duration(w.RetryAfter), Message: message}
	case "unknown":
		return &sdk.Unknown{Cause: sdk.CauseAdapterError, Message: message}
	}
	return &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: fmt.Sprintf("the command answered with the outcome %q, which is none", s.text(w.Outcome, 64))}
}

// rejectReason reads the reason that a command gives for "rejected". Wrong
// credentials concern the whole destination; "conflict", "precondition" and
// "key_reused" make the daemon read, because an earlier send of ours may be what
// the request collides with. Any other word, and none, is validation.
func rejectReason(word string) sdk.RejectReason {
	reasons := map[string]sdk.RejectReason{
		"authentication": sdk.ReasonAuthentication, "permission": sdk.ReasonPermission, "not_found": sdk.ReasonNotFound,
		"conflict": sdk.ReasonConflict, "precondition": sdk.ReasonPrecondition, "quota": sdk.ReasonQuota,
		"policy": sdk.ReasonPolicy, "key_reused": sdk.ReasonKeyReused, "unsupported": sdk.ReasonUnsupported,
	}
	if r, ok := reasons[word]; ok {
		return r
	}
	return sdk.ReasonValidation
}

// status is the outcome of a command that printed no JSON.
func (s *state) status(o sdk.Operation, undo bool, r result) sdk.Outcome {
	message := s.ending(r)
	code := strconv.Itoa(r.exit)
	switch r.exit {
	case 0:
		if s.cfg.trustExit {
			return s.committed(o, undo, "")
		}
	case exitTempFail:
		return &sdk.NotExecuted{Basis: sdk.BasisRefused, Message: message}
	case exitUnavailable:
		return &sdk.NotExecuted{Basis: sdk.BasisNotSent, Message: message}
	case exitDataErr:
		return &sdk.Rejected{Reason: sdk.ReasonValidation, Code: code, Message: message}
	case exitNoPerm:
		return &sdk.Rejected{Reason: sdk.ReasonPermission, Code: code, Message: message}
	}
	return &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: message}
}

func (s *state) committed(o sdk.Operation, undo bool, objectID string) sdk.Outcome {
	c := &sdk.Committed{At: time.Now().UTC()}
	if undo {
		c.Object = *o.Target
	}
	if objectID != "" {
		c.Object.ID = objectID
	}
	return c
}

// broken says why a process's output counts for nothing, or "".
func (r result) broken() string {
	switch {
	case r.undead:
		return "the command could not be killed and may still act"
	case r.limit != nil && errors.Is(r.limit, context.Canceled):
		return "the call was cancelled and the command killed"
	case r.limit != nil:
		return "the time limit was over and the command was killed"
	case r.signal != "":
		return "the command ended by a signal: " + r.signal
	case r.overflow:
		return fmt.Sprintf("the command printed more than %d bytes", maxStdout)
	}
	return ""
}

func (r result) cause() sdk.UnknownCause {
	switch {
	case errors.Is(r.limit, context.Canceled):
		return sdk.CauseCancelled
	case r.limit != nil:
		return sdk.CauseTimeout
	case r.overflow:
		return sdk.CauseBadResponse
	}
	return sdk.CauseAdapterError
}

// ending tells a person how a process ended: why, and its last words.
func (s *state) ending(r result) string {
	words := r.broken()
	if words == "" {
		words = fmt.Sprintf("the command ended with status %d and without a JSON answer", r.exit)
	}
	if last := strings.TrimSpace(string(r.stderr)); last != "" {
		last = s.redact.String(last)
		if len(last) > 512 {
			last = "…" + strings.ToValidUTF8(last[len(last)-512:], "")
		}
		words += ": " + last
	}
	return s.text(words, 1024)
}

// evidence says what ran and how it ended, without secrets.
func (s *state) evidence(argv []string, r result, said map[string]any) sdk.Evidence {
	e := sdk.Evidence{At: time.Now().UTC(), Kind: "exec", Fields: map[string]string{"exit": strconv.Itoa(r.exit)}}
	e.Summary = s.text(strings.Join(argv, " "), 200)
	if why := r.broken(); why != "" {
		e.Fields["ended"] = why
	}
	if last := strings.TrimSpace(string(r.stderr)); last != "" {
		e.Fields["stderr"] = s.text(last, 512)
	}
	for name, value := range said {
		if len(e.Fields) >= maxFields {
			break
		}
		word, isText := value.(string)
		if !isText {
			raw, err := json.Marshal(value)
			if err != nil {
				continue
			}
			word = string(raw)
		}
		e.Fields[s.text(name, 64)] = s.text(word, 256)
	}
	return e
}

// maxFields bounds what a command may add to the evidence.
const maxFields = 12
