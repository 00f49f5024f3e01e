package serve

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
	"github.com/settled-dev/settled/sdk/wire"
)

// callTimeout bounds one call by hand.
const callTimeout = time.Minute

// request is one call by hand: the flags of "call", and a line of "dev".
type request struct {
	Method  string          `json:"method"`
	Action  string          `json:"action"`
	Key     string          `json:"key"`
	Handle  string          `json:"handle"`
	Payload json.RawMessage `json:"payload"`
}

// settings are the flags that say how the adapter is configured.
type settings struct {
	config, payload string
	secrets         map[string]string
	request
}

// parseCall reads the flags behind the verb.
func parseCall(args []string, stderr io.Writer) (settings, error) {
	s := settings{secrets: map[string]string{}}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		s.Method, args = args[0], args[1:]
	}
	f := flag.NewFlagSet("call", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.config, "config", "", "the configuration, a JSON `FILE`")
	f.StringVar(&s.payload, "payload", "", "the payload, a JSON `FILE`")
	f.StringVar(&s.Action, "action", "", "the operation; default: the only one")
	f.StringVar(&s.Key, "key", "", "the idempotency key; default: by chance")
	f.StringVar(&s.Handle, "handle", "", "the handle of an accepted dispatch, for read")
	f.Func("secret", "a credential, `NAME=FILE`; may be repeated", func(v string) error {
		name, file, ok := strings.Cut(v, "=")
		if !ok {
			return errors.New("write NAME=FILE; a value on the command line would be seen by everyone on this machine")
		}
		raw, err := os.ReadFile(file)
		s.secrets[name] = string(raw)
		return err
	})
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unexpected %q", f.Arg(0))
	}
	if s.payload != "" {
		raw, err := os.ReadFile(s.payload)
		if err != nil {
			return s, err
		}
		s.Payload = raw
	}
	return s, nil
}

// start configures the adapter in this process, as the daemon would in another.
func start(ctx context.Context, a sdk.Adapter, s settings, stderr io.Writer) (*wire.Server, error) {
	server := wire.NewServer(a, slog.New(slog.NewTextHandler(stderr, nil)))
	r := &pb.ConfigureRequest{Destination: "by-hand", HostVersion: "by-hand", Secrets: map[string][]byte{}}
	if s.config != "" {
		raw, err := os.ReadFile(s.config)
		if err != nil {
			return nil, err
		}
		r.Config = raw
	}
	for name, value := range s.secrets {
		r.Secrets[name] = []byte(strings.TrimRight(value, "\r\n"))
	}
	out, err := server.Configure(ctx, r)
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, d := range out.GetDiagnostics() {
		if d.GetSeverity() != pb.Diagnostic_WARNING {
			faults = append(faults, strings.TrimSpace(d.GetPointer()+" "+d.GetSummary()))
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("the configuration is refused:\n  %s", strings.Join(faults, "\n  "))
	}
	return server, nil
}

// perform makes one call. An answer is printed whatever it says.
func perform(ctx context.Context, server *wire.Server, d sdk.Description, r request) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if r.Action == "" && len(d.Actions) == 1 {
		r.Action = d.Actions[0].Name
	}
	if r.Key == "" {
		r.Key = "hand-" + rand.Text()
	}
	sum := sha256.Sum256(r.Payload)
	op := &pb.Operation{
		Id: r.Key, Attempt: 1, AttemptId: r.Key, Action: r.Action, IdempotencyKey: r.Key, Marker: r.Key,
		Payload: r.Payload, ContentType: "application/json", PayloadSha256: sum[:], Actor: "by-hand",
	}
	switch r.Method {
	case "check":
		return server.Check(ctx, &pb.CheckRequest{})
	case "prepare":
		return server.Prepare(ctx, &pb.PrepareRequest{Operation: op})
	case "dispatch":
		return server.Dispatch(ctx, &pb.DispatchRequest{Operation: op})
	case "read":
		purpose := pb.ReadRequest_RESOLVE
		if r.Handle != "" {
			purpose = pb.ReadRequest_POLL
		}
		return server.Read(ctx, &pb.ReadRequest{Purpose: purpose, Operation: op, Handle: r.Handle})
	}
	return nil, fmt.Errorf("the methods are check, prepare, dispatch and read, not %q", r.Method)
}

// call performs one call against the real destination and prints the answer as JSON.
func call(a sdk.Adapter, d sdk.Description, args []string, stdout, stderr io.Writer) int {
	ctx := context.Background()
	s, err := parseCall(args, stderr)
	if err != nil {
		return misused(stderr, "call", err)
	}
	server, err := start(ctx, a, s, stderr)
	if err == nil {
		var answer proto.Message
		if answer, err = perform(ctx, server, latest(ctx, a, d), s.request); err == nil {
			err = printAnswer(stdout, answer)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "%v\nnext: %s docs\n", err, filepath.Base(os.Args[0]))
		return 1
	}
	return 0
}

// dev configures once and then answers every line of stdin, so that a debugger
// can stay attached to one process.
func dev(a sdk.Adapter, d sdk.Description, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx := context.Background()
	s, err := parseCall(args, stderr)
	if err != nil {
		return misused(stderr, "dev", err)
	}
	server, err := start(ctx, a, s, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%v\nnext: %s docs\n", err, filepath.Base(os.Args[0]))
		return 1
	}
	d = latest(ctx, a, d)
	fmt.Fprintf(stderr, "process %d is configured; type a request a line, such as\n  {\"method\":\"dispatch\",\"action\":\"…\",\"key\":\"k1\",\"payload\":{}}\n", os.Getpid())
	lines := bufio.NewScanner(stdin)
	lines.Buffer(nil, sdk.MaxMessage)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		var answer proto.Message
		if err == nil {
			answer, err = perform(ctx, server, d, r)
		}
		if err == nil {
			err = printAnswer(stdout, answer)
		}
		if err != nil {
			fmt.Fprintln(stderr, err)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// latest is the description once configured: some adapters know their operations only then.
func latest(ctx context.Context, a sdk.Adapter, d sdk.Description) sdk.Description {
	if now, err := a.Describe(ctx); err == nil {
		return now
	}
	return d
}

func misused(stderr io.Writer, verb string, err error) int {
	if !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stderr, "%v\n", err)
	}
	fmt.Fprintf(stderr, "usage: %s %s [METHOD] --config FILE [--secret NAME=FILE] [--action NAME] [--key KEY] [--payload FILE]\n", filepath.Base(os.Args[0]), verb)
	return 2
}

func printAnswer(w io.Writer, m proto.Message) error {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", raw)
	return err
}
