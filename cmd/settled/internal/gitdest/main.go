package gitdest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
)

// The exit statuses of a call without an answer. No status of sysexits that
// proves anything is used: by then the push may have happened.
const (
	exitNoAnswer = 1
	exitUsage    = 64
)

// Main is one call of the exec adapter:
//
//	dispatch|read|undo --repo REPO [--state DIR [--plan PLAN] [--seed N]]
//
// or, for people, init --repo REPO and audit --repo REPO. The exit status is 0
// with an answer, 64 for wrong flags, and 1 without an answer.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return Run(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}

// Run is Main with its streams as arguments.
func Run(ctx context.Context, args []string, in io.Reader, out, diag io.Writer) int {
	c, err := parse(args, diag)
	if err != nil {
		fmt.Fprintln(diag, err)
		return exitUsage
	}
	answer, err := c.do(ctx, in)
	if err == nil {
		err = json.NewEncoder(out).Encode(answer)
	}
	if err != nil {
		fmt.Fprintln(diag, err)
		return exitNoAnswer
	}
	return 0
}

// command is a parsed command line.
type command struct {
	verb, repo string
	faults     faults
}

func parse(args []string, diag io.Writer) (command, error) {
	const usage = "usage: dispatch|read|undo|init|audit --repo REPO [--state DIR] [--plan PLAN] [--seed N]"
	if len(args) == 0 {
		return command{}, errors.New(usage)
	}
	c := command{verb: args[0]}
	flags := flag.NewFlagSet(c.verb, flag.ContinueOnError)
	flags.SetOutput(diag)
	flags.StringVar(&c.repo, "repo", "", "bare repository: a path or a URL")
	flags.StringVar(&c.faults.dir, "state", "", "directory of injected faults and counts")
	plan := flags.String("plan", "", "faults by weight, as in none=3,lost-answer=1")
	seed := flags.Uint64("seed", 1, "seed of the plan")
	if err := flags.Parse(args[1:]); err != nil {
		return command{}, err
	}
	parsed, err := desk.ParsePlan(*seed, *plan)
	if err != nil {
		return command{}, err
	}
	for _, s := range parsed.Shares {
		if !usable(s.Fault.Kind) {
			return command{}, fmt.Errorf("git cannot do the fault %s", s.Fault)
		}
	}
	if *plan != "" && c.faults.dir == "" {
		return command{}, errors.New("--plan needs --state DIR, where dispatches are counted")
	}
	c.faults.plan = parsed
	if c.repo == "" || flags.NArg() > 0 {
		return command{}, errors.New(usage)
	}
	return c, nil
}

// do performs the verb. An error means that there is no answer.
func (c command) do(ctx context.Context, in io.Reader) (answer any, err error) {
	switch c.verb {
	case "init":
		return map[string]string{"repo": c.repo}, Init(ctx, c.repo)
	case "audit":
		return Audit(ctx, c.repo)
	case "dispatch", "read", "undo":
	default:
		return nil, fmt.Errorf("unknown verb %q", c.verb)
	}
	req, err := decode(in)
	if err != nil {
		return nil, err
	}
	if req.Method != "" && req.Method != c.verb {
		return nil, fmt.Errorf("the request is a %s, the command a %s", req.Method, c.verb)
	}
	if !req.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, req.Deadline.Add(-100*time.Millisecond)) // room for the answer
		defer cancel()
	}
	g, err := newGit(c.faults.dir)
	if err != nil {
		return nil, err
	}
	// What stays behind in the scratch directory must not cost a good answer.
	defer func() { _ = g.close() }()
	switch c.verb {
	case "read":
		return g.read(ctx, c.repo, req.Operation)
	case "undo":
		return g.undo(ctx, c.repo, req.Operation)
	}
	lose, err := c.faults.next(req.Operation.Key)
	if err != nil {
		return nil, err
	}
	return g.dispatch(ctx, c.repo, req.Operation, lose)
}
