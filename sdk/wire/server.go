package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

// SDKName is what a description says of the SDK when the author says nothing.
const SDKName = "settled-go/1"

// Server serves one adapter over gRPC. Its methods may be called concurrently,
// as often as the adapter itself allows.
type Server struct {
	pb.UnimplementedAdapterServer
	adapter sdk.Adapter
	log     *slog.Logger

	configuring sync.Mutex // held during Configure: it happens once
	configured  atomic.Bool
	redact      atomic.Pointer[Redactor] // written by Configure, read by every answer
	running     atomic.Int64
}

// NewServer wraps an adapter. log gets panics with their stack; nil discards.
func NewServer(a sdk.Adapter, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Server{adapter: a, log: log}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { pb.RegisterAdapterServer(r, s) }

// Running counts the adapter's methods that have not returned yet.
func (s *Server) Running() int64 { return s.running.Load() }

// guard runs one method of the adapter and turns a panic into an error.
func (s *Server) guard(ctx context.Context, method string, deadline time.Time, f func(context.Context) error) (err error) {
	s.running.Add(1)
	defer s.running.Add(-1)
	ctx, cancel := answerInTime(ctx, deadline)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			text := s.redact.Load().String(fmt.Sprint(p))
			s.log.Error("the adapter panicked", "method", method, "panic", text,
				"stack", s.redact.Load().String(string(debug.Stack())))
			err = &panicError{text}
		}
	}()
	return f(ctx)
}

type panicError struct{ text string }

func (e *panicError) Error() string { return "panic: " + e.text }

// answerInTime ends the adapter's context min(500 ms, 10 %) before the earlier
// of the call's and the request's deadline, so that the adapter can still answer with a class.
func answerInTime(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	if d, ok := ctx.Deadline(); ok && (deadline.IsZero() || d.Before(deadline)) {
		deadline = d
	}
	if deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	margin := min(500*time.Millisecond, max(0, time.Until(deadline)/10))
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

// Describe answers what the adapter says of itself, without features that its code does not have.
func (s *Server) Describe(ctx context.Context, _ *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	var d sdk.Description
	err := s.guard(ctx, "Describe", time.Time{}, func(ctx context.Context) (err error) {
		d, err = s.adapter.Describe(ctx)
		return err
	})
	if err != nil {
		return nil, status.Error(codes.Internal, cutText(err.Error()))
	}
	m := DescriptionToProto(s.honest(d))
	s.redact.Load().Clean(m)
	return m, nil
}

func (s *Server) honest(d sdk.Description) sdk.Description {
	if d.SDK == "" {
		d.SDK = SDKName
	}
	_, fences := s.adapter.(sdk.Fencer)
	_, many := s.adapter.(sdk.ManyReader)
	var features []string
	for _, f := range d.Features {
		if f == sdk.FeatureFence && !fences || f == sdk.FeatureReadMany && !many {
			continue
		}
		features = append(features, f)
	}
	d.Features = features
	return d
}

// Configure is taken once per process; again needs a new process. A refused
// configuration leaves the adapter unconfigured, so it dispatches nothing.
func (s *Server) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	if s.configured.Load() {
		return nil, status.Error(codes.FailedPrecondition, "this process is configured already; start a new one")
	}
	c := ConfigurationFromProto(r)
	s.redact.Store(NewRedactor(c.Secrets))
	var out sdk.Configured
	err := s.guard(ctx, "Configure", time.Time{}, func(ctx context.Context) (err error) {
		out, err = s.adapter.Configure(ctx, c)
		return err
	})
	if err != nil {
		out.Diagnostics = append(out.Diagnostics, sdk.Diagnostic{Summary: err.Error()})
	}
	m := ConfiguredToProto(out)
	m.Diagnostics = trimDiagnostics(m.Diagnostics)
	s.redact.Load().Clean(m)
	s.configured.Store(!refused(out.Diagnostics))
	return m, nil
}

func refused(list []sdk.Diagnostic) bool {
	for _, d := range list {
		if !d.Warning {
			return true
		}
	}
	return false
}

const notConfigured = "the adapter is not configured"

// Check answers the health; an error of the adapter is DOWN with its text.
func (s *Server) Check(ctx context.Context, r *pb.CheckRequest) (*pb.CheckResponse, error) {
	var h sdk.Health
	err := errors.New(notConfigured)
	if s.configured.Load() {
		err = s.guard(ctx, "Check", time.Time{}, func(ctx context.Context) (err error) {
			h, err = s.adapter.Check(ctx, r.GetActions())
			return err
		})
	}
	if err != nil {
		h.Status = sdk.HealthDown
		h.Diagnostics = append(h.Diagnostics, sdk.Diagnostic{Summary: err.Error()})
	}
	m := HealthToProto(h)
	m.Diagnostics = trimDiagnostics(m.Diagnostics)
	s.redact.Load().Clean(m)
	return m, nil
}

// Prepare answers what the adapter says; an error of the adapter defers.
func (s *Server) Prepare(ctx context.Context, r *pb.PrepareRequest) (*pb.PrepareResponse, error) {
	var p sdk.Prepared
	err := errors.New(notConfigured)
	if s.configured.Load() {
		err = s.guard(ctx, "Prepare", time.Time{}, func(ctx context.Context) (err error) {
			p, err = s.adapter.Prepare(ctx, OperationFromProto(r.GetOperation()))
			return err
		})
	}
	if err != nil {
		p = sdk.Prepared{
			Deferred:    &sdk.NotExecuted{Basis: sdk.BasisNotStarted, Message: cutText(err.Error())},
			Diagnostics: p.Diagnostics,
		}
	}
	m := PreparedToProto(p)
	trimPrepared(m)
	s.redact.Load().Clean(m)
	return m, nil
}

// Dispatch always answers with a class.
func (s *Server) Dispatch(ctx context.Context, r *pb.DispatchRequest) (*pb.DispatchResponse, error) {
	req := DispatchFromProto(r)
	var out sdk.Response
	switch {
	case !s.configured.Load():
		out.Outcome = &sdk.NotExecuted{Basis: sdk.BasisNotStarted, Message: notConfigured}
	case ctx.Err() != nil || !req.Deadline.IsZero() && !time.Now().Before(req.Deadline):
		out.Outcome = &sdk.NotExecuted{Basis: sdk.BasisNotStarted, Message: "the deadline passed before the adapter began"}
	default:
		err := s.guard(ctx, "Dispatch", req.Deadline, func(ctx context.Context) (err error) {
			out, err = s.adapter.Dispatch(ctx, req)
			return err
		})
		if err != nil {
			out.Outcome = outcomeOf(err)
		}
	}
	m := ResponseToProto(out)
	// Secrets go before anything is cut: half a secret would no longer be known as one.
	s.redact.Load().Clean(m)
	trimResponse(m)
	return m, nil
}

// outcomeOf classes an error of Dispatch: not executed only with the proof that
// no byte left, which a panic cannot carry; everything else is unknown.
func outcomeOf(err error) sdk.Outcome {
	var p *panicError
	u := &sdk.Unknown{Cause: sdk.CauseAdapterError, Message: err.Error()}
	switch {
	case errors.As(err, &p):
		u.Cause = sdk.CauseAdapterPanic
	case errors.Is(err, sdk.ErrNotSent):
		return &sdk.NotExecuted{Basis: sdk.BasisNotSent, Message: err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		u.Cause = sdk.CauseTimeout
	case errors.Is(err, context.Canceled):
		u.Cause = sdk.CauseCancelled
	}
	return u
}

// Read answers what the adapter saw; an error of the adapter is indeterminate.
func (s *Server) Read(ctx context.Context, r *pb.ReadRequest) (*pb.ReadResponse, error) {
	var out sdk.ReadResponse
	err := errors.New(notConfigured)
	if s.configured.Load() {
		err = s.guard(ctx, "Read", time.Time{}, func(ctx context.Context) (err error) {
			out, err = s.adapter.Read(ctx, ReadFromProto(r))
			return err
		})
	}
	if err != nil {
		out = sdk.ReadResponse{Finding: &sdk.Indeterminate{Message: err.Error()}, Evidence: out.Evidence}
	}
	return s.readAnswer(out), nil
}

func (s *Server) readAnswer(r sdk.ReadResponse) *pb.ReadResponse {
	m := ReadResponseToProto(r)
	s.redact.Load().Clean(m)
	trimRead(m)
	return m
}

// Fence answers what the adapter did; an error of the adapter is indeterminate.
func (s *Server) Fence(ctx context.Context, r *pb.FenceRequest) (*pb.FenceResponse, error) {
	f, ok := s.adapter.(sdk.Fencer)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "this adapter has no fence")
	}
	req := FenceFromProto(r)
	var out sdk.FenceResponse
	err := errors.New(notConfigured)
	if s.configured.Load() {
		err = s.guard(ctx, "Fence", req.Deadline, func(ctx context.Context) (err error) {
			out, err = f.Fence(ctx, req)
			return err
		})
	}
	if err != nil {
		out = sdk.FenceResponse{Indeterminate: &sdk.Indeterminate{Message: err.Error()}}
	}
	m := FenceResponseToProto(out)
	s.redact.Load().Clean(m)
	trimFence(m)
	return m, nil
}

// ReadMany streams the answers as they come; an error ends the stream, and what
// was not answered by then is asked again.
func (s *Server) ReadMany(r *pb.ReadManyRequest, stream grpc.ServerStreamingServer[pb.ReadManyResponse]) error {
	many, ok := s.adapter.(sdk.ManyReader)
	if !ok {
		return status.Error(codes.Unimplemented, "this adapter reads one by one")
	}
	if !s.configured.Load() {
		return status.Error(codes.FailedPrecondition, notConfigured)
	}
	var mu sync.Mutex // an adapter may answer from several goroutines; a stream may not be sent to from two
	var broken error
	answer := func(i int, a sdk.ReadResponse) {
		m := s.readAnswer(a)
		mu.Lock()
		defer mu.Unlock()
		if broken == nil && i >= 0 && i < len(r.GetReads()) {
			broken = stream.Send(&pb.ReadManyResponse{Index: uint32(i), Answer: m})
		}
	}
	err := s.guard(stream.Context(), "ReadMany", time.Time{}, func(ctx context.Context) error {
		return many.ReadMany(ctx, each(r.GetReads(), ReadFromProto), answer)
	})
	mu.Lock()
	defer mu.Unlock()
	if err = errors.Join(err, broken); err != nil {
		return status.Error(codes.Aborted, cutText(s.redact.Load().String(err.Error())))
	}
	return nil
}
