package exec

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

const token = "s3cr3t/token+value"

// open configures an adapter whose commands are shell scripts.
func open(t *testing.T, with map[string]any) sdk.Adapter {
	t.Helper()
	for _, key := range []string{"dispatch", "read", "undo", "check", "describe"} {
		if script, ok := with[key].(string); ok {
			with[key] = []string{"/bin/sh", "-c", script}
		}
	}
	if with["dispatch"] == nil {
		with["dispatch"] = []string{"/bin/true"}
	}
	if with["read"] == nil {
		with["read"] = []string{"/bin/false"}
	}
	if with["operations"] == nil {
		with["operations"] = map[string]any{"tag": map[string]any{
			"reversible": "compensatable",
			"read":       map[string]any{"consistency": "strong", "proves_absence": true},
		}}
	}
	a := New()
	c := configure(t, a, with)
	for _, d := range c.Diagnostics {
		if !d.Warning {
			t.Fatalf("configuration refused: %s: %s", d.Pointer, d.Summary)
		}
	}
	return a
}

func configure(t *testing.T, a sdk.Adapter, with map[string]any) sdk.Configured {
	t.Helper()
	raw, err := json.Marshal(with)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Configure(t.Context(), sdk.Configuration{Destination: "repo", Config: raw, Secrets: map[string]string{"token": token}, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func operation1(action string) sdk.Operation {
	payload := []byte(`{"tag":"v1.2.3"}`)
	sum := sha256.Sum256(payload)
	return sdk.Operation{ID: "eff-1", Attempt: 1, Action: action, Key: "release:app:tag:v1", Payload: payload, PayloadSHA256: sum[:], AttemptID: "att-1", Account: "acme"}
}

func send(t *testing.T, a sdk.Adapter, o sdk.Operation, limit time.Duration) sdk.Response {
	t.Helper()
	r, err := a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: o, Deadline: time.Now().Add(limit)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readBack(t *testing.T, a sdk.Adapter, o sdk.Operation) sdk.ReadResponse {
	t.Helper()
	r, err := a.Read(t.Context(), sdk.ReadRequest{Purpose: sdk.PurposeResolve, Operation: o, DispatchedFrom: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// class is the outcome in short, for tables.
func class(o sdk.Outcome) string {
	switch o := o.(type) {
	case *sdk.Committed:
		return "committed"
	case *sdk.Accepted:
		return "accepted " + o.Handle
	case *sdk.Rejected:
		return "rejected " + strconv.Itoa(int(o.Reason))
	case *sdk.NotExecuted:
		return "not executed " + strconv.Itoa(int(o.Basis)) + " after " + o.RetryAfter.String()
	case *sdk.Unknown:
		return "unknown"
	}
	return "none"
}

func TestEveryEndingOfACommandHasOneMeaning(t *testing.T) {
	cases := []struct {
		name, script string
		trust        bool
		want         string
	}{
		{"done", `echo '{"outcome":"done","object_id":7}'; exit 3`, false, "committed"},
		{"accepted", `echo '{"outcome":"accepted","object_id":"job-1"}'`, false, "accepted job-1"},
		{"rejected", `echo '{"outcome":"rejected","message":"no"}'`, false, "rejected 1"},
		{"not executed", `echo '{"outcome":"not_executed","retry_after":5}'`, false, "not executed 2 after 5s"},
		{"unknown", `echo '{"outcome":"unknown"}'`, false, "unknown"},
		{"a word that is none", `echo '{"outcome":"sure"}'; exit 75`, false, "unknown"},
		{"JSON without outcome", `echo '{"id":1}'`, true, "unknown"},
		{"JSON of another form", `echo '{"outcome":5}'; exit 75`, false, "unknown"},
		{"JSON but a list", `echo '[]'; exit 65`, false, "unknown"},
		{"garbage and 0", `echo 'it worked {'`, false, "unknown"},
		{"nothing and 0", `:`, false, "unknown"},
		{"nothing and 0, trusted", `:`, true, "committed"},
		{"text and 0, trusted", `echo 'it worked {'`, true, "committed"},
		{"two answers", `echo '{"outcome":"done"}{"outcome":"done"}'`, false, "unknown"},
		{"75", `exit 75`, false, "not executed 2 after 0s"},
		{"65", `exit 65`, false, "rejected 1"},
		{"77", `exit 77`, false, "rejected 3"},
		{"69", `exit 69`, false, "not executed 1 after 0s"},
		{"1", `exit 1`, true, "unknown"},
		{"a signal", `echo '{"outcome":"done"}'; kill -9 $$`, true, "unknown"},
		{"too much output", `head -c 5000000 /dev/zero`, true, "unknown"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := open(t, map[string]any{"dispatch": c.script, "trust_exit": c.trust})
			if got := class(send(t, a, operation1("tag"), 10*time.Second).Outcome); got != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestACommandThatCannotStartIsProofThatNothingWasSent(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"/nonexistent/command", plain, "no-such-command-anywhere"} {
		a := open(t, map[string]any{"dispatch": []string{command}})
		if got := class(send(t, a, operation1("tag"), time.Second).Outcome); got != "not executed 1 after 0s" {
			t.Errorf("%s: %s", command, got)
		}
		if h, err := a.Check(t.Context(), nil); err != nil || h.Status != sdk.HealthDown {
			t.Errorf("%s: check says %v, %v", command, h, err)
		}
	}
	mark := filepath.Join(t.TempDir(), "mark")
	a := open(t, map[string]any{"dispatch": "touch " + mark})
	if got := class(send(t, a, operation1("tag"), -time.Second).Outcome); got != "not executed 1 after 0s" {
		t.Errorf("after the deadline: %s", got)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a command was started after its deadline")
	}
}

func TestTheTimeLimitKillsGrandchildrenBeforeTheAnswer(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	// The child ignores SIGTERM and holds standard output open.
	script := `sh -c 'trap "" TERM; echo $$ >>` + pids + `; sleep 60 & echo $! >>` + pids + `; wait' & echo $$ >>` + pids + `; wait`
	a := open(t, map[string]any{"dispatch": script})
	begun := time.Now()
	r := send(t, a, operation1("tag"), 400*time.Millisecond)
	u, ok := r.Outcome.(*sdk.Unknown)
	if !ok || u.Cause != sdk.CauseTimeout {
		t.Fatalf("got %+v", r.Outcome)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Fatalf("took %v", took)
	}
	assertDead(t, pids, 3)
}

func TestLeftoversOfAnAnsweredCommandAreKilledToo(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	a := open(t, map[string]any{"dispatch": `sleep 60 & echo $! >` + pids + `; echo '{"outcome":"done","object_id":"1"}'`})
	if got := class(send(t, a, operation1("tag"), 10*time.Second).Outcome); got != "committed" {
		t.Fatal(got)
	}
	assertDead(t, pids, 1)
}

func TestAGroupIsAliveWhileAMemberCanAct(t *testing.T) {
	if !groupAlive(syscall.Getpgrp()) {
		t.Error("our own group counts as dead")
	}
	if groupAlive(1 << 30) {
		t.Error("a group that cannot exist counts as alive")
	}
}

// assertDead wants the processes in file to be gone or unreaped.
func assertDead(t *testing.T, file string, count int) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(string(raw))
	if len(pids) != count {
		t.Fatalf("the script wrote %d process ids, want %d", len(pids), count)
	}
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err == nil && !strings.Contains(string(stat), ") Z ") && !strings.Contains(string(stat), ") X ") {
			n, _ := strconv.Atoi(pid)
			_ = syscall.Kill(n, syscall.SIGKILL)
			t.Errorf("process %s still runs when the answer is given: %s", pid, stat)
		}
	}
}

func TestTheCommandSeesTheOperationAndNoSecretInArgumentsOrEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", "/run/credentials/x")
	a := open(t, map[string]any{
		"dispatch": `cat >` + dir + `/stdin; env >` + dir + `/env; tr '\0' ' ' </proc/$$/cmdline >` + dir + `/argv; echo '{"outcome":"rejected","message":"bad token ` + "'$(sed -n 's/.*\"token\":\"\\([^\"]*\\)\".*/\\1/p' " + dir + "/stdin)'" + `"}' `,
		"config":   map[string]any{"remote": "origin"},
	})
	r := send(t, a, operation1("tag"), 10*time.Second)
	var got struct {
		Method    string
		Operation map[string]any
		Config    map[string]any
		Secrets   map[string]string
		Deadline  time.Time
		Snapshot  any
	}
	stdin, err := os.ReadFile(dir + "/stdin")
	if err != nil || json.Unmarshal(stdin, &got) != nil {
		t.Fatalf("standard input: %v %s", err, stdin)
	}
	o := operation1("tag")
	if got.Method != "dispatch" || got.Operation["key"] != o.Key || got.Operation["digest"] != digest(o.PayloadSHA256) || got.Operation["attempt_id"] != "att-1" ||
		got.Operation["payload"].(map[string]any)["tag"] != "v1.2.3" || got.Operation["destination"] != "repo" || got.Config["remote"] != "origin" || got.Secrets["token"] != token || got.Deadline.IsZero() {
		t.Fatalf("standard input: %s", stdin)
	}
	env, _ := os.ReadFile(dir + "/env")
	for _, want := range []string{"SETTLED_KEY=" + o.Key, "SETTLED_DIGEST=" + digest(o.PayloadSHA256), "SETTLED_ATTEMPT=att-1", "PATH="} {
		if !strings.Contains(string(env), want) {
			t.Errorf("the environment lacks %s:\n%s", want, env)
		}
	}
	argv, _ := os.ReadFile(dir + "/argv")
	if strings.Contains(string(env)+string(argv), token) || strings.Contains(string(env), "CREDENTIALS_DIRECTORY") {
		t.Errorf("a secret or more than the allow-list: %s %s", argv, env)
	}
	all, _ := json.Marshal(r)
	rejected, ok := r.Outcome.(*sdk.Rejected)
	if !ok || !strings.Contains(rejected.Message, "[redacted]") || strings.Contains(string(all), token) {
		t.Errorf("answer: %s", all)
	}
}

func TestAReadCountsOnlyWhole(t *testing.T) {
	key, sum := operation1("tag").Key, digest(operation1("tag").PayloadSHA256)
	item := func(more string) string { return `{"object_id":"o1","key":"` + key + `"` + more + `}` }
	list := func(items string) string {
		return `echo '{"items":[` + items + `],"complete":true,"visible":true,"scanned_from":0}'`
	}
	cases := []struct {
		name, script string
		want         string
	}{
		{"ours", list(item(`,"digest":"` + sum + `"`)), "found 1 same"},
		{"another digest", list(item(`,"digest":"sha256:00"`)), "found 1 differs"},
		{"a null digest", list(item(`,"digest":null`)), "found 1 differs"},
		{"no digest", list(item(``)), "found 1 not compared"},
		{"something missing", list(item(`,"digest":"` + sum + `","missing":["notes"]`)), "found 1 partial"},
		{"two", list(item(`,"digest":"`+sum+`"`) + "," + item(``)), "found 2 same"},
		{"another key", list(`{"object_id":"o2","key":"` + key + `0"}`), "none"},
		{"a key in other letters", list(`{"object_id":"o2","key":"` + strings.ToUpper(key) + `"}`), "none"},
		{"nothing", list(``), "none"},
		{"no items", `echo '{"complete":true}'`, "indeterminate"},
		{"null items", `echo '{"items":null,"complete":true,"visible":true}'`, "indeterminate"},
		{"no JSON", `echo hello`, "indeterminate"},
		{"no output", `:`, "indeterminate"},
		{"a time that is none", list(item(`,"created_at":"yesterday"`)), "indeterminate"},
		{"a signal after the answer", list(``) + `; kill -9 $$`, "indeterminate"},
	}
	names := map[sdk.Agreement]string{sdk.AgreementSame: "same", sdk.AgreementDiffers: "differs", sdk.AgreementNotCompared: "not compared", sdk.AgreementPartial: "partial"}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := readBack(t, open(t, map[string]any{"read": c.script}), operation1("tag"))
			got := "indeterminate"
			switch f := r.Finding.(type) {
			case *sdk.Found:
				got = "found " + strconv.Itoa(len(f.Matches)) + " " + names[f.Matches[0].Agreement]
				if f.Matches[0].Strength != sdk.StrengthKey {
					t.Errorf("strength %d", f.Matches[0].Strength)
				}
			case *sdk.NoneSeen:
				got = "none"
			}
			if got != c.want {
				t.Fatalf("got %q, want %q: %+v", got, c.want, r.Finding)
			}
		})
	}
}

func TestWhatAReadDoesNotSayProvesNoAbsence(t *testing.T) {
	ask := func(said string, proves bool) sdk.ReadResponse {
		return readBack(t, open(t, map[string]any{
			"read":       `echo '{"items":[]` + said + `}'`,
			"operations": map[string]any{"tag": map[string]any{"read": map[string]any{"consistency": "bounded", "lag": "2s", "proves_absence": proves}}},
		}), operation1("tag"))
	}
	whole := ask(`,"complete":true,"visible":true,"scanned_from":"2020-01-01T00:00:00Z"`, true)
	if whole.Coverage != sdk.CoverageComplete || !whole.View.VisibilityProven || whole.View.ScannedFrom.IsZero() || whole.Authority != sdk.Eventual {
		t.Errorf("whole: %+v %+v", whole, whole.View)
	}
	if r := ask(`,"visible":true`, true); r.Coverage != sdk.CoverageTruncated {
		t.Errorf("complete not said: coverage %d", r.Coverage)
	}
	if r := ask(`,"complete":true,"visible":false`, true); r.View.VisibilityProven || r.Coverage != sdk.CoveragePermissionLimited {
		t.Errorf("hidden: %+v", r.View)
	}
	if r := ask(`,"complete":true`, false); r.View.VisibilityProven || !r.View.ScannedFrom.IsZero() {
		t.Errorf("nothing said: %+v", r.View)
	}
	if r := ask(`,"complete":true`, true); !r.View.VisibilityProven || r.View.How != "assumed" {
		t.Errorf("the operator's word: %+v", r.View)
	}
	if r := ask(`,"complete":true,"as_of":"2999-01-01T00:00:00Z"`, true); r.AsOf.After(time.Now()) {
		t.Errorf("a state of the future is believed: %v", r.AsOf)
	}
}

func TestAnUndoIsBelievedOnlyWhenTheReadSaysSo(t *testing.T) {
	undo := operation1("tag.undo")
	undo.Key, undo.Target = "repair:1:undo:v1", &sdk.ObjectRef{ID: "o1"}
	cases := map[string]string{
		`{"items":[],"complete":true,"postcondition":"holds"}`:                   "found",
		`{"items":[{"object_id":"o1"}],"complete":true,"postcondition":"holds"}`: "indeterminate",
		`{"items":[],"complete":true,"visible":true}`:                            "indeterminate",
		`{"items":[{"object_id":"o1"}],"complete":true}`:                         "none",
		`{"items":[],"complete":true,"postcondition":"fails"}`:                   "none",
		`{"items":[],"complete":true,"postcondition":"pending"}`:                 "pending",
	}
	for answer, want := range cases {
		a := open(t, map[string]any{"undo": `echo '{"outcome":"done"}'`, "read": "echo '" + answer + "'"})
		r := readBack(t, a, undo)
		got := "indeterminate"
		switch r.Finding.(type) {
		case *sdk.Found:
			got = "found"
		case *sdk.NoneSeen:
			got = "none"
		case *sdk.Pending:
			got = "pending"
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", answer, got, want)
		}
		c, ok := send(t, a, undo, 5*time.Second).Outcome.(*sdk.Committed)
		if !ok || c.Object.ID != "o1" {
			t.Errorf("undo: %+v", c)
		}
	}
	undo.Target = nil
	if got := class(send(t, open(t, map[string]any{"undo": "true"}), undo, time.Second).Outcome); got != "rejected 1" {
		t.Errorf("an undo without an object: %s", got)
	}
}

func TestFaultsOfTheConfigurationHavePointersAndSuggestions(t *testing.T) {
	ops := map[string]any{"tag": map[string]any{}}
	cases := []struct {
		with             map[string]any
		pointer, summary string
	}{
		{map[string]any{"operations": ops}, "/dispatch", "required"},
		{map[string]any{"dispatch": "git push", "operations": ops}, "/dispatch", "list of strings"},
		{map[string]any{"dispatch": []string{}, "operations": ops}, "/dispatch", "must be a list"},
		{map[string]any{"dispatch": []string{"./here"}, "operations": ops}, "/dispatch/0", "absolute"},
		{map[string]any{"dispatch": []string{"/bin/x", token}, "operations": ops}, "/dispatch", "credential"},
		{map[string]any{"dispatch": []string{"/bin/x"}, "operations": ops, "trust_exits": true}, "/trust_exits", `did you mean "trust_exit"`},
		{map[string]any{"dispatch": []string{"/bin/x"}}, "/operations", "at least one"},
		{map[string]any{"dispatch": []string{"/bin/x"}, "operations": map[string]any{"tag": map[string]any{"reversible": "reversible"}}}, "/operations/tag/reversible", "with.undo"},
		{map[string]any{"dispatch": []string{"/bin/x"}, "operations": map[string]any{"tag": map[string]any{"read": map[string]any{}}}}, "/operations/tag/read", "no command"},
		{map[string]any{"dispatch": []string{"/bin/x"}, "read": []string{"/bin/x"}, "operations": map[string]any{"tag": map[string]any{"read": map[string]any{"consistency": "bounded"}}}}, "/operations/tag/read/lag", "needs it"},
	}
	for _, c := range cases {
		got := configure(t, New(), c.with)
		if !slices.ContainsFunc(got.Diagnostics, func(d sdk.Diagnostic) bool {
			return !d.Warning && d.Pointer == c.pointer && strings.Contains(d.Summary, c.summary)
		}) {
			t.Errorf("%v: want %s %q, got %+v", c.with, c.pointer, c.summary, got.Diagnostics)
		}
		for _, d := range got.Diagnostics {
			if strings.Contains(d.Summary, token) {
				t.Errorf("a diagnostic shows a secret: %+v", d)
			}
		}
	}
}

func TestCheckAndDescribeRunOnlyWhereConfigured(t *testing.T) {
	a := open(t, map[string]any{"check": `echo '{"status":"degraded","message":"slow","permissions":["push"]}'`, "describe": `echo '{"identity":"repo as bot"}'`})
	h, err := a.Check(t.Context(), nil)
	if err != nil || h.Status != sdk.HealthDegraded || len(h.Permissions) != 1 || len(h.Diagnostics) != 1 {
		t.Errorf("check: %+v %v", h, err)
	}
	if c := configure(t, New(), map[string]any{"dispatch": []string{"/bin/true"}, "describe": []string{"/bin/sh", "-c", `echo '{"identity":"repo as bot"}'`}, "operations": map[string]any{"tag": map[string]any{}}}); c.Identity != "repo as bot" {
		t.Errorf("identity %q", c.Identity)
	}
	for script, want := range map[string]sdk.HealthStatus{"exit 0": sdk.HealthOK, "exit 1": sdk.HealthDown, "kill -9 $$": sdk.HealthDown, "echo '{}'": sdk.HealthUnspecified} {
		h, err := open(t, map[string]any{"check": script}).Check(t.Context(), nil)
		if err != nil || h.Status != want {
			t.Errorf("%s: %v %v", script, h.Status, err)
		}
	}
}

func TestNothingRunsBeforeConfigureOrForAnUnknownOperation(t *testing.T) {
	if got := class(send(t, New(), operation1("tag"), time.Second).Outcome); got != "not executed 4 after 0s" {
		t.Errorf("before Configure: %s", got)
	}
	if got := class(send(t, open(t, map[string]any{}), operation1("tagg"), time.Second).Outcome); got != "rejected 10" {
		t.Errorf("unknown operation: %s", got)
	}
}
