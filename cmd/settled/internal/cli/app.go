// Package cli is the command line: every verb that is a client of the daemon.
//
// An [App] is a value with its inputs and outputs, so that tests run it in
// process. Results go to standard output, errors and progress to standard error.
// The exit status follows one table (exit.go); status 4, "the outcome is unknown
// or in review", is never given up for 3, "did not happen". A verb that is
// interrupted leaves the daemon as it is: what was recorded stays recorded.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/sdk/client"
)

// App is one invocation. Stdin, Stdout, Stderr and Getenv are required.
type App struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Version        string
	// Now is the clock for "in 30 s"; nil: time.Now.
	Now func() time.Time
	// Local are the verbs that are no clients: serve, check, demo, bench.
	Local []Local
	// OpenJournal opens the journal while no daemon runs, for the journal verbs;
	// nil: they need the daemon. configFile is --config or SETTLED_CONFIG, or "".
	OpenJournal func(ctx context.Context, configFile string) (OfflineJournal, error)
	// Restore puts a backup in the place of the journal while no daemon runs; nil:
	// not here. replaced is where the journal that was there lies now, or "".
	Restore func(ctx context.Context, configFile, backup string) (replaced string, err error)
	// Migrate brings the journal to this program's schema while no daemon runs, or
	// with dryRun a copy of it that is thrown away; nil: not here.
	Migrate func(ctx context.Context, configFile string, dryRun bool) (Migration, error)

	flags struct {
		json, plain    bool
		socket, config string
	}
	client *client.Client
}

// Local is a verb with flags of its own. Run gets the arguments after the
// verb's name and returns the exit status.
type Local struct {
	Name, Short string
	Hidden      bool
	Run         func(args []string) int
}

// OfflineJournal is what the journal verbs need when no daemon runs. Opening it
// must refuse a journal that a daemon has locked.
type OfflineJournal interface {
	Verify(ctx context.Context, expectHead string) (daemon.VerifyReport, error)
	Backup(ctx context.Context, file string) error
	Stats(ctx context.Context) (daemon.JournalStats, error)
	Check(ctx context.Context) (daemon.VerifyReport, error)
	// SQL runs one query that cannot write, for at most five seconds.
	SQL(ctx context.Context, query string, row func(columns []string, vals []any) error) error
	Close() error
}

// Run runs one command line (without the program's name) and returns its exit status.
func (a *App) Run(ctx context.Context, args []string) int {
	if a.Now == nil {
		a.Now = time.Now
	}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	err := root.ExecuteContext(ctx)
	if a.client != nil {
		a.client.Close()
	}
	if err == nil {
		return exitDone
	}
	var x *exit
	if !errors.As(err, &x) { // cobra's own: a flag, an argument, a verb that does not exist
		x = usage(err, "settled --help")
	}
	x.print(a.Stderr)
	return x.code
}

func (a *App) root() *cobra.Command {
	root := &cobra.Command{
		Use: "settled", Short: "Performs effects elsewhere and always knows whether they happened",
		Long: "settled performs effects in systems that you do not own and always knows\n" +
			"whether each did not happen, happened once, is unknown, or is wrong.\n\n" +
			"Exit status: 0 done · 1 error · 2 usage · 3 did not happen · 4 unknown or in review\n" +
			"5 wait timed out · 6 daemon unreachable · 7 conflict · 8 tampering · 9 verify could\n" +
			"not run · 10 closed by a person",
		SilenceErrors: true, SilenceUsage: true,
	}
	p := root.PersistentFlags()
	p.BoolVar(&a.flags.json, "json", false, "one JSON object, or one a line")
	p.BoolVar(&a.flags.plain, "plain", false, "tab-separated, for grep and cut")
	p.StringVar(&a.flags.socket, "socket", "", "the daemon's socket (SETTLED_SOCKET)")
	p.StringVar(&a.flags.config, "config", "", "configuration `FILE` (SETTLED_CONFIG)")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(err, c.CommandPath()+" --help") })
	root.AddCommand(
		a.submitCmd(), a.listCmd(), a.showCmd(), a.waitCmd(), a.cancelCmd(), a.eventsCmd(),
		a.reviewCmd(), a.decideCmd(), a.holdCmd(), a.releaseCmd(), a.sweepCmd(), a.scheduleCmd(),
		a.destinationCmd(), a.statusCmd(), a.drainCmd(), a.reloadCmd(), a.journalCmd(), a.versionCmd(),
	)
	root.SetHelpCommand(a.helpCmd())
	root.AddCommand(a.laterCmds()...)
	for _, l := range a.Local {
		root.AddCommand(localCmd(l))
	}
	return root
}

// localCmd hands everything after the verb to a verb with flags of its own.
func localCmd(l Local) *cobra.Command {
	return &cobra.Command{
		Use: l.Name, Short: l.Short, Hidden: l.Hidden, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := l.Run(args); code != 0 {
				return &exit{code: code} // it has said why
			}
			return nil
		},
	}
}

// verb makes a command; its errors get their exit status here.
func verb(use, short string, args cobra.PositionalArgs, run func(c *cobra.Command, args []string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: func(c *cobra.Command, args []string) error {
		return asExit(run(c, args), reading)
	}}
	c.Args = func(c *cobra.Command, got []string) error {
		if err := args(c, got); err != nil {
			return usage(err, c.UseLine())
		}
		return nil
	}
	return c
}

// group makes a command that only has others below it.
func group(name, short string, subs ...*cobra.Command) *cobra.Command {
	c := verb(name, short, cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage(fmt.Errorf("%s has no verb %q", c.CommandPath(), args[0]), c.CommandPath()+" --help")
		}
		return c.Help()
	})
	c.AddCommand(subs...)
	return c
}

// daemon returns the client of the daemon; nothing is connected yet.
func (a *App) daemon() (*client.Client, error) {
	if a.client == nil {
		socket, err := a.socket()
		if err != nil {
			return nil, err
		}
		a.client = client.New(socket)
	}
	return a.client, nil
}

func (a *App) configFile() string {
	if a.flags.config != "" {
		return a.flags.config
	}
	return a.Getenv("SETTLED_CONFIG")
}

// socket is --socket, SETTLED_SOCKET, the configuration's, or the usual place.
func (a *App) socket() (string, error) {
	if s := a.flags.socket; s != "" {
		return s, nil
	}
	if s := a.Getenv("SETTLED_SOCKET"); s != "" {
		return s, nil
	}
	opts := config.FromOS()
	opts.Getenv = a.Getenv
	cfg, err := config.Open(a.flags.config, opts)
	switch {
	case err == nil && cfg.Listen.Socket != "":
	case err != nil && a.configFile() != "":
		return "", &exit{code: exitUsage, err: fmt.Errorf("the configuration does not say where the daemon listens: %w", err), next: "settled --socket PATH …"}
	default:
		cfg = config.Default(opts)
	}
	return firstThatExists(cfg.Listen.Socket, "/run/settled.sock"), nil
}

// firstThatExists prefers the user's own daemon to the system's.
func firstThatExists(paths ...string) string {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return paths[0]
}

// terminal reports whether w is a terminal that may be painted on.
func (a *App) terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && !a.flags.plain && !a.flags.json
}

func (a *App) printf(format string, args ...any) { fmt.Fprintf(a.Stdout, format, args...) }

// filter joins the words of a filter.
func filter(args []string) string { return strings.Join(args, " ") }
