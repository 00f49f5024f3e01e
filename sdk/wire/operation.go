package wire

import (
	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

// OperationToProto maps the effect as the adapter sees it.
func OperationToProto(o sdk.Operation) *pb.Operation {
	return &pb.Operation{
		Id: o.ID, Attempt: o.Attempt, Action: o.Action, IdempotencyKey: o.Key, Marker: o.Marker, Payload: o.Payload,
		ContentType: o.ContentType, PayloadSha256: o.PayloadSHA256, Traceparent: o.Traceparent, Account: o.Account,
		AttemptId: o.AttemptID, Actor: o.Actor, TargetObject: objectToProto(o.Target),
	}
}

// OperationFromProto is the reverse of [OperationToProto].
func OperationFromProto(m *pb.Operation) sdk.Operation {
	return sdk.Operation{
		ID: m.GetId(), Attempt: m.GetAttempt(), Action: m.GetAction(), Key: m.GetIdempotencyKey(), Marker: m.GetMarker(),
		Payload: m.GetPayload(), ContentType: m.GetContentType(), PayloadSHA256: m.GetPayloadSha256(),
		Traceparent: m.GetTraceparent(), Account: m.GetAccount(), AttemptID: m.GetAttemptId(), Actor: m.GetActor(),
		Target: objectFromProto(m.GetTargetObject()),
	}
}

// DispatchToProto maps the request for one effect.
func DispatchToProto(r sdk.DispatchRequest) *pb.DispatchRequest {
	return &pb.DispatchRequest{
		Operation: OperationToProto(r.Operation), Baseline: r.Baseline, Deadline: stamp(r.Deadline),
		ExpectedRevision: r.ExpectedRevision,
	}
}

// DispatchFromProto is the reverse of [DispatchToProto].
func DispatchFromProto(m *pb.DispatchRequest) sdk.DispatchRequest {
	return sdk.DispatchRequest{
		Operation: OperationFromProto(m.GetOperation()), Baseline: m.GetBaseline(), Deadline: instant(m.GetDeadline()),
		ExpectedRevision: m.GetExpectedRevision(),
	}
}

// ReadToProto maps a read.
func ReadToProto(r sdk.ReadRequest) *pb.ReadRequest {
	return &pb.ReadRequest{
		Purpose:   number[pb.ReadRequest_Purpose](r.Purpose, sdk.PurposeConfirm),
		Operation: OperationToProto(r.Operation), Baseline: r.Baseline, Handle: r.Handle, Object: objectToProto(r.Object),
		DispatchedFrom: stamp(r.DispatchedFrom), DispatchedTo: stamp(r.DispatchedTo), Cursor: r.Cursor,
		ProviderRequestIds: r.ProviderRequestIDs,
	}
}

// ReadFromProto is the reverse of [ReadToProto].
func ReadFromProto(m *pb.ReadRequest) sdk.ReadRequest {
	return sdk.ReadRequest{
		Purpose:   number[sdk.ReadPurpose](m.GetPurpose(), pb.ReadRequest_CONFIRM),
		Operation: OperationFromProto(m.GetOperation()), Baseline: m.GetBaseline(), Handle: m.GetHandle(),
		Object:         objectFromProto(m.GetObject()),
		DispatchedFrom: instant(m.GetDispatchedFrom()), DispatchedTo: instant(m.GetDispatchedTo()), Cursor: m.GetCursor(),
		ProviderRequestIDs: m.GetProviderRequestIds(),
	}
}

// FenceToProto maps the request to take a key.
func FenceToProto(r sdk.FenceRequest) *pb.FenceRequest {
	return &pb.FenceRequest{
		Operation: OperationToProto(r.Operation), Deadline: stamp(r.Deadline), ReplacesRevision: r.ReplacesRevision,
	}
}

// FenceFromProto is the reverse of [FenceToProto].
func FenceFromProto(m *pb.FenceRequest) sdk.FenceRequest {
	return sdk.FenceRequest{
		Operation: OperationFromProto(m.GetOperation()), Deadline: instant(m.GetDeadline()),
		ReplacesRevision: m.GetReplacesRevision(),
	}
}

func objectToProto(o *sdk.ObjectRef) *pb.ObjectRef {
	if o == nil {
		return nil
	}
	return &pb.ObjectRef{Type: o.Type, Id: o.ID, Revision: o.Revision, Url: o.URL, State: o.State}
}

func objectFromProto(m *pb.ObjectRef) *sdk.ObjectRef {
	if m == nil {
		return nil
	}
	return &sdk.ObjectRef{Type: m.GetType(), ID: m.GetId(), Revision: m.GetRevision(), URL: m.GetUrl(), State: m.GetState()}
}

// objectValue is the reference of a field that is always there in Go; unset is empty.
func objectValue(m *pb.ObjectRef) sdk.ObjectRef {
	if o := objectFromProto(m); o != nil {
		return *o
	}
	return sdk.ObjectRef{}
}

// someObject leaves an empty reference unset on the wire.
func someObject(o sdk.ObjectRef) *pb.ObjectRef {
	if o == (sdk.ObjectRef{}) {
		return nil
	}
	return objectToProto(&o)
}
