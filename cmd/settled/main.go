// Command settled is the daemon and every tool around it. The client verbs live
// in internal/cli; what is started here are the daemon, the offline verbs, and
// the processes that settled starts itself: adapters and the demo's destinations.
//
// Guarantees: the exit status follows one table, results go to standard output
// and everything else to standard error. A killed client leaves the daemon as it
// is; a killed daemon leaves a journal from which the next one goes on.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/settled-dev/settled/cmd/settled/internal/cli"
	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/cmd/settled/internal/gitdest"
	"github.com/settled-dev/settled/sdk/serve"
)

func main() { os.Exit(run(os.Args[1:])) }

// run runs one command line. The daemon handles signals itself; every other
// verb ends with the first one.
func run(args []string) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if len(args) == 0 || args[0] != "serve" {
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer stop()
	}
	app := cli.App{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Version: version(), Local: localVerbs(), OpenJournal: openOffline,
		Restore: restoreJournal, Migrate: migrateJournal,
	}
	return app.Run(ctx, args)
}

// localVerbs are the verbs that are no clients of a daemon.
func localVerbs() []cli.Local {
	return []cli.Local{
		{Name: "serve", Short: "Runs the daemon", Run: serveMain},
		{Name: "demo", Short: "The whole story in half a minute, on destinations that lose answers", Run: demoMain},
		{Name: "check", Short: "Checks configuration, credentials, adapters, journal and schedules", Run: checkMain},
		{Name: "bench", Short: "Measures effects per second, fsyncs and latency on this machine", Run: benchMain},
		{Name: "adapter", Short: "Writes, tests, documents and installs adapters", Run: authorMain},
		{Name: "adapter-serve", Hidden: true, Run: adapterMain},
		{Name: "desk", Hidden: true, Run: desk.Main},
		{Name: "git-destination", Hidden: true, Run: gitdest.Main},
	}
}

// adapterMain is how a built-in adapter runs: this binary again, as a process of its own.
func adapterMain(args []string) int {
	if len(args) == 0 || builtIn()[args[0]] == nil {
		fmt.Fprintln(os.Stderr, "settled adapter-serve: name a built-in adapter; the daemon starts this by itself")
		return 2
	}
	return serve.Run(builtIn()[args[0]](), args[1:])
}
