package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"
)

// sqlLimit bounds one query of the shell, because a long read holds the write-ahead log.
const sqlLimit = 5 * time.Second

// OpenReadOnly opens the journal for reading, with a daemon running or not.
// Writes give [ErrClosed]. When no daemon runs, it holds the lock while open, so
// that none begins; when one runs, it reads beside it.
func OpenReadOnly(ctx context.Context, opts Options) (*DB, error) {
	opts = opts.withDefaults()
	if _, err := os.Stat(opts.Path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	lock, err := lockDir(filepath.Dir(opts.Path))
	if err != nil && !errors.Is(err, ErrLocked) {
		return nil, err
	}
	db := &DB{
		opts: opts, lock: lock, readOnly: true, done: make(chan struct{}), gone: make(chan struct{}), fatal: make(chan struct{}),
		queue: make(chan *op),
	}
	close(db.done)
	if err := db.openReadOnly(ctx, lock == nil); err != nil {
		return nil, errors.Join(storageError(err), db.release())
	}
	db.stop = func(error) {}
	return db, nil
}

func (db *DB) openReadOnly(ctx context.Context, beside bool) (err error) {
	if db.key, err = chainKey(db.opts, false); err != nil {
		return err
	}
	db.readers = make(chan *conn, 1)
	query := readerQuery
	if !beside { // what a crash left in the log is read only by a connection that may write
		query = "mode=rw&_busy_timeout=2000&_query_only=on&_foreign_keys=on&_recursive_triggers=on&_synchronous=FULL"
	}
	c, err := dial(dsn(db.opts.Path, query))
	if err != nil {
		return err
	}
	db.readers <- c
	version, err := c.oneInt(ctx, "PRAGMA user_version")
	if err != nil {
		return err
	}
	if err := ours(c, version); err != nil {
		return err
	}
	steps, err := migrations()
	if err != nil {
		return err
	}
	if version != int64(len(steps)) {
		return fmt.Errorf("%w: the journal has schema %d, this program knows %d", ErrConfig, version, len(steps))
	}
	return db.readView(ctx, c)
}

func (db *DB) readView(ctx context.Context, c *conn) (err error) {
	if db.head, err = readHead(ctx, c); err != nil {
		return err
	}
	if db.counters, err = readCounters(ctx, c); err != nil {
		return err
	}
	hs, err := readHolds(ctx, c)
	if err != nil {
		return err
	}
	db.epoch, err = c.oneInt(ctx, "SELECT cast(value AS INTEGER) FROM setting WHERE name='epoch'")
	if err != nil {
		return err
	}
	v := &db.view
	v.head, v.counters, v.holds = db.head, maps.Clone(db.counters), hs
	for name, into := range map[string]*string{"dispatch_off": &v.dispatchOff} {
		s, err := c.oneStr(ctx, "SELECT value FROM setting WHERE name=?", name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		*into = s
	}
	return nil
}

func readCounters(ctx context.Context, c *conn) (map[counterKey]int64, error) {
	out := map[counterKey]int64{}
	err := c.each(ctx, "SELECT destination, name, value FROM counter", nil, func(r row) error {
		out[counterKey{r.str(0), r.str(1)}] = r.int(2)
		return nil
	})
	return out, err
}

// SQL runs one query of a person on a connection of its own that cannot write,
// for at most five seconds. f is called for every row; vals is valid only then.
func (db *DB) SQL(ctx context.Context, query string, f func(columns []string, vals []any) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, sqlLimit)
	defer cancel()
	c, err := dialReader(db.opts.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	s, err := c.prepare(query)
	if err != nil {
		return err
	}
	rows, err := s.s.QueryContext(ctx, nil)
	if err != nil {
		return err
	}
	columns := append([]string(nil), rows.Columns()...)
	err = rows.Close()
	if err != nil || len(columns) == 0 {
		return err
	}
	vals := make([]any, len(columns))
	return c.each(ctx, query, nil, func(r row) error {
		for i, v := range r {
			vals[i] = v
		}
		return f(columns, vals)
	})
}
