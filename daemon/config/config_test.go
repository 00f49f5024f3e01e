package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon/config"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestWithoutRootAndConfigurationStateIsTheUsers(t *testing.T) {
	o := config.Options{Unprivileged: true, Home: "/home/ada", Getenv: env("XDG_STATE_HOME", "/s", "XDG_RUNTIME_DIR", "/r")}
	c := config.Default(o)
	if c.Journal.Path != "/s/settled/journal.db" || c.Listen.Socket != "/r/settled.sock" || c.RuntimeDir() != "/r/settled" {
		t.Errorf("journal %s socket %s runtime %s", c.Journal.Path, c.Listen.Socket, c.RuntimeDir())
	}
	if filepath.Dir(c.Journal.Generation) == filepath.Dir(c.Journal.Path) {
		t.Errorf("the generation marker %s lies beside the journal", c.Journal.Generation)
	}
	o.Getenv = env("XDG_STATE_HOME", "relative")
	o.UID = 99999999
	c = config.Default(o)
	if c.Journal.Path != "/home/ada/.local/state/settled/journal.db" || !strings.HasPrefix(c.Listen.Socket, "/home/ada/.local/state/settled/") {
		t.Errorf("journal %s socket %s", c.Journal.Path, c.Listen.Socket)
	}
}

func TestPathsOfAnInstalledDaemon(t *testing.T) {
	for name, c := range map[string]*config.Config{
		"as root": config.Default(config.Options{}),
		"with a configuration, as any user": func() *config.Config {
			c, err := config.Parse("x.toml", nil, config.Options{Unprivileged: true})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}(),
	} {
		if c.Journal.Path != "/var/lib/settled/journal.db" || c.Journal.Generation != "/var/lib/settled-generation/marker" ||
			c.Listen.Socket != "/run/settled.sock" || c.Listen.HTTP != "" || c.Credentials.Dir != "/etc/settled/credentials" ||
			c.Adapters.Dir != "/usr/lib/settled/adapters" {
			t.Errorf("%s: %+v %+v %+v", name, c.Journal, c.Listen, c.Credentials)
		}
		const day = 24 * time.Hour
		if c.Journal.RestoreWindow != 30*day || c.Journal.Keep != 90*day || c.Journal.KeepPayload != 7*day || c.Daemon.StopBudget != time.Minute {
			t.Errorf("%s: %+v %+v", name, c.Journal, c.Daemon)
		}
	}
	if got := config.Default(config.Options{Getenv: env("RUNTIME_DIRECTORY", "/run/x")}).RuntimeDir(); got != "/run/x" {
		t.Errorf("runtime directory %s", got)
	}
}

func TestFindPrefersTheFlagThenTheEnvironment(t *testing.T) {
	o := config.Options{Getenv: env("SETTLED_CONFIG", "/env.toml")}
	if got := config.Find("/flag.toml", o); got != "/flag.toml" {
		t.Error(got)
	}
	if got := config.Find("", o); got != "/env.toml" {
		t.Error(got)
	}
	if _, err := config.Open(filepath.Join(t.TempDir(), "none.toml"), o); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that was named and is not there: %v", err)
	}
}

func TestPolicyDigestChangesWithMeaningOnly(t *testing.T) {
	base := mustParse(t, minimal).PolicySHA256()
	same := mustParse(t, "# a comment\n"+strings.Replace(minimal, `owner = "ops"`, "timeout = '10000ms'\nowner = 'ops'", 1)).PolicySHA256()
	if !strings.HasPrefix(base, "sha256:") || len(base) != 71 {
		t.Fatal(base)
	}
	if base != same {
		t.Error("spelling changed the digest")
	}
	for _, more := range []string{"timeout = \"11s\"", "[destinations.desk.with]\nx = 1", "[destinations.desk.grace]\nlag = \"0s\"", "account = \"a\"", "[owners.third]"} {
		if got := mustParse(t, minimal+more+"\n").PolicySHA256(); got == base {
			t.Errorf("%q did not change the digest", more)
		}
	}
}

func TestAdapterDiagnosticsFindTheirLine(t *testing.T) {
	c := mustParse(t, minimal+`[destinations.desk.with]
base_url = "http://127.0.0.1:9900"
[destinations.desk.with.operations.create.read]
guard = { path = "/me", when = 'true' }
states = ["open", "shut"]
"a/b~c" = 1
`)
	for pointer, want := range map[string]string{
		"/base_url":                            "settled.toml:8:12",
		"/operations/create/read/guard/path":   "settled.toml:10:18",
		"/operations/create/read/guard/absent": "settled.toml:10:1",
		"/operations/create/read/states/1":     "settled.toml:11:19",
		"/operations/create/read/states/7":     "settled.toml:11:1",
		"/operations/create/read/a~1b~0c":      "settled.toml:12:11",
		"/operations/delete":                   "settled.toml:9:25",
		"":                                     "settled.toml:7:20",
		"/":                                    "settled.toml:7:20",
	} {
		if got := c.Position("desk", pointer).String(); got != want {
			t.Errorf("Position(%q) = %s, want %s", pointer, got, want)
		}
	}
	if got := c.Position("nowhere", "/x"); got != (config.Place{}) {
		t.Errorf("a destination that is not there has position %v", got)
	}
	f := c.AdapterFault("desk", "/base_url", "must be https", "write https://", false)
	want := "settled.toml:8:12: must be https\n    8 | base_url = \"http://127.0.0.1:9900\"\n      |            ^^^^^^^^^^^^^^^^^^^^^^^\n        write https://"
	if f.Error() != want || f.Key != "destinations.desk.with.base_url" {
		t.Errorf("%s\n%s", f.Key, f.Error())
	}
}

func TestKeyPatternsAreCompiled(t *testing.T) {
	c := mustParse(t, "[keys]\nallow = [\"^mail:\"]\ndeny = [\"secret\"]\n")
	if !c.Keys.AllowPatterns()[0].MatchString("mail:x") || c.Keys.AllowPatterns()[0].MatchString("x:mail:") || !c.Keys.DenyPatterns()[0].MatchString("a-secret") {
		t.Fatal("patterns do not match as Go expressions do")
	}
}

func TestASchedulePlansWithItsSettings(t *testing.T) {
	c, err := config.Parse("x.toml", []byte(minimal+`
[schedules.sweep]
do = "reconcile"
destination = "desk"
cron = "0 0 13 * 5"
day_match = "any"
timezone = "Europe/Zurich"
catch_up = "skip"
`), config.Options{Host: "one"})
	if err != nil {
		t.Fatal(err)
	}
	s := c.Schedules["sweep"]
	next := s.Plan().Next(time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))
	if next.Format(time.RFC3339) != "2026-02-06T00:00:00+01:00" || s.Within != 24*time.Hour {
		t.Fatalf("next %s, within %s", next, s.Within)
	}
}

func credentialConfig(t *testing.T) (c *config.Config, given, dir string) {
	t.Helper()
	given, dir = t.TempDir(), t.TempDir()
	c, err := config.Parse("x.toml", []byte(minimal+"credentials = [\"token\", \"other\", \"open\", \"gone\", \"pipe\", \"empty\"]\n[credentials]\ndir = \""+dir+"\"\n[journal]\nchain_key = \"audit\"\n"),
		config.Options{Getenv: env("CREDENTIALS_DIRECTORY", given)})
	if err != nil {
		t.Fatal(err)
	}
	return c, given, dir
}

func TestCredentials(t *testing.T) {
	c, given, dir := credentialConfig(t)
	write(t, filepath.Join(given, "token"), "from-systemd\n")
	write(t, filepath.Join(dir, "token"), "from-dir")
	write(t, filepath.Join(dir, "other"), "two words \r\n")
	write(t, filepath.Join(dir, "audit"), "chain")
	write(t, filepath.Join(dir, "unlisted"), "x")
	write(t, filepath.Join(dir, "empty"), "\n")
	write(t, filepath.Join(dir, "open"), "x")
	if err := os.Chmod(filepath.Join(dir, "open"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"token": "from-systemd", "other": "two words ", "audit": "chain"} {
		if got, err := c.Credential(name); err != nil || got != want {
			t.Errorf("Credential(%q) = %q, %v", name, got, err)
		}
	}
	for name, because := range map[string]string{
		"unlisted": "listed by no destination", "../token": "cannot name", "a/b": "cannot name", "..": "cannot name", "": "cannot name",
		"open": "chmod o-rwx", "gone": "LoadCredential=gone:", "pipe": "not a regular file", "empty": "is empty",
	} {
		if got, err := c.Credential(name); err == nil || got != "" || !strings.Contains(err.Error(), because) {
			t.Errorf("Credential(%q) = %q, %v; want a refusal that says %q", name, got, err, because)
		}
	}
	if got, err := c.Secrets("desk"); err == nil || got != nil || !strings.Contains(err.Error(), "chmod") || !strings.Contains(err.Error(), "gone") {
		t.Errorf("Secrets = %v, %v; want every missing one named and none given", got, err)
	}
}

func TestSecretsOfADestinationAreOnlyItsOwn(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "A")
	write(t, filepath.Join(dir, "b"), "B")
	c := mustParse(t, minimal+"credentials = [\"a\"]\n[destinations.two]\nadapter = \"exec\"\nowner = \"ops\"\ncredentials = [\"b\"]\n[credentials]\ndir = \""+dir+"\"\n")
	got, err := c.Secrets("desk")
	if err != nil || len(got) != 1 || got["a"] != "A" {
		t.Fatalf("Secrets = %v, %v", got, err)
	}
}
