package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// Name and version of the built-in adapter.
const (
	Name    = "mail"
	Version = "1.0.0"
)

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
	cfg       *configuration
	tls       *tls.Config
	redact    *sdk.Redactor
	principal string // who reads
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
		d.Egress = []string{s.cfg.smtp.addr}
		if s.cfg.imap != nil {
			d.Egress = append(d.Egress, s.cfg.imap.addr)
		}
	}
	return d, nil
}

// Configure checks the configuration. Nothing is connected.
func (a *Adapter) Configure(_ context.Context, c sdk.Configuration) (sdk.Configured, error) {
	faults := &decode.Faults{}
	s := &state{cfg: parse(c.Config, c.Secrets, faults), redact: sdk.NewRedactor(c.Secrets), tls: &tls.Config{MinVersion: tls.VersionTLS12}}
	if len(c.ExtraCAPEM) > 0 {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(c.ExtraCAPEM) {
			faults.Add(sdk.Diagnostic{Summary: "extra CA: no certificate found in the PEM"})
		}
		s.tls.RootCAs = roots
	}
	for i := range faults.List {
		faults.List[i].Summary = s.redact.String(faults.List[i].Summary)
	}
	if faults.Failed() {
		return sdk.Configured{Diagnostics: faults.List}, nil
	}
	identity := s.cfg.smtp.addr
	if s.cfg.smtp.user != "" {
		identity = s.cfg.smtp.user + "@" + identity
	}
	if s.cfg.imap != nil {
		s.principal = s.redact.String(s.cfg.imap.user + "@" + s.cfg.imap.addr)
	}
	a.mu.Lock()
	a.state = s
	a.mu.Unlock()
	return sdk.Configured{Diagnostics: faults.List, Actions: s.cfg.actions(), Identity: s.redact.String(identity)}, nil
}

// Check logs in at both servers and opens the mailboxes read-only.
func (a *Adapter) Check(ctx context.Context, _ []string) (sdk.Health, error) {
	s := a.configured()
	if s == nil {
		return sdk.Health{Status: sdk.HealthDown, Diagnostics: []sdk.Diagnostic{{Summary: notConfigured}}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	faults := &decode.Faults{}
	health := sdk.Health{Status: sdk.HealthOK}
	if err := s.checkSMTP(ctx); err != nil {
		faults.Errorf("/smtp", "%s", s.text(err.Error(), 512))
		health.Status = sdk.HealthDown
	}
	if s.cfg.imap != nil {
		if err := s.checkIMAP(ctx); err != nil {
			faults.Errorf("/imap", "%s", s.text(err.Error(), 512))
			health.Status = max(health.Status, sdk.HealthDegraded)
		} else {
			for _, mailbox := range s.cfg.mailboxes {
				health.Permissions = append(health.Permissions, "read "+mailbox)
			}
		}
	}
	health.Diagnostics = faults.List
	return health, nil
}

// checkSMTP goes as far as the login.
func (s *state) checkSMTP(ctx context.Context) error {
	conn, err := dial(ctx, s.cfg.smtp, s.tls)
	if err != nil {
		return err
	}
	d := &delivery{state: s, wire: newWire(conn), fields: map[string]string{}}
	defer func() { _ = d.wire.conn.Close() }() // it was only looked at
	if outcome := d.open(ctx); outcome != nil {
		switch o := outcome.(type) {
		case *sdk.Rejected:
			return errors.New(o.Message)
		case *sdk.NotExecuted:
			return errors.New(o.Message)
		}
	}
	d.quit()
	return nil
}

// Prepare is never called, because no feature is listed; it has no work to do.
func (a *Adapter) Prepare(context.Context, sdk.Operation) (sdk.Prepared, error) {
	return sdk.Prepared{Ready: &sdk.Ready{}}, nil
}

func (s *state) action(name string) (*operation, error) {
	if op, ok := s.cfg.operations[name]; ok {
		return op, nil
	}
	return nil, fmt.Errorf("no operation %q is configured; there are: %s", name, strings.Join(s.cfg.names, ", "))
}

// text redacts first and cuts afterwards, so that no half of a secret is left.
func (s *state) text(t string, limit int) string {
	t = strings.ToValidUTF8(s.redact.String(t), "\uFFFD")
	if len(t) > limit {
		t = strings.ToValidUTF8(t[:limit], "") + "…"
	}
	return t
}
