package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

// fakes are adapters of somebody else, by the name of their program. Each has
// one operation that its capability card cannot be content with.
func fakes() map[string]sdk.Adapter {
	bound := time.Duration(0)
	good := sdk.ActionSpec{
		Name: "act", Idempotency: sdk.Idempotency{Mode: sdk.IdempotencyKey, VerifiedOn: "2026-06-01"},
		Read:     sdk.ReadSpec{Lookup: sdk.LookupByKey, Authority: sdk.Authoritative, ProvesAbsence: true, View: "v"},
		Reversal: sdk.Reversal{Kind: sdk.Reversible}, LateEffectBound: &bound,
	}
	mute, blind, stale := good, good, good
	mute.Read.Lookup = sdk.LookupUnspecified
	blind.Read = sdk.ReadSpec{Lookup: sdk.LookupNone}
	stale.Idempotency.VerifiedOn = "2025-11-29"
	stale.LateEffectBound = nil
	return map[string]sdk.Adapter{"good": fake{spec: good}, "mute": fake{spec: mute}, "blind": fake{spec: blind}, "stale": fake{spec: stale}}
}

type fake struct {
	noop
	spec sdk.ActionSpec
}

func (f fake) Describe(context.Context) (sdk.Description, error) {
	return sdk.Description{Name: "fake", Version: "1.2.3", Actions: []sdk.ActionSpec{f.spec}}, nil
}

// checkPlace is a machine of its own: directories, credentials and a clock.
type checkPlace struct {
	t    *testing.T
	root string
	o    checkOptions
}

func newCheckPlace(t *testing.T) *checkPlace {
	t.Helper()
	root, err := os.MkdirTemp("", "chk") // t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	p := &checkPlace{t: t, root: root}
	env := map[string]string{"RUNTIME_DIRECTORY": filepath.Join(root, "run", "settled")}
	p.o = checkOptions{
		env:    config.Options{Getenv: func(name string) string { return env[name] }, UID: os.Getuid()},
		now:    func() time.Time { return time.Date(2026, 12, 1, 0, 0, 30, 0, time.UTC) },
		fsType: func(string) (int64, error) { return 0xef53, nil },
	}
	for _, name := range []string{"desk_token", "desk_repair"} {
		p.write("cred/"+name, "a secret")
	}
	return p
}

func (p *checkPlace) path(name string) string { return filepath.Join(p.root, name) }

func (p *checkPlace) write(name, text string) string {
	p.t.Helper()
	path := p.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// config writes a configuration with the machine's places and the given rest.
func (p *checkPlace) config(rest string) string {
	return p.write("settled.toml", fmt.Sprintf("[journal]\npath = %q\ngeneration = %q\n[credentials]\ndir = %q\n[adapters]\ndir = %q\n%s",
		p.path("j/journal.db"), p.path("g/marker"), p.path("cred"), p.path("adapters"), rest))
}

// deskConfig is the sample, at another address.
func deskConfig(t *testing.T, url string) string {
	t.Helper()
	sample, err := os.ReadFile("testdata/desk.toml")
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(sample), "http://127.0.0.1:9900", url)
}

func startDesk(t *testing.T) *desk.Desk {
	t.Helper()
	d, err := desk.Start(desk.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// run checks and gives the status and what was printed.
func (p *checkPlace) run(file string, change func(*checkOptions)) (status int, out string) {
	p.t.Helper()
	o := p.o
	if change != nil {
		change(&o)
	}
	var stdout, stderr bytes.Buffer
	status = runCheck(context.Background(), file, o, &stdout, &stderr)
	if stderr.Len() > 0 {
		p.t.Errorf("standard error: %s", stderr.String())
	}
	return status, stdout.String()
}

// report checks with --json.
func (p *checkPlace) report(file string) (r checkReport) {
	p.t.Helper()
	status, out := p.run(file, func(o *checkOptions) { o.asJSON = true })
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		p.t.Fatalf("%v in %s", err, out)
	}
	if r.OK != (status == 0) || !r.OK && status != 78 || r.Next == "" {
		p.t.Errorf("status %d, ok %v, next %q", status, r.OK, r.Next)
	}
	return r
}

// want fails unless an item of that level in that group holds all the words.
func (r checkReport) want(t *testing.T, group string, level checkLevel, words ...string) checkItem {
	t.Helper()
	for _, i := range r.Items {
		text := i.Message + "\n" + i.Hint
		if i.Group == group && i.Level == level && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			return i
		}
	}
	t.Errorf("no %s in %s with %q among:", level, group, words)
	for _, i := range r.Items {
		t.Logf("  %s %s: %s", i.Group, i.Level, i.Message)
	}
	return checkItem{}
}

func (p *checkPlace) files() string {
	p.t.Helper()
	var names []string
	err := filepath.WalkDir(p.root, func(path string, _ os.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Join(names, "\n")
}

// children lists the processes that this one started and that still are.
func children(t *testing.T) (pids []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // gone meanwhile
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, name)
		}
	}
	return pids
}

func TestASoundConfigurationIsCheckedWithoutAnEffectAndWithoutATrace(t *testing.T) {
	p, d := newCheckPlace(t), startDesk(t)
	file := p.config(deskConfig(t, d.URL()))
	before := p.files()
	r := p.report(file)
	if r.Faults > 0 || len(r.Destinations["desk"].Operations) == 0 {
		t.Errorf("%+v", r)
	}
	for _, c := range r.Destinations["desk"].Operations {
		if len(c.Unanswered) > 0 || c.Identifies == "" || c.OwnerWhenNot != "support-ops" {
			t.Errorf("card: %+v", c)
		}
	}
	r.want(t, "destinations.desk", levelOK, "it answers", "create")
	r.want(t, "configuration", levelWarn, "grace.skew", "one machine, one clock")
	if after := p.files(); after != before {
		t.Errorf("files before:\n%s\nafter:\n%s", before, after)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
	if l := d.Ledger(); len(l) > 0 || len(d.Tickets()) > 0 {
		t.Errorf("the desk saw %v", l)
	}
	if r.Next != "settled serve --config "+file {
		t.Errorf("next: %s", r.Next)
	}
}

func TestEveryFaultOfTheFileIsShownAtItsPlace(t *testing.T) {
	p := newCheckPlace(t)
	file := p.config("[owners.a]\n[destinations.d]\nadapter = \"http\"\nowner = \"b\"\ntimout = \"5s\"\n")
	status, out := p.run(file, nil)
	for _, want := range []string{file + ":11:", file + ":12:1: ", "timout = \"5s\"\n", "^^^^^^", "timeout", "2 faults", "Next: ${EDITOR:-vi} +11 " + file + ", then settled check --config " + file + "\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if status != 78 || strings.Contains(out, "journal\n") {
		t.Errorf("status %d, %s", status, out)
	}
}

func TestACredentialThatOthersMayReadIsAFaultAndIsNotHandedOver(t *testing.T) {
	p, d := newCheckPlace(t), startDesk(t)
	if err := os.Chmod(p.path("cred/desk_repair"), 0o604); err != nil {
		t.Fatal(err)
	}
	file := p.config(deskConfig(t, d.URL()))
	r := p.report(file)
	r.want(t, "credentials", levelFault, "desk_repair", "0604", "chmod o-rwx")
	r.want(t, "credentials", levelOK, "desk_token", "mode 0600")
	r.want(t, "destinations.desk", levelWarn, "not started")
	if r.Destinations["desk"] != nil || r.Faults != 1 {
		t.Errorf("%+v", r)
	}
	_, out := p.run(file, func(o *checkOptions) { o.quiet = true })
	if strings.Contains(out, "ok ") || strings.Contains(out, "warn ") || strings.Count(out, "FAULT  ") != 1 || strings.Contains(out, "a secret") {
		t.Errorf("--quiet: %s", out)
	}
}

func TestAnAdaptersDiagnosticIsShownWhereItIsWritten(t *testing.T) {
	p := newCheckPlace(t)
	text := strings.Replace(deskConfig(t, "http://127.0.0.1:1"), `done       = '$response.status == 201'`, `done       = '$response.status =='`, 1)
	file := p.config(text)
	all, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := 1 + strings.Count(string(all[:bytes.Index(all, []byte("status =='"))]), "\n")
	i := p.report(file).want(t, "destinations.desk", levelFault)
	if i.Line != line || i.File != file || i.Code != config.CodeAdapter || !strings.Contains(i.Source, "status ==") {
		t.Errorf("%+v, want line %d", i, line)
	}
}

func TestADestinationThatDoesNotAnswerIsAFaultUnlessNobodyAsks(t *testing.T) {
	p := newCheckPlace(t)
	file := p.config(deskConfig(t, "http://127.0.0.1:1"))
	if status, out := p.run(file, nil); status != 78 || !strings.Contains(out, "--offline") || !strings.Contains(out, "1 fault,") {
		t.Errorf("asked: %d %s", status, out)
	}
	if status, out := p.run(file, func(o *checkOptions) { o.offline = true }); status != 0 || strings.Contains(out, "FAULT") {
		t.Errorf("--offline: %d %s", status, out)
	}
}

// install copies this program under a fake's name and returns its digest.
func (p *checkPlace) install(name string) (digest string) {
	p.t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		p.t.Fatal(err)
	}
	defer from.Close()
	if err := os.MkdirAll(p.path("adapters"), 0o700); err != nil {
		p.t.Fatal(err)
	}
	to, err := os.OpenFile(p.path("adapters/"+name), os.O_WRONLY|os.O_CREATE, 0o700)
	if err != nil {
		p.t.Fatal(err)
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(to, h), from)
	if cerr := to.Close(); err != nil || cerr != nil {
		p.t.Fatal(err, cerr)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (p *checkPlace) installed(name, digest string) string {
	return p.config(fmt.Sprintf("[owners.a]\n[destinations.d]\nadapter = %q\nsha256 = %q\nowner = \"a\"\n[destinations.d.with]\n", name, digest))
}

func TestAnInstalledAdapterIsJudgedByItsFileAndItsCard(t *testing.T) {
	p := newCheckPlace(t)
	digest := p.install("good")
	r := p.report(p.installed("good", digest))
	r.want(t, "destinations.d", levelOK, "fake 1.2.3", p.path("adapters/good"), "mode 0700", "owner ", digest)
	if r.Faults+r.Warnings > 0 || r.Destinations["d"].SHA256 != digest {
		t.Errorf("%+v", r.Items)
	}
	p.report(p.installed("good", strings.Repeat("0", 64))).want(t, "destinations.d", levelFault, digest, "is pinned")
	if err := os.Chmod(p.path("adapters/good"), 0o722); err != nil {
		t.Fatal(err)
	}
	p.report(p.installed("good", digest)).want(t, "destinations.d", levelFault, "can be written by others", "chmod go-w")
	p.report(p.installed("absent", digest)).want(t, "destinations.d", levelFault, "absent", "built in: ")
	p.install("mute")
	p.report(p.installed("mute", digest)).want(t, "destinations.d", levelFault, "act: nobody answers: what identifies the effect")
	p.install("blind")
	if r := p.report(p.installed("blind", digest)); r.Faults > 0 {
		t.Errorf("%+v", r.Items)
	} else {
		r.want(t, "destinations.d", levelWarn, "there is no read", "a person will decide", `proof = "ack"`)
	}
	p.install("stale")
	r = p.report(p.installed("stale", digest))
	r.want(t, "destinations.d", levelWarn, "2025-11-29", "over a year ago")
	r.want(t, "destinations.d", levelWarn, "proves_absence does nothing", "max_processing")
	if r.Faults > 0 {
		t.Errorf("%+v", r.Items)
	}
}

func TestVisibilityThatNobodyProvesIsAWarning(t *testing.T) {
	p, d := newCheckPlace(t), startDesk(t)
	lines := strings.Split(deskConfig(t, d.URL()), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "guard ") })
	p.report(p.config(strings.Join(lines, "\n"))).want(t, "destinations.desk", levelWarn, "guard", "assumed")
	exec := "[owners.a]\n[destinations.d]\nadapter = \"exec\"\nowner = \"a\"\ngrace = { max_processing = \"1s\", lag = \"0s\" }\n" +
		"[destinations.d.with]\ndispatch = [\"/bin/true\"]\nread = [\"/bin/true\"]\n[destinations.d.with.operations.tag.read]\nconsistency = \"strong\"\nproves_absence = true\n"
	i := p.report(p.config(exec)).want(t, "destinations.d", levelWarn, "tag: ", "assumed", "visible")
	if !strings.Contains(i.Source, "proves_absence") {
		t.Errorf("%+v", i)
	}
}

func TestADeduplicationIsStaleAfterAYear(t *testing.T) {
	p := newCheckPlace(t)
	cfg, err := config.Parse("x.toml", []byte("[owners.a]\n[destinations.d]\nadapter = \"http\"\nowner = \"a\"\n[destinations.d.with]\n"), p.o.env)
	if err != nil {
		t.Fatal(err)
	}
	for date, want := range map[string]checkLevel{"2026-11-30": "", "2025-12-01": "", "2025-11-30": levelWarn, "": levelWarn, "2027-01-01": levelWarn, "2026-13-01": levelFault} {
		c := &destinationCheck{cfg: cfg, o: p.o, name: "d", dest: cfg.Destinations["d"]}
		c.dedupe("/operations/x/dedupe", sdk.ActionSpec{Name: "x", Idempotency: sdk.Idempotency{Mode: sdk.IdempotencyKey, VerifiedOn: date}})
		var got checkLevel
		if len(c.items) > 0 {
			got = c.items[0].Level
		}
		if got != want {
			t.Errorf("verified on %q: %q, want %q", date, got, want)
		}
	}
}

func TestAJournalThatADaemonWorksWithIsNoFault(t *testing.T) {
	p := newCheckPlace(t)
	file := p.config("")
	o := sqlite.Options{Path: p.path("j/journal.db"), GenerationPath: p.path("g/marker")}
	db, err := sqlite.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	before := p.files()
	r := p.report(file)
	after := p.files()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if r.Faults > 0 || !strings.HasPrefix(r.Running, "pid ") || !strings.Contains(r.Next, r.Running) || before != after {
		t.Errorf("%+v", r)
	}
	r = p.report(file)
	r.want(t, "journal", levelOK, "schema", "epoch 1")
	if r.Running != "" || r.Faults > 0 {
		t.Errorf("%+v", r)
	}
	if err := os.Remove(o.GenerationPath); err != nil {
		t.Fatal(err)
	}
	p.report(file).want(t, "journal", levelWarn, "restored journal", "confirm-restore")
	if err := os.Remove(o.GenerationPath + ".key"); err != nil {
		t.Fatal(err)
	}
	p.report(file).want(t, "journal", levelFault, "chain key")
	if err := os.WriteFile(o.Path, bytes.Repeat([]byte("x"), 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	p.report(file).want(t, "journal", levelFault, "damaged", "settled journal check")
}

func TestAJournalOfANewerProgramIsAFault(t *testing.T) {
	p := newCheckPlace(t)
	o := sqlite.Options{Path: p.path("j/journal.db"), GenerationPath: p.path("g/marker")}
	db, err := sqlite.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(o.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{0, 0, 0, 99}, 60) // user_version in the header
	if cerr := f.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	p.report(p.config("")).want(t, "journal", levelFault, "schema 99", "newer program")
}

func TestPlacesThatAJournalCannotRestOnAreRefused(t *testing.T) {
	p := newCheckPlace(t)
	file := p.config("")
	for magic, name := range map[int64]string{0x6969: "nfs", 0xff534d42: "cifs", 0x01021997: "9p", 0x65735546: "fuse", -0xacb2be: "cifs"} {
		p.o.fsType = func(string) (int64, error) { return magic, nil }
		p.report(file).want(t, "journal", levelFault, " on "+name+",", "local disk")
	}
	p.o.fsType = func(string) (int64, error) { return 0x01021994, nil }
	if r := p.report(file); r.Faults > 0 {
		t.Errorf("%+v", r)
	} else {
		r.want(t, "journal", levelWarn, "tmpfs", "reboot")
	}
	p.o.fsType = statfsType
	if err := os.MkdirAll(p.path("j"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(p.path("j"), p.path("g")); err != nil {
		t.Fatal(err)
	}
	p.report(file).want(t, "journal", levelFault, "generation marker", "own directory")
	if err := os.Remove(p.path("g")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.path("j"), 0o777); err != nil {
		t.Fatal(err)
	}
	p.report(file).want(t, "journal", levelFault, "every user", "0777", "chmod 0750")
	p.write("g", "a file")
	p.report(file).want(t, "journal", levelFault, "is not a directory")
	if os.Geteuid() != 0 {
		if err := os.Chmod(p.path("j"), 0o500); err != nil {
			t.Fatal(err)
		}
		p.report(file).want(t, "journal", levelFault, "may not write")
	}
}

func TestASchedulesNextTimesAreToldInItsZoneAndInUTCWithEveryHazard(t *testing.T) {
	p := newCheckPlace(t)
	r := p.report(p.config("[owners.a]\n[destinations.d]\nadapter = \"http\"\nowner = \"a\"\nwith = { base_url = \"http://127.0.0.1:1\", operations = {} }\n" +
		"[schedules.night]\ndo = \"reconcile\"\ndestination = \"d\"\ncron = \"30 2 * * *\"\ntimezone = \"Europe/Berlin\"\n" +
		"[schedules.often]\ndo = \"reconcile\"\ndestination = \"d\"\ncron = \"*/5 * * * *\"\n"))
	r.want(t, "schedules", levelOK, "night", "2026-12-01 02:30 CET (2026-12-01 01:30 UTC), 2026-12-02 02:30 CET", "2026-12-03 02:30 CET")
	r.want(t, "schedules", levelOK, "often", "next 2026-12-01 00:05 UTC, 2026-12-01 00:10 UTC, 2026-12-01 00:15 UTC")
	r.want(t, "schedules", levelWarn, "night: 2027-03-28 02:30 does not exist in Europe/Berlin", "03:00 CEST (01:00 UTC)")
	r.want(t, "schedules", levelWarn, "night: 2027-10-31 02:30 exists twice", "runs once")
	if s := r.Schedules["night"]; len(s.Next) != 3 || len(s.Hazards) != 2 || len(r.Schedules["often"].Hazards) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestACheckThatIsInterruptedSaysThatItKnowsNothing(t *testing.T) {
	p := newCheckPlace(t)
	file := p.config(deskConfig(t, "http://127.0.0.1:1"))
	before := p.files()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	if status := runCheck(ctx, file, p.o, &out, &errs); status != 1 || out.Len() > 0 || !strings.Contains(errs.String(), "nothing is known") {
		t.Errorf("%d %q %q", status, out.String(), errs.String())
	}
	if before != p.files() || len(children(t)) > 0 {
		t.Error("it left something behind")
	}
}

func TestWhatTheAdapterDeclaresIsComparedWithTheConfiguration(t *testing.T) {
	p := newCheckPlace(t)
	file := p.config("[owners.a]\n[destinations.d]\nadapter = \"exec\"\nowner = \"a\"\nproof = \"ack\"\n[destinations.d.operations.tga]\nseverity = \"high\"\n" +
		"[destinations.d.with]\ndispatch = [\"/bin/true\"]\nread = [\"/bin/true\"]\noperations = { tag = { reversible = \"irreversible\" } }\n")
	r := p.report(file)
	if i := r.want(t, "destinations.d", levelFault, `proof = "ack" is refused for tag, which is irreversible`); i.Line == 0 {
		t.Errorf("without its place: %+v", i)
	}
	r.want(t, "destinations.d", levelFault, "destinations.d.operations.tga is about no operation", "it has: tag")
}

func TestAClockThatDiffersByMoreThanTheSkewIsAWarning(t *testing.T) {
	p := newCheckPlace(t)
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
	}))
	defer late.Close()
	file := p.config(fmt.Sprintf("[owners.a]\n[destinations.d]\nadapter = \"http\"\nowner = \"a\"\n[destinations.d.with]\nbase_url = %q\n"+
		"[destinations.d.with.operations.create.dispatch]\nmethod = \"POST\"\npath = \"/\"\ndone = 'true'\nobject_id = '\"x\"'\n", late.URL))
	r := p.report(file)
	r.want(t, "destinations.d", levelWarn, "its clock differs from ours by", "grace.skew = 5s")
	r.want(t, "destinations.d", levelWarn, "create: ", "a person will decide")
}
