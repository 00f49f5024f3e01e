package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/gitdest"
	"github.com/settled-dev/settled/plugins/host"
	"github.com/settled-dev/settled/sdk/client"
)

// The tokens of the desk. They protect nothing.
const (
	DeskToken   = "demo-write"
	RepairToken = "demo-repair"
)

// Options say what a stage is made of.
type Options struct {
	Dir    string // must exist and be short: sockets lie in it
	Binary string // the program that is daemon, adapter, desk and git destination
	// Outlive leaves daemon and desk running when the caller ends.
	Outlive bool
}

// Stage is one set-up. Its methods may be called from anywhere, but a process
// is started and ended by one caller at a time.
type Stage struct {
	o Options

	mu     sync.Mutex
	desk   *process
	daemon *process
	deskAt string // host:port, kept over a restart
}

// New makes the directories, the credentials and the repository. No process is started.
func New(ctx context.Context, o Options) (*Stage, error) {
	s := &Stage{o: o}
	for _, d := range []string{"journal", "generation", "credentials", "run", "desk", "git-state", "tmp"} {
		if err := os.MkdirAll(s.Path(d), 0o700); err != nil {
			return nil, fmt.Errorf("stage: %w", err)
		}
	}
	for name, secret := range map[string]string{"desk_token": DeskToken, "desk_repair": RepairToken} {
		if err := os.WriteFile(s.Path("credentials", name), []byte(secret), 0o600); err != nil {
			return nil, fmt.Errorf("stage: %w", err)
		}
	}
	if err := gitdest.Init(ctx, s.Repo()); err != nil {
		return nil, fmt.Errorf("stage: make the repository: %w", err)
	}
	return s, nil
}

// Path is a path inside the stage's directory.
func (s *Stage) Path(parts ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, parts...)...)
}

// Socket is where the daemon listens.
func (s *Stage) Socket() string { return s.Path("settled.sock") }

// Repo is the bare repository.
func (s *Stage) Repo() string { return s.Path("releases.git") }

// GitState is where faults of the git destination are queued and its calls counted.
func (s *Stage) GitState() string { return s.Path("git-state") }

// ConfigFile is the daemon's configuration.
func (s *Stage) ConfigFile() string { return s.Path("settled.toml") }

// Configure writes the daemon's configuration: what every stage has, then the destinations.
func (s *Stage) Configure(destinations string) error {
	text := fmt.Sprintf("[journal]\npath = %q\ngeneration = %q\n[listen]\nsocket = %q\n[credentials]\ndir = %q\n\n%s",
		s.Path("journal", "journal.db"), s.Path("generation", "marker"), s.Socket(), s.Path("credentials"), destinations)
	if err := os.WriteFile(s.ConfigFile(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	return nil
}

// Client talks to the daemon. Close it.
func (s *Stage) Client() *client.Client { return client.New(s.Socket()) }

// readyWithin bounds the start of a daemon or a desk.
const readyWithin = 30 * time.Second

// StartDesk starts the desk and returns its URL, which stays the same over a restart.
func (s *Stage) StartDesk(ctx context.Context, args ...string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desk != nil {
		return "", errors.New("stage: the desk runs already")
	}
	at := s.deskAt
	if at == "" {
		at = "127.0.0.1:0"
	}
	all := append([]string{"desk", "--listen", at, "--data", s.Path("desk"), "--token", DeskToken, "--repair-token", RepairToken}, args...)
	p, err := s.start("desk", all)
	if err != nil {
		return "", err
	}
	url, err := p.firstLine(ctx, "listening http://")
	if err != nil {
		return "", errors.Join(err, p.kill())
	}
	s.desk, s.deskAt = p, url
	return "http://" + url, nil
}

// StartDaemon starts the daemon and returns when it answers.
func (s *Stage) StartDaemon(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon != nil {
		return errors.New("stage: the daemon runs already")
	}
	p, err := s.start("daemon", []string{"serve", "--config", s.ConfigFile(), "--log-format", "text"})
	if err != nil {
		return err
	}
	if err := s.ready(ctx, p); err != nil {
		return errors.Join(err, p.kill())
	}
	s.daemon = p
	return nil
}

func (s *Stage) ready(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	c := s.Client()
	defer c.Close()
	for {
		_, err := c.Status(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("stage: the daemon ended at its start: %w\n%s", p.err, p.log.String())
		case <-ctx.Done():
			return fmt.Errorf("stage: the daemon does not answer: %w\n%s", err, p.log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// KillDaemon ends the daemon with SIGKILL.
func (s *Stage) KillDaemon() error { return s.end(&s.daemon, (*process).kill) }

// KillDesk ends the desk with SIGKILL.
func (s *Stage) KillDesk() error { return s.end(&s.desk, (*process).kill) }

// StopDaemon ends the daemon with SIGTERM and returns its exit status and its
// log. After the limit it is killed, and that is an error.
func (s *Stage) StopDaemon(limit time.Duration) (status int, log string, err error) {
	err = s.end(&s.daemon, func(p *process) error {
		err := p.stop(limit)
		status, log = p.status(), p.log.String()
		return err
	})
	return status, log, err
}

func (s *Stage) end(p **process, how func(*process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *p == nil {
		return errors.New("stage: it does not run")
	}
	err := how(*p)
	*p = nil
	return err
}

// DaemonLog is what the running daemon wrote so far.
func (s *Stage) DaemonLog() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon == nil {
		return ""
	}
	return s.daemon.log.String()
}

// DaemonPID is the running daemon's process id, or 0.
func (s *Stage) DaemonPID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon == nil {
		return 0
	}
	return s.daemon.cmd.Process.Pid
}

// DeskPID is the running desk's process id, or 0.
func (s *Stage) DeskPID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desk == nil {
		return 0
	}
	return s.desk.cmd.Process.Pid
}

// Leave forgets the processes, which go on running. Only with [Options.Outlive].
func (s *Stage) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.daemon, s.desk = nil, nil
}

// stopWithin bounds an orderly end in Close.
const stopWithin = 15 * time.Second

// Close ends every process, and proves adapters dead that a killed daemon left behind.
func (s *Stage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.daemon != nil {
		_ = s.daemon.stop(stopWithin) // killed then, which is as good here
		s.daemon = nil
	}
	if s.desk != nil {
		errs = append(errs, s.desk.kill())
		s.desk = nil
	}
	dirs, err := filepath.Glob(s.Path("run", "j*"))
	errs = append(errs, err)
	for _, dir := range dirs {
		_, err := host.ReapOrphans(dir)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
