package daemon_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

// sweepEffects is how many open effects BenchmarkSweep settles. The figures of
// the documentation are those of a million: -args -sweep.effects=1000000.
func sweepEffects() int { return flag.Lookup("sweep.effects").Value.(flag.Getter).Get().(int) }

var _ = flag.Int("sweep.effects", 20_000, "open effects in BenchmarkSweep")

// instant is a listing destination in this process that answers at once: every
// request of a sweep is found, every dispatch is committed.
type instant struct{ spec sdk.ActionSpec }

func (a instant) Acquire(context.Context) (daemon.Live, error) { return a, nil }
func (a instant) Up() (bool, string)                           { return true, "" }
func (a instant) Process() daemon.Process {
	return daemon.Process{Adapter: journal.AdapterRef{Name: "instant", Version: "1", SHA256: "instant"}, PID: 1}
}

func (a instant) Describe(context.Context) (sdk.Description, error) {
	return sdk.Description{Name: "instant", Version: "1", Actions: []sdk.ActionSpec{a.spec}, Features: []string{sdk.FeatureReadMany}}, nil
}

func (a instant) Configure(context.Context, sdk.Configuration) (sdk.Configured, error) {
	return sdk.Configured{}, nil
}

func (a instant) Check(context.Context, []string) (sdk.Health, error) {
	return sdk.Health{Status: sdk.HealthOK}, nil
}

func (a instant) Prepare(context.Context, sdk.Operation) (sdk.Prepared, error) {
	return sdk.Prepared{Ready: &sdk.Ready{}}, nil
}

func (a instant) Dispatch(_ context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	return sdk.Response{Outcome: &sdk.Committed{Object: sdk.ObjectRef{ID: "o-" + r.Operation.Key}}}, nil
}

func (a instant) Read(_ context.Context, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	return sdk.ReadResponse{
		Authority: sdk.Authoritative, Coverage: sdk.CoverageComplete,
		View: &sdk.View{ID: "list", Principal: "bench", VisibilityProven: true, How: "guard"},
		Finding: &sdk.Found{Matches: []sdk.Match{{
			Object: sdk.ObjectRef{ID: "o-" + r.Operation.Key}, Strength: sdk.StrengthKey, Agreement: sdk.AgreementSame,
		}}},
	}, nil
}

func (a instant) ReadMany(ctx context.Context, reads []sdk.ReadRequest, answer func(int, sdk.ReadResponse)) error {
	for i, r := range reads {
		resp, _ := a.Read(ctx, r)
		answer(i, resp)
	}
	return nil
}

const sweepBench = `
[owners.ops]
[destinations.desk]
adapter = "http"
owner = "ops"
concurrency = 16
rate = "1000000/s"
[destinations.desk.limits]
queue = 10000000
[destinations.desk.grace]
reads = ["12h"]
[destinations.desk.retry]
after_absence = "24h"
[schedules.desk-sweep]
do = "reconcile"
destination = "desk"
cron = "0 0 1 1 *"
`

// BenchmarkSweep settles many unknown effects by listings of 500 while
// somebody submits, and prints effects per second, the memory, the submit
// latency idle and during the sweep, and what finding due work costs then.
func BenchmarkSweep(b *testing.B) {
	n := sweepEffects()
	spec := sdk.ActionSpec{
		Name: "create", LateEffectBound: new(11 * time.Hour),
		Read: sdk.ReadSpec{Lookup: sdk.LookupByKey, Authority: sdk.Authoritative, ProvesAbsence: true, View: "list"},
	}
	c, err := config.Parse("settled.toml", []byte(sweepBench), config.Options{})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	db, err := sqlite.Open(b.Context(), sqlite.Options{Path: filepath.Join(dir, "j", "journal.db"), GenerationPath: filepath.Join(dir, "g", "marker")})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	fillUnknown(b, db, 0, n)
	d, err := daemon.New(b.Context(), daemon.Options{
		Settings: c, Journal: db, Ports: map[string]daemon.Port{"desk": instant{spec}}, Log: slog.New(slog.DiscardHandler), Version: "bench", Host: "bench",
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- d.Run(ctx, func() { close(ready) }) }()
	<-ready
	idle := submits(b, d, "idle", func(i int) bool { return i < 500 })

	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // the peak counts from here
	swept := make(chan daemon.SweepReport, 1)
	began := time.Now()
	go func() {
		rep, err := d.Sweep(ctx, "desk-sweep", nil)
		if err != nil {
			b.Error(err)
		}
		swept <- rep
	}()
	var rep daemon.SweepReport
	busy := submits(b, d, "busy", func(int) bool {
		select {
		case rep = <-swept:
			return false
		default:
			return true
		}
	})
	took := time.Since(began)
	peak := status("VmHWM")
	if rep.Matches != n {
		b.Errorf("%+v", rep)
	}
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
	fillUnknown(b, db, n, max(1, n/10))
	due := slowestDue(b, db)
	b.ReportMetric(float64(n)/took.Seconds(), "effects/s")
	b.ReportMetric(float64(peak)/1024, "rss_MiB")
	b.ReportMetric(p99(idle).Seconds()*1e3, "idle_p99_ms")
	b.ReportMetric(p99(busy).Seconds()*1e3, "busy_p99_ms")
	b.ReportMetric(float64(len(busy)), "busy_submits")
	b.ReportMetric(due.Seconds()*1e3, "due_ms")
	b.ReportMetric(0, "ns/op")
}

// submits submits one effect every 5 ms for as long as more says, and times each.
func submits(b *testing.B, d *daemon.Daemon, name string, more func(int) bool) (out []time.Duration) {
	for i := 0; more(i); i++ {
		began := time.Now()
		_, err := d.Submit(b.Context(), daemon.SubmitRequest{
			Destination: "desk", Operation: "create", Key: fmt.Sprintf("%s:%d:create:v1", name, i), Payload: []byte(`{"subject":"x"}`),
		}, journal.By{Actor: "bench", Kind: journal.Service})
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, time.Since(began))
		time.Sleep(5 * time.Millisecond)
	}
	return out
}

func p99(list []time.Duration) time.Duration {
	slices.Sort(list)
	if len(list) == 0 {
		return 0
	}
	return list[len(list)*99/100]
}

func slowestDue(b *testing.B, db *sqlite.DB) (worst time.Duration) {
	for range 50 {
		began := time.Now()
		rows, err := db.Due(b.Context(), "desk", []journal.DueKind{journal.DueRead, journal.DueLease, journal.DueResend}, time.Now().Add(24*time.Hour), 64)
		if err != nil || len(rows) == 0 {
			b.Fatal(len(rows), err)
		}
		worst = max(worst, time.Since(began))
	}
	return worst
}

// status reads a line of /proc/self/status, in KiB.
func status(name string) (kib int) {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			_, _ = fmt.Sscan(rest, &kib)
		}
	}
	return kib
}

// fillUnknown writes effects whose answers were lost, many to a transaction.
func fillUnknown(b *testing.B, db *sqlite.DB, from, n int) {
	p := journal.Policy{
		Owner: "ops", AuthorityOwner: "ops", Severity: journal.SeverityNormal, Timeout: 10 * time.Second, RecordReserve: 30 * time.Second,
		HasRead: true, KeyedLookup: true, ProvesAbsence: true, Consistency: journal.ConsistencyStrong,
		ReviewWithin: map[journal.Severity]time.Duration{journal.SeverityNormal: time.Hour},
		Retry:        journal.Retry{Attempts: 3, Elapsed: time.Minute, BackoffInitial: time.Second, BackoffMax: time.Minute, Factor: 2, AfterAbsence: 24 * time.Hour},
		Grace: journal.Grace{
			MaxProcessing: new(11 * time.Hour), Skew: 5 * time.Second, Safety: 10 * time.Second, Linger: 5 * time.Second,
			AbsenceValid: 10 * time.Minute, Reads: []time.Duration{12 * time.Hour},
		},
		ReconcileBudget: 24 * time.Hour, AckDeadline: time.Hour, VerifyDeadline: 10 * time.Minute, Settle: journal.SettleRead,
	}
	for at := from; at < from+n; at += 1000 {
		err := db.Write(b.Context(), func(tx *sqlite.Tx) error {
			for i := at; i < min(at+1000, from+n); i++ {
				if err := oneUnknown(tx, p, i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func oneUnknown(tx *sqlite.Tx, p journal.Policy, i int) error {
	at := time.Now().UTC().Truncate(time.Microsecond)
	env := journal.Env{Now: at, By: journal.By{Actor: "bench", Kind: journal.Service}, Policy: p}
	in := journal.Intent{
		Key: fmt.Sprintf("sweep:%07d:create:v1", i), Destination: "desk", Operation: "create", Actor: "bench",
		Payload: []byte(`{"subject":"x"}`), SubmittedAt: at, Deadline: at.Add(24 * time.Hour),
	}
	in.PayloadDigest = fmt.Sprintf("sha256:%064x", i)
	in.Fingerprint = journal.Fingerprint(in.Destination, "", in.Operation, in.Actor, in.PayloadDigest)
	e, _, err := tx.Submit(in, env, false)
	if err != nil {
		return err
	}
	for _, ev := range []journal.Event{
		journal.Authorize{Authority: journal.Authority{Ref: "policy", GrantedAt: at, ExpiresAt: at.Add(24 * time.Hour)}},
		journal.Send{
			Ask:     journal.Ask{Seq: 2, Fingerprint: in.Fingerprint, SlotHeld: true, TokenHeld: true},
			Attempt: journal.Attempt{ID: fmt.Sprintf("a-%07d", i), Key: in.Key, Adapter: journal.AdapterRef{Name: "instant", Version: "1", SHA256: "instant"}},
		},
		journal.Answer{Attempt: fmt.Sprintf("a-%07d", i), Class: journal.AnswerUnknown, At: at, Cause: "connection_lost"},
	} {
		if e, err = tx.Apply(e, ev, env); err != nil {
			return err
		}
	}
	return nil
}
