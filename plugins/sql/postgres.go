package sql

import (
	"context"
	"crypto/x509"
	dbsql "database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/settled-dev/settled/plugins/internal/decode"
)

// postgres speaks to PostgreSQL.
type postgres struct {
	cfg  *configuration
	conn *pgx.ConnConfig
}

func newPostgres(c *configuration, secrets map[string]string, roots *x509.CertPool, faults *decode.Faults) *postgres {
	conn, err := pgx.ParseConfig(c.dsnPlaceholders)
	if err != nil {
		faults.Errorf("/dsn", "cannot be used: %v", err)
		return nil
	}
	c.fill(secrets, &conn.User, &conn.Password, faults)
	if strings.Contains(conn.Host+conn.Database, token(0)[:len("SETTLEDCREDENTIAL")]) {
		faults.Errorf("/dsn", "a credential may stand only for the user or the password")
	}
	// Nothing is cached, so that a connection through a pooler works too.
	conn.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	conn.StatementCacheCapacity, conn.DescriptionCacheCapacity = 0, 0
	if conn.TLSConfig != nil && conn.TLSConfig.RootCAs == nil && roots != nil {
		conn.TLSConfig.RootCAs = roots
	}
	return &postgres{cfg: c, conn: conn}
}

func (p *postgres) open(ctx context.Context) (*session, error) {
	return openSession(ctx, stdlib.GetConnector(*p.conn))
}

func (p *postgres) placeholder(n int) string { return "$" + strconv.Itoa(n) }
func (p *postgres) quote(name string) string { return `"` + name + `"` }
func (p *postgres) moment(t time.Time) any   { return t.UTC() }
func (p *postgres) endpoint() string {
	return net.JoinHostPort(p.conn.Host, strconv.Itoa(int(p.conn.Port)))
}

func (p *postgres) principal() string {
	return fmt.Sprintf("%s@%s/%s", p.conn.User, p.endpoint(), p.conn.Database)
}

// bind hands everything over as text: the server knows the column's type.
func (p *postgres) bind(v any) any {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case number:
		return string(v)
	}
	return v
}

// lockID is the advisory lock of a key. Two keys that share one only wait for each other.
func (p *postgres) lockID(lock lockName) int64 { return int64(binary.BigEndian.Uint64(lock[:8])) }

// begin sets the bounds inside the transaction, so that they hold behind a
// pooler too. The lock ends with the transaction, after its rows are visible.
func (p *postgres) begin(ctx context.Context, s *session, lock lockName) (string, error) {
	begin := fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d",
		p.cfg.statementWait.Milliseconds(), p.cfg.idleWait.Milliseconds())
	if _, err := s.exec(ctx, begin); err != nil {
		return "", err
	}
	if _, err := s.exec(ctx, "SELECT pg_advisory_xact_lock($1)", p.lockID(lock)); err != nil {
		return "", err
	}
	var xid string
	err := s.row(ctx, "SELECT pg_current_xact_id()::text", nil, &xid)
	return xid, err
}

func (p *postgres) held(ctx context.Context, s *session, lock lockName) (bool, error) {
	// Taken and given back by this one statement.
	var free bool
	err := s.row(ctx, "SELECT pg_try_advisory_xact_lock($1)", []any{p.lockID(lock)}, &free)
	return !free, err
}

func (p *postgres) table() string {
	quoted := make([]string, len(p.cfg.table))
	for i, part := range p.cfg.table {
		quoted[i] = p.quote(part)
	}
	return strings.Join(quoted, ".")
}

func (p *postgres) guard(ctx context.Context, s *session) (sight, error) {
	var standby, secured, may bool
	var kind string
	err := s.row(ctx, `SELECT pg_is_in_recovery(), c.relkind::text, row_security_active(c.oid), has_table_privilege(c.oid, 'SELECT')
		FROM pg_catalog.pg_class c WHERE c.oid = to_regclass($1)`, []any{p.table()}, &standby, &kind, &secured, &may)
	switch {
	case errors.Is(err, dbsql.ErrNoRows):
		return sight{}, fmt.Errorf("there is no table %s", strings.Join(p.cfg.table, "."))
	case err != nil:
		return sight{}, err
	case standby:
		return sight{how: "this server is a standby and may lag"}, nil
	case kind != "r" && kind != "p":
		return sight{how: "the table is a view or foreign table, which may hide rows"}, nil
	case secured:
		return sight{how: "row-level security applies to this user and may hide rows"}, nil
	case !may:
		return sight{how: "this user has no SELECT on the table"}, nil
	}
	return sight{complete: true, how: "primary server, ordinary table, SELECT granted, no row-level security for this user"}, nil
}

func (p *postgres) examine(ctx context.Context, s *session, faults *decode.Faults) error {
	var insert, update, unique bool
	err := s.row(ctx, `SELECT has_table_privilege(c.oid, 'INSERT'), has_table_privilege(c.oid, 'UPDATE'), EXISTS (
			SELECT 1 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
			WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indnkeyatts = 1 AND a.attname = 'key')
		FROM pg_catalog.pg_class c WHERE c.oid = to_regclass($1)`, []any{p.table()}, &insert, &update, &unique)
	if err != nil {
		return err
	}
	if !insert {
		faults.Errorf("/table", "this user may not INSERT into it")
	}
	if !update {
		faults.Warnf("/table", "this user may not UPDATE it, so that fences cannot be replaced")
	}
	if !unique {
		faults.Errorf("/table", "its column key is not the primary key")
	}
	return nil
}

// classify reads the SQLSTATE.
func (p *postgres) classify(err error) failure {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return clientFailure(err)
	}
	f := failure{code: answer.Code, message: answer.Code + " " + answer.Message, class: classBusy}
	switch {
	case answer.Code == "23505":
		f.class = classDuplicate
	case answer.Code == "42501":
		f.class = classPermission
	case strings.HasPrefix(answer.Code, "28"):
		f.class = classAuthentication
	case answer.Code == "42P01", answer.Code == "3D000", answer.Code == "3F000":
		f.class = classNotFound
	case hasAnyPrefix(answer.Code, "21", "22", "23", "42", "44", "0A", "P0"):
		f.class = classValidation
	}
	return f
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// clientFailure is an error that no server answered. One of the driver's own,
// made before anything was written, also is no reason to believe that the same
// statement would fail again.
func clientFailure(err error) failure {
	return failure{class: classLost, message: err.Error()}
}
