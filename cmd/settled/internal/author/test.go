package author

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/settled-dev/settled/sdk/adaptertest"
)

// builtInPrefix names an adapter of this binary in a plan: "settled:exec".
const builtInPrefix = "settled:"

// planOf finds what to do with a word of the command line: a plan, a directory
// with a plan, or a program, with or without a plan beside it.
func (a App) planOf(file string) (adaptertest.Plan, error) {
	info, err := os.Stat(file)
	if err != nil {
		return adaptertest.Plan{}, err
	}
	if info.IsDir() {
		p, err := adaptertest.LoadPlan(filepath.Join(file, adaptertest.PlanName))
		return a.expand(p), err
	}
	if strings.HasSuffix(file, ".json") {
		p, err := adaptertest.LoadPlan(file)
		return a.expand(p), err
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return adaptertest.Plan{}, err
	}
	p, err := adaptertest.LoadPlan(filepath.Join(filepath.Dir(abs), adaptertest.PlanName))
	if errors.Is(err, fs.ErrNotExist) {
		return adaptertest.Plan{Adapter: []string{abs}}, nil // the protocol alone
	}
	p = a.expand(p)
	if len(p.Adapter) > 0 && p.Adapter[0] != a.Self {
		p.Adapter[0] = abs
	}
	return p, err
}

// expand turns "settled:exec" into this program.
func (a App) expand(p adaptertest.Plan) adaptertest.Plan {
	if len(p.Adapter) > 0 {
		if name, ok := strings.CutPrefix(p.Adapter[0], builtInPrefix); ok {
			p.Adapter = append([]string{a.Self, "adapter-serve", name}, p.Adapter[1:]...)
		}
	}
	return p
}

// testMain is `settled adapter test FILE…`.
func (a App) testMain(args []string) int {
	f := a.flags("test", "FILE… [--json] [--junit FILE] [--only ID,…] [--short]")
	asJSON := f.Bool("json", false, "one JSON object per adapter")
	junit := f.String("junit", "", "write the results as JUnit XML to `FILE` (of one adapter)")
	only := f.StringSlice("only", nil, "the `IDS` of the checks to run")
	short := f.Bool("short", false, "shorter deadlines and fewer repetitions, as in every run of CI")
	if code, ok := parse(f, args, a.Stderr); !ok {
		return code
	}
	if f.NArg() == 0 || *junit != "" && f.NArg() > 1 {
		return a.usage("test", "name an adapter, or the directory of its adapter-test.json (one only with --junit)")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	status := 0
	for _, file := range f.Args() {
		plan, err := a.planOf(file)
		if err != nil {
			return a.fail(err, "settled adapter init --help")
		}
		o := adaptertest.Options{Only: *only, Short: *short}
		if !*asJSON {
			o.Progress = func(r adaptertest.Result) { line(a.Stdout, r) }
		}
		r, err := adaptertest.Test(ctx, plan, o)
		if err != nil {
			return a.fail(fmt.Errorf("%s: %w", file, err), "settled adapter test --help")
		}
		if err := a.tell(r, *asJSON, *junit); err != nil {
			return a.fail(err, "")
		}
		if !r.OK() {
			status = 1
		}
	}
	return status
}

func line(w io.Writer, r adaptertest.Result) {
	mark := map[adaptertest.Status]string{adaptertest.Pass: "ok  ", adaptertest.Fail: "FAIL", adaptertest.Skip: "skip", adaptertest.NotBuilt: "n/b "}[r.Status]
	fmt.Fprintf(w, "%s %s %s %s", mark, r.ID, r.Level, r.Name)
	switch r.Status {
	case adaptertest.Fail:
		fmt.Fprintf(w, "\n        rule: %s\n        seen: %s", r.Rule, r.Reason)
	case adaptertest.Skip, adaptertest.NotBuilt:
		fmt.Fprintf(w, " — %s", r.Reason)
	}
	fmt.Fprintln(w)
}

func (a App) tell(r adaptertest.Report, asJSON bool, junit string) error {
	if junit != "" {
		f, err := os.Create(junit)
		if err != nil {
			return err
		}
		if err := errors.Join(r.WriteJUnit(f), f.Close()); err != nil {
			return err
		}
	}
	if asJSON {
		return r.WriteJSON(a.Stdout)
	}
	fmt.Fprintf(a.Stdout, "\n%d passed, %d failed, %d skipped, %d not built\n%s\n",
		r.Count(adaptertest.Pass), r.Count(adaptertest.Fail), r.Count(adaptertest.Skip), r.Count(adaptertest.NotBuilt), r.Badge())
	return nil
}
