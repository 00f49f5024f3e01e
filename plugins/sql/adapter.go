package sql

import (
	"context"
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
	Name    = "sql"
	Version = "1.0.0"
)

// notConfigured is what every call says that comes before Configure.
const notConfigured = "the adapter is not configured"

// Adapter implements [sdk.Adapter] and [sdk.Fencer] for one configured
// destination. It is safe for concurrent use.
type Adapter struct {
	mu    sync.RWMutex
	state *state // nil until Configure succeeded
}

// state is what Configure made; it never changes afterwards.
type state struct {
	cfg         *configuration
	db          dialect
	redact      *sdk.Redactor
	destination string
	principal   string // who reads
	queries     queries
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
	d := sdk.Description{Name: Name, Version: Version, SDK: "go", ConfigSchema: []byte(configSchema), Features: []string{sdk.FeatureFence}}
	if s := a.configured(); s != nil {
		d.Actions = s.cfg.actions()
		if at := s.db.endpoint(); at != "" {
			d.Egress = []string{at}
		}
	}
	return d, nil
}

// Configure checks the configuration. Nothing is connected.
func (a *Adapter) Configure(_ context.Context, c sdk.Configuration) (sdk.Configured, error) {
	faults := &decode.Faults{}
	s := &state{cfg: parse(c.Config, c.Secrets, faults), redact: sdk.NewRedactor(c.Secrets), destination: c.Destination}
	roots, err := rootsOf(c.ExtraCAPEM)
	if err != nil {
		faults.Errorf("", "%v", err)
	}
	if s.cfg.dsn != "" {
		s.db = newDialect(s.cfg, c.Secrets, roots, faults)
	}
	for i := range faults.List {
		faults.List[i].Summary = s.redact.String(faults.List[i].Summary)
	}
	if faults.Failed() {
		return sdk.Configured{Diagnostics: faults.List}, nil
	}
	s.queries, s.principal = queriesFor(s.db, s.cfg), s.redact.String(s.db.principal())
	a.mu.Lock()
	a.state = s
	a.mu.Unlock()
	return sdk.Configured{Diagnostics: faults.List, Actions: s.cfg.actions(), Identity: s.principal}, nil
}

func newDialect(c *configuration, secrets map[string]string, roots *x509.CertPool, faults *decode.Faults) dialect {
	switch c.driver {
	case driverPostgres:
		return newPostgres(c, secrets, roots, faults)
	case driverMySQL:
		return newMySQL(c, secrets, roots, faults)
	case driverSQLite:
		return newSQLite(c, faults)
	}
	return nil // the driver itself is a fault already
}

func rootsOf(pem []byte) (*x509.CertPool, error) {
	if len(pem) == 0 {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("extra CA: no certificate found in the PEM")
	}
	return roots, nil
}

// Prepare is never called, because the feature is not listed; it has no work to do.
func (a *Adapter) Prepare(context.Context, sdk.Operation) (sdk.Prepared, error) {
	return sdk.Prepared{Ready: &sdk.Ready{}}, nil
}

// action finds the operation of an action and what it writes.
func (s *state) action(name string) (*operation, *write, error) {
	if op, ok := s.cfg.operations[name]; ok {
		return op, op.do, nil
	}
	if base, ok := strings.CutSuffix(name, undoSuffix); ok {
		if op, ok := s.cfg.operations[base]; ok && op.undo != nil {
			return op, op.undo, nil
		}
	}
	return nil, nil, fmt.Errorf("no operation %q is configured; there are: %s", name, strings.Join(s.cfg.names, ", "))
}

// queries are the adapter's own statements on its table.
type queries struct {
	insert, replace, read, columns string
}

func queriesFor(d dialect, c *configuration) queries {
	parts := make([]string, len(c.table))
	for i, part := range c.table {
		parts[i] = d.quote(part)
	}
	table, key, p := strings.Join(parts, "."), d.quote("key"), d.placeholder
	return queries{
		insert:  fmt.Sprintf("INSERT INTO %s (%s, digest, attempt, at) VALUES (%s, %s, %s, %s)", table, key, p(1), p(2), p(3), p(4)),
		replace: fmt.Sprintf("UPDATE %s SET digest = %s, attempt = %s, at = %s WHERE %s = %s AND digest = '%s' AND attempt = %s", table, p(1), p(2), p(3), key, p(4), voidDigest, p(5)),
		read:    fmt.Sprintf("SELECT %s, digest, attempt, at FROM %s WHERE %s = %s", key, table, key, p(1)),
		columns: fmt.Sprintf("SELECT %s, digest, attempt, at FROM %s WHERE 1 = 0", key, table),
	}
}

// text redacts first and cuts afterwards, so that no half of a secret is left.
func (s *state) text(t string, limit int) string {
	t = strings.ToValidUTF8(s.redact.String(t), "\uFFFD")
	if len(t) > limit {
		t = strings.ToValidUTF8(t[:limit], "") + "…"
	}
	return t
}
