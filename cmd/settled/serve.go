package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/plugins/host"
)

// Exit statuses of serve, from sysexits.
const (
	exitUsage   = 64
	exitCorrupt = 65
	exitIO      = 74
	exitLocked  = 75
	exitConfig  = 78
)

// server is a running daemon with everything that it owns.
type server struct {
	cfg    *config.Config
	log    *slog.Logger
	db     *sqlite.DB
	ports  *ports
	daemon *daemon.Daemon

	configFile string     // --config, read again by a reload
	reloading  sync.Mutex // one reload at a time, from reading the file on
}

// openServer takes the journal's lock, proves the adapters of an earlier
// daemon dead, starts the adapters and makes the daemon. It sends nothing.
func openServer(ctx context.Context, cfg *config.Config, log *slog.Logger, hold string) (s *server, err error) {
	s = &server{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	dir, err := runtimeDir(cfg)
	if err != nil {
		return s, &configError{err}
	}
	if s.ports, err = newPorts(cfg, dir, log); err != nil {
		return s, &configError{err}
	}
	if s.db, err = openJournal(ctx, cfg, log); err != nil {
		return s, err
	}
	deadAt, err := reap(dir, log)
	if err != nil {
		return s, err
	}
	if err := s.startAdapters(ctx); err != nil {
		return s, err
	}
	hostname, _ := os.Hostname()
	s.daemon, err = daemon.New(ctx, daemon.Options{
		Settings: cfg, Journal: s.db, Ports: s.ports.byName(), Log: log, Version: version(), Host: hostname,
		DeadAt: deadAt, ClockJumped: s.db.LastBootID() != "" && s.db.LastBootID() != bootID(), Hold: hold,
	})
	return s, err
}

// configError is a start that only another configuration can mend.
type configError struct{ err error }

func (e *configError) Error() string { return e.err.Error() }
func (e *configError) Unwrap() error { return e.err }

// journalOptions says where the journal lies and with which key its chain is made.
func journalOptions(cfg *config.Config, log *slog.Logger) (sqlite.Options, error) {
	var key []byte
	if name := cfg.Journal.ChainKey; name != "" {
		secret, err := cfg.Credential(name)
		if err != nil {
			return sqlite.Options{}, &configError{fmt.Errorf("journal.chain_key: %w", err)}
		}
		key = []byte(secret)
	}
	return sqlite.Options{
		Path: cfg.Journal.Path, GenerationPath: cfg.Journal.Generation, ChainKey: key,
		BootID: bootID(), Version: version(), Log: log,
	}, nil
}

// openJournal opens the journal that the configuration names.
func openJournal(ctx context.Context, cfg *config.Config, log *slog.Logger) (*sqlite.DB, error) {
	opts, err := journalOptions(cfg, log)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{filepath.Dir(cfg.Journal.Path), filepath.Dir(cfg.Journal.Generation)} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, &configError{fmt.Errorf("make the journal's directory: %w", err)}
		}
	}
	return sqlite.Open(ctx, opts)
}

// reap proves the processes of an earlier daemon dead. Only then may its open
// attempts be given an end.
func reap(dir string, log *slog.Logger) (time.Time, error) {
	killed, err := host.ReapOrphans(dir)
	if err != nil {
		return time.Time{}, fmt.Errorf("an adapter of an earlier daemon is still alive; end it and start again: %w", err)
	}
	for _, o := range killed {
		log.Warn("killed an adapter that an earlier daemon left behind", "destination", o.Name, "pid", o.PID)
	}
	return time.Now().UTC().Truncate(time.Microsecond), nil
}

// startAdapters starts every adapter. One that refuses its configuration ends
// the start; one that is merely down is tried again while the daemon runs.
func (s *server) startAdapters(ctx context.Context) error {
	var refused []error
	for _, f := range s.ports.start(ctx) {
		var conf *host.ConfigError
		var pin *host.PinError
		switch {
		case errors.As(f.err, &conf):
			for _, d := range conf.Diagnostics {
				refused = append(refused, s.cfg.AdapterFault(f.destination, d.Pointer, d.Summary, d.Detail, d.Warning))
			}
		case errors.As(f.err, &pin):
			refused = append(refused, fmt.Errorf("destinations.%s: %w", f.destination, f.err))
		default:
			s.log.Error("an adapter did not start; trying again", "destination", f.destination, "err", f.err)
		}
	}
	if len(refused) > 0 {
		return &configError{errors.Join(refused...)}
	}
	return nil
}

// partingTime is how long calls may still run when the adapters are closed. By
// then the daemon has drained: such a call was parked as unknown, and nobody
// would record its answer. So a stop takes the stop budget and little more.
const partingTime = 500 * time.Millisecond

// close ends the adapters first, then the journal: what they last answered is recorded by then.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), partingTime)
	defer cancel()
	var errs []error
	if s.ports != nil {
		errs = append(errs, s.ports.close(ctx))
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}

// exitStatus maps the end of serve to sysexits.
func exitStatus(err error) int {
	var conf *configError
	var faults *config.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &conf), errors.As(err, &faults):
		return exitConfig
	}
	return sqlite.ExitCode(err)
}

// signals returns a context that ends with the first SIGTERM or SIGINT. A
// second one ends hurry: the drain is skipped.
func signals(parent context.Context) (stop, hurry context.Context, release func()) {
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT)
	stop, cancelStop := context.WithCancel(parent)
	hurry, cancelHurry := context.WithCancel(parent)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, cancel := range []context.CancelFunc{cancelStop, cancelHurry} {
			select {
			case <-ch:
				cancel()
			case <-parent.Done():
				return
			}
		}
	}()
	return stop, hurry, func() {
		signal.Stop(ch)
		cancelStop()
		cancelHurry()
	}
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}
