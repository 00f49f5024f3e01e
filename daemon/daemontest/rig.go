package daemontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/mutant"
	"github.com/settled-dev/settled/journal/sqlite"
)

// Rig is one journal, one world, and the daemons that come one after another.
// It is used inside one bubble.
type Rig struct {
	T      testing.TB
	World  *World
	Config *config.Config
	Log    *Logs

	// Lies says that the world does not keep what it declares: then a second
	// effect is possible, and is not held against the daemon.
	Lies bool

	dir     string // of the journal that the next daemon opens
	base    string
	copies  int
	ids     atomic.Int64
	seed    uint64
	now     *Running
	crash   *crashPlan
	port    *Port
	deadAt  time.Time
	options func(*daemon.Options)
	wrap    func(daemon.Port) daemon.Port
	fault   func(op string) error
}

// Destination is what every rig configures, before the test's own lines.
const Destination = `
[owners.ops]
[owners.second]
[destinations.desk]
adapter = "http"
owner = "ops"
account = "acme"
`

// NewRig makes a rig. extra is TOML that continues the table [destinations.desk].
func NewRig(t testing.TB, w *World, extra string) *Rig {
	t.Helper()
	c, err := config.Parse("settled.toml", []byte(Destination+extra), config.Options{})
	if err != nil {
		t.Fatalf("configuration: %v", err)
	}
	base := t.TempDir()
	return &Rig{T: t, World: w, Config: c, Log: &Logs{}, base: base, dir: filepath.Join(base, "journal-0"), seed: 1}
}

// Ports wraps the port of every daemon that starts from now on.
func (r *Rig) Ports(f func(daemon.Port) daemon.Port) { r.wrap = f }

// Options changes the options of every daemon that starts from now on.
func (r *Rig) Options(f func(*daemon.Options)) { r.options = f }

// FaultWith calls f at every named operation of the journals opened from now on, before a planned crash.
func (r *Rig) FaultWith(f func(op string) error) { r.fault = f }

// Running is one daemon at work.
type Running struct {
	*daemon.Daemon
	DB *sqlite.DB

	rig    *Rig
	port   *Port
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Run; written before done is closed
	crash  *crashPlan

	// Breaches is what the whole history contradicts, found at Stop.
	Breaches []string
	// Ends counts the phases in which a simulation ended.
	Ends map[journal.Phase]int
}

// Open opens the journal without a daemon. The caller closes it.
func (r *Rig) Open() (*sqlite.DB, error) {
	return sqlite.Open(r.T.Context(), sqlite.Options{
		Path: filepath.Join(r.dir, "j", "journal.db"), GenerationPath: filepath.Join(r.dir, "g", "marker"),
		BootID: "boot", Fault: r.hook(),
	})
}

// Start opens the journal and runs a daemon on it until Stop or Crash.
func (r *Rig) Start() *Running {
	r.T.Helper()
	plan := r.crash
	if plan == nil {
		plan = &crashPlan{rig: r}
	}
	r.crash = plan
	db, err := r.Open()
	if err != nil {
		r.T.Fatalf("open the journal: %v", err)
	}
	run := &Running{DB: db, rig: r, port: r.World.Port(), done: make(chan struct{}), crash: plan}
	o := daemon.Options{
		Settings: r.Config, Journal: db, Ports: map[string]daemon.Port{"desk": run.port},
		Log:     slog.New(slog.NewTextHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Version: "test", Host: "test", DeadAt: r.deadAt, NewID: r.newID, Rand: r.random(),
	}
	if _, err := run.port.Acquire(r.T.Context()); err != nil { // adapters are up before their daemon
		r.T.Fatal(err)
	}
	if r.wrap != nil {
		o.Ports["desk"] = r.wrap(run.port)
	}
	if r.options != nil {
		r.options(&o)
	}
	if run.Daemon, err = daemon.New(r.T.Context(), o); err != nil {
		r.T.Fatalf("make the daemon: %v", err)
	}
	r.World.Looks(run.durable)
	ctx, cancel := context.WithCancel(r.T.Context())
	run.cancel = cancel
	ready := make(chan struct{})
	go func() {
		run.err = run.Run(ctx, func() { close(ready) })
		close(run.done)
	}()
	select {
	case <-ready:
	case <-run.done:
		if !plan.happened() {
			r.T.Fatalf("the daemon did not come up: %v\n%s", run.err, r.Log)
		}
	}
	r.now, r.port = run, run.port
	return run
}

// durable looks whether the journal holds the `sent` row of a call, and names its epoch.
func (run *Running) durable(key, attempt string) (int64, error) {
	epoch := run.DB.Epoch()
	e, err := run.DB.Effect(context.Background(), key)
	if err != nil {
		return epoch, err
	}
	for _, a := range e.Attempts {
		if a.ID == attempt {
			if a.State != journal.AttemptSent || a.Epoch != epoch {
				return epoch, fmt.Errorf("attempt %s is %s of epoch %d", attempt, a.State, a.Epoch)
			}
			return epoch, nil
		}
	}
	return epoch, fmt.Errorf("no attempt %s", attempt)
}

// Stop is the orderly stop; it returns what Run returned.
func (run *Running) Stop() error {
	run.cancel()
	<-run.done
	run.port.Kill()
	run.rig.deadAt = time.Now()
	run.Breaches = run.rig.breaches(run)
	err := errors.Join(run.err, run.DB.Close())
	run.rig.now = nil
	run.rig.crash = nil
	return err
}

// Done is closed when Run has returned.
func (run *Running) Done() <-chan struct{} { return run.done }

// Crash ends the daemon at this instant: nothing more is recorded, and its
// adapter's process dies with it. The next Start finds the files as they are now.
func (run *Running) Crash() {
	run.crash.now()
	run.bury()
}

// WaitCrash waits for a planned crash and buries the daemon. It reports false when d passed without one.
func (run *Running) WaitCrash(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-run.crash.at():
		run.bury()
		return true
	case <-t.C:
		return false
	}
}

// bury waits for the goroutines of a crashed daemon. A real crash ends them at
// once; here each ends at its next write, which is refused.
func (run *Running) bury() {
	r := run.rig
	if !mutant.OrphanNotKilled {
		run.port.Kill()
	}
	r.deadAt = time.Now()
	_ = run.DB.Write(context.Background(), func(tx *sqlite.Tx) error { return tx.PutSetting("after-the-crash", "1") })
	<-run.done // the journal's failure ends it; it is not asked to stop
	run.cancel()
	_ = run.DB.Close()
	r.now, r.crash = nil, nil
}

// crashPlan is a crash that is to come.
type crashPlan struct {
	rig  *Rig
	op   string
	left int

	mu   sync.Mutex
	dead bool // under mu
	c    chan struct{}
}

// CrashAt plans a crash of the next daemon at the nth time of a named operation
// of its journal, counted from its first write. See sqlite.Options.Fault.
func (r *Rig) CrashAt(op string, nth int) { r.crash = &crashPlan{rig: r, op: op, left: nth} }

func (p *crashPlan) at() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c == nil {
		p.c = make(chan struct{})
		if p.dead {
			close(p.c)
		}
	}
	return p.c
}

func (p *crashPlan) happened() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *crashPlan) now() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.die()
}

// die copies the files as they are. The caller holds mu.
func (p *crashPlan) die() {
	if p.dead {
		return
	}
	p.dead = true
	if p.c != nil {
		close(p.c)
	}
	r := p.rig
	r.copies++
	to := filepath.Join(r.base, fmt.Sprintf("journal-%d", r.copies))
	if err := copyTree(r.dir, to); err != nil {
		r.T.Errorf("copy the journal: %v", err)
	}
	r.dir = to
}

// hook is what the journal calls at its named operations.
func (r *Rig) hook() func(string) error {
	return func(op string) error {
		p := r.crash
		if p != nil {
			if err := p.hit(op); err != nil {
				return err
			}
		}
		if f := r.fault; f != nil {
			return f(op)
		}
		return nil
	}
}

func (p *crashPlan) hit(op string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead && p.op == op {
		if p.left--; p.left == 0 {
			p.die()
		}
	}
	if p.dead {
		return fmt.Errorf("the daemon is dead: %w", sqlite3.Error{Code: sqlite3.ErrIoErr})
	}
	return nil
}

func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o750)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
}

// Backup copies the journal alone, as a backup would: without its marker. The daemon must not run.
func (r *Rig) Backup() string {
	to := filepath.Join(r.base, "backup")
	if err := copyTree(filepath.Join(r.dir, "j"), to); err != nil {
		r.T.Fatalf("backup: %v", err)
	}
	return to
}

// Restore puts a backup in the place of the journal; the marker stays.
func (r *Rig) Restore(from string) {
	at := filepath.Join(r.dir, "j")
	if err := errors.Join(os.RemoveAll(at), copyTree(from, at)); err != nil {
		r.T.Fatalf("restore: %v", err)
	}
}

// Dir is where the journal lies now.
func (r *Rig) Dir() string { return filepath.Join(r.dir, "j") }

// Seed sets where ids and jitter come from.
func (r *Rig) Seed(n uint64) { r.seed = n }

func (r *Rig) newID() string { return fmt.Sprintf("a-%04d", r.ids.Add(1)) }

// random is the daemon's jitter: a number for each draw, from the seed alone.
func (r *Rig) random() func() float64 {
	var n atomic.Uint64
	return func() float64 { return Chance(r.seed, "jitter", int(n.Add(1))) }
}

// Chance is a number in [0,1) that depends on nothing but its arguments.
func Chance(seed uint64, what string, n int) float64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", what, n)
	return rand.New(rand.NewPCG(seed, h.Sum64())).Float64()
}

// Logs collects what the daemons log; it is shown when a test fails.
type Logs struct {
	mu sync.Mutex
	b  bytes.Buffer // under mu
}

func (l *Logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// disarm takes a planned crash back.
func (p *crashPlan) disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op = ""
}
