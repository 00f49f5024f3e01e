package sql

import (
	"context"
	"crypto/x509"
	dbsql "database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/settled-dev/settled/plugins/internal/decode"
)

// mariadb speaks to MySQL and MariaDB.
type mariadb struct {
	cfg  *configuration
	conn *mysql.Config
}

func newMySQL(c *configuration, secrets map[string]string, roots *x509.CertPool, faults *decode.Faults) *mariadb {
	conn, err := mysql.ParseDSN(c.dsnPlaceholders)
	if err != nil {
		faults.Errorf("/dsn", "cannot be used: %v", err)
		return nil
	}
	c.fill(secrets, &conn.User, &conn.Passwd, faults)
	conn.MultiStatements, conn.InterpolateParams, conn.ParseTime = false, false, false
	conn.ClientFoundRows = true // a precondition counts the rows found, also those that hold the value already
	conn.Logger = silent{}
	if conn.TLS != nil && conn.TLS.RootCAs == nil && roots != nil {
		conn.TLS.RootCAs = roots
	}
	return &mariadb{cfg: c, conn: conn}
}

// silent drops the driver's own log lines; every error is returned as well.
type silent struct{}

func (silent) Print(...any) {}

func (m *mariadb) open(ctx context.Context) (*session, error) {
	connector, err := mysql.NewConnector(m.conn.Clone())
	if err != nil {
		return nil, err
	}
	return openSession(ctx, connector)
}

func (m *mariadb) placeholder(int) string   { return "?" }
func (m *mariadb) quote(name string) string { return "`" + name + "`" }
func (m *mariadb) moment(t time.Time) any   { return t.UTC().Format("2006-01-02 15:04:05.000000") }
func (m *mariadb) endpoint() string         { return m.conn.Addr }
func (m *mariadb) principal() string {
	return fmt.Sprintf("%s@%s/%s", m.conn.User, m.conn.Addr, m.conn.DBName)
}

// bind keeps whole numbers whole and hands other ones over as their digits.
func (m *mariadb) bind(v any) any {
	n, ok := v.(number)
	if !ok {
		return v
	}
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return i
	}
	return string(n)
}

func (m *mariadb) lockID(lock lockName) string { return "settled:" + hex.EncodeToString(lock[:20]) }

// begin bounds every wait that a COMMIT may meet: for its arrival, for the rest
// of its packet and for locks. It makes the server refuse a value that does not
// fit, which otherwise it might cut. The named lock ends with the session, after its
// transaction is rolled back.
func (m *mariadb) begin(ctx context.Context, s *session, lock lockName) (string, error) {
	var version string
	if err := s.row(ctx, "SELECT VERSION()", nil, &version); err != nil {
		return "", err
	}
	idle, statement := ceilSeconds(m.cfg.idleWait), ceilSeconds(m.cfg.statementWait)
	set := fmt.Sprintf("SET SESSION wait_timeout = %d, net_read_timeout = %d, innodb_lock_wait_timeout = %d, lock_wait_timeout = %d, time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')", idle, idle, statement, statement)
	if strings.Contains(version, "MariaDB") {
		set += fmt.Sprintf(", max_statement_time = %d", statement)
	}
	if _, err := s.exec(ctx, set); err != nil {
		return "", err
	}
	var got dbsql.NullInt64
	// A second less than a statement may take, so that the lock itself says no.
	if err := s.row(ctx, "SELECT GET_LOCK(?, ?)", []any{m.lockID(lock), max(statement-1, 0)}, &got); err != nil {
		return "", err
	}
	if got.Int64 != 1 {
		return "", errHeld
	}
	_, err := s.exec(ctx, "START TRANSACTION READ WRITE")
	return "", err
}

// errHeld is an earlier transaction of the key that is still open.
var errHeld = errors.New("an earlier transaction of this key is still open")

func (m *mariadb) held(ctx context.Context, s *session, lock lockName) (bool, error) {
	var free dbsql.NullInt64
	err := s.row(ctx, "SELECT IS_FREE_LOCK(?)", []any{m.lockID(lock)}, &free)
	return free.Int64 != 1, err
}

// schema is where the table is.
func (m *mariadb) schema() (schema, table string) {
	if len(m.cfg.table) == 2 {
		return m.cfg.table[0], m.cfg.table[1]
	}
	return m.conn.DBName, m.cfg.table[0]
}

func (m *mariadb) guard(ctx context.Context, s *session) (sight, error) {
	schema, table := m.schema()
	var readOnly int
	var kind, engine dbsql.NullString
	err := s.row(ctx, "SELECT @@global.read_only, TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?",
		[]any{schema, table}, &readOnly, &kind, &engine)
	switch {
	case errors.Is(err, dbsql.ErrNoRows):
		return sight{}, fmt.Errorf("there is no table %s.%s for this user", schema, table)
	case err != nil:
		return sight{}, err
	case readOnly != 0:
		return sight{how: "this server is read-only, perhaps a replica that lags"}, nil
	case kind.String != "BASE TABLE":
		return sight{how: "the table is a view, which may hide rows"}, nil
	case !strings.EqualFold(engine.String, "InnoDB"):
		return sight{how: "the table's engine " + engine.String + " has no transactions"}, nil
	}
	return sight{complete: true, how: "writable server, base table, InnoDB, SELECT granted"}, nil
}

func (m *mariadb) examine(ctx context.Context, s *session, faults *decode.Faults) error {
	schema, table := m.schema()
	var engine, collation dbsql.NullString
	err := s.row(ctx, `SELECT t.ENGINE, c.COLLATION_NAME FROM information_schema.TABLES t JOIN information_schema.COLUMNS c USING (TABLE_SCHEMA, TABLE_NAME)
		WHERE t.TABLE_SCHEMA = ? AND t.TABLE_NAME = ? AND c.COLUMN_NAME = 'key'`, []any{schema, table}, &engine, &collation)
	if err != nil {
		return err
	}
	if !strings.EqualFold(engine.String, "InnoDB") {
		faults.Errorf("/table", "its engine is %s; only InnoDB rolls back", engine.String)
	}
	if collation.String != "" && !strings.HasSuffix(collation.String, "_bin") {
		faults.Errorf("/table", "its column key compares by %s; make it varbinary(255), so that no two keys count as one", collation.String)
	}
	var unique int
	err = s.row(ctx, `SELECT COUNT(*) FROM information_schema.STATISTICS a WHERE a.TABLE_SCHEMA = ? AND a.TABLE_NAME = ? AND a.NON_UNIQUE = 0
		AND a.COLUMN_NAME = 'key' AND a.SUB_PART IS NULL AND NOT EXISTS (SELECT 1 FROM information_schema.STATISTICS b
			WHERE b.TABLE_SCHEMA = a.TABLE_SCHEMA AND b.TABLE_NAME = a.TABLE_NAME AND b.INDEX_NAME = a.INDEX_NAME AND b.SEQ_IN_INDEX > 1)`, []any{schema, table}, &unique)
	if err != nil {
		return err
	}
	if unique == 0 {
		faults.Errorf("/table", "its column key is not the primary key")
	}
	return m.examineEngines(ctx, s, faults)
}

// maxTables bounds the tables without transactions that are looked for in statements.
const maxTables = 1000

// examineEngines finds statements on tables that do not roll back: there half of
// a transaction would stay.
func (m *mariadb) examineEngines(ctx context.Context, s *session, faults *decode.Faults) error {
	rows, err := s.conn.QueryContext(ctx, "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE IN ('MyISAM', 'Aria', 'MEMORY', 'CSV', 'ARCHIVE', 'BLACKHOLE', 'MRG_MyISAM') AND TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') LIMIT ?", maxTables)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var table, engine string
		if err := rows.Scan(&table, &engine); err != nil {
			return err
		}
		word := regexp.MustCompile(`(?i)(^|[^\w$])` + regexp.QuoteMeta(table) + `($|[^\w$])`)
		for _, name := range m.cfg.names {
			op := m.cfg.operations[name]
			if word.MatchString(op.do.statement.source) {
				faults.Errorf("/operations/"+name+"/statement", "the table %s is of the engine %s, which does not roll back", table, engine)
			}
			if op.undo != nil && word.MatchString(op.undo.statement.source) {
				faults.Errorf("/operations/"+name+"/undo/statement", "the table %s is of the engine %s, which does not roll back", table, engine)
			}
		}
	}
	return rows.Err()
}

// classify reads the server's error number, and its SQLSTATE for the others.
func (m *mariadb) classify(err error) failure {
	var answer *mysql.MySQLError
	if errors.Is(err, errHeld) {
		return failure{class: classBusy, code: "held", message: err.Error()}
	}
	if !errors.As(err, &answer) {
		return clientFailure(err)
	}
	f := failure{code: strconv.Itoa(int(answer.Number)), message: fmt.Sprintf("%d %s", answer.Number, answer.Message), class: classBusy}
	is := func(numbers ...uint16) bool { return slices.Contains(numbers, answer.Number) }
	switch {
	case is(1062, 1169, 1586):
		f.class = classDuplicate
	case is(1045, 1698, 1251, 1524, 1820, 1862, 3118, 4151):
		f.class = classAuthentication
	case is(1044, 1142, 1143, 1227, 1370):
		f.class = classPermission
	case is(1049, 1146):
		f.class = classNotFound
	case is(1205, 1213, 1969, 3024, 1290, 1836, 1317, 1927):
		// lock wait, deadlock, time limit, read-only, killed
	case is(1048, 1054, 1064, 1136, 1364, 1366, 1406, 1451, 1452, 3819, 4025), hasAnyPrefix(string(answer.SQLState[:]), "21", "22", "23", "42", "45", "0A"):
		f.class = classValidation
	}
	return f
}
