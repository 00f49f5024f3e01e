package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settled-dev/settled/daemon/config"
)

func readExample(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("testdata/example.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parse(text string) (*config.Config, error) {
	return config.Parse("settled.toml", []byte(text), config.Options{})
}

func mustParse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := parse(text)
	if err != nil {
		t.Fatalf("Parse:\n%v", err)
	}
	return c
}

// The documented example is sound but for what is not built yet.
func TestDocumentedExampleIsUnderstood(t *testing.T) {
	_, err := parse(readExample(t))
	var e *config.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T", err)
	}
	want := []string{"listen.http", "owners.support-ops.notify", "owners.support-lead.notify"}
	var got []string
	for _, f := range e.Faults {
		got = append(got, f.Key)
	}
	if !e.OnlyNotBuilt() || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("faults %v, want only %v not built yet\n%v", got, want, err)
	}
	if e.ExitStatus() != 78 {
		t.Fatalf("exit status %d", e.ExitStatus())
	}
}

func buildable(text string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "notify") || strings.HasPrefix(line, "http ") {
			continue
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func TestExampleWithoutUnbuiltPartsLoads(t *testing.T) {
	c := mustParse(t, buildable(readExample(t)))
	if len(c.Warnings) != 0 || len(c.Overrides) != 0 {
		t.Fatalf("warnings %v, overrides %v", c.Warnings, c.Overrides)
	}
	e := c.Destinations["desk"].ForOperation("create")
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/effective.json", string(data)+"\n")
	var with map[string]any
	if err := json.Unmarshal(c.Destinations["desk"].With.RawMessage, &with); err != nil {
		t.Fatal(err)
	}
	dedupe := with["operations"].(map[string]any)["create"].(map[string]any)["dedupe"].(map[string]any)
	if dedupe["verified_on"] != "2026-11-30" {
		t.Fatalf("a date became %v", dedupe["verified_on"])
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Fatalf("%s differs (UPDATE_GOLDEN=1 rewrites it):\n%s", path, got)
	}
}

func TestConfDIsMergedInNameOrder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "settled.toml"), "[owners.ops]\n[destinations.desk]\nadapter = \"http\"\nowner = \"ops\"\n")
	write(t, filepath.Join(dir, "conf.d", "20-b.toml"), "[destinations.desk.retry]\nattempts = 5\n")
	write(t, filepath.Join(dir, "conf.d", "10-a.toml"), "[destinations.mail]\nadapter = \"exec\"\nowner = \"ops\"\n")
	write(t, filepath.Join(dir, "conf.d", "ignored.txt"), "not toml")
	c, err := config.Load(filepath.Join(dir, "settled.toml"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Files) != 3 || filepath.Base(c.Files[1]) != "10-a.toml" || filepath.Base(c.Files[2]) != "20-b.toml" {
		t.Fatalf("files %v", c.Files)
	}
	if c.Destinations["desk"].Retry.Attempts != 5 || c.Destinations["mail"].Adapter != "exec" {
		t.Fatal("a table was not merged")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}
