package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/systemd"
	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/api"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

// apiGrace is how long requests may take to end once the daemon has drained.
const apiGrace = 2 * time.Second

// serveOptions are what serve takes from its command line and surroundings.
type serveOptions struct {
	configFile string // --config; "" = where it is looked for
	hold       string // why dispatch is held from the start; "" = it is not
	getenv     func(string) string
}

// runServe runs the daemon and its API until ctx ends, then drains. The service
// manager is told when recovery is done, how the daemon is, and how the drain goes.
func runServe(ctx, hurry context.Context, cfg *config.Config, log *slog.Logger, o serveOptions) (err error) {
	s, err := openServer(ctx, cfg, log, o.hold)
	if err != nil {
		return err
	}
	s.configFile = o.configFile
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.noteConfiguration(ctx); err != nil {
		return err
	}
	listener, err := listen(o.getenv, cfg.Listen.Socket)
	if err != nil {
		return &configError{err}
	}
	handler := withDebug(api.New(s.daemon, api.Options{Log: log, Version: version(), Metrics: s.daemon.Metrics, Reload: s.reload}), s.daemon)
	run, stop := context.WithCancel(ctx)
	defer stop()
	serveCtx, stopAPI := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAPI()
	served := make(chan error, 1)
	go func() {
		served <- api.Serve(serveCtx, listener, handler, log, apiGrace)
		stop() // without its API nobody could reach the daemon
	}()
	go func() {
		<-hurry.Done()
		s.daemon.Hurry()
	}()
	drained := make(chan struct{})
	var told sync.WaitGroup
	err = s.daemon.Run(run, func() {
		log.Info("ready", "socket", listener.Addr().String(), "journal", cfg.Journal.Path, "epoch", s.db.Epoch())
		told.Go(func() { newManager(o.getenv, log).watch(run, s.daemon, drained) })
	})
	stop() // after a failed journal Run ends by itself
	close(drained)
	told.Wait()
	stopAPI()
	return errors.Join(err, <-served)
}

// listen takes the socket that systemd bound, or binds the configured one.
func listen(getenv func(string) string, path string) (net.Listener, error) {
	l, err := systemd.Listener(getenv)
	if l != nil || err != nil {
		return l, err
	}
	return listenSocket(path)
}

// listenSocket binds the API's socket. The journal's lock is held, so a file
// that is in the way belongs to a daemon that is gone.
func listenSocket(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the socket: %w", err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen.socket %s: another program answers there; give this daemon another path", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	old := syscall.Umask(0o117) // 0660 from the first moment
	defer syscall.Umask(old)
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen.socket: %w; name a place that this user may write to: socket under [listen], and the same with --socket or --config for the clients", err)
	}
	return l, nil
}

// noteConfiguration refuses operations whose adapter and configuration do not
// agree, and writes every lowered safety bound to the audit chain.
func (s *server) noteConfiguration(ctx context.Context) error {
	overrides, err := s.declared(ctx, s.cfg)
	if err != nil {
		return err
	}
	return s.noteOverrides(ctx, s.cfg, overrides)
}

// declared compares a configuration with what the adapters that run declare. It
// returns every bound that is lowered on purpose.
func (s *server) declared(ctx context.Context, cfg *config.Config) ([]config.Override, error) {
	overrides := slices.Clone(cfg.Overrides)
	var faults []error
	for name, sup := range s.ports.sups {
		if !sup.Status().Up {
			continue
		}
		desc, err := sup.Describe(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", name, err)
		}
		bad, lowered := declaredFaults(cfg, name, desc)
		overrides = append(overrides, lowered...)
		for _, f := range bad {
			if f.Warning {
				s.log.Warn(f.Message, "key", f.Key)
				continue
			}
			faults = append(faults, f)
		}
	}
	if len(faults) > 0 {
		return nil, &configError{errors.Join(faults...)}
	}
	return overrides, nil
}

// noteOverrides writes every lowered safety bound to the audit chain.
func (s *server) noteOverrides(ctx context.Context, cfg *config.Config, overrides []config.Override) error {
	if len(overrides) == 0 {
		return nil
	}
	return s.db.Write(ctx, func(tx *sqlite.Tx) error {
		for _, o := range overrides {
			if err := tx.Note(journal.Entry{
				Kind: "override", Actor: "settled", ActorKind: journal.System, Origin: "configuration",
				Because: fmt.Sprintf("%s: %s instead of %s: %s", o.Key, o.Value, o.Floor, o.Reason), PolicySHA256: cfg.PolicySHA256(),
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// declaredFaults compares every operation of a destination with what its adapter declares.
func declaredFaults(cfg *config.Config, name string, desc sdk.Description) (faults []config.Fault, lowered []config.Override) {
	for _, spec := range desc.Actions {
		f, o := cfg.CheckDeclared(name, spec.Name, daemon.Declared(spec))
		faults, lowered = append(faults, f...), append(lowered, o...)
	}
	return faults, lowered
}
