package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/plugins/host"
)

// benchOptions say what to measure.
type benchOptions struct {
	inFlight    []int
	duration    time.Duration
	settledRows int
	proof       string // ack or read
	dir         string // "" = a temporary directory that is removed
}

// benchLine is one measured level: counts are exact, rates depend on the machine.
type benchLine struct {
	InFlight      int     `json:"in_flight"`
	Proof         string  `json:"proof"`
	Effects       int     `json:"effects"`
	EffectsPerS   float64 `json:"effects_per_s"`
	P50           float64 `json:"p50_ms"`
	P99           float64 `json:"p99_ms"`
	DispatchedP50 float64 `json:"dispatched_p50_ms"`
	Fsyncs        float64 `json:"fsyncs_per_effect"`
	DiskBytes     float64 `json:"disk_bytes_per_effect"`
	CPU           float64 `json:"cpu_us_per_effect"`
	RSS           float64 `json:"rss_mib"`
	SettledRows   int64   `json:"settled_rows"`
	Fdatasync     float64 `json:"fdatasync_per_s"`
	RawRows       float64 `json:"raw_rows_per_s_64"`
}

// benchConfig is a journal with everything as durable as ever and one
// destination that does nothing.
const benchConfig = `
[journal]
path = %q
generation = %q
[owners.bench]
[destinations.noop]
adapter = "http"
owner = "bench"
proof = %q
concurrency = 1024
rate = "1000000/s"
limits = { queue = 1000000 }
[destinations.noop.with]
`

// runBench measures each level in turn and hands every line to show.
func runBench(ctx context.Context, o benchOptions, show func(benchLine) error) (err error) {
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "settled-bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	fdatasync, err := fdatasyncRate(dir)
	if err != nil {
		return fmt.Errorf("measure fdatasync: %w", err)
	}
	raw, err := sqlite.RawRate(ctx, filepath.Join(dir, "raw.db"), 64, 2*time.Second)
	if err != nil {
		return fmt.Errorf("measure raw SQLite: %w", err)
	}
	b, err := openBench(ctx, dir, o.proof)
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, b.close()) }()
	if o.settledRows > 0 {
		if err := b.fill(ctx, o.settledRows); err != nil {
			return err
		}
	}
	for _, n := range o.inFlight {
		line, err := b.level(ctx, n, o.duration)
		if err != nil {
			return err
		}
		line.Proof, line.Fdatasync, line.RawRows = o.proof, fdatasync, raw
		if err := show(line); err != nil {
			return err
		}
	}
	return nil
}

func joinClose(err, closeErr error) error {
	if err == nil {
		return closeErr
	}
	return err
}

// bench is a running daemon under load.
type bench struct {
	s      *server
	stop   context.CancelFunc
	done   chan error
	serial int
	nonce  string // keys of another run on the same journal are other effects
}

func openBench(ctx context.Context, dir, proof string) (*bench, error) {
	text := fmt.Sprintf(benchConfig, filepath.Join(dir, "j", "journal.db"), filepath.Join(dir, "g", "marker"), proof)
	cfg, err := config.Parse("bench.toml", []byte(text), config.FromOS())
	if err != nil {
		return nil, err
	}
	cfg.Destinations["noop"].Adapter = "noop" // not a name for operators: it exists for this alone
	s, err := openServer(ctx, cfg, slog.New(slog.DiscardHandler), "")
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(ctx)
	b := &bench{s: s, stop: stop, done: make(chan error, 1), nonce: strconv.FormatInt(time.Now().UnixMicro(), 36)}
	ready := make(chan struct{})
	go func() { b.done <- s.daemon.Run(run, func() { close(ready) }) }()
	select {
	case <-ready:
		return b, nil
	case err := <-b.done:
		stop()
		return nil, joinClose(err, s.close())
	}
}

func (b *bench) close() error {
	b.stop()
	err := <-b.done
	return joinClose(err, b.s.close())
}

// level keeps n effects in flight for a while, in a closed loop: a client
// submits one, waits until it is settled, submits the next.
func (b *bench) level(ctx context.Context, n int, d time.Duration) (benchLine, error) {
	if err := b.load(ctx, n, d/5, nil); err != nil { // warm up
		return benchLine{}, err
	}
	before, err := b.usage(ctx)
	if err != nil {
		return benchLine{}, err
	}
	var lat latencies
	begun := time.Now()
	if err := b.load(ctx, n, d, &lat); err != nil {
		return benchLine{}, err
	}
	took := time.Since(begun)
	after, err := b.usage(ctx)
	if err != nil {
		return benchLine{}, err
	}
	count := float64(len(lat.total))
	if count == 0 {
		return benchLine{}, fmt.Errorf("nothing was settled at %d in flight", n)
	}
	return benchLine{
		InFlight: n, Effects: len(lat.total), EffectsPerS: count / took.Seconds(),
		P50: quantile(lat.total, 0.5), P99: quantile(lat.total, 0.99), DispatchedP50: quantile(lat.dispatched, 0.5),
		Fsyncs: float64(after.fsyncs-before.fsyncs) / count, DiskBytes: float64(after.bytes-before.bytes) / count,
		CPU: float64((after.cpu - before.cpu).Microseconds()) / count, RSS: after.rssMiB, SettledRows: after.rows,
	}, nil
}

// latencies are in milliseconds.
type latencies struct {
	mu                sync.Mutex
	total, dispatched []float64
}

func (l *latencies) add(dispatched, total time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total = append(l.total, float64(total.Microseconds())/1000)
	l.dispatched = append(l.dispatched, float64(dispatched.Microseconds())/1000)
}

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}

func (b *bench) load(ctx context.Context, n int, d time.Duration, lat *latencies) error {
	b.serial++
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	until := time.Now().Add(d)
	errs := make(chan error, n)
	for client := range n {
		go func() {
			for i := 0; time.Now().Before(until); i++ {
				if err := b.one(ctx, fmt.Sprintf("bench:%s-%d-%d-%d:noop:v1", b.nonce, b.serial, client, i), lat); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// benchPayload is about 300 bytes, as a real small request is.
const benchPayload = `{"queue":"support","subject":"Printer on floor three prints only every second page","body":"Since this morning the printer next to the lift prints only every second page of anything sent from the new laptops; the old desktops are fine. Restarting it did not help.","priority":3,"requester":"team-facilities"}`

func (b *bench) one(ctx context.Context, key string, lat *latencies) error {
	changes, stop := b.s.daemon.Follow(key)
	defer stop()
	begun := time.Now()
	r, err := b.s.daemon.Submit(ctx, daemon.SubmitRequest{
		Destination: "noop", Operation: "noop", Key: key, Payload: []byte(benchPayload),
	}, journal.By{Actor: "bench", Kind: journal.Service, Origin: "bench"})
	if err != nil {
		return err
	}
	var dispatched time.Duration
	for e := r.Effect; ; {
		if dispatched == 0 && len(e.Attempts) > 0 {
			dispatched = time.Since(begun)
		}
		if e.Phase == journal.Succeeded {
			lat.add(dispatched, time.Since(begun))
			return nil
		}
		if e.Phase.Closed() || e.Phase == journal.NeedsHuman {
			return fmt.Errorf("%s ended as %s: %s", key, e.Phase, e.Reason)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e = <-changes:
		case <-time.After(30 * time.Second):
			return fmt.Errorf("%s is still %s after 30 s", key, e.Phase)
		}
	}
}

// fill puts settled effects into the journal, through the same transactions
// that a daemon uses, many to a commit.
func (b *bench) fill(ctx context.Context, rows int) error {
	return b.s.daemon.FillForBench(ctx, "noop", rows, 500)
}

// usage is what the daemon and its adapter have used so far.
type usage struct {
	fsyncs, bytes, rows int64
	cpu                 time.Duration
	rssMiB              float64
}

func (b *bench) usage(ctx context.Context) (usage, error) {
	st, err := b.s.db.Stats(ctx)
	if err != nil {
		return usage{}, err
	}
	u := usage{fsyncs: st.Fsyncs, rows: st.Rows["effect"]}
	var self unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &self); err != nil {
		return u, err
	}
	u.cpu = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	for _, sup := range b.s.ports.sups {
		u.cpu += host.CPUTime(sup.Identity().PID)
	}
	if u.bytes, err = procField("/proc/self/io", "write_bytes:"); err != nil {
		return u, err
	}
	kib, err := procField("/proc/self/status", "VmRSS:")
	u.rssMiB = float64(kib) / 1024
	return u, err
}

// fdatasyncRate overwrites one block of a file and syncs it, for a second.
func fdatasyncRate(dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "fdatasync"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4096)
	n, begun := 0, time.Now()
	for time.Since(begun) < time.Second {
		block[0] = byte(n)
		if _, err := f.WriteAt(block, 0); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(begun).Seconds(), nil
}
