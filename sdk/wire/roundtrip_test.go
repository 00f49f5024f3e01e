package wire

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

// last is the highest value of each enumeration. An enumeration that is missing
// here fails the test, so that a new one is not forgotten.
var last = map[reflect.Type]uint8{
	reflect.TypeFor[sdk.OutcomeClass]():       uint8(sdk.ClassExecuted),
	reflect.TypeFor[sdk.Consequence]():        uint8(sdk.ConsequenceTrigger),
	reflect.TypeFor[sdk.IdempotencyMode]():    uint8(sdk.IdempotencyConditional),
	reflect.TypeFor[sdk.Mismatch]():           uint8(sdk.MismatchExecutesAgain),
	reflect.TypeFor[sdk.Replay]():             uint8(sdk.ReplayCurrentState),
	reflect.TypeFor[sdk.Lookup]():             uint8(sdk.LookupWindow),
	reflect.TypeFor[sdk.Authority]():          uint8(sdk.Advisory),
	reflect.TypeFor[sdk.ReversalKind]():       uint8(sdk.Compensatable),
	reflect.TypeFor[sdk.HealthStatus]():       uint8(sdk.HealthDown),
	reflect.TypeFor[sdk.RejectReason]():       uint8(sdk.ReasonUnsupported),
	reflect.TypeFor[sdk.NotExecutedBasis]():   uint8(sdk.BasisNotStarted),
	reflect.TypeFor[sdk.UnknownCause]():       uint8(sdk.CausePartial),
	reflect.TypeFor[sdk.ReadPurpose]():        uint8(sdk.PurposeConfirm),
	reflect.TypeFor[sdk.PostconditionState](): uint8(sdk.PostconditionPending),
	reflect.TypeFor[sdk.Coverage]():           uint8(sdk.CoverageWindowLimited),
	reflect.TypeFor[sdk.MatchStrength]():      uint8(sdk.StrengthSnapshotDiff),
	reflect.TypeFor[sdk.Agreement]():          uint8(sdk.AgreementPartial),
}

// filler fills Go values with chance; no field stays zero.
type filler struct {
	t *testing.T
	r *rand.Rand
}

func (f filler) fill(v reflect.Value) {
	switch v.Type() {
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1+f.r.Int64N(4e9), f.r.Int64N(1e9)).UTC()))
		return
	case reflect.TypeFor[time.Duration]():
		v.SetInt(1 + f.r.Int64N(1e18))
		return
	case reflect.TypeFor[sdk.Outcome](), reflect.TypeFor[sdk.Finding]():
		return // set by the test, one arm after the other
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+f.r.IntN(3), 3))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + f.r.IntN(3) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(k)
			f.fill(e)
			v.SetMapIndex(k, e)
		}
	case reflect.String:
		v.SetString(string(rune('ä'+f.r.IntN(500))) + string(rune('a'+f.r.IntN(26))))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1 + f.r.Float64())
	case reflect.Uint32:
		v.SetUint(1 + f.r.Uint64N(1<<31))
	case reflect.Uint8:
		top := uint8(255)
		if v.Type() != reflect.TypeFor[uint8]() {
			var known bool
			if top, known = last[v.Type()]; !known {
				f.t.Fatalf("the enumeration %s is not in the table of this test", v.Type())
			}
		}
		v.SetUint(1 + f.r.Uint64N(uint64(top)))
	default:
		f.t.Fatalf("no way to fill a %s", v.Type())
	}
}

func filled[T any](f filler) T {
	var v T
	f.fill(reflect.ValueOf(&v).Elem())
	return v
}

// there checks that a Go value survives message, bytes, message.
func there[G any, P proto.Message](t *testing.T, g G, to func(G) P, from func(P) G) {
	t.Helper()
	raw, err := proto.Marshal(to(g))
	if err != nil {
		t.Fatal(err)
	}
	var zero P
	m := zero.ProtoReflect().New().Interface().(P)
	if err := proto.Unmarshal(raw, m); err != nil {
		t.Fatal(err)
	}
	if back := from(m); !reflect.DeepEqual(g, back) {
		t.Errorf("%T changed on the way:\n sent %+v\n got  %+v", g, g, back)
	}
}

func TestEveryGoFieldSurvivesTheWire(t *testing.T) {
	for seed := range uint64(50) {
		f := filler{t, rand.New(rand.NewPCG(seed, 1))}
		there(t, filled[sdk.Description](f), DescriptionToProto, DescriptionFromProto)
		there(t, filled[sdk.Configuration](f), ConfigurationToProto, ConfigurationFromProto)
		there(t, filled[sdk.Configured](f), ConfiguredToProto, ConfiguredFromProto)
		there(t, filled[sdk.Health](f), HealthToProto, HealthFromProto)
		there(t, filled[sdk.Operation](f), OperationToProto, OperationFromProto)
		there(t, filled[sdk.DispatchRequest](f), DispatchToProto, DispatchFromProto)
		there(t, filled[sdk.ReadRequest](f), ReadToProto, ReadFromProto)
		there(t, filled[sdk.FenceRequest](f), FenceToProto, FenceFromProto)
		for _, o := range []sdk.Outcome{
			nil, ptr(filled[sdk.Committed](f)), ptr(filled[sdk.Rejected](f)), ptr(filled[sdk.NotExecuted](f)),
			ptr(filled[sdk.Accepted](f)), ptr(filled[sdk.Unknown](f)),
		} {
			r := filled[sdk.Response](f)
			r.Outcome = o
			there(t, r, ResponseToProto, ResponseFromProto)
		}
		for _, x := range []sdk.Finding{
			nil, ptr(filled[sdk.Found](f)), ptr(filled[sdk.NoneSeen](f)), ptr(filled[sdk.Pending](f)),
			ptr(filled[sdk.Failed](f)), ptr(filled[sdk.Indeterminate](f)),
		} {
			r := filled[sdk.ReadResponse](f)
			r.Finding = x
			there(t, r, ReadResponseToProto, ReadResponseFromProto)
		}
		for _, keep := range []int{0, 1, 2, 3} {
			p, q := filled[sdk.Prepared](f), filled[sdk.FenceResponse](f)
			oneOf(reflect.ValueOf(&p).Elem(), keep)
			oneOf(reflect.ValueOf(&q).Elem(), keep)
			there(t, p, PreparedToProto, PreparedFromProto)
			there(t, q, FenceResponseToProto, FenceResponseFromProto)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// oneOf leaves one of the first three fields, or none.
func oneOf(v reflect.Value, keep int) {
	for i := range 3 {
		if i != keep {
			v.Field(i).SetZero()
		}
	}
}

func TestTheZeroValuesSurviveTheWire(t *testing.T) {
	there(t, sdk.Description{}, DescriptionToProto, DescriptionFromProto)
	there(t, sdk.Description{Actions: []sdk.ActionSpec{{}}}, DescriptionToProto, DescriptionFromProto)
	there(t, sdk.Configuration{}, ConfigurationToProto, ConfigurationFromProto)
	there(t, sdk.Health{}, HealthToProto, HealthFromProto)
	there(t, sdk.DispatchRequest{}, DispatchToProto, DispatchFromProto)
	there(t, sdk.ReadRequest{}, ReadToProto, ReadFromProto)
	there(t, sdk.Response{Outcome: &sdk.Committed{}}, ResponseToProto, ResponseFromProto)
	there(t, sdk.ReadResponse{Finding: &sdk.Found{Matches: []sdk.Match{{}}}}, ReadResponseToProto, ReadResponseFromProto)
	there(t, sdk.Prepared{Ready: &sdk.Ready{}}, PreparedToProto, PreparedFromProto)
	zero := time.Duration(0)
	there(t, sdk.Response{Outcome: &sdk.Unknown{LateEffectBound: &zero}}, ResponseToProto, ResponseFromProto)
}

// populate sets every field of m, and of each oneof the arm-th.
func populate(m protoreflect.Message, arm, depth int, r *rand.Rand) {
	if string(m.Descriptor().FullName().Parent()) == "google.protobuf" {
		m.Set(m.Descriptor().Fields().ByName("seconds"), protoreflect.ValueOfInt64(1+r.Int64N(1e9)))
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if o := fd.ContainingOneof(); o != nil && o.Fields().Get(arm%o.Fields().Len()) != fd {
			continue
		}
		switch {
		case fd.IsMap():
			e := m.Mutable(fd).Map()
			e.Set(protoreflect.ValueOfString("k").MapKey(), scalarOf(fd.MapValue(), r))
		case fd.IsList() && fd.Message() != nil:
			populate(m.Mutable(fd).List().AppendMutable().Message(), arm, depth+1, r)
		case fd.IsList():
			m.Mutable(fd).List().Append(scalarOf(fd, r))
		case fd.Message() != nil:
			populate(m.Mutable(fd).Message(), arm, depth+1, r)
		default:
			m.Set(fd, scalarOf(fd, r))
		}
	}
}

func scalarOf(fd protoreflect.FieldDescriptor, r *rand.Rand) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(rune('a' + r.IntN(26))))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(1 + r.IntN(255))})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1 + r.Uint32N(1000))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1 + r.Float64())
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(1 + r.IntN(fd.Enum().Values().Len()-1)))
	}
	panic("no way to fill a " + fd.Kind().String())
}

// back checks that a message survives the Go value.
func back[G any, P proto.Message](t *testing.T, to func(G) P, from func(P) G) {
	t.Helper()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 2))
		var zero P
		m := zero.ProtoReflect().New().Interface().(P)
		populate(m.ProtoReflect(), int(seed), 0, r)
		if got := to(from(m)); !proto.Equal(m, got) {
			t.Errorf("%T changed on the way:\n sent %v\n got  %v", m, m, got)
		}
	}
}

func TestEveryFieldOfEveryMessageHasItsPlaceInGo(t *testing.T) {
	back(t, DescriptionToProto, DescriptionFromProto)
	back(t, ConfigurationToProto, ConfigurationFromProto)
	back(t, ConfiguredToProto, ConfiguredFromProto)
	back(t, HealthToProto, HealthFromProto)
	back(t, OperationToProto, OperationFromProto)
	back(t, DispatchToProto, DispatchFromProto)
	back(t, ReadToProto, ReadFromProto)
	back(t, FenceToProto, FenceFromProto)
	back(t, PreparedToProto, PreparedFromProto)
	back(t, ResponseToProto, ResponseFromProto)
	back(t, ReadResponseToProto, ReadResponseFromProto)
	back(t, FenceResponseToProto, FenceResponseFromProto)
}

// Each enumeration in Go has as many values as on the wire, and a later one reads as its zero value.
func TestAValueFromALaterVersionPromisesNothing(t *testing.T) {
	m := &pb.DispatchResponse{Outcome: &pb.DispatchResponse_NotExecuted{NotExecuted: &pb.NotExecuted{Basis: 99}}}
	if n := ResponseFromProto(m).Outcome.(*sdk.NotExecuted); n.Basis != sdk.BasisUnspecified {
		t.Errorf("basis 99 reads as %d", n.Basis)
	}
	r := ReadResponseFromProto(&pb.ReadResponse{Authority: 7, Coverage: -1})
	if r.Authority != sdk.AuthorityUnspecified || r.Coverage != sdk.CoverageUnspecified {
		t.Errorf("authority 7, coverage -1 read as %d, %d", r.Authority, r.Coverage)
	}
	o := ReadResponseToProto(sdk.ReadResponse{Authority: 200})
	if o.Authority != pb.Authority_AUTHORITY_UNSPECIFIED {
		t.Errorf("authority 200 is sent as %v", o.Authority)
	}
}

// Answers come from a process that may be broken or hostile: whatever decodes must map without a panic.
func FuzzAnyAnswerMaps(f *testing.F) {
	for seed := range uint64(10) {
		m := &pb.ReadResponse{}
		populate(m.ProtoReflect(), int(seed), 0, rand.New(rand.NewPCG(seed, 3)))
		raw, _ := proto.Marshal(m)
		f.Add(raw)
		d := &pb.DispatchResponse{}
		populate(d.ProtoReflect(), int(seed), 0, rand.New(rand.NewPCG(seed, 4)))
		raw, _ = proto.Marshal(d)
		f.Add(raw)
	}
	red := NewRedactor(map[string]string{"k": "secret"})
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, r, p, q := &pb.DispatchResponse{}, &pb.ReadResponse{}, &pb.PrepareResponse{}, &pb.FenceResponse{}
		for _, m := range []proto.Message{d, r, p, q, &pb.ConfigureResponse{}, &pb.CheckResponse{}, &pb.DescribeResponse{}} {
			if proto.Unmarshal(raw, m) == nil {
				red.Clean(m)
			}
		}
		trimResponse(d)
		trimRead(r)
		trimPrepared(p)
		trimFence(q)
		_, _, _, _ = ResponseFromProto(d), ReadResponseFromProto(r), PreparedFromProto(p), FenceResponseFromProto(q)
		if n := proto.Size(r); n > sdk.MaxMessage && len(raw) < sdk.MaxMessage {
			t.Errorf("a trimmed answer has %d bytes", n)
		}
	})
}
