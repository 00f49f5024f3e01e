package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/mattn/go-sqlite3"
)

// conn is one connection with its prepared statements. It is used by one
// goroutine at a time: the committer, or whoever took it from the reader pool.
type conn struct {
	c     *sqlite3.SQLiteConn
	stmts map[string]*stmt
	words map[int64]string // terms that were read
}

type stmt struct {
	s    *sqlite3.SQLiteStmt
	args []driver.NamedValue
	row  []driver.Value
}

// row is one result row: int64, string, []byte, float64 or nil.
type row []driver.Value

func (r row) str(i int) string {
	s, _ := r[i].(string)
	return s
}

func (r row) int(i int) int64 {
	n, _ := r[i].(int64)
	return n
}

func (r row) blob(i int) []byte {
	b, _ := r[i].([]byte)
	return b
}

// dsn spells a database name. Unknown options are ignored by the driver, so everything is read back by selfCheck.
func dsn(path, query string) string {
	return "file:" + strings.ReplaceAll(url.PathEscape(path), "%2F", "/") + "?" + query
}

const (
	writerQuery = "mode=rwc&_txlock=immediate&_busy_timeout=5000&_auto_vacuum=incremental&_foreign_keys=on&_journal_mode=WAL" +
		"&_recursive_triggers=on&_synchronous=FULL&_cache_size=-8192"
	readerQuery = "mode=ro&_busy_timeout=2000&_query_only=on&_foreign_keys=on&_recursive_triggers=on&_synchronous=FULL&_cache_size=-2048"
)

// dial opens one connection and sets what the name cannot.
func dial(name string, pragmas ...string) (*conn, error) {
	dc, err := (&sqlite3.SQLiteDriver{}).Open(name)
	if err != nil {
		return nil, storageError(err)
	}
	c := &conn{c: dc.(*sqlite3.SQLiteConn), stmts: map[string]*stmt{}, words: map[int64]string{}}
	pragmas = append([]string{"trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY"}, pragmas...)
	for _, p := range pragmas {
		if _, err := c.c.Exec("PRAGMA "+p, nil); err != nil {
			return nil, errors.Join(storageError(err), c.close())
		}
	}
	return c, nil
}

func dialWriter(path string) (*conn, error) {
	// Checkpoints are made by the committer after it has answered, so none is made inside a COMMIT.
	return dial(dsn(path, writerQuery), "wal_autocheckpoint=0", "journal_size_limit=67108864")
}

func dialReader(path string) (*conn, error) { return dial(dsn(path, readerQuery)) }

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.s.Close())
	}
	c.stmts = nil
	return errors.Join(append(errs, c.c.Close())...)
}

// prepare returns the cached statement. The set of statements is fixed by the
// program, except for lists, whose shapes are few.
func (c *conn) prepare(query string) (*stmt, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	ds, err := c.c.Prepare(query)
	if err != nil {
		return nil, fmt.Errorf("prepare %.60q: %w", query, err)
	}
	if len(c.stmts) > 256 {
		for q, old := range c.stmts {
			delete(c.stmts, q)
			if err := old.s.Close(); err != nil {
				return nil, errors.Join(err, ds.Close())
			}
			break
		}
	}
	s := &stmt{s: ds.(*sqlite3.SQLiteStmt)}
	c.stmts[query] = s
	return s, nil
}

// bind turns Go values into driver values without a copy of the argument list per call.
func (s *stmt) bind(vals []any) []driver.NamedValue {
	if cap(s.args) < len(vals) {
		s.args = make([]driver.NamedValue, len(vals))
	}
	s.args = s.args[:len(vals)]
	for i, v := range vals {
		switch x := v.(type) {
		case int:
			v = int64(x)
		case micros:
			v = int64(x)
		case bool:
			v = int64(0)
			if x {
				v = int64(1)
			}
		}
		s.args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return s.args
}

// exec runs a statement without result rows and returns the number of rows changed.
func (c *conn) exec(query string, vals ...any) (int64, error) {
	s, err := c.prepare(query)
	if err != nil {
		return 0, err
	}
	res, err := s.s.ExecContext(context.Background(), s.bind(vals))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// each calls f for every row. The row is valid only during the call, and f must not run the same query.
func (c *conn) each(ctx context.Context, query string, vals []any, f func(row) error) (err error) {
	s, err := c.prepare(query)
	if err != nil {
		return err
	}
	rows, err := s.s.QueryContext(ctx, s.bind(vals))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	if s.row == nil {
		s.row = make([]driver.Value, len(rows.Columns()))
	}
	for {
		switch err := rows.Next(s.row); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
		if err := f(row(s.row)); err != nil {
			return err
		}
	}
}

// one returns the first row, or ErrNotFound.
func (c *conn) one(ctx context.Context, query string, vals ...any) (row, error) {
	var out row
	err := c.each(ctx, query, vals, func(r row) error {
		if out == nil {
			out = append(row(nil), r...)
		}
		return nil
	})
	if err == nil && out == nil {
		err = ErrNotFound
	}
	return out, err
}

func (c *conn) oneInt(ctx context.Context, query string, vals ...any) (int64, error) {
	r, err := c.one(ctx, query, vals...)
	if err != nil {
		return 0, err
	}
	return r.int(0), nil
}

func (c *conn) oneStr(ctx context.Context, query string, vals ...any) (string, error) {
	r, err := c.one(ctx, query, vals...)
	if err != nil {
		return "", err
	}
	return r.str(0), nil
}

// script runs several statements that return nothing. Only migrations and tests use it.
func (c *conn) script(sql string) error {
	_, err := c.c.Exec(sql, nil)
	return err
}
