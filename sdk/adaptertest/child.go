package adaptertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
	"github.com/settled-dev/settled/sdk/serve"
	"github.com/settled-dev/settled/sdk/wire"
)

// child is one process of the adapter, with nothing of go-plugin on our side:
// the kit sees every byte.
type child struct {
	cmd       *exec.Cmd
	stdin     io.Closer
	handshake time.Duration
	conn      *grpc.ClientConn
	raw       pb.AdapterClient
	*wire.Client
	stdout, stderr *tape
	done           chan struct{} // closed when the process is dead and its output read
	dir            string

	mu         sync.Mutex
	violations []string
}

// tape keeps what a process printed, up to a limit.
type tape struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *tape) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.Len() < 8<<20 {
		t.b.Write(p)
	}
	return len(p), nil
}

func (t *tape) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

func (t *tape) lastLines(n int) string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " / ")
}

const handshakeLimit = 5 * time.Second

// spawn starts the adapter and shakes hands. Nothing is left when it fails.
func (k *kit) spawn() (*child, error) {
	dir, err := os.MkdirTemp(k.dir, "p") // short: a socket's path has 107 bytes
	if err != nil {
		return nil, err
	}
	c := &child{stdout: &tape{}, stderr: &tape{}, done: make(chan struct{}), dir: dir}
	c.cmd = exec.Command(k.plan.program(), k.plan.Adapter[1:]...)
	c.cmd.Env = append(k.environment(), serve.CookieKey+"="+serve.CookieValue,
		"PLUGIN_PROTOCOL_VERSIONS=1", "PLUGIN_UNIX_SOCKET_DIR="+dir)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Stderr = c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = in
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.cmd.Stdout = outW
	begun := time.Now()
	err = c.cmd.Start()
	_ = outW.Close()
	if err != nil {
		_ = outR.Close()
		return nil, fmt.Errorf("it cannot be started: %w", err)
	}
	first := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer outR.Close()
		r := bufio.NewReader(outR)
		line, _ := r.ReadString('\n')
		first <- line
		_, _ = io.Copy(c.stdout, r)
	})
	go func() { // ends with the process
		_ = c.cmd.Wait()
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // whatever it left
		reading.Wait()
		close(c.done)
	}()
	k.children = append(k.children, c)
	if err := c.shake(first, begun, k); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

func (c *child) shake(first <-chan string, begun time.Time, k *kit) error {
	var line string
	select {
	case line = <-first:
	case <-time.After(handshakeLimit):
		return fmt.Errorf("it printed no handshake within %s; call serve.Main before any slow work", handshakeLimit)
	}
	c.handshake = time.Since(begun)
	parts := strings.Split(strings.TrimSpace(line), "|")
	switch {
	case line == "":
		return fmt.Errorf("it ended before the handshake; make its main function call serve.Main; it last said: %s", c.stderr.lastLines(3))
	case len(parts) < 5 || parts[0] != "1":
		return fmt.Errorf("the first line on its standard output is %.80q and no handshake; print nothing before serve.Main, log to standard error", line)
	case parts[1] != "1" || parts[2] != "unix" || parts[4] != "grpc":
		return fmt.Errorf("its handshake %.80q must say protocol 1, unix and grpc", line)
	}
	conn, err := grpc.NewClient("unix:"+parts[3], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(), grpc.WithIdleTimeout(0), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20), grpc.MaxCallSendMsgSize(16<<20)))
	if err != nil {
		return err
	}
	c.listen(conn)
	recorded := &recorder{ClientConnInterface: conn, k: k}
	c.conn, c.raw = conn, pb.NewAdapterClient(recorded)
	c.Client = wire.NewClient(recorded, wire.ClientOptions{Dead: c.done, Violation: func(method, what string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.violations = append(c.violations, method+": "+what)
	}})
	return nil
}

// listen keeps what a Go adapter prints after its handshake: go-plugin moves
// os.Stdout and os.Stderr into a stream of its own. The messages are kept as they
// are on the wire, in which the text stands as it is. It ends with the connection.
func (c *child) listen(conn *grpc.ClientConn) {
	go func() {
		s, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, "/plugin.GRPCStdio/StreamStdio")
		if err != nil || s.SendMsg(&emptypb.Empty{}) != nil || s.CloseSend() != nil {
			return
		}
		for {
			m := &emptypb.Empty{} // every field of the message is unknown to it, and kept
			if s.RecvMsg(m) != nil {
				return // also when the adapter is not in Go and has no such stream
			}
			_, _ = c.stderr.Write(m.ProtoReflect().GetUnknown())
		}
	}()
}

func (c *child) breaches() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.violations
	c.violations = nil
	return out
}

func (c *child) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// within waits for the end of the process.
func (c *child) within(d time.Duration) bool {
	select {
	case <-c.done:
		return true
	case <-time.After(d):
		return false
	}
}

// kill ends the process and its group at once, and waits.
func (c *child) kill() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	<-c.done
	_ = c.stdin.Close()
}

// signalKill is kill without waiting, for hooks inside the proxy.
func (c *child) signalKill() { _ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }

func (c *child) health(ctx context.Context) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	r, err := grpc_health_v1.NewHealthClient(c.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "plugin"})
	return r.GetStatus(), err
}

func (c *child) shutdown(ctx context.Context) error {
	return c.conn.Invoke(ctx, "/plugin.GRPCController/Shutdown", &emptypb.Empty{}, &emptypb.Empty{})
}

// start is a configured process.
func (k *kit) start() (*child, error) { return k.startWith(k.config(""), k.plan.Secrets) }

func (k *kit) startWith(config []byte, secrets map[string]string) (*child, error) {
	c, err := k.spawn()
	if err != nil {
		return nil, err
	}
	out, err := k.configure(c, config, secrets)
	if err == nil {
		err = refusal(out)
	}
	if err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

func (k *kit) configure(c *child, config []byte, secrets map[string]string) (sdk.Configured, error) {
	ctx, cancel := context.WithTimeout(k.ctx, 15*time.Second)
	defer cancel()
	conf := sdk.Configuration{Destination: "conformance", Config: config, Secrets: secrets, HostVersion: "adaptertest", StateDir: c.dir}
	if k.plan.TunnelProxy && k.proxy != nil {
		conf.ProxyURL, conf.ExtraCAPEM = k.proxy.URL(), k.proxy.CAPEM()
	}
	return c.Configure(ctx, conf)
}

// refusal is the refused configuration as an error.
func refusal(out sdk.Configured) error {
	for _, d := range out.Diagnostics {
		if !d.Warning {
			return &refused{d}
		}
	}
	return nil
}

type refused struct{ sdk.Diagnostic }

func (r *refused) Error() string {
	return fmt.Sprintf("its configuration is refused at %q: %s", r.Pointer, r.Summary)
}

// live is the process that most checks share.
func (k *kit) live() (*child, error) {
	if k.shared != nil && k.shared.alive() {
		return k.shared, nil
	}
	c, err := k.start()
	if err != nil {
		return nil, err
	}
	k.shared = c
	return c, nil
}

var errNoAction = errors.New("the plan names no action, and the adapter has not exactly one")
