package exec

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// Name and version of the built-in adapter.
const (
	Name    = "exec"
	Version = "1.0.0"
)

// timeLimit of a command whose call has no earlier deadline.
const timeLimit = time.Minute

// notConfigured is what every call says that comes before Configure.
const notConfigured = "the adapter is not configured"

// Adapter implements [sdk.Adapter] for one configured destination. It is safe
// for concurrent use.
type Adapter struct {
	mu    sync.RWMutex
	state *state // nil until Configure succeeded
}

// state is what Configure made; it never changes afterwards.
type state struct {
	cfg         *configuration
	redact      *sdk.Redactor
	secrets     map[string]string
	destination string
	dir         string
	principal   string
}

// New returns the adapter, not yet configured.
func New() sdk.Adapter { return &Adapter{} }

func (a *Adapter) configured() *state {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.state
}

// Describe is pure; the actions are known once the adapter is configured.
func (a *Adapter) Describe(context.Context) (sdk.Description, error) {
	d := sdk.Description{Name: Name, Version: Version, SDK: "go", ConfigSchema: []byte(configSchema)}
	if s := a.configured(); s != nil {
		d.Actions = s.cfg.actions()
	}
	return d, nil
}

// Configure checks the configuration and asks with.describe, where there is one,
// who it is.
func (a *Adapter) Configure(ctx context.Context, c sdk.Configuration) (sdk.Configured, error) {
	faults := &decode.Faults{}
	s := &state{
		cfg: parse(c.Config, c.Secrets, faults), redact: sdk.NewRedactor(c.Secrets), secrets: c.Secrets,
		destination: c.Destination, dir: c.StateDir,
	}
	if s.secrets == nil {
		s.secrets = map[string]string{}
	}
	identity := ""
	if s.cfg.describe != nil && !faults.Failed() {
		identity = s.describe(ctx, faults)
	}
	for i := range faults.List {
		faults.List[i].Summary = s.redact.String(faults.List[i].Summary)
	}
	if faults.Failed() {
		return sdk.Configured{Diagnostics: faults.List}, nil
	}
	if identity == "" {
		identity = strings.Join(s.cfg.dispatch, " ")
	}
	s.principal = identity
	a.mu.Lock()
	a.state = s
	a.mu.Unlock()
	return sdk.Configured{Diagnostics: faults.List, Actions: s.cfg.actions(), Identity: identity}, nil
}

// describe runs with.describe; its answer may name an identity.
func (s *state) describe(ctx context.Context, faults *decode.Faults) string {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	r, err := s.run(ctx, s.cfg.describe, call{Method: "describe"})
	if err != nil {
		faults.Errorf("/describe", "%v", err)
		return ""
	}
	var answer struct {
		Identity string `json:"identity"`
	}
	if isJSON, err := answered(r.stdout, &answer); !isJSON || err != nil || r.broken() != "" {
		faults.Errorf("/describe", "no usable answer: %s", s.ending(r))
	}
	return s.text(answer.Identity, 255)
}

// Check runs with.check, or, without one, only looks whether the commands are there.
func (a *Adapter) Check(ctx context.Context, _ []string) (sdk.Health, error) {
	s := a.configured()
	if s == nil {
		return sdk.Health{Status: sdk.HealthDown, Diagnostics: []sdk.Diagnostic{{Summary: notConfigured}}}, nil
	}
	faults := &decode.Faults{}
	for key, command := range map[string][]string{"dispatch": s.cfg.dispatch, "read": s.cfg.read, "undo": s.cfg.undo, "check": s.cfg.check} {
		if command == nil {
			continue
		}
		if _, err := osexec.LookPath(command[0]); err != nil {
			faults.Errorf("/"+key, "cannot be started: %v", err)
		}
	}
	if faults.Failed() {
		return sdk.Health{Status: sdk.HealthDown, Diagnostics: faults.List}, nil
	}
	health := sdk.Health{Status: sdk.HealthOK}
	if s.cfg.check != nil {
		health = s.check(ctx, faults)
	}
	health.Diagnostics = faults.List
	return health, nil
}

// check believes the word of with.check, and without one its exit status.
func (s *state) check(ctx context.Context, faults *decode.Faults) sdk.Health {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	r, err := s.run(ctx, s.cfg.check, call{Method: "check"})
	if err != nil {
		faults.Errorf("/check", "cannot be started: %s", s.text(err.Error(), 512))
		return sdk.Health{Status: sdk.HealthDown}
	}
	var answer struct {
		Status      string   `json:"status"`
		Message     string   `json:"message"`
		Permissions []string `json:"permissions"`
	}
	isJSON, err := answered(r.stdout, &answer)
	switch {
	case r.broken() != "" || err != nil || (!isJSON && r.exit != 0):
		faults.Errorf("/check", "%s", s.ending(r))
		return sdk.Health{Status: sdk.HealthDown}
	case !isJSON:
		return sdk.Health{Status: sdk.HealthOK}
	}
	statuses := map[string]sdk.HealthStatus{"ok": sdk.HealthOK, "degraded": sdk.HealthDegraded, "down": sdk.HealthDown}
	health := sdk.Health{Status: statuses[answer.Status], Permissions: answer.Permissions}
	if health.Status != sdk.HealthOK {
		faults.Errorf("/check", "says %q: %s", s.text(answer.Status, 64), s.text(answer.Message, 512))
	}
	return health
}

// Prepare is never called, because no feature is listed; it has no work to do.
func (a *Adapter) Prepare(context.Context, sdk.Operation) (sdk.Prepared, error) {
	return sdk.Prepared{Ready: &sdk.Ready{}}, nil
}

// run starts a command with c on standard input. The error is non-nil only when
// nothing was started.
func (s *state) run(ctx context.Context, argv []string, c call) (result, error) {
	c.Config, c.Secrets = s.cfg.settings, s.secrets
	if c.Config == nil {
		c.Config = map[string]any{}
	}
	if c.Snapshot == nil {
		c.Snapshot = json.RawMessage("null")
	}
	if deadline, ok := ctx.Deadline(); ok {
		c.Deadline = deadline.UTC().Format(time.RFC3339Nano)
	}
	stdin, err := json.Marshal(c)
	if err != nil {
		return result{}, fmt.Errorf("the request cannot be written as JSON: %w", err)
	}
	return run(ctx, argv, environment(c.Operation), s.dir, append(stdin, '\n'))
}

// runMark is the host's mark of every process of one run of this adapter. A
// command has its own process group, so that where no cgroup can be made the
// mark alone tells the host that a command has outlived the adapter.
const runMark = "SETTLED_ADAPTER_RUN"

// attemptMark names the attempt to the command, and tells what of the command
// left its group.
const attemptMark = "SETTLED_ATTEMPT"

// environment is an allow-list, the host's mark and the three facts a shell
// script needs most. Secrets are never in it.
func environment(o *callOperation) []string {
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if slices.Contains([]string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", runMark}, name) {
			env = append(env, pair)
		}
	}
	if o != nil {
		env = append(env, "SETTLED_KEY="+o.Key, "SETTLED_DIGEST="+o.Digest, attemptMark+"="+o.AttemptID)
	}
	return env
}

// action finds the operation of an action; undo tells NAME.undo from NAME.
func (s *state) action(name string) (op *operation, undo bool, err error) {
	if op, ok := s.cfg.operations[name]; ok {
		return op, false, nil
	}
	if base, ok := strings.CutSuffix(name, undoSuffix); ok {
		if op, ok := s.cfg.operations[base]; ok && s.cfg.undo != nil {
			return op, true, nil
		}
	}
	return nil, false, fmt.Errorf("no operation %q is configured; there are: %s", name, strings.Join(s.cfg.names, ", "))
}

// text redacts first and cuts afterwards, so that no half of a secret is left.
func (s *state) text(t string, limit int) string {
	t = strings.ToValidUTF8(s.redact.String(t), "\uFFFD")
	if len(t) > limit {
		t = strings.ToValidUTF8(t[:limit], "") + "…"
	}
	return t
}
