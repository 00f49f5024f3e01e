package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/author"
	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/sdk/adaptertest"
)

// authoring runs `settled adapter …` in this process; what it starts is this
// test program, which is also settled.
func authoring(t *testing.T, dir string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	app := author.App{Stdout: &out, Stderr: &errs, Self: self, BuiltIn: builtIn(), Dir: func() (string, error) { return dir, nil }}
	status = app.Main(args)
	return status, out.String(), errs.String()
}

// checkout is the root of this repository.
func checkout(t *testing.T) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

func TestGeneratedScriptsPassTheKitAsTheyAre(t *testing.T) {
	for lang, needs := range map[string][]string{"python": {"python3"}, "shell": {"python3", "sh", "jq", "curl"}, "node": {"python3", "node"}} {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			for _, program := range needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("%s is not installed", program)
				}
			}
			dir := filepath.Join(t.TempDir(), "acme")
			if status, out, errs := authoring(t, "", "init", dir, "--lang", lang); status != 0 {
				t.Fatal(out, errs)
			}
			junit := filepath.Join(t.TempDir(), "junit.xml")
			status, out, errs := authoring(t, "", "test", dir, "--short", "--json", "--junit", junit)
			var r struct {
				Passed, Failed int
				NotBuilt       int `json:"not_built"`
				Badge          string
				Checks         []adaptertest.Result
			}
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err, out, errs)
			}
			for _, c := range r.Checks {
				if c.Status == adaptertest.Fail {
					t.Errorf("%s %s: %s", c.ID, c.Name, c.Reason)
				}
			}
			if status != 0 || r.Passed < 42 || len(r.Checks) != 57 || !strings.Contains(r.Badge, "sha256:") {
				t.Errorf("status %d, %d passed, %s %s", status, r.Passed, r.Badge, errs)
			}
			if raw, err := os.ReadFile(junit); err != nil || !bytes.Contains(raw, []byte("<testsuite")) {
				t.Errorf("%v %s", err, raw)
			}
		})
	}
}

// generatedGo is a compiled project of `init --lang go`.
func generatedGo(t *testing.T) (dir, program string) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles a project")
	}
	dir = filepath.Join(t.TempDir(), "acme")
	root := checkout(t)
	if status, out, errs := authoring(t, "", "init", dir, "--lang", "go", "--sdk", root); status != 0 {
		t.Fatal(out, errs)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	build := func(args ...string) {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		if raw, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, raw)
		}
	}
	build("build")
	build("vet", ".")
	return dir, filepath.Join(dir, "acme")
}

func TestAGeneratedGoAdapterPassesTheKitAndIsInstalled(t *testing.T) {
	dir, program := generatedGo(t)
	status, out, errs := authoring(t, "", "test", dir, "--short")
	if status != 0 || !strings.Contains(out, " 0 failed") || strings.Contains(out, "FAIL") {
		t.Fatal(status, out, errs)
	}
	installed := t.TempDir()
	if status, out, errs = authoring(t, installed, "install", program); status != 0 || !strings.Contains(out, "credential of token") || !strings.Contains(out, "create-invoice writes") {
		t.Fatal(status, out, errs)
	}
	_, list, _ := authoring(t, installed, "list", "--json")
	if !strings.Contains(list, `"name":"acme","built_in":false,"sha256":"`) || !strings.Contains(list, `"name":"http","built_in":true`) {
		t.Error(list)
	}
	if status, out, errs := authoring(t, installed, "docs", "acme"); status != 0 || !strings.Contains(out, "# acme 0.1.0") {
		t.Error(status, out, errs)
	}
	if status, _, errs := authoring(t, installed, "install", program, "--sha256", strings.Repeat("0", 64)); status != 1 || !strings.Contains(errs, "not 0000") {
		t.Error(status, errs)
	}
	if err := os.Chmod(filepath.Join(installed, "acme"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, list, _ = authoring(t, installed, "list"); !strings.Contains(list, "refused") || !strings.Contains(list, "chmod go-w") {
		t.Error(list)
	}
	entries, err := os.ReadDir(installed)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestAnAdapterThatMayDoMoreIsNotInstalledInSilence(t *testing.T) {
	dir := t.TempDir()
	// A shell script that is no adapter stands for the older one: it cannot be compared.
	if err := os.WriteFile(filepath.Join(dir, "fake"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("#!/bin/sh\necho hello\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := authoring(t, dir, "install", bad); status != 1 || !strings.Contains(errs, "no handshake") {
		t.Error(status, errs)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(bad, link); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := authoring(t, dir, "install", link); status != 1 || !strings.Contains(errs, "not a regular file") {
		t.Error(status, errs)
	}
}

func TestTheBuiltInHTTPAdapterPassesTheKitAgainstTheDesk(t *testing.T) {
	d, err := desk.Start(desk.Config{Token: "desk-token-1", RepairToken: "desk-repair-1", DedupeWindow: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	text, err := os.ReadFile("testdata/desk.toml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("desk.toml", bytes.ReplaceAll(text, []byte("http://127.0.0.1:9900"), []byte("{{url}}")), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := adaptertest.Run(t, adaptertest.Plan{
		Adapter: []string{self, "adapter-serve", "http"}, URL: d.URL(), Config: c.Destinations["desk"].With.RawMessage,
		Secrets: map[string]string{"desk_token": "desk-token-1", "desk_repair": "desk-repair-1"},
		Action:  "create", Payload: json.RawMessage(`{"queue":"billing","subject":"Invoice {{n}}","body":"text"}`),
		Invalid: []adaptertest.Bad{{Document: json.RawMessage(`{"queue":"billing","subject":"","body":"x"}`)}},
		Text:    "/subject", MorePage: json.RawMessage(`{"items":[],"next":"/tickets?cursor=1","complete":true}`),
		EffectsOf: func(key string) (int, error) {
			n := 0
			for _, ticket := range d.Tickets() {
				if ticket.ExternalRef == key {
					n++
				}
			}
			return n, nil
		},
	}, adaptertest.Options{Short: true})
	if r.Count(adaptertest.Pass) < 30 {
		t.Errorf("only %d passed: %s", r.Count(adaptertest.Pass), fmt.Sprint(r.Results))
	}
}
