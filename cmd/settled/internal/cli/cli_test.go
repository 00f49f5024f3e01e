package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/settled-dev/settled/cmd/settled/internal/cli"
	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/api"
	"github.com/settled-dev/settled/daemon/api/apitest"
	"github.com/settled-dev/settled/journal"
)

func TestMain(m *testing.M) {
	testscript.Main(leaks{m}, map[string]func(){"settled": func() {
		app := newApp(os.Getenv)
		app.Stdin, app.Stdout, app.Stderr = os.Stdin, os.Stdout, os.Stderr
		os.Exit(app.Run(context.Background(), os.Args[1:]))
	}})
}

// leaks fails a run that leaves a goroutine behind.
type leaks struct{ m *testing.M }

func (l leaks) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func newApp(getenv func(string) string) *cli.App {
	return &cli.App{
		Stdin: strings.NewReader(""), Getenv: getenv, Version: "test",
		Now: func() time.Time { return time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC) },
	}
}

// desk runs command lines in process against a daemon of memory.
type desk struct {
	t    *testing.T
	fake *apitest.Fake
	sock string
	app  func() *cli.App
}

func newDesk(t *testing.T) *desk {
	f := apitest.New()
	d := &desk{t: t, fake: f, sock: apitest.Start(t, f, api.Options{})}
	d.app = func() *cli.App { return newApp(func(string) string { return "" }) }
	return d
}

type result struct {
	code     int
	out, err string
}

func (d *desk) run(line string) result {
	d.t.Helper()
	return d.with(d.sock, "", strings.Fields(line)...)
}

func (d *desk) with(sock, stdin string, args ...string) result {
	d.t.Helper()
	var out, errs bytes.Buffer
	a := d.app()
	a.Stdin, a.Stdout, a.Stderr = strings.NewReader(stdin), &out, &errs
	code := a.Run(d.t.Context(), append([]string{"--socket", sock}, args...))
	return result{code, out.String(), errs.String()}
}

func TestExitStatuses(t *testing.T) {
	d := newDesk(t)
	for _, p := range journal.Phases() {
		d.fake.Put(apitest.Effect("k:"+string(p), p))
	}
	resent := apitest.Effect("k:resent", journal.Authorized) // a second attempt waits, the first is proved absent
	resent.Attempts = []journal.Attempt{{ID: "a", Number: 1, State: journal.AttemptSettledAbsent}}
	d.fake.Put(resent)
	const create = "submit desk create --key "
	for _, c := range []struct {
		line string
		code int
		says string // on standard error
	}{
		{create + "n:1", 0, ""},
		{create + "n:1", 0, ""},
		{create + "n:1 --set a=b", 7, "bound to another request"},
		{create + "n:2 --dry-run", 0, ""},
		{create + "a@b.example", 2, "e-mail"},
		{"submit nowhere create --key n:3", 2, "not configured"},
		{"submit desk --key n:3", 2, "type: settled submit DESTINATION"},
		{"submit desk create", 2, "--key"},
		{create + "n:3 --payload x --set a=b", 2, "use one"},
		{create + "n:3 --payload /no/such/file", 2, "no such file"},
		{create + "n:3 --not-before soon", 2, "neither a time nor a duration"},
		{create + "n:3 --wait=soon", 2, "no duration"},
		{create + "n:3 --colour red", 2, "unknown flag"},
		{"submit desk done --key w:1 --wait", 0, ""},
		{"submit desk refused --key w:2 --wait", 3, "did not happen"},
		{"submit desk asks --key w:3 --wait", 4, "not known yet"},
		{"submit desk lost --key w:4 --wait=20ms", 4, "not known yet"},
		{"submit desk create --key w:5 --wait=20ms", 5, "was not sent yet"},
		{"submit desk abandoned --key w:6 --wait", 10, "closed by a person"},
		{"submit desk compensated --key w:7 --wait", 10, "closed by a person"},
		{"wait k:succeeded", 0, ""},
		{"wait k:failed", 3, "did not happen"},
		{"wait k:rolled_back", 3, ""},
		{"wait k:needs_human", 4, "settled review k:needs_human"},
		{"wait k:repairing", 4, ""},
		{"wait k:compensated", 10, ""},
		{"wait k:abandoned", 10, ""},
		{"wait k:unknown --timeout 20ms", 4, "do not do it another way"},
		{"wait k:dispatching --timeout 20ms", 4, ""},
		{"wait k:acknowledged --timeout 20ms", 4, ""},
		{"wait k:verifying --timeout 20ms", 4, ""},
		{"wait k:reconciling --timeout 20ms", 4, ""},
		{"wait k:prepared --timeout 20ms", 5, ""},
		{"wait k:authorized --timeout 20ms", 5, ""},
		{"wait k:confirmed_absent --timeout 20ms", 5, ""},
		{"wait k:resent --timeout 20ms", 5, ""},
		{"wait none:1", 1, "not found"},
		{"show k:unknown", 0, ""},
		{"show none:1", 1, "type: settled list"},
		{"list phase:unknown", 0, ""},
		{"cancel k:authorized", 2, "--because"},
		{"cancel k:authorized --because x", 0, ""},
		{"cancel k:unknown --because x", 4, "unknown"},
		{"cancel k:succeeded --because x", 1, "succeeded"}, // not 4: its outcome is known
		{"cancel k:failed --because x", 1, ""},
		{"cancel none:1 --because x", 1, ""},
		{"decide k:needs_human read", 2, "--because"},
		{"decide k:needs_human guess --because x", 2, "known are"},
		{"decide k:needs_human happened --because x", 2, "object"},
		{"decide k:needs_human read --because x --if-seq 3", 7, "needs_human now, seq 7"},
		{"decide k:unknown happened --object T --because x", 4, ""},
		{"decide k:failed retry --because x", 1, ""},
		{"decide k:needs_human read --because x --if-seq 7", 0, ""},
		{"review k:failed", 1, "not in review"},
		{"hold elsewhere --because x", 2, "scope"},
		{"hold all", 2, "--because"},
		{"hold all --because x", 0, ""},
		{"release all", 0, ""},
		{"release all", 1, "not found"},
		{"sweep none", 1, ""},
		{"sweep desk-sweep", 0, ""},
		{"schedule explain none", 1, "settled schedule list"},
		{"schedule bogus", 2, "no verb"},
		{"destination show none", 1, ""},
		{"journal verify", 0, ""},
		{"version", 0, ""},
		{"approve k:1", 1, "not built yet"},
		{"adapter init x --lang go", 1, "not built yet"},
		{"journal restore f", 1, "cannot restore"},
		{"journal check", 0, ""},
		{"journal confirm-restore --because x", 2, "--old-daemon-dead-at"},
		{"journal confirm-restore --old-daemon-dead-at 2h --because x", 0, ""},
		{"reload", 1, "not built yet"},
		{"journal prune", 0, ""},
		{"bogus", 2, "unknown command"},
		{"show", 2, "type:"},
		{"show a b", 2, ""},
	} {
		r := d.run(c.line)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("settled %s: exit %d, want %d saying %q\nout: %s\nerr: %s", c.line, r.code, c.code, c.says, r.out, r.err)
		}
		if r.code == 2 && !strings.Contains(r.err, "type:") {
			t.Errorf("settled %s: a usage error does not say what to type: %s", c.line, r.err)
		}
		if (r.code == 0) != (r.err == "") {
			t.Errorf("settled %s: exit %d with %q on standard error", c.line, r.code, r.err)
		}
	}
}

func TestRefusalsOfTheDaemonHaveTheirStatus(t *testing.T) {
	d := newDesk(t)
	for _, c := range []struct {
		err  error
		code int
	}{
		{daemon.ErrJournalFull, 1},
		{daemon.ErrDraining, 1},
		{&daemon.BusyError{Why: "queue full", RetryAfter: time.Second}, 1},
		{&daemon.BusyError{Why: "down", RetryAfter: time.Second, Outage: true}, 1},
		{daemon.ErrSubmissionUnknown, 4},
		{daemon.ErrForbidden, 1},
		{errors.New("boom"), 1},
	} {
		d.fake.Fail("Submit", c.err)
		if r := d.run("submit desk create --key k:1"); r.code != c.code {
			t.Errorf("%v: exit %d, want %d (%s)", c.err, r.code, c.code, r.err)
		}
	}
}

func TestVerifyTellsTamperingFromNotKnowing(t *testing.T) {
	d := newDesk(t)
	d.fake.Report = daemon.VerifyReport{Checked: 3, Problems: []string{"event 2 does not follow event 1"}}
	if r := d.run("journal verify"); r.code != 8 || !strings.Contains(r.err, "event 2") {
		t.Errorf("tampering: %+v", r)
	}
	d.fake.Report = daemon.VerifyReport{CouldNotRun: "the chain's key is not readable"}
	if r := d.run("journal verify"); r.code != 9 || !strings.Contains(r.err, "key is not readable") {
		t.Errorf("could not run: %+v", r)
	}
	d.fake.Fail("Verify", errors.New("boom"))
	if r := d.run("journal verify"); r.code != 9 {
		t.Errorf("an error of the check: %+v", r)
	}
}

func TestWithoutADaemonNothingIsPretended(t *testing.T) {
	d := newDesk(t)
	nobody := filepath.Join(t.TempDir(), "none.sock")
	for _, line := range []string{"submit desk create --key k:1", "list", "show k:1", "wait k:1", "cancel k:1 --because x", "status", "events", "review", "journal stats"} {
		r := d.with(nobody, "", strings.Fields(line)...)
		if r.code != 6 || !strings.Contains(r.err, "settled serve") || r.out != "" {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// cold is a journal without a daemon.
type cold struct{ closed *bool }

func (cold) Verify(context.Context, string) (daemon.VerifyReport, error) {
	return daemon.VerifyReport{OK: true, Checked: 9, Head: "9:ff"}, nil
}

func (cold) Backup(_ context.Context, file string) error { return os.WriteFile(file, nil, 0o600) }

func (cold) Stats(context.Context) (daemon.JournalStats, error) {
	return daemon.JournalStats{"n": 1}, nil
}

func (cold) Check(context.Context) (daemon.VerifyReport, error) {
	return daemon.VerifyReport{Checked: 9, Problems: []string{"page 3 is torn"}}, nil
}

func (cold) SQL(_ context.Context, query string, row func([]string, []any) error) error {
	if query == "bad" {
		return errors.New("no such table")
	}
	return row([]string{"key", "fingerprint", "none"}, []any{"k\x1b[2J", []byte{0xab}, nil})
}

func (c cold) Close() error { *c.closed = true; return nil }

func TestTheJournalIsReadWithoutADaemon(t *testing.T) {
	d := newDesk(t)
	nobody := filepath.Join(t.TempDir(), "none.sock")
	closed, opened := false, ""
	d.app = func() *cli.App {
		a := newApp(func(string) string { return "" })
		a.OpenJournal = func(_ context.Context, file string) (cli.OfflineJournal, error) {
			opened = file
			return cold{&closed}, nil
		}
		return a
	}
	r := d.with(nobody, "", "journal", "verify", "--json", "--config", "x.toml")
	if r.code != 0 || r.out != `{"ok":true,"checked":9,"head":"9:ff","problems":[],"could_not_run":""}`+"\n" || !closed || opened != "x.toml" {
		t.Errorf("%+v closed %v opened %q", r, closed, opened)
	}
	if r := d.with(nobody, "", "journal", "check"); r.code != 8 || !strings.Contains(r.err, "page 3 is torn") {
		t.Errorf("damage: %+v", r)
	}
	if r := d.with(nobody, "q\n\nq\n", "journal", "sql", "--plain"); r.code != 0 || strings.Count(r.out, "\tab\t") != 2 || strings.Contains(r.out, "\x1b") {
		t.Errorf("sql from standard input: %+v", r)
	}
	if r := d.with(nobody, "", "journal", "sql", "bad"); r.code != 1 || !strings.Contains(r.err, "no such table") {
		t.Errorf("a query with a fault: %+v", r)
	}
	file := filepath.Join(t.TempDir(), "b.db")
	if r := d.with(nobody, "", "journal", "backup", file); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if r := d.run("journal verify --json"); r.code != 0 || !strings.Contains(r.out, `"head":"3:cc"`) {
		t.Errorf("with a daemon its own answer counts: %+v", r)
	}
}

func TestSubmitPassesEverythingOn(t *testing.T) {
	d := newDesk(t)
	r := d.with(d.sock, `{"b": 1, "a": [2]}`, "submit", "desk", "create", "--key", "k:1", "--payload", "-", "--actor", "bot", "--context", "model=v3",
		"--not-before", "90m", "--not-after", "2026-12-02T00:00:00Z", "--supersedes", "k:0", "--json")
	if r.code != 0 || r.out != `{"key":"k:1","created":true,"phase":"authorized","standing":"not_started","seq":2}`+"\n" {
		t.Fatalf("%+v", r)
	}
	got := d.fake.LastSubmit
	if string(got.Payload) != `{"b": 1, "a": [2]}` || got.Actor != "bot" || got.Context["model"] != "v3" || got.Supersedes != "k:0" ||
		!got.NotBefore.Equal(time.Date(2026, 11, 30, 13, 30, 30, 0, time.UTC)) || got.NotAfter.Day() != 2 {
		t.Errorf("%+v %s", got, got.Payload)
	}
	d.run(`submit desk create --key k:2 --set subject=hello --set n=5 --set deep={"x":[1]} --set s="5"`)
	if p := string(d.fake.LastSubmit.Payload); p != `{"subject":"hello","n":5,"deep":{"x":[1]},"s":"5"}` {
		t.Errorf("--set gives %s", p)
	}
	d.with(d.sock, "\xff\x00", "submit", "desk", "create", "--key", "k:3", "--payload", "-", "--content-type", "application/octet-stream")
	if p := d.fake.LastSubmit.Payload; !bytes.Equal(p, []byte{0xff, 0}) {
		t.Errorf("bytes arrive as %q", p)
	}
}

func TestAFileIsAnsweredLineByLineInOrder(t *testing.T) {
	d := newDesk(t)
	var in strings.Builder
	for i := range 12000 { // several requests
		fmt.Fprintf(&in, `{"destination":"desk","operation":"create","key":"k:%d","payload":{}}`+"\n", i)
	}
	in.WriteString("\nnot json\n")
	in.WriteString(`{"destination":"desk","operation":"create","key":"k:5","payload":{"other":1}}`)
	r := d.with(d.sock, in.String(), "submit", "--file", "-", "--json")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != 1 || len(lines) != 12002 {
		t.Fatalf("exit %d, %d lines: %s", r.code, len(lines), r.err)
	}
	for i := range 12000 {
		if want := fmt.Sprintf(`{"line":%d,"key":"k:%d","created":true,`, i+1, i); !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d is %s", i+1, lines[i])
		}
	}
	if !strings.HasPrefix(lines[12000], `{"line":12002,"key":"","error":{"code":"invalid"`) || !strings.HasPrefix(lines[12001], `{"line":12003,"key":"k:5","error":{"code":"key-conflict"`) {
		t.Errorf("last lines: %v", lines[12000:])
	}
	if r := d.with(d.sock, `{"destination":"desk","operation":"create","key":"k:5","payload":{"other":1}}`, "submit", "--file", "-"); r.code != 7 {
		t.Errorf("only conflicts: %+v", r)
	}
	if r := d.with(d.sock, `{"destination":"desk","operation":"create","key":"k:5","payload":{}}`, "submit", "--file", "-"); r.code != 0 || !strings.Contains(r.out, "1 existed already") {
		t.Errorf("the same again: %+v", r)
	}
	if r := d.with(d.sock, `{"destination":"desk","operation":"create","key":"dry:1","payload":{}}`, "submit", "--file", "-", "--dry-run"); r.code != 0 || !strings.Contains(r.out, "1 would be recorded") {
		t.Errorf("dry run: %+v", r)
	}
	if r := d.run("show dry:1"); r.code != 1 {
		t.Errorf("a dry run recorded: %+v", r)
	}
}

func TestWhatIsNotKnownIsNeverCalledFailedNorOffersARetry(t *testing.T) {
	d := newDesk(t)
	for _, p := range []journal.Phase{journal.Unknown, journal.Reconciling, journal.NeedsHuman} {
		key := "k:" + string(p)
		d.fake.Put(apitest.Effect(key, p))
		for _, line := range []string{"show " + key, "show --plain " + key, "show --json " + key, "wait --timeout 5ms " + key, "list", "review " + key} {
			r := d.run(line)
			text := strings.ToLower(r.out + r.err)
			if strings.Contains(text, "fail") || strings.Contains(text, " retry ") || strings.Contains(text, key+" retry") {
				t.Errorf("settled %s says failed or retry:\n%s%s", line, r.out, r.err)
			}
		}
	}
	r := d.run("show k:unknown")
	for _, want := range []string{
		"will not send again", "Missing", "when the view may still lag", "would prove that it happened: one ticket", "(in 30s): read what the destination holds",
		"from then on an empty read counts", "nothing is sent while this stands", "settled decide k:unknown read", "1. 2026-11-30 12:00:01Z", "timed_out (timeout)",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("show lacks %q:\n%s", want, r.out)
		}
	}
	r = d.run("review k:needs_human")
	for _, want := range []string{"printer on fire", "T-17", "T-18", "/subject", "settled decide k:needs_human happened --object ID", "owner support-ops", "seq 7"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("review lacks %q:\n%s", want, r.out)
		}
	}
}

func TestForeignTextDoesNotSteerTheTerminal(t *testing.T) {
	d := newDesk(t)
	e := apitest.Effect("k:1", journal.NeedsHuman)
	e.Review.Candidates[0].ObjectID = "T\x1b[2J"
	e.Review.Missing = []string{"x\x1b]0;owned\x07"}
	d.fake.Put(e)
	for _, line := range []string{"show k:1", "review k:1", "review", "wait k:1"} {
		if r := d.run(line); strings.ContainsAny(r.out, "\x1b\x07") {
			t.Errorf("settled %s passes control characters on: %q", line, r.out)
		}
	}
}

func TestWaitEndsWhenTheEffectIsSettled(t *testing.T) {
	d := newDesk(t)
	d.fake.Put(apitest.Effect("k:1", journal.Unknown))
	got := make(chan result, 1)
	go func() { got <- d.with(d.sock, "", "wait", "k:1", "--json") }()
	d.fake.Change("k:1", func(e *journal.Effect) { e.Phase = journal.Reconciling })
	d.fake.Change("k:1", func(e *journal.Effect) {
		seq := e.Seq
		*e = apitest.Effect("k:1", journal.Succeeded)
		e.Seq = seq
	})
	if r := <-got; r.code != 0 || !strings.Contains(r.out, `"phase":"succeeded"`) {
		t.Errorf("%+v", r)
	}
}

func TestALocalVerbGetsItsArgumentsAsTheyAre(t *testing.T) {
	d := newDesk(t)
	var got []string
	d.app = func() *cli.App {
		a := newApp(func(string) string { return "" })
		a.Local = []cli.Local{{Name: "serve", Short: "Runs the daemon", Run: func(args []string) int { got = args; return 78 }}}
		return a
	}
	var out, errs bytes.Buffer
	a := d.app()
	a.Stdout, a.Stderr = &out, &errs
	r := result{a.Run(t.Context(), strings.Fields("serve --hold why -x")), out.String(), errs.String()}
	if r.code != 78 || r.err != "" || strings.Join(got, " ") != "--hold why -x" {
		t.Errorf("%+v %v", r, got)
	}
	if r := d.run("--help"); !strings.Contains(r.out, "Runs the daemon") || strings.Contains(r.out, "approve") {
		t.Errorf("help: %s", r.out)
	}
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			f := apitest.New()
			env.Values["fake"] = f
			env.Setenv("SETTLED_SOCKET", apitest.Start(env.T().(testing.TB), f, api.Options{}))
			env.Setenv("NO_COLOR", "1")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"put": func(ts *testscript.TestScript, _ bool, args []string) {
				fakeOf(ts).Put(apitest.Effect(args[0], journal.Phase(args[1])))
			},
			"status": exits,
		},
	})
}

func fakeOf(ts *testscript.TestScript) *apitest.Fake { return ts.Value("fake").(*apitest.Fake) }

// exits is `status N settled ARGS…`: runs it and checks the exit status.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N settled ARGS…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}
