package wire

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake answers what the test says; nil functions answer zero values.
type fake struct {
	dispatch func(context.Context, sdk.DispatchRequest) (sdk.Response, error)
	prepare  func(context.Context, sdk.Operation) (sdk.Prepared, error)
	read     func(context.Context, sdk.ReadRequest) (sdk.ReadResponse, error)
	conf     func(sdk.Configuration) (sdk.Configured, error)
	features []string
}

func (f *fake) Describe(context.Context) (sdk.Description, error) {
	return sdk.Description{Name: "fake", Features: f.features}, nil
}

func (f *fake) Configure(_ context.Context, c sdk.Configuration) (sdk.Configured, error) {
	if f.conf == nil {
		return sdk.Configured{}, nil
	}
	return f.conf(c)
}

func (f *fake) Check(context.Context, []string) (sdk.Health, error) {
	return sdk.Health{}, errors.New("no route to host")
}

func (f *fake) Prepare(ctx context.Context, op sdk.Operation) (sdk.Prepared, error) {
	return f.prepare(ctx, op)
}

func (f *fake) Dispatch(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	return f.dispatch(ctx, r)
}

func (f *fake) Read(ctx context.Context, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	return f.read(ctx, r)
}

type manyFake struct{ fake }

func (f *manyFake) Fence(_ context.Context, r sdk.FenceRequest) (sdk.FenceResponse, error) {
	return sdk.FenceResponse{Fenced: &sdk.ObjectRef{ID: r.Operation.Key}}, nil
}

func (f *manyFake) ReadMany(_ context.Context, reads []sdk.ReadRequest, answer func(int, sdk.ReadResponse)) error {
	var wg sync.WaitGroup
	for i, r := range reads {
		wg.Go(func() {
			answer(i, sdk.ReadResponse{Finding: &sdk.Found{Matches: []sdk.Match{{Object: sdk.ObjectRef{ID: r.Handle}}}}})
		})
	}
	wg.Wait()
	return errors.New("the last page could not be read")
}

func serveRaw(t *testing.T, s pb.AdapterServer, o ClientOptions) *Client {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.MaxRecvMsgSize(sdk.MaxMessage), grpc.MaxSendMsgSize(sdk.MaxMessage))
	pb.RegisterAdapterServer(g, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(lis) }()
	cc, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(sdk.MaxMessage), grpc.MaxCallSendMsgSize(sdk.MaxMessage)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close(); g.Stop(); <-done })
	return NewClient(cc, o)
}

func connect(t *testing.T, a sdk.Adapter, secrets map[string]string) *Client {
	t.Helper()
	c := serveRaw(t, NewServer(a, nil), ClientOptions{})
	if _, err := c.Configure(t.Context(), sdk.Configuration{Secrets: secrets}); err != nil {
		t.Fatal(err)
	}
	return c
}

// outcome dispatches to an adapter that answers with f.
func outcome(t *testing.T, f func(context.Context) (sdk.Response, error)) sdk.Response {
	t.Helper()
	c := connect(t, &fake{dispatch: func(ctx context.Context, _ sdk.DispatchRequest) (sdk.Response, error) { return f(ctx) }},
		map[string]string{"token": "s3cr3t-value/+"})
	r, err := c.Dispatch(t.Context(), sdk.DispatchRequest{Deadline: time.Now().Add(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAnErrorOfTheAdapterIsAClass(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(context.Context) (sdk.Response, error)
		want sdk.UnknownCause // unspecified: not executed, not sent
	}{
		{"a plain error", func(context.Context) (sdk.Response, error) { return sdk.Response{}, errors.New("what") }, sdk.CauseAdapterError},
		{"an error beside a commit", func(context.Context) (sdk.Response, error) {
			return sdk.Response{Outcome: &sdk.Committed{}}, errors.New("what")
		}, sdk.CauseAdapterError},
		{"a panic", func(context.Context) (sdk.Response, error) { panic("what") }, sdk.CauseAdapterPanic},
		{"a panic with a proof", func(context.Context) (sdk.Response, error) { panic(sdk.NotSent(errors.New("what"))) }, sdk.CauseAdapterPanic},
		{"its context ends", func(ctx context.Context) (sdk.Response, error) { <-ctx.Done(); return sdk.Response{}, ctx.Err() }, sdk.CauseTimeout},
		{"proof that nothing was sent", func(context.Context) (sdk.Response, error) {
			return sdk.Response{}, sdk.NotSent(errors.New("what"))
		}, sdk.CauseUnspecified},
		{"a gRPC status as error", func(context.Context) (sdk.Response, error) {
			return sdk.Response{}, status.Error(codes.InvalidArgument, "what")
		}, sdk.CauseAdapterError},
	} {
		t.Run(c.name, func(t *testing.T) {
			switch o := outcome(t, c.f).Outcome.(type) {
			case *sdk.Unknown:
				if o.Cause != c.want || c.want == sdk.CauseUnspecified {
					t.Errorf("cause %d, want %d", o.Cause, c.want)
				}
			case *sdk.NotExecuted:
				if c.want != sdk.CauseUnspecified || o.Basis != sdk.BasisNotSent {
					t.Errorf("got not executed with basis %d", o.Basis)
				}
			default:
				t.Errorf("got %#v", o)
			}
		})
	}
}

func TestABreachOfTheContractIsUnknownAndCounted(t *testing.T) {
	for _, c := range []struct {
		name string
		o    sdk.Outcome
	}{
		{"no outcome", nil},
		{"a typed nil", (*sdk.Committed)(nil)},
		{"accepted without a handle", &sdk.Accepted{}},
		{"not executed without a basis", &sdk.NotExecuted{}},
		{"an id too long to be one", &sdk.Committed{Object: sdk.ObjectRef{ID: strings.Repeat("x", 5000)}}},
		{"a handle too long to be one", &sdk.Accepted{Handle: strings.Repeat("x", 5000)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := connect(t, &fake{dispatch: func(context.Context, sdk.DispatchRequest) (sdk.Response, error) {
				return sdk.Response{Outcome: c.o, ProviderRequestID: "req_1"}, nil
			}}, nil)
			r, err := cl.Dispatch(t.Context(), sdk.DispatchRequest{})
			u, ok := r.Outcome.(*sdk.Unknown)
			if err != nil || !ok || u.Cause != sdk.CauseBadResponse || cl.Violations() != 1 || r.ProviderRequestID != "req_1" {
				t.Errorf("got %#v, %v, %d violations", r, err, cl.Violations())
			}
		})
	}
}

func TestAReadWithoutAFindingIsIndeterminate(t *testing.T) {
	for name, f := range map[string]sdk.Finding{"none": nil, "found nothing": &sdk.Found{}} {
		cl := connect(t, &fake{read: func(context.Context, sdk.ReadRequest) (sdk.ReadResponse, error) {
			return sdk.ReadResponse{Finding: f, Authority: sdk.Authoritative}, nil
		}}, nil)
		r, err := cl.Read(t.Context(), sdk.ReadRequest{})
		if _, ok := r.Finding.(*sdk.Indeterminate); err != nil || !ok || cl.Violations() != 1 {
			t.Errorf("%s: got %#v, %v, %d violations", name, r.Finding, err, cl.Violations())
		}
	}
}

func TestErrorsOfCallsWithoutEffectAreNoVerdicts(t *testing.T) {
	cl := connect(t, &fake{
		read:    func(context.Context, sdk.ReadRequest) (sdk.ReadResponse, error) { panic("page") },
		prepare: func(context.Context, sdk.Operation) (sdk.Prepared, error) { return sdk.Prepared{}, errors.New("token") },
	}, nil)
	r, err := cl.Read(t.Context(), sdk.ReadRequest{})
	if i, ok := r.Finding.(*sdk.Indeterminate); err != nil || !ok || !strings.Contains(i.Message, "page") {
		t.Errorf("read: %#v, %v", r.Finding, err)
	}
	p, err := cl.Prepare(t.Context(), sdk.Operation{})
	if err != nil || p.Deferred == nil || p.Deferred.Basis != sdk.BasisNotStarted {
		t.Errorf("prepare: %#v, %v", p, err)
	}
	h, err := cl.Check(t.Context(), nil)
	if err != nil || h.Status != sdk.HealthDown || len(h.Diagnostics) != 1 {
		t.Errorf("check: %#v, %v", h, err)
	}
}

func TestNothingIsDispatchedBeforeConfigureOrAfterARefusal(t *testing.T) {
	called := false
	a := &fake{
		dispatch: func(context.Context, sdk.DispatchRequest) (sdk.Response, error) {
			called = true
			return sdk.Response{}, nil
		},
		conf: func(sdk.Configuration) (sdk.Configured, error) { return sdk.Configured{}, errors.New("no") },
	}
	cl := serveRaw(t, NewServer(a, nil), ClientOptions{})
	for range 2 {
		r, err := cl.Dispatch(t.Context(), sdk.DispatchRequest{})
		if n, ok := r.Outcome.(*sdk.NotExecuted); err != nil || !ok || n.Basis != sdk.BasisNotStarted {
			t.Errorf("got %#v, %v", r.Outcome, err)
		}
		c, err := cl.Configure(t.Context(), sdk.Configuration{})
		if err != nil || len(c.Diagnostics) != 1 || c.Diagnostics[0].Warning {
			t.Errorf("configure: %+v, %v", c, err)
		}
	}
	if called {
		t.Error("the adapter was called")
	}
}

func TestASecondConfigurationNeedsAnotherProcess(t *testing.T) {
	cl := connect(t, &fake{}, nil)
	if _, err := cl.Configure(t.Context(), sdk.Configuration{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v", err)
	}
}

// An answer that is too long, not UTF-8 or indiscreet still is the answer.
func TestAnAnswerIsMadeToFitAndNeverFailed(t *testing.T) {
	evidence := make([]sdk.Evidence, 40)
	for i := range evidence {
		evidence[i] = sdk.Evidence{
			Summary: strings.Repeat("ö", 5000),
			Fields:  map[string]string{"body": strings.Repeat("b", 9000), "id": "x1"},
		}
	}
	r := outcome(t, func(context.Context) (sdk.Response, error) {
		return sdk.Response{
			Outcome: &sdk.Committed{
				Object: sdk.ObjectRef{ID: "in\xffvoice", URL: "https://x/?t=s3cr3t-value%2F%2B"},
				Result: []byte(`"s3cr3t-value/+"` + strings.Repeat("r", 12<<20)),
			},
			Evidence: evidence,
		}, nil
	})
	c, ok := r.Outcome.(*sdk.Committed)
	if !ok {
		t.Fatalf("got %#v, want committed", r.Outcome)
	}
	if c.Object.ID != "in\uFFFDvoice" || len(c.Result) != sdk.MaxResult {
		t.Errorf("id %q, result of %d bytes", c.Object.ID, len(c.Result))
	}
	if strings.Contains(string(c.Result), "s3cr3t") || strings.Contains(c.Object.URL, "s3cr3t") {
		t.Error("a secret left the adapter")
	}
	if len(r.Evidence) != sdk.MaxEvidence || r.Evidence[15].Kind != "truncated" {
		t.Errorf("%d pieces of evidence, the last: %+v", len(r.Evidence), r.Evidence[len(r.Evidence)-1])
	}
	if e := evidenceToProto(r.Evidence[0]); e.Fields["id"] != "x1" || len(e.Summary)+len(e.Fields["body"]) > sdk.MaxEvidenceB {
		t.Errorf("evidence was cut to %d bytes, with id %q", len(e.Summary), e.Fields["id"])
	}
}

func TestALongListOfMatchesLosesContentsThenMatchesAndSaysSo(t *testing.T) {
	answer := func(n, observed int, url string) sdk.ReadResponse {
		cl := connect(t, &fake{read: func(context.Context, sdk.ReadRequest) (sdk.ReadResponse, error) {
			m := make([]sdk.Match, n)
			for i := range m {
				m[i] = sdk.Match{Observed: make([]byte, observed), Object: sdk.ObjectRef{ID: "i", URL: url}}
			}
			return sdk.ReadResponse{Finding: &sdk.Found{Matches: m}, Coverage: sdk.CoverageComplete}, nil
		}}, nil)
		r, err := cl.Read(t.Context(), sdk.ReadRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := answer(50, sdk.MaxObserved+1, "")
	m := r.Finding.(*sdk.Found).Matches
	if len(m) != 50 || len(m[0].Observed) != sdk.MaxObserved || len(m[49].Observed) != 0 || r.Coverage != sdk.CoverageComplete {
		t.Errorf("%d matches, %d and %d bytes, coverage %d", len(m), len(m[0].Observed), len(m[49].Observed), r.Coverage)
	}
	r = answer(100, 0, strings.Repeat("u", 1<<20))
	m = r.Finding.(*sdk.Found).Matches
	if len(m) < 2 || len(m) > 8 || r.Coverage != sdk.CoverageTruncated {
		t.Errorf("%d matches, coverage %d", len(m), r.Coverage)
	}
}

func TestABaselineThatIsTooLongIsRefusedAndNotCut(t *testing.T) {
	cl := connect(t, &fake{prepare: func(context.Context, sdk.Operation) (sdk.Prepared, error) {
		return sdk.Prepared{Ready: &sdk.Ready{Baseline: make([]byte, sdk.MaxBaseline+1)}}, nil
	}}, nil)
	p, err := cl.Prepare(t.Context(), sdk.Operation{})
	if err != nil || p.Ready != nil || p.Rejected == nil || p.Rejected.Code != "baseline_too_large" {
		t.Errorf("got %#v, %v", p, err)
	}
}

func TestARequestThatNeverReachedTheStreamIsNotExecuted(t *testing.T) {
	cl := connect(t, &fake{dispatch: func(context.Context, sdk.DispatchRequest) (sdk.Response, error) {
		t.Error("the adapter was called")
		return sdk.Response{}, nil
	}}, nil)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	check := func(what string, c *Client, ctx context.Context, r sdk.DispatchRequest) {
		t.Helper()
		got, err := c.Dispatch(ctx, r)
		if n, ok := got.Outcome.(*sdk.NotExecuted); err != nil || !ok || n.Basis != sdk.BasisNotSent {
			t.Errorf("%s: %#v, %v", what, got.Outcome, err)
		}
	}
	check("over", cl, over, sdk.DispatchRequest{})
	check("too large", cl, t.Context(), sdk.DispatchRequest{Operation: sdk.Operation{Payload: make([]byte, sdk.MaxMessage)}})
	check("not UTF-8", cl, t.Context(), sdk.DispatchRequest{Operation: sdk.Operation{Key: "\xff"}})
	dead := make(chan struct{})
	close(dead)
	check("dead", serveRaw(t, NewServer(&fake{}, nil), ClientOptions{Dead: dead}), t.Context(), sdk.DispatchRequest{})
}

// rude answers with gRPC errors, as no SDK of ours does.
type rude struct {
	pb.UnimplementedAdapterServer
	code codes.Code
}

func (r *rude) Dispatch(context.Context, *pb.DispatchRequest) (*pb.DispatchResponse, error) {
	return nil, status.Error(r.code, "nothing happened, believe me")
}

func TestNoStatusCodeEverProvesThatNothingHappened(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		var told int
		cl := serveRaw(t, &rude{code: code}, ClientOptions{Violation: func(string, string) { told++ }})
		r, err := cl.Dispatch(t.Context(), sdk.DispatchRequest{})
		var call *CallError
		if r.Outcome != nil || !errors.As(err, &call) || errors.Is(err, sdk.ErrNotSent) {
			t.Errorf("%v: %#v, %v", code, r.Outcome, err)
		}
		if UnknownOf(err).Cause == sdk.CauseUnspecified {
			t.Errorf("%v: no cause", code)
		}
	}
}

func TestFeaturesThatTheCodeDoesNotHaveAreNotDescribed(t *testing.T) {
	all := []string{sdk.FeaturePrepare, sdk.FeatureFence, sdk.FeatureReadMany}
	d, err := connect(t, &fake{features: all}, nil).Describe(t.Context())
	if err != nil || len(d.Features) != 1 || d.SDK != SDKName {
		t.Errorf("got %+v, %v", d, err)
	}
	d, err = connect(t, &manyFake{fake{features: all}}, nil).Describe(t.Context())
	if err != nil || len(d.Features) != 3 {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestFenceAndReadManyCrossTheWire(t *testing.T) {
	cl := connect(t, &manyFake{}, nil)
	f, err := cl.Fence(t.Context(), sdk.FenceRequest{Operation: sdk.Operation{Key: "k1"}})
	if err != nil || f.Fenced == nil || f.Fenced.ID != "k1" {
		t.Errorf("fence: %+v, %v", f, err)
	}
	got := map[int]string{}
	err = cl.ReadMany(t.Context(), []sdk.ReadRequest{{Handle: "a"}, {Handle: "b"}, {Handle: "c"}}, func(i int, r sdk.ReadResponse) {
		got[i] = r.Finding.(*sdk.Found).Matches[0].Object.ID
	})
	if err == nil || !strings.Contains(err.Error(), "the last page") || len(got) != 3 || got[1] != "b" {
		t.Errorf("read many: %v, %v", got, err)
	}
	plain := connect(t, &fake{}, nil)
	if _, err := plain.Fence(t.Context(), sdk.FenceRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("fence without the feature: %v", err)
	}
}

func TestAllFormsOfASecretAreBlanked(t *testing.T) {
	r := NewRedactor(map[string]string{"a": `pa"ss wörd/+`, "b": "line\n", "short": "abc"})
	for _, s := range []string{
		`pa"ss wörd/+`, `{"k":"pa\"ss wörd/+"}`, "cGEic3Mgd8O2cmQvKw==", "cGEic3Mgd8O2cmQvKw", "cGEic3Mgd8O2cmQvKw",
		"pa%22ss+w%C3%B6rd%2F%2B", "pa%22ss%20w%C3%B6rd%2F+", "one line here",
	} {
		if got := r.String("<" + s + ">"); !strings.Contains(got, Redacted) {
			t.Errorf("%q stays %q", s, got)
		}
	}
	if got := r.String("abcdef"); got != "abcdef" {
		t.Errorf("a short value was blanked: %q", got)
	}
}
