// Package author is `settled adapter`: what people who write adapters type.
//
// init writes a project that works, test tries an adapter by the conformance
// kit, docs prints what one says of itself, list shows what is installed, and
// install puts one where the daemon finds it. None of them talks to a daemon or
// touches a journal. init and install write a whole file or directory beside
// its place and move it there; a crash leaves at most that.
package author

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"github.com/settled-dev/settled/sdk"
)

// App is one invocation.
type App struct {
	Stdout, Stderr io.Writer
	Self           string                        // this program, for built-in adapters
	BuiltIn        map[string]func() sdk.Adapter // by name
	Dir            func() (string, error)        // where adapters are installed; asked only when needed
}

var verbs = []struct{ name, short string }{
	{"init", "writes a new adapter that works: NAME --lang go|python|shell|node"},
	{"test", "tries adapters by the conformance kit: FILE…"},
	{"docs", "prints what an adapter can do, as Markdown: NAME"},
	{"list", "lists the adapters that are built in and installed"},
	{"install", "puts an adapter where the daemon finds it: FILE"},
}

// Main runs one command line and returns its exit status: 0 done, 1 error or a
// failed check, 2 usage.
func (a App) Main(args []string) int {
	if len(args) == 0 || slices.Contains([]string{"help", "--help", "-h"}, args[0]) {
		w := a.Stdout
		fmt.Fprintln(w, "For people who write adapters.\n\nusage: settled adapter VERB …")
		for _, v := range verbs {
			fmt.Fprintf(w, "  %-9s%s\n", v.name, v.short)
		}
		return 0
	}
	run := map[string]func([]string) int{
		"init": a.initMain, "test": a.testMain, "docs": a.docsMain, "list": a.listMain, "install": a.installMain,
	}[args[0]]
	if run == nil {
		fmt.Fprintf(a.Stderr, "settled: adapter has no verb %q\n  type: settled adapter --help\n", args[0])
		return 2
	}
	return run(args[1:])
}

func (a App) flags(verb, rest string) *pflag.FlagSet {
	f := pflag.NewFlagSet(verb, pflag.ContinueOnError)
	f.SetOutput(a.Stderr)
	f.Usage = func() {
		fmt.Fprintf(a.Stderr, "usage: settled adapter %s %s\n%s", verb, rest, f.FlagUsages())
	}
	return f
}

// parse says whether to go on, and the exit status if not.
func parse(f *pflag.FlagSet, args []string, stderr io.Writer) (int, bool) {
	err := f.Parse(args)
	switch {
	case err == nil:
		return 0, true
	case errors.Is(err, pflag.ErrHelp):
		return 0, false
	}
	fmt.Fprintf(stderr, "settled: %v\n  type: settled adapter %s --help\n", err, f.Name())
	return 2, false
}

func (a App) usage(verb, what string) int {
	fmt.Fprintf(a.Stderr, "settled: %s\n  type: settled adapter %s --help\n", what, verb)
	return 2
}

func (a App) fail(err error, next string) int {
	fmt.Fprintf(a.Stderr, "settled: %v\n", err)
	if next != "" {
		fmt.Fprintf(a.Stderr, "  type: %s\n", next)
	}
	return 1
}
