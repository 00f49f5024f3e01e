package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Where an installed daemon looks.
const (
	SystemPath   = "/etc/settled/settled.toml"
	systemSocket = "/run/settled.sock"
)

// Options are what a configuration takes from its surroundings. The zero
// value is a privileged process with an empty environment.
type Options struct {
	// Getenv reads the environment; nil is an empty one.
	Getenv func(string) string
	// Unprivileged is true for ordinary users: without a configuration their
	// state lives under the XDG directories.
	Unprivileged bool
	// Home is used where XDG_STATE_HOME is not set.
	Home string
	// UID is used where XDG_RUNTIME_DIR is not set.
	UID int
	// Host spreads the schedules of several machines.
	Host string
}

// FromOS fills Options from this process.
func FromOS() Options {
	home, _ := os.UserHomeDir()
	host, _ := os.Hostname()
	return Options{Getenv: os.Getenv, Unprivileged: os.Geteuid() != 0, Home: home, UID: os.Geteuid(), Host: host}
}

func (o Options) env(name string) string {
	if o.Getenv == nil {
		return ""
	}
	return o.Getenv(name)
}

// stateHome is $XDG_STATE_HOME, or its default; relative values are ignored, as the XDG rules say.
func (o Options) stateHome() string {
	if dir := o.env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(o.Home, ".local", "state")
}

// userRuntime is $XDG_RUNTIME_DIR. Without one it is a directory of the
// state, never /tmp, where anybody could put a socket first.
func (o Options) userRuntime() string {
	if dir := o.env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return dir
	}
	if run := filepath.Join("/run/user", strconv.Itoa(o.UID)); isDir(run) {
		return run
	}
	return filepath.Join(o.stateHome(), "settled", "run")
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// Default is the configuration where there is none: no destinations, and for
// an ordinary user all paths under the XDG directories.
func Default(o Options) *Config {
	c := systemDefaults(o)
	c.root = newTable(span{})
	if !o.Unprivileged {
		return c
	}
	state := o.stateHome()
	c.Journal.Path = filepath.Join(state, "settled", "journal.db")
	c.Journal.Generation = filepath.Join(state, "settled-generation", "marker")
	c.Listen.Socket = filepath.Join(o.userRuntime(), "settled.sock")
	c.Credentials.Dir = filepath.Join(state, "settled", "credentials")
	return c
}

func systemDefaults(o Options) *Config {
	const day = 24 * time.Hour
	return &Config{
		Journal: Journal{
			Path: "/var/lib/settled/journal.db", Generation: "/var/lib/settled-generation/marker",
			RestoreWindow: 30 * day, Keep: 90 * day, KeepPayload: 7 * day,
		},
		Daemon:       Daemon{StopBudget: time.Minute},
		Listen:       Listen{Socket: systemSocket},
		Owners:       map[string]*Owner{},
		Credentials:  Credentials{Dir: "/etc/settled/credentials"},
		Adapters:     Adapters{Dir: "/usr/lib/settled/adapters"},
		Destinations: map[string]*Destination{},
		Schedules:    map[string]*Schedule{},
		opts:         o,
	}
}

func (w *Owner) setDefaults() {
	w.ReviewWithin = ReviewWithin{
		"low": 72 * time.Hour, "normal": 4 * time.Hour, "high": time.Hour, "critical": 15 * time.Minute,
	}
}

func (d *Destination) setDefaults() {
	*d = Destination{
		Timeout: 10 * time.Second, RecordReserve: 30 * time.Second, Deadline: 24 * time.Hour, MaxAge: 30 * time.Second,
		Concurrency: 4, Rate: Rate{10, time.Second}, OnOutage: "wait", Limits: Limits{Queue: 10000},
		Retry: Retry{
			Attempts: 3, Elapsed: 90 * time.Second, AfterAbsence: 15 * time.Minute, Tokens: Tokens{0.1, 10},
			Backoff: Backoff{Initial: time.Second, Max: 30 * time.Second, Factor: 2},
		},
		Grace:   defaultGrace(),
		Breaker: Breaker{OpenAfter: 5},
		With:    With{json.RawMessage("{}")},
		Policy: Policy{
			Approval: Approval{Mode: "none"}, Proof: "read", Severity: "normal",
			Contain: Contain{
				Unknown: "key", Partial: "key", Duplicate: "account", Conflicts: "target",
				PostconditionFailed: "target", TripBreaker: []string{"duplicate"},
			},
		},
	}
}

func defaultGrace() Grace {
	return Grace{
		Skew: 5 * time.Second, Linger: 5 * time.Second, AbsenceValid: 10 * time.Minute,
		Reads:           []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour},
		ReconcileBudget: 24 * time.Hour, AckDeadline: time.Hour, VerifyDeadline: 10 * time.Minute, Settle: "read",
	}
}

func (s *Schedule) setDefaults() {
	s.Timezone, s.CatchUp, s.Within = "UTC", "once", 24*time.Hour
	s.Window, s.Sample, s.KeepCopies, s.Payload = 24*time.Hour, 1, 7, "{}"
}

// RuntimeDir is where sockets of adapters are made: systemd's runtime
// directory, else one of the user's, never /tmp. The caller creates it, 0700.
func (c *Config) RuntimeDir() string {
	if dir := c.opts.env("RUNTIME_DIRECTORY"); filepath.IsAbs(dir) {
		return dir
	}
	if c.opts.Unprivileged {
		return filepath.Join(c.opts.userRuntime(), "settled")
	}
	return "/run/settled"
}
