package sql

import (
	"context"
	dbsql "database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/settled-dev/settled/plugins/internal/decode"
)

// sqlite opens a database file of this machine.
type sqlite struct {
	cfg  *configuration
	path string
	dsn  string
}

func newSQLite(c *configuration, faults *decode.Faults) *sqlite {
	if len(c.secretsInDSN) > 0 {
		faults.Errorf("/dsn", "a database file has no credentials")
	}
	path, query, _ := strings.Cut(strings.TrimPrefix(c.dsn, "file:"), "?")
	options, err := url.ParseQuery(query)
	if err != nil || !filepath.IsAbs(path) {
		faults.Errorf("/dsn", "must be the absolute path of a database file")
		return nil
	}
	// A file that is not there must not come into being as an empty database.
	options.Set("mode", "rw")
	if !options.Has("_busy_timeout") && !options.Has("_timeout") {
		options.Set("_busy_timeout", strconv.FormatInt(c.statementWait.Milliseconds(), 10))
	}
	if !options.Has("_foreign_keys") && !options.Has("_fk") {
		options.Set("_foreign_keys", "1")
	}
	return &sqlite{cfg: c, path: path, dsn: "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + options.Encode()}
}

// fileConnector opens the file anew for each session.
type fileConnector struct {
	driver *sqlite3.SQLiteDriver
	dsn    string
}

func (f fileConnector) Connect(context.Context) (driver.Conn, error) { return f.driver.Open(f.dsn) }
func (f fileConnector) Driver() driver.Driver                        { return f.driver }

func (q *sqlite) open(ctx context.Context) (*session, error) {
	s, err := openSession(ctx, fileConnector{driver: &sqlite3.SQLiteDriver{}, dsn: q.dsn})
	if err != nil {
		return nil, err
	}
	// The library opens the file only when it is needed.
	var one int
	if err := s.row(ctx, "SELECT count(*) FROM sqlite_master", nil, &one); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (q *sqlite) placeholder(int) string   { return "?" }
func (q *sqlite) quote(name string) string { return `"` + name + `"` }
func (q *sqlite) moment(t time.Time) any   { return t.UTC().Format(time.RFC3339Nano) }
func (q *sqlite) endpoint() string         { return "" }
func (q *sqlite) principal() string        { return q.path }

func (q *sqlite) bind(v any) any {
	n, ok := v.(number)
	if !ok {
		return v
	}
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return i
	}
	if f, err := strconv.ParseFloat(string(n), 64); err == nil {
		return f
	}
	return string(n)
}

// begin takes the file's one write lock, which serves for every key.
func (q *sqlite) begin(ctx context.Context, s *session, _ lockName) (string, error) {
	_, err := s.exec(ctx, "BEGIN IMMEDIATE")
	return "", err
}

// held tries the write lock: whoever holds it may be about to commit our row.
func (q *sqlite) held(ctx context.Context, s *session, _ lockName) (bool, error) {
	if _, err := s.exec(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return false, err
	}
	_, err := s.exec(ctx, "BEGIN IMMEDIATE")
	var answer sqlite3.Error
	if errors.As(err, &answer) && (answer.Code == sqlite3.ErrBusy || answer.Code == sqlite3.ErrLocked) {
		return true, nil
	}
	if err == nil {
		_, err = s.exec(ctx, "ROLLBACK")
	}
	return false, err
}

func (q *sqlite) guard(ctx context.Context, s *session) (sight, error) {
	var kind string
	err := s.row(ctx, "SELECT type FROM sqlite_master WHERE name = ?", []any{q.cfg.table[0]}, &kind)
	switch {
	case errors.Is(err, dbsql.ErrNoRows):
		return sight{}, fmt.Errorf("there is no table %s", q.cfg.table[0])
	case err != nil:
		return sight{}, err
	case kind != "table":
		return sight{how: "the table is a " + kind + ", which may hide rows"}, nil
	}
	return sight{complete: true, how: "an ordinary table of a local file"}, nil
}

func (q *sqlite) examine(ctx context.Context, s *session, faults *decode.Faults) error {
	var unique int
	err := s.row(ctx, `SELECT count(*) FROM pragma_index_list(?) i WHERE i."unique" = 1 AND i.partial = 0
		AND (SELECT group_concat(name) FROM pragma_index_info(i.name)) = 'key'`, []any{q.cfg.table[0]}, &unique)
	if err != nil {
		return err
	}
	if unique == 0 {
		faults.Errorf("/table", "its column key is not the primary key")
	}
	return nil
}

// classify reads SQLite's result code.
func (q *sqlite) classify(err error) failure {
	var answer sqlite3.Error
	if !errors.As(err, &answer) {
		return clientFailure(err)
	}
	f := failure{code: fmt.Sprintf("SQLITE_%d", answer.Code), message: answer.Error(), class: classBusy}
	switch answer.Code {
	case sqlite3.ErrConstraint:
		f.class = classValidation
		if answer.ExtendedCode == sqlite3.ErrConstraintPrimaryKey || answer.ExtendedCode == sqlite3.ErrConstraintUnique || answer.ExtendedCode == sqlite3.ErrConstraintRowID {
			f.class = classDuplicate
		}
	case sqlite3.ErrError, sqlite3.ErrMismatch, sqlite3.ErrTooBig, sqlite3.ErrRange:
		f.class = classValidation
	case sqlite3.ErrReadonly, sqlite3.ErrPerm, sqlite3.ErrAuth:
		f.class = classPermission
	case sqlite3.ErrCantOpen, sqlite3.ErrNotADB:
		f.class = classNotFound
	}
	return f
}
