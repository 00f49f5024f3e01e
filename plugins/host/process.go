package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	gorunner "github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/serve"
	"github.com/settled-dev/settled/sdk/wire"
)

// Identity says which process made an attempt. It is journaled with it.
type Identity struct {
	Adapter    string // as described
	Version    string
	SHA256     string // of the program, hexadecimal
	Account    string // as the adapter identified itself when configured
	PID        int
	StartTicks uint64 // clock ticks since boot: with PID and BootID unique
	StartedAt  time.Time
	BootID     string
}

// Process is one live, configured adapter. It is an [sdk.Adapter]; it also has
// the methods of [sdk.Fencer] and [sdk.ManyReader], which work only if the
// description lists the feature. All methods may be called concurrently.
type Process struct {
	run         *runner
	plugin      *plugin.Client
	conn        *grpc.ClientConn
	dialed      *dialed
	client      *wire.Client
	description sdk.Description
	configured  sdk.Configured
	id          Identity
	linger      time.Duration
	log         *slog.Logger
	gate        gate
	watch       sync.WaitGroup     // goroutines that end after the process
	onFault     func(Fault, error) // set before the first call, by the supervisor

	pinging sync.Mutex // one health question at a time
}

// Fault is why a process is no longer trusted with new calls.
type Fault string

// The faults.
const (
	FaultOverdue Fault = "a call overran its deadline and linger"
	FaultLost    Fault = "a call got no answer"
	FaultPanic   Fault = "the adapter panicked"
	FaultHung    Fault = "the adapter does not answer health questions"
)

// StartError is a start that failed, in one sentence that says what to change.
type StartError struct {
	Name string   // of the command
	Err  error    // what to change
	Tail []string // the last lines that the adapter printed, oldest first, without secrets
}

func (e *StartError) Error() string {
	text := fmt.Sprintf("adapter %s did not start: %v", e.Name, e.Err)
	if len(e.Tail) > 0 {
		text += "; it last said:\n  " + strings.Join(e.Tail, "\n  ")
	}
	return text
}

func (e *StartError) Unwrap() error { return e.Err }

// ConfigError is a configuration that the adapter refuses. Starting again with the same one is useless.
type ConfigError struct{ Diagnostics []sdk.Diagnostic }

func (e *ConfigError) Error() string {
	var parts []string
	for _, d := range e.Diagnostics {
		if d.Warning {
			continue
		}
		text := d.Summary
		if d.Pointer != "" {
			text = d.Pointer + ": " + text
		}
		if d.Detail != "" {
			text += " (" + d.Detail + ")"
		}
		parts = append(parts, text)
	}
	return "its configuration is refused: " + strings.Join(parts, "; ")
}

// Start starts an adapter and configures it: spawn, handshake, Describe,
// Configure and, if asked, Check, each with a limit. When it fails, nothing is
// left running, unless the error says that the process is not proven dead. ctx bounds the start only.
func Start(ctx context.Context, c Command, conf sdk.Configuration) (*Process, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, &StartError{Name: c.Name, Err: err}
	}
	prog, err := openProgram(c)
	if err != nil {
		return nil, &StartError{Name: c.Name, Err: err}
	}
	log := c.Log.With("adapter", c.Name)
	mark := newMark()
	lines := newLineLog(log, wire.NewRedactor(conf.Secrets))
	p := &Process{run: newRunner(c, prog, mark, lines), linger: c.Linger, log: log, onFault: func(Fault, error) {}}
	p.gate.idle = make(chan struct{})
	if err := p.bringUp(ctx, c, conf); err != nil {
		return nil, p.discard(c, err)
	}
	log.Info("adapter started", "pid", p.id.PID, "name", p.id.Adapter, "version", p.id.Version, "sha256", p.id.SHA256)
	return p, nil
}

// discard ends a start that failed and says why, with what the adapter last printed.
func (p *Process) discard(c Command, err error) error {
	if p.run.ID() == "" { // no child: nothing was handed over
		p.run.abandon()
	}
	if refused := p.run.refusal(); refused != nil {
		err = refused
	}
	if kill := p.run.Kill(context.Background()); kill != nil {
		return &StartError{Name: c.Name, Err: errors.Join(err, kill), Tail: p.run.log.last()}
	}
	<-p.run.drained // now the log holds everything that it said
	if p.conn == nil {
		p.cleanUp()
	}
	p.watch.Wait()
	return &StartError{Name: c.Name, Err: err, Tail: p.run.log.last()}
}

func (p *Process) bringUp(ctx context.Context, c Command, conf sdk.Configuration) error {
	if err := p.connect(ctx, c); err != nil {
		return err
	}
	p.watch.Go(func() { <-p.run.done; p.cleanUp(); <-p.run.drained })
	p.client = wire.NewClient(p.conn, wire.ClientOptions{
		Dead: p.run.done,
		Violation: func(method, what string) {
			p.log.Error("the adapter broke the contract", "method", method, "what", what)
		},
	})
	if err := p.describe(ctx); err != nil {
		return err
	}
	if err := p.configure(ctx, c, conf); err != nil {
		return err
	}
	if c.CheckStart {
		if err := p.firstCheck(ctx, c); err != nil {
			return err
		}
	}
	boot, err := bootID()
	if err != nil {
		return fmt.Errorf("cannot read the boot id: %w", err)
	}
	p.id = Identity{
		Adapter: p.description.Name, Version: p.description.Version, SHA256: p.run.prog.digest,
		Account: p.configured.Identity, PID: p.run.pid, StartTicks: p.run.start, StartedAt: time.Now(), BootID: boot,
	}
	return nil
}

// connect spawns the child and shakes hands.
func (p *Process) connect(ctx context.Context, c Command) error {
	p.dialed = &dialed{life: p.run.life, conns: map[*grpc.ClientConn]bool{}}
	p.plugin = plugin.NewClient(clientConfig(c, p.run, p.dialed))
	shaken := make(chan error, 1)
	go func() {
		protocol, err := p.plugin.Client()
		if err == nil {
			var raw any
			if raw, err = protocol.Dispense(serve.PluginName); err == nil {
				p.conn, _ = raw.(*grpc.ClientConn)
			}
		}
		shaken <- err
	}()
	select {
	case err := <-shaken:
		return p.explain(err, c)
	case <-ctx.Done():
		p.run.abort() // go-plugin takes no context, but it sees the end of the child
		<-shaken
		p.conn = nil // should it have connected meanwhile: discard cleans up
		return fmt.Errorf("the start was given up: %w", context.Cause(ctx))
	}
}

// explain turns go-plugin's texts into what an author can change.
func (p *Process) explain(err error, c Command) error {
	if err == nil {
		return nil
	}
	switch text := err.Error(); {
	case strings.Contains(text, "timeout while waiting"):
		return fmt.Errorf("it printed no handshake within %s; call serve.Main before any slow work", c.Timeout)
	case status.Code(err) == codes.Canceled: // of go-plugin's context, which ends with the child
		_, exit := p.run.death()
		return fmt.Errorf("it ended right after the handshake (%s); make it run until its standard input ends", cmp.Or(exit, "running"))
	case strings.Contains(text, "exited before") || strings.Contains(text, "Failed to read any lines"):
		_, exit := p.run.death()
		return fmt.Errorf("it ended before the handshake (%s); make its main function call serve.Main", cmp.Or(exit, "running"))
	}
	return err
}

func clientConfig(c Command, r *runner, d *dialed) *plugin.ClientConfig {
	return &plugin.ClientConfig{
		HandshakeConfig:  serve.Handshake(),
		VersionedPlugins: serve.Plugins(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (gorunner.Runner, error) {
			r.adopt(cmd.Env, socketDir)
			return r, nil
		},
		AutoMTLS: true, SkipHostEnv: true, StartTimeout: c.Timeout,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: c.RuntimeDir},
		// Off, not the null logger: with any other level go-plugin parses lines and can panic on them.
		Logger:     hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
		SyncStdout: &lineWriter{log: r.log, stream: "stdout"},
		SyncStderr: &lineWriter{log: r.log, stream: "stderr"},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithStreamInterceptor(d.note),
			grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
			grpc.WithDefaultCallOptions(
				grpc.MaxCallRecvMsgSize(sdk.MaxMessage), grpc.MaxCallSendMsgSize(sdk.MaxMessage)),
		},
	}
}

func (p *Process) describe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, describeLimit)
	defer cancel()
	d, err := p.client.Describe(ctx)
	if err != nil {
		return p.undescribed(err)
	}
	if d.Name == "" {
		return errors.New("its description has no name; set Description.Name")
	}
	p.description = d
	return nil
}

// undescribed tells an adapter that ended from one that cannot describe itself.
func (p *Process) undescribed(err error) error {
	timer := time.NewTimer(200 * time.Millisecond) // the connection is gone before the process is
	defer timer.Stop()
	select {
	case <-p.run.done:
		_, exit := p.run.death()
		return fmt.Errorf("it ended right after the handshake (%s); make it run until its standard input ends: %w", exit, err)
	case <-timer.C:
		return fmt.Errorf("it cannot describe itself; repair its Describe method: %w", err)
	}
}

func (p *Process) configure(ctx context.Context, c Command, conf sdk.Configuration) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	out, err := p.client.Configure(ctx, conf)
	if err != nil {
		return fmt.Errorf("it did not take its configuration: %w", err)
	}
	refused := false
	for _, d := range out.Diagnostics {
		if d.Warning {
			p.log.Warn("the adapter warns about its configuration", "pointer", d.Pointer, "summary", d.Summary, "detail", d.Detail)
		}
		refused = refused || !d.Warning
	}
	if refused {
		return &ConfigError{Diagnostics: out.Diagnostics}
	}
	// An adapter whose operations are the operator's own words (http, exec)
	// describes none before it is configured; any other may only narrow.
	for _, a := range out.Actions {
		if len(p.description.Actions) > 0 && !slices.ContainsFunc(p.description.Actions, func(b sdk.ActionSpec) bool { return a.Name == b.Name }) {
			return fmt.Errorf("configured, it offers the operation %q that its description does not have; it may only narrow", a.Name)
		}
	}
	p.configured = out
	if len(p.description.Actions) == 0 { // its features, too, are known only now
		if p.description, err = p.client.Describe(ctx); err != nil {
			return fmt.Errorf("it did not describe itself once configured: %w", err)
		}
	}
	if out.Actions != nil {
		p.description.Actions = out.Actions
	}
	return nil
}

func (p *Process) firstCheck(ctx context.Context, c Command) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	h, err := p.client.Check(ctx, nil)
	if err != nil {
		return fmt.Errorf("its check failed: %w", err)
	}
	if h.Status != sdk.HealthOK && h.Status != sdk.HealthDegraded {
		text := "it says nothing more"
		if len(h.Diagnostics) > 0 {
			text = h.Diagnostics[0].Summary
		}
		return fmt.Errorf("its check says that the destination is down: %s", text)
	}
	return nil
}

// cleanUp releases what go-plugin holds. It runs when the child is dead, so nothing in it waits for the child.
func (p *Process) cleanUp() {
	if p.plugin != nil {
		p.plugin.Kill()
		p.dialed.closeAll()
	}
}

// dialed remembers go-plugin's connections. go-plugin opens a stream on each at
// once, which passes by here, and waits for it with its lock held: it would notice neither
// our context nor the end of the child. And when that fails, it forgets the
// connection with all its goroutines.
type dialed struct {
	life context.Context // of the child

	mu     sync.Mutex // guards below
	closed bool
	conns  map[*grpc.ClientConn]bool
}

func (d *dialed) note(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	next grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	d.mu.Lock()
	d.conns[cc] = true
	if d.closed {
		_ = cc.Close()
	}
	d.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(d.life, cancel)
	return next(ctx, desc, cc, method, opts...)
}

func (d *dialed) closeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for cc := range d.conns {
		_ = cc.Close() // a second time is harmless
	}
}

// Identity says which process this is.
func (p *Process) Identity() Identity { return p.id }

// Configured is what the adapter answered to its configuration.
func (p *Process) Configured() sdk.Configured { return p.configured }

// Violations counts answers that broke the contract.
func (p *Process) Violations() uint64 { return p.client.Violations() }

// Done is closed when the process and everything that it started is proven dead.
func (p *Process) Done() <-chan struct{} { return p.run.done }

// DiedAt is the time of that proof; zero before it.
func (p *Process) DiedAt() time.Time { at, _ := p.run.death(); return at }

// Kill kills the whole process group, running calls included, and returns when
// it is proven dead, or with an error after three seconds; Done then closes
// whenever the kernel lets go.
func (p *Process) Kill(reason string) error {
	p.gate.shut()
	if at, _ := p.run.death(); at.IsZero() {
		p.log.Warn("killing the adapter", "pid", p.id.PID, "reason", reason)
	}
	return p.run.Kill(context.Background())
}

// Close takes no new calls, lets the running ones end until ctx is done, asks
// the adapter to leave and kills it if it does not within two seconds. It
// returns when everything is over: at most ctx plus five seconds.
func (p *Process) Close(ctx context.Context) error {
	p.gate.shut()
	p.gate.await(ctx)
	p.run.leave()
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-p.run.done:
	case <-timer.C:
	}
	err := p.run.Kill(context.Background())
	if err == nil {
		p.settle()
	}
	return err
}

// settle waits for every goroutine of a dead process whose gate is shut. It is
// short: the calls of a dead process have ended.
func (p *Process) settle() {
	p.gate.await(context.Background()) // so that no call can add one
	p.watch.Wait()
}

// Describe returns the description that this process gave, narrowed by its configuration.
func (p *Process) Describe(context.Context) (sdk.Description, error) { return p.description, nil }

// Configure fails: a process is configured when it is started, and never again.
func (p *Process) Configure(context.Context, sdk.Configuration) (sdk.Configured, error) {
	return sdk.Configured{}, errors.New("the process is configured already; start a new one")
}

// Check asks whether the destination can be reached.
func (p *Process) Check(ctx context.Context, actions []string) (h sdk.Health, err error) {
	err = p.call(ctx, func(ctx context.Context) error { h, err = p.client.Check(ctx, actions); return err })
	return h, err
}

// Prepare has no effect; an error means not executed.
func (p *Process) Prepare(ctx context.Context, op sdk.Operation) (out sdk.Prepared, err error) {
	err = p.call(ctx, func(ctx context.Context) error { out, err = p.client.Prepare(ctx, op); return err })
	return out, err
}

// Read asks what the destination holds; an error is a failed read.
func (p *Process) Read(ctx context.Context, r sdk.ReadRequest) (out sdk.ReadResponse, err error) {
	err = p.call(ctx, func(ctx context.Context) error { out, err = p.client.Read(ctx, r); return err })
	return out, err
}

// ReadMany needs [sdk.FeatureReadMany].
func (p *Process) ReadMany(ctx context.Context, reads []sdk.ReadRequest, answer func(int, sdk.ReadResponse)) error {
	if !p.description.HasFeature(sdk.FeatureReadMany) {
		return errors.New("this adapter reads one by one")
	}
	return p.call(ctx, func(ctx context.Context) error { return p.client.ReadMany(ctx, reads, answer) })
}

// errRetired is a call to a process that takes none any more. Nothing was sent.
var errRetired = errors.New("the adapter process takes no new calls")

// readLimit bounds a call without effect whose caller set no deadline.
const readLimit = 5 * time.Minute

// call runs a call that has no effect. If the adapter let its deadline pass, we ask whether it is alive at all.
func (p *Process) call(ctx context.Context, f func(context.Context) error) error {
	if !p.gate.enter() {
		return sdk.NotSent(errRetired)
	}
	defer p.gate.leave()
	inner, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	err := f(inner)
	if err != nil && errors.Is(inner.Err(), context.DeadlineExceeded) {
		p.ping()
	}
	return err
}

// ping asks go-plugin's health service in the background. An adapter that
// cannot even answer that in two seconds is stopped or stuck as a whole.
func (p *Process) ping() {
	if !p.pinging.TryLock() {
		return
	}
	p.watch.Go(func() {
		defer p.pinging.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: plugin.GRPCServiceName})
		if err != nil {
			p.onFault(FaultHung, err)
		}
	})
}
