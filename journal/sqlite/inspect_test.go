package sqlite

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func inspectOptions(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	return Options{Path: filepath.Join(dir, "j", "journal.db"), GenerationPath: filepath.Join(dir, "g", "marker")}
}

// tree is every file under dir with its size.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(p string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			data, rerr := os.ReadFile(p)
			b.WriteString(p + " " + string(bytes.TrimSpace(data)) + "\n")
			err = rerr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestInspectChangesNothingAndMakesNoFile(t *testing.T) {
	o := inspectOptions(t)
	root := filepath.Dir(filepath.Dir(o.Path))
	in, err := Inspect(context.Background(), o)
	if err != nil || in.Exists || in.Restored != "" || in.Holder != "" || tree(t, root) != "" {
		t.Fatalf("before there is a journal: %+v %v %q", in, err, tree(t, root))
	}
	db, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	in, err = Inspect(context.Background(), o)
	if err != nil || !strings.HasPrefix(in.Holder, "pid ") || in.Schema != in.Newest || in.Epoch != 1 || in.Unclean {
		t.Errorf("beside its daemon: %+v %v", in, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before := tree(t, root)
	in, err = Inspect(context.Background(), o)
	if err != nil || !in.Exists || in.Holder != "" || in.Restored != "" || in.Unclean || in.KeyErr != nil || in.ID == "" {
		t.Errorf("after a clean stop: %+v %v", in, err)
	}
	if after := tree(t, root); after != before {
		t.Error("Inspect left something behind")
	}
}

func TestInspectForeseesWhatTheNextStartWouldSay(t *testing.T) {
	o := inspectOptions(t)
	db, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	wrong := o
	wrong.ChainKey = []byte("another key of the event chain")
	if in, err := Inspect(context.Background(), wrong); err != nil || !errors.Is(in.KeyErr, ErrConfig) {
		t.Errorf("another key: %v %v", in.KeyErr, err)
	}
	if err := os.Remove(o.GenerationPath); err != nil {
		t.Fatal(err)
	}
	if in, err := Inspect(context.Background(), o); err != nil || !strings.Contains(in.Restored, "missing") {
		t.Errorf("without its marker: %q %v", in.Restored, err)
	}
	c, err := dialWriter(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(c.script("PRAGMA user_version=99"), c.close())
	if err != nil {
		t.Fatal(err)
	}
	if in, err := Inspect(context.Background(), o); err != nil || in.Schema != 99 || in.Newest >= 99 {
		t.Errorf("of a newer program: %+v %v", in, err)
	}
	other := filepath.Join(filepath.Dir(o.Path), "other.db")
	if err := os.WriteFile(other, []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Path = other
	if _, err := Inspect(context.Background(), o); !errors.Is(err, ErrCorrupt) {
		t.Errorf("no database at all: %v", err)
	}
}
