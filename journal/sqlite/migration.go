package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Migration says what brings a journal to this program's schema.
type Migration struct {
	From, To int64
	Steps    []string // file names, in order; none when the schema is this program's
	Backup   string   // the copy made before; "" for a dry run, or when there was nothing to do
}

// beforePath is where the copy of a journal lies that Open made before it changed the schema.
func beforePath(opts Options, from int64) string {
	return fmt.Sprintf("%s.schema-%d-%s", opts.Path, from, opts.Now().UTC().Format("20060102T150405.000"))
}

// backupBefore copies the journal whole before its schema is changed. The copy
// is on disk when it returns; without it nothing is changed.
func backupBefore(ctx context.Context, c *conn, opts Options, from int64) (string, error) {
	file := beforePath(opts, from)
	err := c.each(ctx, "VACUUM INTO ?", []any{file}, func(row) error { return nil })
	if err != nil {
		return "", fmt.Errorf("back up before the schema changes: %w", storageError(err))
	}
	if err := errors.Join(os.Chmod(file, 0o640), syncFile(file), syncDir(filepath.Dir(file))); err != nil {
		return "", fmt.Errorf("%w: back up before the schema changes: %w", ErrIO, err)
	}
	opts.Log.Info("journal backed up before its schema changes", "file", file, "schema", from)
	return file, nil
}

// Migrate brings the journal to this program's schema, while no daemon runs, and
// keeps a copy of what it was. With dryRun it changes, checks and throws away a
// copy; the journal stays as it is.
func Migrate(ctx context.Context, opts Options, dryRun bool) (m Migration, err error) {
	opts = opts.withDefaults()
	if _, err := os.Stat(opts.Path); err != nil {
		return m, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	lock, err := lockDir(filepath.Dir(opts.Path))
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	c, err := dialWriter(opts.Path)
	if err != nil {
		return m, storageError(err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	steps, err := migrations()
	if err != nil {
		return m, err
	}
	if m.From, err = c.oneInt(ctx, "PRAGMA user_version"); err != nil {
		return m, storageError(err)
	}
	m.To = int64(len(steps))
	if m.From > m.To {
		return m, fmt.Errorf("%w: the journal has schema %d, this program knows up to %d; use the newer program", ErrConfig, m.From, m.To)
	}
	for _, s := range steps[m.From:] {
		m.Steps = append(m.Steps, s.name)
	}
	if dryRun {
		return m, migrateCopy(ctx, c, opts)
	}
	m.Backup, err = migrate(c, opts)
	return m, err
}

// migrateCopy runs the steps on a copy beside the journal and looks whether it is whole.
func migrateCopy(ctx context.Context, c *conn, opts Options) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(opts.Path), ".settled-migrate-*")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	defer os.RemoveAll(dir)
	try := opts
	try.Path = filepath.Join(dir, "journal.db")
	if err := c.each(ctx, "VACUUM INTO ?", []any{try.Path}, func(row) error { return nil }); err != nil {
		return storageError(err)
	}
	cc, err := dialWriter(try.Path)
	if err != nil {
		return storageError(err)
	}
	defer func() { err = errors.Join(err, cc.close()) }()
	if _, err := migrate(cc, try); err != nil {
		return err
	}
	s, err := cc.oneStr(ctx, "PRAGMA integrity_check(20)")
	if err != nil {
		return storageError(err)
	}
	if strings.TrimSpace(s) != "ok" {
		return fmt.Errorf("%w: the copy is not whole after the change: %s", ErrCorrupt, s)
	}
	return nil
}
