package http

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"sort"
	"strings"
	"sync"

	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// Name and version of the built-in adapter.
const (
	Name    = "http"
	Version = "1.0.0"
)

// Adapter implements [sdk.Adapter] for one configured destination. It is safe
// for concurrent use.
type Adapter struct {
	mu    sync.RWMutex
	state *state // nil until Configure succeeded
}

// state is what Configure made; it never changes afterwards.
type state struct {
	cfg         *configuration
	client      *sdk.HTTP
	redact      *sdk.Redactor
	secrets     map[string]any // as $secret
	destination string
	principal   string
}

// New returns the adapter, not yet configured.
func New() sdk.Adapter { return &Adapter{} }

func (a *Adapter) configured() *state {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.state
}

// Describe lists [sdk.FeaturePrepare] until Configure has shown that no
// operation needs it.
func (a *Adapter) Describe(context.Context) (sdk.Description, error) {
	d := sdk.Description{Name: Name, Version: Version, SDK: "go", ConfigSchema: []byte(configSchema)}
	s := a.configured()
	if s == nil {
		d.Features = []string{sdk.FeaturePrepare}
		return d, nil
	}
	for _, op := range s.cfg.operations {
		if op.needsPrepare() {
			d.Features = []string{sdk.FeaturePrepare}
		}
	}
	d.Actions = s.cfg.actions()
	d.Egress = []string{hostPort(s.cfg)}
	return d, nil
}

// Configure compiles the configuration. Nothing is sent.
func (a *Adapter) Configure(_ context.Context, c sdk.Configuration) (sdk.Configured, error) {
	faults := &decode.Faults{}
	cfg := compile(c.Config, c.Secrets, faults)
	client, err := sdk.NewHTTP(sdk.HTTPOptions{ProxyURL: c.ProxyURL, ExtraCAPEM: c.ExtraCAPEM})
	if err != nil {
		faults.Errorf("", "%v", err)
	}
	redact := sdk.NewRedactor(c.Secrets)
	for i := range faults.List {
		faults.List[i].Summary = redact.String(faults.List[i].Summary)
	}
	if faults.Failed() {
		return sdk.Configured{Diagnostics: faults.List}, nil
	}
	s := &state{cfg: cfg, client: client, redact: redact, destination: c.Destination, secrets: map[string]any{}}
	for name, value := range c.Secrets {
		s.secrets[name] = value
	}
	if s.principal, err = principal(cfg, c); err != nil {
		return sdk.Configured{}, err
	}
	a.mu.Lock()
	old := a.state
	a.state = s
	a.mu.Unlock()
	if old != nil {
		old.client.Close()
	}
	return sdk.Configured{Diagnostics: faults.List, Actions: cfg.actions(), Identity: s.principal}, nil
}

// principal names whose eyes a read uses, so that a listing is never compared
// with one of other credentials. It holds a slow, truncated digest of the
// secrets and not the secrets.
func principal(cfg *configuration, c sdk.Configuration) (string, error) {
	names := make([]string, 0, len(c.Secrets))
	for name := range c.Secrets {
		names = append(names, name)
	}
	if len(names) == 0 {
		return cfg.base.Host + " without credentials", nil
	}
	sort.Strings(names)
	var all strings.Builder
	for _, name := range names {
		fmt.Fprintf(&all, "%d:%s=%d:%s;", len(name), name, len(c.Secrets[name]), c.Secrets[name])
	}
	sum, err := pbkdf2.Key(sha256.New, all.String(), []byte("settled principal of "+c.Destination), 20000, 4)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s as %s (%s)", cfg.base.Host, strings.Join(names, ", "), hex.EncodeToString(sum)), nil
}

// hostPort is the one place the adapter talks to.
func hostPort(cfg *configuration) string {
	port := cfg.base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[cfg.base.Scheme]
	}
	return net.JoinHostPort(cfg.base.Hostname(), port)
}

// action finds the operation of an action; undo tells NAME.undo from NAME.
func (s *state) action(name string) (op *operation, undo bool, err error) {
	if op, ok := s.cfg.operations[name]; ok {
		return op, false, nil
	}
	if base, ok := strings.CutSuffix(name, undoSuffix); ok {
		if op, ok := s.cfg.operations[base]; ok && op.undo != nil {
			return op, true, nil
		}
	}
	return nil, false, fmt.Errorf("no operation %q is configured; there are: %s", name, strings.Join(s.cfg.names, ", "))
}

// notConfigured is what every call says that comes before Configure.
const notConfigured = "the adapter is not configured"
