package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A schema changes only after a whole copy of the journal lies beside it; a step
// that fails leaves the journal as it was.
func TestBeforeASchemaChangesACopyIsMade(t *testing.T) {
	opts := testOptions(t).withDefaults()
	must(t, openAt(t, opts).Close())
	steps, err := migrations()
	must(t, err)
	have := int64(len(steps))
	next := func(sql string) []migration {
		return append(steps[:have:have], migration{have + 1, "0099_test.sql", "sum", sql})
	}
	c, err := dialWriter(opts.Path)
	must(t, err)
	defer c.close()

	if _, err := migrateTo(c, opts, next("CREATE TABLE extra (a INTEGER) STRICT; SELECT broken")); err == nil {
		t.Fatal("a broken step was taken")
	}
	if v, err := c.oneInt(context.Background(), "PRAGMA user_version"); err != nil || v != have {
		t.Fatalf("after a broken step the schema is %d, %v", v, err)
	}
	copies, err := filepath.Glob(opts.Path + ".schema-*")
	must(t, err)
	for _, f := range copies {
		must(t, os.Remove(f))
	}

	backup, err := migrateTo(c, opts, next("CREATE TABLE extra (a INTEGER) STRICT"))
	must(t, err)
	if v, err := c.oneInt(context.Background(), "SELECT count(*) FROM extra"); err != nil || v != 0 {
		t.Errorf("the step did not run: %v", err)
	}
	st, err := os.Stat(backup)
	must(t, err)
	if st.Mode().Perm() != 0o640 {
		t.Errorf("the copy has mode %o", st.Mode().Perm())
	}
	old, err := dial(dsn(backup, "mode=ro"))
	must(t, err)
	defer old.close()
	if v, err := old.oneInt(context.Background(), "PRAGMA user_version"); err != nil || v != have {
		t.Errorf("the copy has schema %d, %v; want %d", v, err, have)
	}
}

// A dry run makes nothing but a copy, and takes that away.
func TestADryRunOfAMigrationLeavesNothing(t *testing.T) {
	opts := testOptions(t).withDefaults()
	db := openAt(t, opts)
	if _, err := Migrate(context.Background(), opts, true); err == nil || !strings.Contains(err.Error(), "pid") {
		t.Errorf("beside a daemon: %v", err)
	}
	must(t, db.Close())
	before, err := os.ReadDir(filepath.Dir(opts.Path))
	must(t, err)
	for _, dry := range []bool{true, false} {
		m, err := Migrate(context.Background(), opts, dry)
		if err != nil || len(m.Steps) != 0 || m.From != m.To || m.Backup != "" {
			t.Errorf("dry %v: %+v, %v", dry, m, err)
		}
	}
	after, err := os.ReadDir(filepath.Dir(opts.Path))
	must(t, err)
	if len(after) != len(before) {
		t.Errorf("left behind: %v, before %v", after, before)
	}
}
