package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/plugins/exec"
	"github.com/settled-dev/settled/plugins/host"
	"github.com/settled-dev/settled/plugins/http"
	"github.com/settled-dev/settled/plugins/mail"
	"github.com/settled-dev/settled/plugins/sql"
	"github.com/settled-dev/settled/sdk"
)

// builtIn returns the adapters that are part of this binary. Each runs as a
// process of its own: this program again, as `settled adapter-serve NAME`.
func builtIn() map[string]func() sdk.Adapter {
	return map[string]func() sdk.Adapter{
		"http": http.New,
		"exec": exec.New,
		"sql":  sql.New,
		"mail": mail.New,
		"noop": newNoop, // the embedded destination of `settled bench`
	}
}

// ports keeps one adapter process for each configured destination.
type ports struct {
	sups map[string]*host.Supervisor
}

// newPorts prepares a supervisor per destination; nothing is started yet.
func newPorts(cfg *config.Config, runtimeDir string, log *slog.Logger) (*ports, error) {
	p := &ports{sups: map[string]*host.Supervisor{}}
	for name, dest := range cfg.Destinations {
		secrets, err := cfg.Secrets(name)
		if err != nil {
			return nil, fmt.Errorf("destinations.%s: %w", name, err)
		}
		cmd := adapterCommand(cfg, name, runtimeDir, log)
		p.sups[name] = host.NewSupervisor(host.Options{Command: cmd, Configuration: sdk.Configuration{
			Destination: name, Config: dest.With.RawMessage, Secrets: secrets, HostVersion: version(),
		}})
	}
	return p, nil
}

// adapterCommand says how a destination's adapter is started: this program
// again where it is built in, else the installed one as it was pinned.
func adapterCommand(cfg *config.Config, name, runtimeDir string, log *slog.Logger) host.Command {
	dest := cfg.Destinations[name]
	cmd := host.Command{
		Name: name, RuntimeDir: runtimeDir, Linger: dest.ForOperation("").Linger,
		Log: log.With("destination", name),
	}
	if _, ok := builtIn()[dest.Adapter]; ok {
		cmd.Args = []string{"adapter-serve", dest.Adapter}
	} else {
		cmd.Path = filepath.Join(cfg.Adapters.Dir, dest.Adapter)
		cmd.SHA256 = dest.SHA256
	}
	return cmd
}

// startFault is a destination that did not start, with the reason.
type startFault struct {
	destination string
	err         error
}

// start starts all adapters side by side and returns those that failed. They
// are tried again in the background.
func (p *ports) start(ctx context.Context) []startFault {
	var (
		mu     sync.Mutex
		faults []startFault
		wait   sync.WaitGroup
	)
	for name, sup := range p.sups {
		wait.Go(func() {
			if err := sup.Start(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, startFault{name, err})
			}
		})
	}
	wait.Wait()
	sort.Slice(faults, func(i, j int) bool { return faults[i].destination < faults[j].destination })
	return faults
}

// close ends every adapter process; it returns when they are proved dead.
func (p *ports) close(ctx context.Context) error {
	var wait sync.WaitGroup
	errs := make([]error, 0, len(p.sups))
	var mu sync.Mutex
	for _, sup := range p.sups {
		wait.Go(func() {
			err := sup.Close(ctx)
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// byName is what the daemon gets.
func (p *ports) byName() map[string]daemon.Port {
	out := make(map[string]daemon.Port, len(p.sups))
	for name, sup := range p.sups {
		out[name] = port{sup}
	}
	return out
}

// port adapts a supervisor to the daemon.
type port struct{ sup *host.Supervisor }

func (p port) Acquire(ctx context.Context) (daemon.Live, error) {
	proc, err := p.sup.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return live{hosted: proc}, nil
}

func (p port) Up() (bool, string) {
	st := p.sup.Status()
	return st.Up, st.LastError
}

// live is one running process with its identity in the journal's words.
type live struct{ hosted }

// hosted is host.Process under a name that leaves room for the method Process.
type hosted = *host.Process

func (l live) Process() daemon.Process {
	id := l.Identity()
	return daemon.Process{
		Adapter:  journal.AdapterRef{Name: id.Adapter, Version: id.Version, SHA256: id.SHA256},
		Identity: id.Account, PID: id.PID, Start: strconv.FormatUint(id.StartTicks, 10), BootID: id.BootID,
	}
}

// runtimeDir makes the directory for sockets and run files of one journal's
// adapters. Two daemons on one machine never share one.
func runtimeDir(cfg *config.Config) (string, error) {
	base := cfg.RuntimeDir()
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", fmt.Errorf("make the runtime directory: %w", err)
	}
	dir := filepath.Join(base, "j"+shortHash(cfg.Journal.Path))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the runtime directory: %w", err)
	}
	return dir, nil
}

// bootID identifies this boot of the machine; "" when the system does not say.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// closeBudget is how long adapters that were only looked at may take to leave.
const closeBudget = 5 * time.Second
