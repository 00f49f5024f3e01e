package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"time"
)

// RawRate measures what this machine's SQLite can do without us: rows of about
// 500 bytes with three indexes, inserted in groups of one transaction each,
// WAL and FULL, for the given time. The file is removed afterwards.
func RawRate(ctx context.Context, path string, group int, d time.Duration) (rowsPerSecond float64, err error) {
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&_synchronous=FULL&_txlock=immediate")
	if err != nil {
		return 0, err
	}
	db.SetMaxOpenConns(1)
	defer func() {
		db.Close()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			os.Remove(path + suffix)
		}
	}()
	const schema = `CREATE TABLE raw (id INTEGER PRIMARY KEY, key TEXT NOT NULL, kind INTEGER NOT NULL, due INTEGER, body TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX raw_key ON raw(key); CREATE INDEX raw_due ON raw(due) WHERE due IS NOT NULL; CREATE INDEX raw_kind ON raw(kind, id)`
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return 0, err
	}
	body, rows, begun := strings.Repeat("x", 440), 0, time.Now()
	for time.Since(begun) < d {
		if err := rawGroup(ctx, db, rows, group, body); err != nil {
			return 0, err
		}
		rows += group
	}
	return float64(rows) / time.Since(begun).Seconds(), nil
}

func rawGroup(ctx context.Context, db *sql.DB, from, n int, body string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	insert, err := tx.Prepare("INSERT INTO raw (key, kind, due, body) VALUES (?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer insert.Close()
	for i := from; i < from+n; i++ {
		if _, err := insert.Exec(fmt.Sprintf("raw:%012d:insert:v1", i), i%7, i, body); err != nil {
			return err
		}
	}
	return tx.Commit()
}
