package host

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/serve"
)

// The test program is also the adapter: started with a mode it behaves, or misbehaves, as named.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "mode=") {
		os.Exit(child(strings.TrimPrefix(os.Args[1], "mode="), os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

func child(mode string, args []string) int {
	switch mode {
	case "adapter":
		return serve.Run(&rogue{}, nil)
	case "deaf": // to the end of its standard input
		held, _, err := os.Pipe()
		if err != nil {
			return 1
		}
		os.Stdin = held
		return serve.Run(&rogue{}, nil)
	case "garbage":
		fmt.Println("Welcome to acme adapter")
		return serve.Run(&rogue{}, nil)
	case "vanish":
		return vanish()
	case "mute":
		fmt.Fprintln(os.Stderr, "waiting for a database")
		time.Sleep(time.Minute)
	case "quitter":
		fmt.Fprintln(os.Stderr, "cannot open shop: no key")
		return 3
	case "host":
		return doomedHost(args)
	case "sleeper":
		time.Sleep(time.Minute)
	}
	return 2
}

// vanish shakes hands for a socket of the test, which does not answer, and ends while the host connects.
func vanish() int {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return 1
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)},
		&x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	if err != nil {
		return 1
	}
	path := os.Getenv("PLUGIN_UNIX_SOCKET_DIR") + "/mute"
	for i := 0; i < 1000; i++ {
		if _, err := os.Stat(path); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Printf("1|1|unix|%s|grpc|%s\n", path, base64.RawStdEncoding.EncodeToString(der))
	time.Sleep(50 * time.Millisecond)
	return 5
}

// rogue does what the payload of an operation says.
type rogue struct{ conf sdk.Configuration }

func (r *rogue) Describe(context.Context) (sdk.Description, error) {
	return sdk.Description{Name: "rogue", Version: "1.2.3", Actions: []sdk.ActionSpec{{Name: "do"}, {Name: "other"}}}, nil
}

func (r *rogue) Configure(_ context.Context, c sdk.Configuration) (sdk.Configured, error) {
	r.conf = c
	switch string(c.Config) {
	case "refuse":
		return sdk.Configured{Diagnostics: []sdk.Diagnostic{{Pointer: "/url", Summary: "must be https"}}}, nil
	case "widen":
		return sdk.Configured{Actions: []sdk.ActionSpec{{Name: "more"}}}, nil
	case "narrow":
		return sdk.Configured{Actions: []sdk.ActionSpec{{Name: "do"}}}, nil
	}
	return sdk.Configured{Identity: "acct_1"}, nil
}

func (r *rogue) Check(context.Context, []string) (sdk.Health, error) {
	return sdk.Health{Status: sdk.HealthOK}, nil
}

func (r *rogue) Prepare(context.Context, sdk.Operation) (sdk.Prepared, error) {
	return sdk.Prepared{Ready: &sdk.Ready{}}, nil
}

func (r *rogue) Dispatch(ctx context.Context, q sdk.DispatchRequest) (sdk.Response, error) {
	word, rest, _ := strings.Cut(string(q.Operation.Payload), " ")
	switch word {
	case "hang": // past every deadline, and deaf to its context
		time.Sleep(time.Minute)
	case "sleep", "late":
		d, _ := time.ParseDuration(rest)
		time.Sleep(d)
	case "obey":
		<-ctx.Done()
		return sdk.Response{}, ctx.Err()
	case "panic":
		panic("lost my mind")
	case "die":
		os.Exit(7)
	case "crash":
		go func() { panic("nil map") }()
		time.Sleep(time.Minute)
	case "flood":
		for range 50_000 {
			fmt.Fprintln(os.Stderr, "a line of a flood")
		}
	case "log":
		_, _ = syscall.Write(2, []byte(rest+"\n"))
	case "print":
		_, _ = syscall.Write(1, []byte(strings.Repeat("x", 200<<10)+"\n"))
		fmt.Println("a stray print")
	case "big":
		return sdk.Response{Outcome: &sdk.Committed{Object: sdk.ObjectRef{ID: strings.Repeat("i", 9<<20)}}}, nil
	case "fork", "escape":
		return fork(word == "escape")
	case "term":
		signal.Reset() // the adapter's own mistakes do not count here
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "env":
		return done(strings.Join(os.Environ(), "\n")), nil
	case "notsent":
		return sdk.Response{}, sdk.NotSent(errors.New("dial: refused"))
	}
	return done(fmt.Sprint(os.Getpid())), nil
}

func done(id string) sdk.Response {
	return sdk.Response{Outcome: &sdk.Committed{Object: sdk.ObjectRef{ID: id}}}
}

// fork leaves a grandchild that holds our standard error, in our group or out of it.
func fork(escape bool) (sdk.Response, error) {
	cmd := exec.Command("/proc/self/exe", "mode=sleeper")
	cmd.Stderr, cmd.Stdout = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: escape}
	if err := cmd.Start(); err != nil {
		return sdk.Response{}, err
	}
	return done(fmt.Sprint(cmd.Process.Pid)), nil
}

func (r *rogue) Read(ctx context.Context, q sdk.ReadRequest) (sdk.ReadResponse, error) {
	if string(q.Operation.Payload) == "wait" {
		<-ctx.Done()
	}
	return sdk.ReadResponse{Finding: &sdk.NoneSeen{}, Authority: sdk.Authoritative}, nil
}

// doomedHost starts an adapter of the mode, dispatches the payload if there is one, says so, and waits to be killed.
func doomedHost(args []string) int {
	c := Command{Name: "doomed", Args: []string{"mode=" + args[1]}, RuntimeDir: args[0], NoCgroup: true}
	p, err := Start(context.Background(), c, sdk.Configuration{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	grandchild := ""
	if len(args) > 2 {
		r, err := p.Dispatch(context.Background(), request(args[2], time.Minute))
		if err != nil {
			fmt.Println(err)
			return 1
		}
		grandchild = r.Outcome.(*sdk.Committed).Object.ID
	}
	fmt.Println("pids", p.Identity().PID, grandchild)
	time.Sleep(time.Minute)
	return 0
}

func request(payload string, d time.Duration) sdk.DispatchRequest {
	return sdk.DispatchRequest{
		Operation: sdk.Operation{ID: "e1", Action: "do", Payload: []byte(payload)}, Deadline: time.Now().Add(d),
	}
}

// command is the test program as adapter; t's directories are too long for sockets.
func command(t *testing.T, log *slog.Logger) Command {
	t.Helper()
	dir, err := os.MkdirTemp("", "settled")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, _ := os.ReadDir(dir)
		for _, f := range left {
			t.Errorf("left in the runtime directory: %s", f.Name())
		}
		_ = os.RemoveAll(dir)
	})
	return Command{
		Name: "shop", Args: []string{"mode=adapter"}, RuntimeDir: dir, Linger: 300 * time.Millisecond, Log: log,
		Env: []string{"GORACE=atexit_sleep_ms=0"}, // under -race a program otherwise sleeps a second before it ends
	}
}

func start(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := Start(t.Context(), c, sdk.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
		for _, pid := range []int{p.Identity().PID} {
			if alive(pid) {
				t.Errorf("process %d is alive after Close", pid)
			}
		}
	})
	return p
}

func alive(pid int) bool {
	s, err := readStat(pid)
	return err == nil && !s.dead()
}

// eventually polls for up to ten seconds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}
