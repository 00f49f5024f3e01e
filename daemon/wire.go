package daemon

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk"
)

// answerOf maps what a dispatch returned to what it proves. It is the one
// place where wire outcomes become journal answers, and the switch is
// exhaustive: whatever it does not name is unknown.
func answerOf(attempt string, r sdk.Response, err error, now time.Time) journal.Answer {
	a := journal.Answer{Attempt: attempt, Class: journal.AnswerUnknown, At: now, ProviderRequestID: r.ProviderRequestID}
	if err != nil {
		return errorAnswer(a, err)
	}
	switch o := r.Outcome.(type) {
	case *sdk.Committed:
		a.Class = journal.AnswerCommitted
		a.ObjectID, a.ObjectType, a.URL, a.State = o.Object.ID, o.Object.Type, o.Object.URL, o.Object.State
	case *sdk.Accepted:
		if o.Handle == "" {
			a.Cause, a.Message = "bad_response", "accepted without a handle"
			break
		}
		a.Class, a.Handle, a.PollAfter, a.ExpiresAt = journal.AnswerAccepted, o.Handle, o.PollAfter, o.ExpiresAt
		if o.Object != nil {
			a.ObjectID, a.ObjectType, a.URL, a.State = o.Object.ID, o.Object.Type, o.Object.URL, o.Object.State
		}
	case *sdk.Rejected:
		a.Class = journal.AnswerRejected
		a.Reason, a.Code, a.Message = reasonWord(o.Reason), o.Code, o.Message
		a.Conflict = o.Reason == sdk.ReasonConflict || o.Reason == sdk.ReasonKeyReused || o.Reason == sdk.ReasonPrecondition
		a.Denied = o.Reason == sdk.ReasonAuthentication || o.Reason == sdk.ReasonPermission
	case *sdk.NotExecuted:
		switch o.Basis {
		case sdk.BasisNotSent, sdk.BasisNotStarted:
			a.Class = journal.AnswerNotSent
		case sdk.BasisRefused, sdk.BasisBusy:
			a.Class = journal.AnswerNotExecuted
		default:
			a.Cause = "bad_response"
		}
		a.RetryAfter, a.Message = o.RetryAfter, o.Message
	case *sdk.Unknown:
		a.Cause, a.Message = causeWord(o.Cause), o.Message
	default:
		a.Cause, a.Message = "bad_response", "the adapter's answer carries no outcome"
	}
	return a
}

// unanswered is an error that says when a call without an answer can send no more.
type unanswered interface {
	error
	Ended() <-chan struct{}
	EndedAt() time.Time
}

// errorAnswer maps an error of Dispatch: unknown, unless it proves that nothing was sent.
func errorAnswer(a journal.Answer, err error) journal.Answer {
	a.Message = err.Error()
	if errors.Is(err, sdk.ErrNotSent) {
		a.Class = journal.AnswerNotSent
		return a
	}
	a.Cause = "no_answer"
	var u unanswered
	if errors.As(err, &u) {
		select {
		case <-u.Ended():
			a.Death, a.At = true, micro(u.EndedAt())
		default:
			a.Open, a.Cause = true, "timeout"
		}
	}
	return a
}

func reasonWord(r sdk.RejectReason) string {
	return [...]string{
		"", "validation", "authentication", "permission", "not_found", "conflict", "precondition",
		"quota", "policy", "key_reused", "unsupported",
	}[min(int(r), 10)]
}

func causeWord(c sdk.UnknownCause) string {
	return [...]string{
		"no_answer", "timeout", "connection_lost", "bad_response", "server_error", "cancelled",
		"adapter_error", "adapter_panic", "partial",
	}[min(int(c), 8)]
}

// readingOf maps what a read returned. An error is a failed read, never an empty one.
func readingOf(source string, begun, ended time.Time, r sdk.ReadResponse, err error) journal.Reading {
	out := journal.Reading{Source: source, BegunAt: begun, EndedAt: ended}
	if err != nil {
		out.Failed = err.Error()
		return out
	}
	out.Consistency = consistencyOf(r.Authority, new(time.Duration))
	out.Complete = r.Coverage == sdk.CoverageComplete
	out.Postcondition, out.Seen = postcondition(r.Postcondition.State), r.Postcondition.Seen
	if v := r.View; v != nil {
		out.View, out.FilterSHA256, out.Principal = v.ID, hex.EncodeToString(v.FilterSHA256), v.Principal
		out.ScannedFrom, out.ScannedTo = v.ScannedFrom, v.ScannedTo
		out.VisibilityProven, out.How, out.Outage = v.VisibilityProven, v.How, v.Outage
		out.Near = matchesOf(v.Near)
	}
	switch f := r.Finding.(type) {
	case *sdk.Found:
		out.Matches = matchesOf(f.Matches)
		if len(f.Matches) == 0 {
			out.Failed = "the adapter found something and named nothing"
		}
	case *sdk.NoneSeen:
		out.ScopesSearched = f.ScopesSearched
	case *sdk.Pending:
		out.Pending, out.PollAfter = true, f.PollAfter
	case *sdk.Failed:
		out.Ended = &journal.OperationEnd{Code: f.Code, Message: f.Message, MayResend: f.MayResend}
	case *sdk.Indeterminate:
		out.Failed, out.RetryAfter = orElse(f.Message, "indeterminate"), f.RetryAfter
	default:
		out.Failed = "the adapter's answer carries no finding"
	}
	return out
}

func postcondition(s sdk.PostconditionState) journal.PostconditionState {
	switch s {
	case sdk.PostconditionHolds:
		return journal.PostconditionHolds
	case sdk.PostconditionFails:
		return journal.PostconditionFails
	case sdk.PostconditionPending:
		return journal.PostconditionPending
	}
	return journal.PostconditionNone
}

func matchesOf(ms []sdk.Match) []journal.Match {
	out := make([]journal.Match, 0, len(ms))
	for _, m := range ms {
		out = append(out, journal.Match{
			ObjectID: m.Object.ID, ObjectType: m.Object.Type, URL: m.Object.URL, State: m.Object.State,
			Strength: strengthOf(m.Strength), Agreement: agreementOf(m.Agreement), Differences: m.Differences,
			CreatedAt: m.CreatedAt, Account: m.Account, Target: m.Target, Observed: m.Observed, Void: m.Void,
		})
	}
	return out
}

func strengthOf(s sdk.MatchStrength) journal.Strength {
	switch s {
	case sdk.StrengthNaturalID:
		return journal.StrengthNatural
	case sdk.StrengthMarker:
		return journal.StrengthMarker
	case sdk.StrengthKey:
		return journal.StrengthKey
	case sdk.StrengthHandle:
		return journal.StrengthHandle
	case sdk.StrengthSnapshotDiff:
		return journal.StrengthSnapshot
	}
	return journal.StrengthSimilar
}

func agreementOf(a sdk.Agreement) journal.Agreement {
	switch a {
	case sdk.AgreementSame:
		return journal.AgreementSame
	case sdk.AgreementNotCompared:
		return journal.AgreementNotCompared
	case sdk.AgreementPartial:
		return journal.AgreementPartial
	}
	return journal.AgreementDiffers
}

// evidenceOf packs what an adapter saw into one immutable record, or nothing when it saw nothing.
func evidenceOf(kind, summary string, source journal.EvidenceSource, attempt string, items []sdk.Evidence, at time.Time) (journal.Evidence, bool) {
	if len(items) == 0 {
		return journal.Evidence{}, false
	}
	if len(items) > sdk.MaxEvidence {
		items = items[:sdk.MaxEvidence]
	}
	body, err := json.Marshal(items)
	if err != nil { // plain fields always encode
		body = []byte(fmt.Sprintf("%q", err.Error()))
	}
	return journal.Evidence{At: at, Source: source, Kind: kind, Summary: summary, Body: body, Attempt: attempt}, true
}

// operationOf is the effect as the adapter sees it.
func operationOf(e journal.Effect, attempt string, number int) sdk.Operation {
	digest, _ := hex.DecodeString(trimDigest(e.PayloadDigest))
	op := sdk.Operation{
		ID: e.Key, Attempt: uint32(max(number, 0)), Action: e.Operation, Key: e.Key, Marker: e.Key,
		Payload: e.Payload, ContentType: orElse(e.ContentType, "application/json"), PayloadSHA256: digest,
		Traceparent: e.Context["traceparent"], Account: e.Account, AttemptID: attempt, Actor: e.Actor,
	}
	if e.Outcome.ObjectID != "" {
		op.Target = &sdk.ObjectRef{ID: e.Outcome.ObjectID, Type: e.Outcome.ObjectType, URL: e.Outcome.URL}
	}
	return op
}

func trimDigest(d string) string {
	const prefix = "sha256:"
	if len(d) > len(prefix) && d[:len(prefix)] == prefix {
		return d[len(prefix):]
	}
	return d
}
