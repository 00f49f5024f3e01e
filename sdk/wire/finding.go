package wire

import (
	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

// ReadResponseToProto maps the answer to Read; a finding of no known class is left unset, which means indeterminate.
func ReadResponseToProto(r sdk.ReadResponse) *pb.ReadResponse {
	m := &pb.ReadResponse{
		Authority: number[pb.Authority](r.Authority, sdk.Advisory),
		Coverage:  number[pb.Coverage](r.Coverage, sdk.CoverageWindowLimited),
		AsOf:      stamp(r.AsOf), Cursor: r.Cursor, Evidence: each(r.Evidence, evidenceToProto),
		Postcondition: postconditionToProto(r.Postcondition), View: viewToProto(r.View),
	}
	switch f := r.Finding.(type) {
	case *sdk.Found:
		if f != nil {
			m.Finding = &pb.ReadResponse_Found{Found: foundToProto(f)}
		}
	case *sdk.NoneSeen:
		if f != nil {
			m.Finding = &pb.ReadResponse_NoneSeen{NoneSeen: &pb.NoneSeen{ScopesSearched: f.ScopesSearched}}
		}
	case *sdk.Pending:
		if f != nil {
			m.Finding = &pb.ReadResponse_Pending{Pending: &pb.Pending{PollAfter: span(f.PollAfter), Message: f.Message}}
		}
	case *sdk.Failed:
		if f != nil {
			m.Finding = &pb.ReadResponse_Failed{Failed: &pb.Failed{Code: f.Code, Message: f.Message, MayResend: f.MayResend}}
		}
	case *sdk.Indeterminate:
		if f != nil {
			m.Finding = &pb.ReadResponse_Indeterminate{Indeterminate: indeterminateToProto(f)}
		}
	}
	return m
}

// ReadResponseFromProto is the reverse of [ReadResponseToProto]; an unset oneof is a nil Finding.
func ReadResponseFromProto(m *pb.ReadResponse) sdk.ReadResponse {
	r := sdk.ReadResponse{
		Authority: number[sdk.Authority](m.GetAuthority(), pb.Authority_ADVISORY),
		Coverage:  number[sdk.Coverage](m.GetCoverage(), pb.Coverage_WINDOW_LIMITED),
		AsOf:      instant(m.GetAsOf()), Cursor: m.GetCursor(), Evidence: each(m.GetEvidence(), evidenceFromProto),
		Postcondition: postconditionFromProto(m.GetPostcondition()), View: viewFromProto(m.GetView()),
	}
	switch f := m.GetFinding().(type) {
	case *pb.ReadResponse_Found:
		r.Finding = foundFromProto(f.Found)
	case *pb.ReadResponse_NoneSeen:
		r.Finding = &sdk.NoneSeen{ScopesSearched: f.NoneSeen.GetScopesSearched()}
	case *pb.ReadResponse_Pending:
		r.Finding = &sdk.Pending{PollAfter: length(f.Pending.GetPollAfter()), Message: f.Pending.GetMessage()}
	case *pb.ReadResponse_Failed:
		r.Finding = &sdk.Failed{
			Code: f.Failed.GetCode(), Message: f.Failed.GetMessage(), MayResend: f.Failed.GetMayResend(),
		}
	case *pb.ReadResponse_Indeterminate:
		r.Finding = indeterminateFromProto(f.Indeterminate)
	}
	return r
}

// FenceResponseToProto maps the answer to Fence. Found wins over Fenced if an
// author set both, because a find may not be overlooked.
func FenceResponseToProto(r sdk.FenceResponse) *pb.FenceResponse {
	m := &pb.FenceResponse{}
	switch {
	case r.Found != nil:
		m.Result = &pb.FenceResponse_Found{Found: foundToProto(r.Found)}
	case r.Fenced != nil:
		m.Result = &pb.FenceResponse_Fenced{Fenced: objectToProto(r.Fenced)}
	case r.Indeterminate != nil:
		m.Result = &pb.FenceResponse_Indeterminate{Indeterminate: indeterminateToProto(r.Indeterminate)}
	}
	return m
}

// FenceResponseFromProto is the reverse of [FenceResponseToProto].
func FenceResponseFromProto(m *pb.FenceResponse) sdk.FenceResponse {
	switch r := m.GetResult().(type) {
	case *pb.FenceResponse_Fenced:
		return sdk.FenceResponse{Fenced: objectFromProto(r.Fenced)}
	case *pb.FenceResponse_Found:
		return sdk.FenceResponse{Found: foundFromProto(r.Found)}
	case *pb.FenceResponse_Indeterminate:
		return sdk.FenceResponse{Indeterminate: indeterminateFromProto(r.Indeterminate)}
	}
	return sdk.FenceResponse{}
}

func foundToProto(f *sdk.Found) *pb.Found { return &pb.Found{Matches: each(f.Matches, matchToProto)} }

func foundFromProto(m *pb.Found) *sdk.Found {
	return &sdk.Found{Matches: each(m.GetMatches(), matchFromProto)}
}

func matchToProto(x sdk.Match) *pb.Match {
	return &pb.Match{
		Object: someObject(x.Object), Strength: number[pb.Match_Strength](x.Strength, sdk.StrengthSnapshotDiff),
		Agreement:   number[pb.Match_Agreement](x.Agreement, sdk.AgreementPartial),
		Differences: x.Differences, CreatedAt: stamp(x.CreatedAt), Observed: x.Observed, Account: x.Account,
		Target: x.Target, Void: x.Void,
	}
}

func matchFromProto(m *pb.Match) sdk.Match {
	return sdk.Match{
		Object: objectValue(m.GetObject()), Strength: number[sdk.MatchStrength](m.GetStrength(), pb.Match_SNAPSHOT_DIFF),
		Agreement:   number[sdk.Agreement](m.GetAgreement(), pb.Match_PARTIAL),
		Differences: m.GetDifferences(), CreatedAt: instant(m.GetCreatedAt()), Observed: m.GetObserved(),
		Account: m.GetAccount(), Target: m.GetTarget(), Void: m.GetVoid(),
	}
}

func indeterminateToProto(i *sdk.Indeterminate) *pb.Indeterminate {
	return &pb.Indeterminate{Message: i.Message, RetryAfter: span(i.RetryAfter)}
}

func indeterminateFromProto(m *pb.Indeterminate) *sdk.Indeterminate {
	return &sdk.Indeterminate{Message: m.GetMessage(), RetryAfter: length(m.GetRetryAfter())}
}

func postconditionToProto(p sdk.Postcondition) *pb.Postcondition {
	if p == (sdk.Postcondition{}) {
		return nil
	}
	return &pb.Postcondition{
		State: number[pb.Postcondition_State](p.State, sdk.PostconditionPending), Seen: p.Seen,
	}
}

func postconditionFromProto(m *pb.Postcondition) sdk.Postcondition {
	return sdk.Postcondition{
		State: number[sdk.PostconditionState](m.GetState(), pb.Postcondition_PENDING), Seen: m.GetSeen(),
	}
}

func viewToProto(v *sdk.View) *pb.View {
	if v == nil {
		return nil
	}
	return &pb.View{
		Id: v.ID, FilterSha256: v.FilterSHA256, Principal: v.Principal,
		ScannedFrom: stamp(v.ScannedFrom), ScannedTo: stamp(v.ScannedTo), VisibilityProven: v.VisibilityProven,
		How: v.How, Outage: v.Outage, Near: each(v.Near, matchToProto),
	}
}

func viewFromProto(m *pb.View) *sdk.View {
	if m == nil {
		return nil
	}
	return &sdk.View{
		ID: m.GetId(), FilterSHA256: m.GetFilterSha256(), Principal: m.GetPrincipal(),
		ScannedFrom: instant(m.GetScannedFrom()), ScannedTo: instant(m.GetScannedTo()),
		VisibilityProven: m.GetVisibilityProven(), How: m.GetHow(), Outage: m.GetOutage(),
		Near: each(m.GetNear(), matchFromProto),
	}
}
