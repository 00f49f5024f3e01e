package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/settled-dev/settled/daemon/config"
)

// Each archive holds files and, under want, all that is said about them.
// UPDATE_GOLDEN=1 rewrites want.
func TestFaultsAsPeopleSeeThem(t *testing.T) {
	paths, err := filepath.Glob("testdata/faults/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { faultCase(t, path) })
	}
}

func faultCase(t *testing.T, path string) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir, want := t.TempDir(), -1
	for i, f := range archive.Files {
		if f.Name == "want" {
			want = i
			continue
		}
		write(t, filepath.Join(dir, f.Name), string(f.Data))
	}
	got := said(config.Load(filepath.Join(dir, "settled.toml"), config.Options{}))
	got = strings.ReplaceAll(got, dir+"/", "/etc/settled/")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		archive.Files[want].Data = []byte(got)
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != string(archive.Files[want].Data) {
		t.Fatalf("got:\n%s\nwant:\n%s", got, archive.Files[want].Data)
	}
}

func said(c *config.Config, err error) string {
	var e *config.Error
	switch {
	case errors.As(err, &e):
		return "refused\n" + err.Error() + "\n"
	case err != nil:
		return "not an *Error: " + err.Error()
	}
	out := "accepted\n"
	for _, w := range c.Warnings {
		out += w.Error() + "\n"
	}
	return out
}
