package sqlite

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"sort"
	"strconv"
	"strings"

	"github.com/settled-dev/settled/journal"
)

// applicationID marks the file as a journal of settled ("stld").
const applicationID = 0x73746c64

//go:embed migrations/*.sql
var migrationFiles embed.FS // read-only data of the binary

type migration struct {
	version      int64
	name, sha256 string
	sql          string
}

// migrations lists the embedded steps in order. A step once released is never edited.
func migrations() ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	var out []migration
	for _, n := range names {
		b, err := migrationFiles.ReadFile(n)
		if err != nil {
			return nil, err
		}
		base := strings.TrimPrefix(n, "migrations/")
		v, err := strconv.ParseInt(base[:4], 10, 64)
		if err != nil || v != int64(len(out)+1) {
			return nil, fmt.Errorf("migration %s is out of order", base)
		}
		sum := sha256.Sum256(b)
		out = append(out, migration{v, base, hex.EncodeToString(sum[:]), string(b)})
	}
	return out, nil
}

// migrate brings the file to the newest schema, forward only, one transaction
// for all steps. A journal that has a schema already is copied first; backup
// names the copy. It refuses a file that is not a journal, a newer schema and a
// step that was edited.
func migrate(c *conn, opts Options) (backup string, err error) {
	steps, err := migrations()
	if err != nil {
		return "", err
	}
	return migrateTo(c, opts, steps)
}

func migrateTo(c *conn, opts Options, steps []migration) (backup string, err error) {
	ctx := context.Background()
	have, err := c.oneInt(ctx, "PRAGMA user_version")
	if err != nil {
		return "", storageError(err)
	}
	if err := ours(c, have); err != nil {
		return "", err
	}
	if have > int64(len(steps)) {
		return "", fmt.Errorf("%w: %s has schema %d, this program (%s) knows up to %d; use the newer program",
			ErrConfig, opts.Path, have, opts.Version, len(steps))
	}
	if err := unedited(c, steps[:have]); err != nil {
		return "", err
	}
	if have == int64(len(steps)) {
		return "", nil
	}
	if have > 0 {
		if backup, err = backupBefore(ctx, c, opts, have); err != nil {
			return "", err
		}
	}
	return backup, applySteps(c, steps[have:], opts)
}

func applySteps(c *conn, steps []migration, opts Options) error {
	if _, err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return storageError(err)
	}
	if err := runMigrations(c, steps, opts); err != nil {
		_, _ = c.exec("ROLLBACK") // the first error says more
		return storageError(err)
	}
	if _, err := c.exec("COMMIT"); err != nil {
		return storageError(err)
	}
	return nil
}

func runMigrations(c *conn, steps []migration, opts Options) error {
	for _, m := range steps {
		if m.version == 1 {
			if err := c.script(`CREATE TABLE migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL,
				at INTEGER NOT NULL, binary TEXT NOT NULL) STRICT; PRAGMA application_id=` + strconv.Itoa(applicationID)); err != nil {
				return err
			}
		}
		if err := c.script(m.sql); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
		if _, err := c.exec("INSERT INTO migration (version, name, sha256, at, binary) VALUES (?,?,?,?,?)",
			m.version, m.name, m.sha256, us(opts.Now()), opts.Version); err != nil {
			return err
		}
		if err := c.script("PRAGMA user_version=" + strconv.FormatInt(m.version, 10)); err != nil {
			return err
		}
	}
	return fillTransitions(c)
}

// fillTransitions copies the model's table of legal moves into the database.
func fillTransitions(c *conn) error {
	if _, err := c.exec("DELETE FROM transition"); err != nil {
		return err
	}
	for i, p := range numbered() {
		if _, err := c.exec("INSERT OR IGNORE INTO phase_number (n, phase) VALUES (?,?)", i, string(p)); err != nil {
			return err
		}
	}
	for _, t := range journal.Transitions() {
		if _, err := c.exec("INSERT OR IGNORE INTO transition (from_phase, to_phase) VALUES (?,?)",
			string(t.From), string(t.To)); err != nil {
			return err
		}
	}
	return nil
}

func ours(c *conn, version int64) error {
	ctx := context.Background()
	id, err := c.oneInt(ctx, "PRAGMA application_id")
	if err != nil {
		return storageError(err)
	}
	tables, err := c.oneInt(ctx, "SELECT count(*) FROM sqlite_master")
	if err != nil {
		return storageError(err)
	}
	if id != applicationID && (tables > 0 || id != 0 || version != 0) {
		return fmt.Errorf("%w: the file is a database, but not a journal of settled", ErrConfig)
	}
	return nil
}

func unedited(c *conn, steps []migration) error {
	for _, m := range steps {
		sum, err := c.oneStr(context.Background(), "SELECT sha256 FROM migration WHERE version=?", m.version)
		if err != nil {
			return storageError(err)
		}
		if sum != m.sha256 {
			return fmt.Errorf("%w: migration %s differs from the one this journal was made with", ErrConfig, m.name)
		}
	}
	return nil
}
