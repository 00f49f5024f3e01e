package daemontest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk"
)

// latency is how long an honest call or read takes.
const latency = 20 * time.Millisecond

// View is what the destination shows of itself. The zero value of every lie is honesty.
type View struct {
	Lag          time.Duration // until a committed object is shown
	Incomplete   bool          // pages are missing
	Blind        bool          // the principal cannot see other owners' objects, and nothing proves it can
	Outage       bool          // the index says of itself that it is down
	Down         bool          // reads fail, writes are refused before a byte leaves
	ReadsHang    bool          // a read never answers
	Similar      int           // look-alikes without our key that every read shows
	Postcond     sdk.PostconditionState
	OtherPayload bool // objects are shown with other content
}

// Object is one thing that the destination holds.
type Object struct {
	ID, Key, Digest, Target, Attempt string
	At                               time.Time
}

// Call is one dispatch that reached the adapter.
type Call struct {
	Key, Attempt, Fault, Digest string
	Process                     int   // which adapter process, counted from 1
	Epoch                       int64 // of the daemon's journal
	At                          time.Time
	Undurable                   string // why no `sent` row was found for it; "" = there was one
}

// World is one destination. Its methods may be called from any goroutine.
type World struct {
	spec     sdk.ActionSpec
	features []string

	mu sync.Mutex
	// protects following
	view    View
	script  map[string][]Fault // by key, used up call by call
	draw    func(key string, call int) Fault
	objects []Object
	calls   []Call
	made    map[string][]Object // by key
	called  map[string][]Call   // by key
	reads   map[string]int
	checks  int
	ticks   int
	process *process
	started int
	looks   func(key, attempt string) (epoch int64, err error)
	late    sync.WaitGroup // commits still on their way
	fences  fences
	// Prepare's answer by key; nil = ready with the key's target
	prepare func(sdk.Operation) sdk.Prepared
}

// NewWorld makes a destination of one operation.
func NewWorld(spec sdk.ActionSpec, features ...string) *World {
	return &World{spec: spec, features: features, script: map[string][]Fault{}, reads: map[string]int{}, made: map[string][]Object{}, called: map[string][]Call{}}
}

// Spec is an operation with a strongly consistent read by key, whose requests
// take effect no later than maxProcessing after they were sent.
func Spec(maxProcessing time.Duration) sdk.ActionSpec {
	return sdk.ActionSpec{
		Name: "create", LateEffectBound: &maxProcessing,
		Idempotency: sdk.Idempotency{Mode: sdk.IdempotencyNone},
		Read:        sdk.ReadSpec{Lookup: sdk.LookupByKey, Authority: sdk.Authoritative, ProvesAbsence: true, View: "by-key"},
		Reversal:    sdk.Reversal{Kind: sdk.Reversible},
	}
}

// Lagging is Spec with a view that lags by at most the declared time.
func Lagging(maxProcessing, lag time.Duration) sdk.ActionSpec {
	s := Spec(maxProcessing)
	s.Read.Authority, s.Read.MaxLag = sdk.Eventual, &lag
	return s
}

// Set changes what the destination shows.
func (w *World) Set(f func(*View)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.view)
}

// Script says what befalls the next calls with a key, in order. After it they are honest.
func (w *World) Script(key string, faults ...Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.script[key] = append(w.script[key], faults...)
}

// Draw says what befalls calls that no script names. call counts from 1 per key.
func (w *World) Draw(f func(key string, call int) Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draw = f
}

// Prepares lets f answer Prepare; the world must list [sdk.FeaturePrepare].
func (w *World) Prepares(f func(sdk.Operation) sdk.Prepared) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prepare = f
}

// Objects lists what the destination holds with a key.
func (w *World) Objects(key string) []Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.made[key])
}

// All lists everything that the destination holds.
func (w *World) All() []Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.objects)
}

// Calls lists the dispatches that reached the adapter with a key; "" = all.
func (w *World) Calls(key string) []Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key == "" {
		return slices.Clone(w.calls)
	}
	return slices.Clone(w.called[key])
}

// Reads counts the authoritative reads of a key; "" = all.
func (w *World) Reads(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key != "" {
		return w.reads[key]
	}
	n := 0
	for _, r := range w.reads {
		n += r
	}
	return n
}

// Place puts an object into the destination that nobody asked us for.
func (w *World) Place(o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.At = time.Now()
	w.put(o)
}

// put adds an object. The caller holds mu.
func (w *World) put(o Object) {
	w.objects = append(w.objects, o)
	w.made[o.Key] = append(w.made[o.Key], o)
}

// Settle waits for every commit that is still on its way.
func (w *World) Settle() { w.late.Wait() }

func (w *World) seen() View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.view
}

// tick returns a few microseconds that no other call gets, so that two things never wake together.
func (w *World) tick() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ticks++
	return time.Duration(w.ticks) * time.Microsecond
}

// take records a call and says what befalls it.
func (w *World) take(r sdk.DispatchRequest, process int) Fault {
	epoch, undurable := w.look(r.Operation.Key, r.Operation.AttemptID)
	w.mu.Lock()
	defer w.mu.Unlock()
	key := r.Operation.Key
	f := Honest()
	n := len(w.called[key]) + 1
	if w.view.Down {
		f = Refused()
	} else if s := w.script[key]; len(s) > 0 {
		f, w.script[key] = s[0], s[1:]
	} else if w.draw != nil {
		f = w.draw(key, n)
	}
	c := Call{
		Key: key, Attempt: r.Operation.AttemptID, Fault: f.Name, Digest: digest(r.Operation.Payload),
		Process: process, Epoch: epoch, At: time.Now(), Undurable: undurable,
	}
	w.calls, w.called[key] = append(w.calls, c), append(w.called[key], c)
	return f
}

// commit takes a request up, unless the key is taken: by a fence that the request
// does not replace. The zero object says that it was refused.
func (w *World) commit(op sdk.Operation, expected string, f Fault) Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, taken := w.first(op.Key)
	if taken && w.fences.dedupes {
		return first
	}
	if taken && slices.Contains(w.features, sdk.FeatureFence) || w.fences.marks[op.Key] != expected {
		w.fences.refused++
		return Object{}
	}
	delete(w.fences.marks, op.Key)
	o := Object{
		ID: fmt.Sprintf("obj-%d", len(w.objects)+1), Key: op.Key, Digest: digest(op.Payload), Attempt: op.AttemptID, At: time.Now(),
	}
	if f.DropsKey {
		o.Key = ""
	}
	w.put(o)
	return o
}

func digest(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Port is where a daemon gets this destination's adapter. Each daemon gets its
// own; the process of the one before is dead by then.
func (w *World) Port() *Port { return &Port{w: w} }

// Port implements [daemon.Port].
type Port struct {
	w  *World
	mu sync.Mutex
	p  *process // under mu
}

// Acquire starts the process when there is none.
func (p *Port) Acquire(context.Context) (daemon.Live, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.p == nil || p.p.dead() {
		p.p = p.w.start()
	}
	return p.p, nil
}

// Up reports whether it runs.
func (p *Port) Up() (bool, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.p == nil || p.p.dead() {
		return false, "not started"
	}
	return true, ""
}

// Kill ends the process at once: requests that have not left it never will.
func (p *Port) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.p != nil {
		p.p.kill()
	}
}

// process is one running adapter.
type process struct {
	w    *World
	pid  int
	gone chan struct{}
	once sync.Once
	mu   sync.Mutex
	died time.Time // under mu
}

func (w *World) start() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started++
	w.process = &process{w: w, pid: w.started, gone: make(chan struct{})}
	return w.process
}

func (p *process) kill() {
	p.once.Do(func() {
		p.mu.Lock()
		p.died = time.Now()
		p.mu.Unlock()
		close(p.gone)
	})
}

func (p *process) dead() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (p *process) diedAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.died
}

// Process names it.
func (p *process) Process() daemon.Process {
	return daemon.Process{
		Adapter:  journal.AdapterRef{Name: "world", Version: "1", SHA256: "world-1"},
		Identity: "tester", PID: p.pid, Start: fmt.Sprint(p.pid), BootID: "boot",
	}
}

// Describe is pure.
func (p *process) Describe(context.Context) (sdk.Description, error) {
	return sdk.Description{Name: "world", Version: "1", Actions: []sdk.ActionSpec{p.w.spec}, Features: p.w.features}, nil
}

// Configure accepts everything.
func (p *process) Configure(context.Context, sdk.Configuration) (sdk.Configured, error) {
	return sdk.Configured{Identity: "tester"}, nil
}

// Check says whether the destination answers.
func (p *process) Check(ctx context.Context, _ []string) (sdk.Health, error) {
	p.w.mu.Lock()
	p.w.checks++
	p.w.mu.Unlock()
	v := p.w.seen()
	if v.Down {
		return sdk.Health{Status: sdk.HealthDown}, nil
	}
	if v.ReadsHang {
		<-ctx.Done()
		return sdk.Health{}, ctx.Err()
	}
	return sdk.Health{Status: sdk.HealthOK}, sleep(ctx, latency+p.w.tick())
}

// Prepare has no effect.
func (p *process) Prepare(_ context.Context, op sdk.Operation) (sdk.Prepared, error) {
	p.w.mu.Lock()
	f := p.w.prepare
	p.w.mu.Unlock()
	if f == nil {
		return sdk.Prepared{Ready: &sdk.Ready{}}, nil
	}
	return f(op), nil
}

var errGone = errors.New("the process is gone")

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Looks sets how the world looks at each call whether its `sent` row is durable.
func (w *World) Looks(f func(key, attempt string) (epoch int64, err error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = f
}

func (w *World) look(key, attempt string) (epoch int64, undurable string) {
	w.mu.Lock()
	f := w.looks
	w.mu.Unlock()
	if f == nil {
		return 0, ""
	}
	epoch, err := f(key, attempt)
	if err != nil {
		undurable = err.Error()
	}
	return epoch, undurable
}
