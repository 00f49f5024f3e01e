package wire

import (
	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

// PreparedToProto maps the answer to Prepare. Ready wins over Rejected over
// Deferred if an author set several; none is left unset, which means deferred.
func PreparedToProto(p sdk.Prepared) *pb.PrepareResponse {
	m := &pb.PrepareResponse{Diagnostics: each(p.Diagnostics, diagnosticToProto)}
	switch {
	case p.Ready != nil:
		r := p.Ready
		m.Result = &pb.PrepareResponse_Ready{Ready: &pb.Ready{
			Baseline: r.Baseline, Target: r.Target, View: viewToProto(r.View), Revision: r.Revision,
			PreconditionHolds: !r.PreconditionFailed,
		}}
	case p.Rejected != nil:
		m.Result = &pb.PrepareResponse_Rejected{Rejected: rejectedToProto(p.Rejected)}
	case p.Deferred != nil:
		m.Result = &pb.PrepareResponse_Deferred{Deferred: notExecutedToProto(p.Deferred)}
	}
	return m
}

// PreparedFromProto is the reverse of [PreparedToProto].
func PreparedFromProto(m *pb.PrepareResponse) sdk.Prepared {
	p := sdk.Prepared{Diagnostics: each(m.GetDiagnostics(), diagnosticFromProto)}
	switch r := m.GetResult().(type) {
	case *pb.PrepareResponse_Ready:
		p.Ready = &sdk.Ready{
			Baseline: r.Ready.GetBaseline(), Target: r.Ready.GetTarget(), View: viewFromProto(r.Ready.GetView()),
			Revision: r.Ready.GetRevision(), PreconditionFailed: !r.Ready.GetPreconditionHolds(),
		}
	case *pb.PrepareResponse_Rejected:
		p.Rejected = rejectedFromProto(r.Rejected)
	case *pb.PrepareResponse_Deferred:
		p.Deferred = notExecutedFromProto(r.Deferred)
	}
	return p
}

// ResponseToProto maps the answer to Dispatch; an outcome of no known class is left unset, which means unknown.
func ResponseToProto(r sdk.Response) *pb.DispatchResponse {
	m := &pb.DispatchResponse{Evidence: each(r.Evidence, evidenceToProto), ProviderRequestId: r.ProviderRequestID}
	switch o := r.Outcome.(type) {
	case *sdk.Committed:
		if o != nil {
			m.Outcome = &pb.DispatchResponse_Committed{Committed: &pb.Committed{
				Object: someObject(o.Object), At: stamp(o.At), Replayed: o.Replayed, Result: o.Result,
			}}
		}
	case *sdk.Rejected:
		if o != nil {
			m.Outcome = &pb.DispatchResponse_Rejected{Rejected: rejectedToProto(o)}
		}
	case *sdk.NotExecuted:
		if o != nil {
			m.Outcome = &pb.DispatchResponse_NotExecuted{NotExecuted: notExecutedToProto(o)}
		}
	case *sdk.Accepted:
		if o != nil {
			m.Outcome = &pb.DispatchResponse_Accepted{Accepted: &pb.Accepted{
				Handle: o.Handle, PollAfter: span(o.PollAfter), ExpiresAt: stamp(o.ExpiresAt), Object: objectToProto(o.Object),
			}}
		}
	case *sdk.Unknown:
		if o != nil {
			m.Outcome = &pb.DispatchResponse_Unknown{Unknown: &pb.Unknown{
				Cause: number[pb.Unknown_Cause](o.Cause, sdk.CausePartial), Message: o.Message,
				LateEffectBound: optSpan(o.LateEffectBound),
			}}
		}
	}
	return m
}

// ResponseFromProto is the reverse of [ResponseToProto]; an unset oneof is a nil Outcome.
func ResponseFromProto(m *pb.DispatchResponse) sdk.Response {
	r := sdk.Response{Evidence: each(m.GetEvidence(), evidenceFromProto), ProviderRequestID: m.GetProviderRequestId()}
	switch o := m.GetOutcome().(type) {
	case *pb.DispatchResponse_Committed:
		c := o.Committed
		r.Outcome = &sdk.Committed{
			Object: objectValue(c.GetObject()), At: instant(c.GetAt()), Replayed: c.GetReplayed(), Result: c.GetResult(),
		}
	case *pb.DispatchResponse_Rejected:
		r.Outcome = rejectedFromProto(o.Rejected)
	case *pb.DispatchResponse_NotExecuted:
		r.Outcome = notExecutedFromProto(o.NotExecuted)
	case *pb.DispatchResponse_Accepted:
		a := o.Accepted
		r.Outcome = &sdk.Accepted{
			Handle: a.GetHandle(), PollAfter: length(a.GetPollAfter()), ExpiresAt: instant(a.GetExpiresAt()),
			Object: objectFromProto(a.GetObject()),
		}
	case *pb.DispatchResponse_Unknown:
		u := o.Unknown
		r.Outcome = &sdk.Unknown{
			Cause:   number[sdk.UnknownCause](u.GetCause(), pb.Unknown_PARTIAL),
			Message: u.GetMessage(), LateEffectBound: optLength(u.GetLateEffectBound()),
		}
	}
	return r
}

func rejectedToProto(r *sdk.Rejected) *pb.Rejected {
	return &pb.Rejected{
		Reason: number[pb.Rejected_Reason](r.Reason, sdk.ReasonUnsupported), Code: r.Code, Message: r.Message,
		WholeDestination: r.WholeDestination, Diagnostics: each(r.Diagnostics, diagnosticToProto),
	}
}

func rejectedFromProto(m *pb.Rejected) *sdk.Rejected {
	return &sdk.Rejected{
		Reason: number[sdk.RejectReason](m.GetReason(), pb.Rejected_UNSUPPORTED), Code: m.GetCode(), Message: m.GetMessage(),
		WholeDestination: m.GetWholeDestination(), Diagnostics: each(m.GetDiagnostics(), diagnosticFromProto),
	}
}

func notExecutedToProto(n *sdk.NotExecuted) *pb.NotExecuted {
	return &pb.NotExecuted{
		Basis:      number[pb.NotExecuted_Basis](n.Basis, sdk.BasisNotStarted),
		RetryAfter: span(n.RetryAfter), WholeDestination: n.WholeDestination, Message: n.Message,
	}
}

func notExecutedFromProto(m *pb.NotExecuted) *sdk.NotExecuted {
	return &sdk.NotExecuted{
		Basis:      number[sdk.NotExecutedBasis](m.GetBasis(), pb.NotExecuted_NOT_STARTED),
		RetryAfter: length(m.GetRetryAfter()), WholeDestination: m.GetWholeDestination(), Message: m.GetMessage(),
	}
}

func evidenceToProto(e sdk.Evidence) *pb.Evidence {
	return &pb.Evidence{
		At: stamp(e.At), Kind: e.Kind, Summary: e.Summary, Fields: copyFields(e.Fields), BodySha256: e.BodySHA256,
	}
}

func evidenceFromProto(m *pb.Evidence) sdk.Evidence {
	return sdk.Evidence{
		At: instant(m.GetAt()), Kind: m.GetKind(), Summary: m.GetSummary(), Fields: copyFields(m.GetFields()),
		BodySHA256: m.GetBodySha256(),
	}
}
