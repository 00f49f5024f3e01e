package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

// ClientOptions are what a client needs to know of the process behind it.
type ClientOptions struct {
	// Dead is closed when the process is known dead; nil = never known.
	Dead <-chan struct{}
	// Violation is told every breach of the contract; nil = only counted.
	Violation func(method, what string)
}

// Client is an [sdk.Adapter], [sdk.Fencer] and [sdk.ManyReader] behind a connection.
// Whether the adapter really fences or reads many is in its description.
type Client struct {
	rpc        pb.AdapterClient
	o          ClientOptions
	violations atomic.Uint64
	redact     atomic.Pointer[Redactor] // written by Configure
}

// NewClient speaks over cc, whose message limits must be [sdk.MaxMessage].
func NewClient(cc grpc.ClientConnInterface, o ClientOptions) *Client {
	return &Client{rpc: pb.NewAdapterClient(cc), o: o}
}

// Violations counts the answers that broke the contract.
func (c *Client) Violations() uint64 { return c.violations.Load() }

// Redactor knows the secrets of the configuration; nil before Configure.
func (c *Client) Redactor() *Redactor { return c.redact.Load() }

// CallError is a call that has no answer. It proves nothing: the adapter may
// have done everything, something or nothing, whatever the status code says.
type CallError struct {
	Method string
	Err    error
}

func (e *CallError) Error() string { return e.Method + ": " + e.Err.Error() }
func (e *CallError) Unwrap() error { return e.Err }

// UnknownOf describes an error of Dispatch as the outcome that it is. The cause is
// a hint for people and never a reason to send again.
func UnknownOf(err error) *sdk.Unknown {
	u := &sdk.Unknown{Cause: sdk.CauseAdapterError, Message: err.Error()}
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		u.Cause = sdk.CauseTimeout
	case codes.Canceled:
		u.Cause = sdk.CauseCancelled
	case codes.Unavailable:
		u.Cause = sdk.CauseConnectionLost
	case codes.ResourceExhausted, codes.Internal:
		u.Cause = sdk.CauseBadResponse
	}
	return u
}

// unsendable says why a request cannot be written to the stream at all, or nil.
func (c *Client) unsendable(ctx context.Context, m proto.Message) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the call was over before it began: %w", err)
	}
	select {
	case <-c.o.Dead:
		return errors.New("the adapter process is dead")
	default:
	}
	if n := proto.Size(m); n > sdk.MaxMessage {
		return fmt.Errorf("the request has %d bytes, the limit is %d", n, sdk.MaxMessage)
	}
	// Text that is not UTF-8 fails in the encoder, before the stream.
	if _, err := proto.Marshal(m); err != nil {
		return fmt.Errorf("the request cannot be encoded: %w", err)
	}
	return nil
}

func (c *Client) violation(method, what string) string {
	c.violations.Add(1)
	if c.o.Violation != nil {
		c.o.Violation(method, what)
	}
	return "the adapter broke the contract: " + what
}

func failed(method string, err error) error { return &CallError{Method: method, Err: err} }

// Describe asks the adapter what it is.
func (c *Client) Describe(ctx context.Context) (sdk.Description, error) {
	m, err := c.rpc.Describe(ctx, &pb.DescribeRequest{})
	if err != nil {
		return sdk.Description{}, failed("Describe", err)
	}
	return DescriptionFromProto(m), nil
}

// Configure hands over the configuration with its secrets.
func (c *Client) Configure(ctx context.Context, conf sdk.Configuration) (sdk.Configured, error) {
	r := NewRedactor(conf.Secrets)
	c.redact.Store(r)
	m, err := c.rpc.Configure(ctx, ConfigurationToProto(conf))
	if err != nil {
		return sdk.Configured{}, failed("Configure", err)
	}
	r.Clean(m)
	m.Diagnostics = trimDiagnostics(m.Diagnostics)
	return ConfiguredFromProto(m), nil
}

// Check asks whether the destination can be reached.
func (c *Client) Check(ctx context.Context, actions []string) (sdk.Health, error) {
	m, err := c.rpc.Check(ctx, &pb.CheckRequest{Actions: actions})
	if err != nil {
		return sdk.Health{}, failed("Check", err)
	}
	c.redact.Load().Clean(m)
	m.Diagnostics = trimDiagnostics(m.Diagnostics)
	return HealthFromProto(m), nil
}

// Prepare has no effect, so an error of it means not executed.
func (c *Client) Prepare(ctx context.Context, op sdk.Operation) (sdk.Prepared, error) {
	r := &pb.PrepareRequest{Operation: OperationToProto(op)}
	if err := c.unsendable(ctx, r); err != nil {
		return sdk.Prepared{}, failed("Prepare", sdk.NotSent(err))
	}
	m, err := c.rpc.Prepare(ctx, r)
	if err != nil {
		return sdk.Prepared{}, failed("Prepare", err)
	}
	c.redact.Load().Clean(m)
	trimPrepared(m)
	if d := m.GetDeferred(); m.GetResult() == nil || d != nil && d.GetBasis() == pb.NotExecuted_BASIS_UNSPECIFIED {
		c.violation("Prepare", "deferred without a basis, or an answer without a result")
	}
	return PreparedFromProto(m), nil
}

// Dispatch sends one effect. A nil error is an outcome, of which not executed
// with basis NotSent also covers a call that never reached the stream. An error
// is always unknown and never wraps [sdk.ErrNotSent].
func (c *Client) Dispatch(ctx context.Context, req sdk.DispatchRequest) (sdk.Response, error) {
	r := DispatchToProto(req)
	if err := c.unsendable(ctx, r); err != nil {
		return sdk.Response{Outcome: &sdk.NotExecuted{Basis: sdk.BasisNotSent, Message: err.Error()}}, nil
	}
	m, err := c.rpc.Dispatch(ctx, r)
	if err != nil {
		return sdk.Response{}, failed("Dispatch", err)
	}
	c.redact.Load().Clean(m)
	trimResponse(m)
	out := ResponseFromProto(m)
	if what := breach(out.Outcome); what != "" {
		out.Outcome = &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: c.violation("Dispatch", what)}
	}
	return out, nil
}

// An id names an object. One of more than maxID bytes is no name, and cannot be
// cut without naming something else.
const (
	maxID  = 4 << 10
	longID = "an object id or handle of more than 4 KiB"
)

// breach names what is wrong with an outcome; empty = nothing.
func breach(o sdk.Outcome) string {
	switch o := o.(type) {
	case nil:
		return "an answer without an outcome"
	case *sdk.Committed:
		if len(o.Object.ID) > maxID {
			return longID
		}
	case *sdk.Accepted:
		switch {
		case o.Handle == "":
			return "accepted without a handle"
		case len(o.Handle) > maxID, o.Object != nil && len(o.Object.ID) > maxID:
			return longID
		}
	case *sdk.NotExecuted:
		if o.Basis == sdk.BasisUnspecified {
			return "not executed without a basis"
		}
	}
	return ""
}

// Read asks what the destination holds. An error is a failed read, never an empty one.
func (c *Client) Read(ctx context.Context, req sdk.ReadRequest) (sdk.ReadResponse, error) {
	r := ReadToProto(req)
	if err := c.unsendable(ctx, r); err != nil {
		return sdk.ReadResponse{}, failed("Read", err)
	}
	m, err := c.rpc.Read(ctx, r)
	if err != nil {
		return sdk.ReadResponse{}, failed("Read", err)
	}
	return c.readAnswer("Read", m), nil
}

func (c *Client) readAnswer(method string, m *pb.ReadResponse) sdk.ReadResponse {
	c.redact.Load().Clean(m)
	trimRead(m)
	out := ReadResponseFromProto(m)
	what := ""
	switch f := out.Finding.(type) {
	case nil:
		what = "an answer without a finding"
	case *sdk.Found:
		if len(f.Matches) == 0 { // an author meant none seen, or lost them; neither may be guessed
			what = "found without a match"
		}
		if slices.ContainsFunc(f.Matches, func(m sdk.Match) bool { return len(m.Object.ID) > maxID }) {
			what = longID
		}
	}
	if what != "" {
		out.Finding = &sdk.Indeterminate{Message: c.violation(method, what)}
	}
	return out
}

// Fence takes the key with a void mark. An error is indeterminate: the mark may be there.
func (c *Client) Fence(ctx context.Context, req sdk.FenceRequest) (sdk.FenceResponse, error) {
	r := FenceToProto(req)
	if err := c.unsendable(ctx, r); err != nil {
		return sdk.FenceResponse{}, failed("Fence", sdk.NotSent(err))
	}
	m, err := c.rpc.Fence(ctx, r)
	if err != nil {
		return sdk.FenceResponse{}, failed("Fence", err)
	}
	c.redact.Load().Clean(m)
	trimFence(m)
	out := FenceResponseFromProto(m)
	switch {
	case m.GetResult() == nil:
		out.Indeterminate = &sdk.Indeterminate{Message: c.violation("Fence", "an answer without a result")}
	case out.Found != nil && len(out.Found.Matches) == 0:
		out = sdk.FenceResponse{Indeterminate: &sdk.Indeterminate{Message: c.violation("Fence", "found without a match")}}
	}
	return out, nil
}

// ReadMany reads many at once. answer is called from this goroutine, at most
// once for each index, also when an error is returned in the end; what was not
// answered is asked again.
func (c *Client) ReadMany(ctx context.Context, reads []sdk.ReadRequest, answer func(int, sdk.ReadResponse)) error {
	r := &pb.ReadManyRequest{Reads: each(reads, ReadToProto)}
	if err := c.unsendable(ctx, r); err != nil {
		return failed("ReadMany", err)
	}
	ctx, cancel := context.WithCancel(ctx) // ends the stream when we leave early
	defer cancel()
	stream, err := c.rpc.ReadMany(ctx, r)
	if err != nil {
		return failed("ReadMany", err)
	}
	seen := make([]bool, len(reads))
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return failed("ReadMany", err)
		}
		i := m.GetIndex()
		if int64(i) >= int64(len(reads)) || seen[i] || m.GetAnswer() == nil {
			return failed("ReadMany", errors.New(c.violation("ReadMany", "an index that was not asked, or twice")))
		}
		seen[i] = true
		answer(int(i), c.readAnswer("ReadMany", m.GetAnswer()))
	}
}
