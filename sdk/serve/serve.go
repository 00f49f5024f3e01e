package serve

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/wire"
)

// exitGrace is how long running calls may clean up once the daemon is gone.
const exitGrace = 500 * time.Millisecond

// Main serves the adapter and ends the program: the whole main function of an
// adapter is
//
//	func main() { serve.Main(New()) }
//
// It also sets the default slog logger to JSON on standard error, which the daemon reads.
func Main(a sdk.Adapter) { os.Exit(Run(a, os.Args[1:])) }

// Run is [Main] that returns the exit status, for programs with verbs of their
// own; args are the arguments left for the adapter. Started by the daemon it
// returns only after the service has ended.
func Run(a sdk.Adapter, args []string) int {
	if os.Getenv(CookieKey) != CookieValue {
		return byHand(a, args, os.Stdin, os.Stdout, os.Stderr)
	}
	if err := quietStdout(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot put standard output aside: %v\n", err)
		return 1
	}
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	slog.SetDefault(logger)
	// Swallowed, not ignored: an ignored signal would be inherited by programs that the adapter starts.
	swallow := make(chan os.Signal, 1)
	signal.Notify(swallow, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(swallow)

	server := wire.NewServer(a, logger)
	grpcServer := make(chan *grpc.Server, 1)
	go leaveWithHost(os.Stdin, server, grpcServer)
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  Handshake(),
		VersionedPlugins: Plugins(server),
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			s := newGRPCServer(o)
			grpcServer <- s
			return s
		},
		Logger: hclog.NewNullLogger(),
	})
	awaitCalls(server)
	return 0
}

// awaitCalls gives cancelled calls the time to clean up.
func awaitCalls(server *wire.Server) {
	for end := time.Now().Add(exitGrace); server.Running() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

// quietStdout leaves the original standard output to os.Stdout alone, where
// go-plugin prints the handshake, and points descriptor 1 at standard error.
func quietStdout() error {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		return err
	}
	os.Stdout = os.NewFile(uintptr(fd), "handshake")
	return nil
}

// leaveWithHost ends the process when the daemon's end of the pipe is closed,
// by intent or by death. Running calls are cancelled first and may clean up.
func leaveWithHost(stdin io.Reader, server *wire.Server, grpcServer <-chan *grpc.Server) {
	_, _ = io.Copy(io.Discard, stdin)
	select {
	case s := <-grpcServer:
		go s.Stop() // cancels the contexts of running calls; nobody is left to answer
	default:
	}
	awaitCalls(server)
	os.Exit(0)
}
