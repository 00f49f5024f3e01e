package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"golang.org/x/term"

	"github.com/settled-dev/settled/cmd/settled/internal/stage"
)

//go:embed demo.toml
var demoConfig string

//go:embed testdata/effects.jsonl
var demoEffects []byte

// demoOptions say what to show.
type demoOptions struct {
	effects      int
	seed         uint64
	keep, asJSON bool
	plain        bool // ASCII and no colour
	colour       bool
}

const (
	exitInterrupted = 130
	// demoStarts bounds the time until everything runs.
	demoStarts = 30 * time.Second
)

// demoMain is `settled demo`.
func demoMain(args []string) int {
	o, status := demoFlags(args)
	if status >= 0 {
		return status
	}
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer release()
	out := io.Writer(os.Stdout)
	if o.asJSON {
		out = os.Stderr // the story; standard output is for the object
	}
	result, err := runDemo(ctx, o, out)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "\nsettled demo: interrupted; everything that it started is gone")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(os.Stderr, "settled demo:", err)
		return 1
	}
	if o.asJSON {
		err = result.writeJSON(os.Stdout)
	}
	if err != nil || len(result.Wrong) > 0 {
		for _, w := range result.Wrong {
			fmt.Fprintln(os.Stderr, "settled demo: wrong:", w)
		}
		return 1
	}
	return 0
}

// demoFlags returns a status of 0 or more when there is nothing to run.
func demoFlags(args []string) (demoOptions, int) {
	var o demoOptions
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.IntVar(&o.effects, "effects", 36, "how many effects, 12 to 240; a third are release tags")
	flags.Uint64Var(&o.seed, "seed", 1, "chooses what goes wrong with the effects that are not shown")
	flags.BoolVar(&o.keep, "keep", false, "leave daemon, desk and directory, and say how to look at them")
	flags.BoolVar(&o.asJSON, "json", false, "print the result as one JSON object; the story goes to standard error")
	flags.BoolVar(&o.plain, "plain", false, "ASCII, no colour")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return o, 0
	case err != nil:
		return o, 2
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "settled demo takes no argument %q; type: settled demo --help\n", flags.Arg(0))
		return o, 2
	case o.effects < 12 || o.effects > 240:
		fmt.Fprintf(os.Stderr, "settled demo: --effects %d is not from 12 to 240\n", o.effects)
		return o, 2
	}
	f := os.Stdout
	if o.asJSON {
		f = os.Stderr
	}
	dumb := os.Getenv("TERM") == "dumb"
	o.colour = term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && !dumb && !o.plain
	o.plain = o.plain || dumb
	return o, -1
}

// runDemo tells the whole story to w. Whatever happens, nothing is left behind
// unless the demo ended well and was asked to keep it.
func runDemo(ctx context.Context, o demoOptions, w io.Writer) (result demoResult, err error) {
	dir, err := demoDir()
	if err != nil {
		return result, err
	}
	kept := false
	defer func() {
		if !kept {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	binary, err := demoBinary(dir, o.keep)
	if err != nil {
		return result, err
	}
	st, err := stage.New(ctx, stage.Options{Dir: dir, Binary: binary, Outlive: o.keep})
	if err != nil {
		return result, err
	}
	defer func() {
		if !kept {
			err = errors.Join(err, st.Close())
		}
	}()
	cast, err := newCast(o)
	if err != nil {
		return result, err
	}
	d := &demo{o: o, stage: st, cast: cast, tell: newTeller(w, o, cast)}
	if err := d.begin(ctx, binary); err != nil {
		return result, err
	}
	if result, err = d.play(ctx); err != nil {
		return result, err
	}
	d.tell.table(result)
	if o.keep {
		kept = true
		d.tell.kept(st, binary)
		st.Leave()
	}
	return result, nil
}

// demoDir makes a directory whose sockets have room in their 108 bytes.
func demoDir() (string, error) {
	base := ""
	if len(os.TempDir()) > 40 {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "settled-demo-")
	if err != nil {
		return "", fmt.Errorf("make a directory: %w; TMPDIR names another place", err)
	}
	return dir, nil
}

// demoBinary is this program; a copy of it when it is to be looked at later,
// because `go run` removes the original.
func demoBinary(dir string, keep bool) (string, error) {
	self, err := os.Executable()
	if err != nil || !keep {
		return self, err
	}
	in, err := os.Open(self)
	if err != nil {
		return "", fmt.Errorf("copy this program: %w", err)
	}
	defer in.Close()
	copied := filepath.Join(dir, "settled")
	out, err := os.OpenFile(copied, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", fmt.Errorf("copy this program: %w", err)
	}
	_, err = io.Copy(out, in)
	return copied, errors.Join(err, out.Close())
}

// demo is one performance.
type demo struct {
	o     demoOptions
	stage *stage.Stage
	cast  []part
	tell  *teller
}

// begin starts the desk and the daemon.
func (d *demo) begin(ctx context.Context, binary string) error {
	ctx, cancel := context.WithTimeout(ctx, demoStarts)
	defer cancel()
	d.tell.intro()
	url, err := d.stage.StartDesk(ctx, "--lag", "400ms")
	if err != nil {
		return err
	}
	var text strings.Builder
	err = template.Must(template.New("demo.toml").Parse(demoConfig)).Execute(&text, map[string]any{
		"Desk": url, "Self": binary, "Repo": d.stage.Repo(), "State": d.stage.GitState(),
		"DeskRate": max(4, d.o.effects/8), "GitRate": max(2, d.o.effects/16),
	})
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if err := d.stage.Configure(text.String()); err != nil {
		return err
	}
	if err := d.injectFaults(ctx); err != nil {
		return err
	}
	return d.stage.StartDaemon(ctx)
}
