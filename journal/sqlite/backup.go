package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/settled-dev/settled/journal"
)

// Backup writes a copy of the journal to a file that does not exist yet, while
// the daemon runs. The copy is one file; it is checked (damage and chain) and
// on disk before it gets its name. It is marked, so that a daemon that opens it
// knows that it was restored.
func (db *DB) Backup(ctx context.Context, file string) error {
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("backup: %s: %w; give another name", file, fs.ErrExist)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(file), ".settled-backup-*") // mode 0700: nobody else reads the copy meanwhile
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer os.RemoveAll(tmp)
	copyFile := filepath.Join(tmp, "journal.db")
	head, err := db.backupTo(ctx, copyFile)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := errors.Join(os.Chmod(copyFile, 0o640), syncFile(copyFile)); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := os.Link(copyFile, file); err != nil { // fails when the name was taken meanwhile
		return fmt.Errorf("backup: %w", err)
	}
	if err := syncDir(filepath.Dir(file)); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	db.opts.Log.Info("journal backed up", "file", file, "head", head)
	if db.readOnly {
		return nil
	}
	return db.Write(ctx, func(tx *Tx) error {
		return tx.Note(journal.Entry{
			Kind: "backup", Actor: "settled", ActorKind: journal.System, Origin: "engine", Because: filepath.Base(file) + " at " + head,
		})
	})
}

func (db *DB) backupTo(ctx context.Context, file string) (head string, err error) {
	// Not query_only: VACUUM INTO writes, though not here.
	src, err := dial(dsn(db.opts.Path, "mode=ro&_busy_timeout=2000&_foreign_keys=on"))
	if err != nil {
		return "", err
	}
	err = src.each(ctx, "VACUUM INTO ?", []any{file}, func(row) error { return nil })
	if err = errors.Join(err, src.close()); err != nil {
		return "", storageError(err)
	}
	c, err := dial(dsn(file, "mode=rw&_journal_mode=DELETE&_synchronous=FULL&_foreign_keys=on"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for name, value := range map[string]string{"running": "0", "copied_at": db.opts.Now().UTC().Format(time.RFC3339)} {
		if _, err := c.exec("INSERT INTO setting (name, value) VALUES (?1,?2) ON CONFLICT DO UPDATE SET value=?2", name, value); err != nil {
			return "", storageError(err)
		}
	}
	r, err := checkFile(ctx, c, db.key)
	if err != nil {
		return "", err
	}
	return r.Head, r.Err()
}

// checkFile looks for damage and verifies the chain.
func checkFile(ctx context.Context, c *conn, key []byte) (Report, error) {
	s, err := c.oneStr(ctx, "PRAGMA quick_check(1)")
	if err != nil {
		return Report{}, storageError(err)
	}
	if s != "ok" {
		return Report{}, fmt.Errorf("%w: %s", ErrCorrupt, s)
	}
	return verify(ctx, c, key, "")
}

// Check looks at every page of the file and at every reference in it, and then
// verifies the chain. It reads everything once.
func (db *DB) Check(ctx context.Context) (r Report, err error) {
	err = db.read(ctx, func(c *conn) error {
		var damage []string
		err := c.each(ctx, "PRAGMA integrity_check(20)", nil, func(r row) error {
			if r.str(0) != "ok" {
				damage = append(damage, r.str(0))
			}
			return nil
		})
		if err != nil {
			return err
		}
		err = c.each(ctx, "PRAGMA foreign_key_check", nil, func(r row) error {
			damage = append(damage, fmt.Sprintf("row %d of %s has no parent in %s", r.int(1), r.str(0), r.str(2)))
			return nil
		})
		if err != nil {
			return err
		}
		r, err = verify(ctx, c, db.key, "")
		r.Problems = append(damage, r.Problems...)
		if err == nil && len(damage) > 0 {
			err = fmt.Errorf("%w: %s", ErrCorrupt, damage[0])
		}
		return err
	})
	return r, err
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Restore puts a backup in the place of the journal, while no daemon runs. The
// backup is checked first; the journal that was there is kept beside it under
// the name that is returned ("" = there was none). The next [Open] finds that
// it was restored and keeps dispatch off.
func Restore(ctx context.Context, opts Options, file string) (replaced string, err error) {
	opts = opts.withDefaults()
	if err := makePlace(opts); err != nil {
		return "", err
	}
	lock, err := lockDir(filepath.Dir(opts.Path))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	tmp := opts.Path + ".restoring"
	if err := copyTo(file, tmp); err != nil {
		return "", fmt.Errorf("restore: %w", err)
	}
	defer os.Remove(tmp)
	if err := checkRestored(ctx, opts, tmp); err != nil {
		return "", fmt.Errorf("restore %s: %w", file, err)
	}
	if _, err := os.Lstat(opts.Path); err == nil {
		replaced = opts.Path + ".replaced-" + opts.Now().UTC().Format("20060102T150405.000000000")
		for _, suffix := range []string{"-wal", "-shm", ""} { // the file itself last: a crash between leaves it findable
			err := os.Rename(opts.Path+suffix, replaced+suffix)
			if err != nil && !os.IsNotExist(err) {
				return "", fmt.Errorf("restore: %w", err)
			}
		}
	}
	if err := os.Rename(tmp, opts.Path); err != nil {
		return replaced, fmt.Errorf("restore: %w", err)
	}
	return replaced, syncDir(filepath.Dir(opts.Path))
}

func checkRestored(ctx context.Context, opts Options, file string) (err error) {
	key, err := chainKey(opts, false)
	if err != nil {
		return err
	}
	c, err := dial(dsn(file, "mode=rw&_journal_mode=DELETE&_synchronous=FULL"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	version, err := c.oneInt(ctx, "PRAGMA user_version")
	if err != nil {
		return storageError(err)
	}
	if err := ours(c, version); err != nil {
		return err
	}
	// A file copied by other means carries no mark of its own.
	if _, err := c.exec(`INSERT INTO setting (name, value) VALUES ('copied_at',?) ON CONFLICT DO UPDATE SET value=excluded.value WHERE value=''`,
		opts.Now().UTC().Format(time.RFC3339)); err != nil {
		return storageError(err)
	}
	r, err := checkFile(ctx, c, key)
	return errors.Join(err, r.Err())
}

func copyTo(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close(), in.Close())
}
