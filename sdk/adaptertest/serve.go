package adaptertest

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/wire"
)

// Wired is an adapter in this process behind a real gRPC connection in memory.
// Its calls are those of the daemon: encoded, limited, redacted, guarded against
// panics. It is an [sdk.Adapter], [sdk.Fencer] and [sdk.ManyReader].
type Wired struct {
	*wire.Client
	mu     sync.Mutex
	faults map[string][]WireFault
}

// WireFault is what happens to one call between daemon and adapter.
type WireFault uint8

// The faults of the wire.
const (
	// LoseRequest: the adapter is never called; the daemon gets an error.
	LoseRequest WireFault = iota + 1
	// LoseAnswer: the adapter does its work; the daemon gets an error.
	LoseAnswer
)

// Serve serves a for the length of the test.
func Serve(t testing.TB, a sdk.Adapter) *Wired {
	t.Helper()
	w := &Wired{faults: map[string][]WireFault{}}
	server := grpc.NewServer(grpc.UnaryInterceptor(w.intercept), grpc.MaxRecvMsgSize(sdk.MaxMessage), grpc.MaxSendMsgSize(sdk.MaxMessage))
	wire.NewServer(a, slog.New(slog.DiscardHandler)).Register(server)
	listener := bufconn.Listen(1 << 20)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	conn, err := grpc.NewClient("passthrough:///adapter",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(sdk.MaxMessage), grpc.MaxCallSendMsgSize(sdk.MaxMessage)))
	if err != nil {
		t.Fatalf("adaptertest: %v", err)
	}
	w.Client = wire.NewClient(conn, wire.ClientOptions{})
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		serving.Wait()
	})
	return w
}

// Configured is [Serve] and Configure; a refused configuration fails the test.
func Configured(t testing.TB, a sdk.Adapter, config string, secrets map[string]string) *Wired {
	t.Helper()
	w := Serve(t, a)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := w.Configure(ctx, sdk.Configuration{Destination: t.Name(), Config: []byte(config), Secrets: secrets})
	if err != nil {
		t.Fatalf("adaptertest: %v", err)
	}
	for _, d := range out.Diagnostics {
		if !d.Warning {
			t.Fatalf("adaptertest: the configuration is refused at %q: %s", d.Pointer, d.Summary)
		}
	}
	return w
}

// Fault queues faults for the next calls of a method ("Dispatch", "Read"), one each.
func (w *Wired) Fault(method string, faults ...WireFault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[method] = append(w.faults[method], faults...)
}

func (w *Wired) next(method string) WireFault {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue := w.faults[method]
	if len(queue) == 0 {
		return 0
	}
	w.faults[method] = queue[1:]
	return queue[0]
}

func (w *Wired) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[len("/settled.adapter.v1.Adapter/"):]
	fault := w.next(method)
	if fault == LoseRequest {
		return nil, status.Error(codes.Unavailable, "the wire lost the request")
	}
	answer, err := handle(ctx, req)
	if fault == LoseAnswer {
		return nil, status.Error(codes.Unavailable, "the wire lost the answer")
	}
	return answer, err
}
