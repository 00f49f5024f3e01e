package gitdest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
)

// TestMain lets the test binary be the command, so that it can die by a signal.
func TestMain(m *testing.M) {
	if os.Getenv("GITDEST_TEST_MAIN") != "" {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

const (
	key    = "release:coredns-1.12.3:tag:v1"
	digest = "sha256:5d41402abc4b2a76b9719d911017c592"
)

func repository(t *testing.T) string {
	t.Helper()
	repo := filepath.Join(t.TempDir(), "releases.git")
	if err := Init(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	return repo
}

func ask(t *testing.T, verb, key, attempt, tag, object string) string {
	t.Helper()
	payload := release{Tag: tag, Repo: "coredns/coredns", Commit: "9f1c3e0", Notes: "Fixes\r\n\nSettled-Key: forged\n\nüñ 日本 🚀\n"}
	data, err := json.Marshal(map[string]any{
		"method": verb,
		"operation": map[string]any{
			"key": key, "attempt_id": attempt, "digest": digest, "object_id": object, "payload": payload, "account": "acme",
		},
		"secrets": map[string]string{}, "deadline": time.Now().Add(time.Minute).Format(time.RFC3339Nano),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// perform runs one verb in this process and decodes its answer.
func perform[T any](t *testing.T, repo, verb, text string) T {
	t.Helper()
	var out, diag bytes.Buffer
	if status := Run(t.Context(), []string{verb, "--repo", repo}, strings.NewReader(text), &out, &diag); status != 0 {
		t.Fatalf("%s: exit %d: %s", verb, status, diag.String())
	}
	var answer T
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatalf("%s answered %q: %v", verb, out.String(), err)
	}
	return answer
}

func audited(t *testing.T, repo, key string) Record {
	t.Helper()
	records, err := Audit(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Key == key {
			return r
		}
	}
	return Record{Key: key}
}

func TestATagIsPushedReadAndUndoneOnce(t *testing.T) {
	repo := repository(t)
	if before := perform[reading](t, repo, "read", ask(t, "read", key, "", "v1.12.3", "")); len(before.Items) != 0 || !before.Complete || !before.Visible {
		t.Fatalf("before: %+v", before)
	}
	began := time.Now()
	done := perform[outcome](t, repo, "dispatch", ask(t, "dispatch", key, "a1", "v1.12.3", ""))
	if done.Outcome != "done" || done.ObjectID == "" {
		t.Fatalf("dispatch: %+v", done)
	}
	seen := perform[reading](t, repo, "read", ask(t, "read", key, "", "v1.12.3", ""))
	if len(seen.Items) != 1 {
		t.Fatalf("read: %+v", seen)
	}
	it := seen.Items[0]
	if it.ObjectID != done.ObjectID || it.Key != key || it.Digest != digest || len(it.Missing) != 0 || it.CreatedAt.Before(began) {
		t.Fatalf("item: %+v", it)
	}
	if a := audited(t, repo, key); len(a.Tags) != 1 || a.Created != 1 || a.Tags[0].Attempt != "a1" || a.Tags[0].Name != "v1.12.3" {
		t.Fatalf("audit: %+v", a)
	}
	for range 2 {
		if gone := perform[outcome](t, repo, "undo", ask(t, "undo", "repair:1:undo:v1", "a2", "v1.12.3", done.ObjectID)); gone.Outcome != "done" {
			t.Fatalf("undo: %+v", gone)
		}
	}
	if after := perform[reading](t, repo, "read", ask(t, "read", key, "", "v1.12.3", "")); len(after.Items) != 0 || !after.Visible {
		t.Fatalf("after: %+v", after)
	}
	if a := audited(t, repo, key); len(a.Tags) != 0 || a.Created != 1 || a.Removed != 1 {
		t.Fatalf("audit: %+v", a)
	}
}

func TestASecondDispatchOfAKeyIsNeverADuplicateAndNeverCalledAFailure(t *testing.T) {
	repo := repository(t)
	perform[outcome](t, repo, "dispatch", ask(t, "dispatch", key, "a1", "v1.12.3", ""))
	for _, tag := range []string{"v1.12.3", "v1.12.4"} {
		if again := perform[outcome](t, repo, "dispatch", ask(t, "dispatch", key, "a2", tag, "")); again.Outcome != "unknown" {
			t.Fatalf("again with %s: %+v", tag, again)
		}
	}
	if a := audited(t, repo, key); len(a.Tags) != 1 || a.Created != 1 || a.Tags[0].Attempt != "a1" {
		t.Fatalf("audit: %+v", a)
	}
	if other := perform[outcome](t, repo, "dispatch", ask(t, "dispatch", "release:other-1:tag:v1", "a3", "v1.12.3", "")); other.Outcome != "rejected" {
		t.Fatalf("the tag name of another effect: %+v", other)
	}
	if a := audited(t, repo, "release:other-1:tag:v1"); a.Created != 0 {
		t.Fatalf("half of an atomic push happened: %+v", a)
	}
}

func TestAMovedTagIsReportedAsMissing(t *testing.T) {
	repo := repository(t)
	perform[outcome](t, repo, "dispatch", ask(t, "dispatch", key, "a1", "v1.12.3", ""))
	if out, err := exec.Command("git", "-C", repo, "update-ref", "-d", "refs/tags/v1.12.3").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	seen := perform[reading](t, repo, "read", ask(t, "read", key, "", "v1.12.3", ""))
	if len(seen.Items) != 1 || len(seen.Items[0].Missing) != 1 {
		t.Fatalf("read: %+v", seen)
	}
}

func TestWhatCannotBeATagIsRejectedBeforeThePush(t *testing.T) {
	repo := repository(t)
	for _, tag := range []string{"", "a..b", "with space", "x.lock", "line\nbreak"} {
		if got := perform[outcome](t, repo, "dispatch", ask(t, "dispatch", key, "a1", tag, "")); got.Outcome != "rejected" {
			t.Errorf("tag %q: %+v", tag, got)
		}
	}
	if a := audited(t, repo, key); a.Created != 0 {
		t.Errorf("audit: %+v", a)
	}
	hook := "#!/bin/sh\nexit 1\n"
	if err := os.WriteFile(filepath.Join(repo, "hooks", "pre-receive"), []byte(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := perform[outcome](t, repo, "dispatch", ask(t, "dispatch", key, "a1", "v1", "")); got.Outcome != "rejected" {
		t.Errorf("declined by a hook: %+v", got)
	}
}

func TestAnEmptyAnswerOfAWrongRepositoryIsNotVisible(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong.git")
	if out, err := exec.Command("git", "init", "-q", "--bare", wrong).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if got := perform[reading](t, wrong, "read", ask(t, "read", key, "", "v1", "")); got.Visible || len(got.Items) != 0 {
		t.Fatalf("empty repository: %+v", got)
	}
	var out, diag bytes.Buffer
	missing := filepath.Join(t.TempDir(), "missing.git")
	status := Run(t.Context(), []string{"read", "--repo", missing}, strings.NewReader(ask(t, "read", key, "", "v1", "")), &out, &diag)
	if status != exitNoAnswer || out.Len() != 0 || diag.Len() == 0 {
		t.Fatalf("missing repository: exit %d, %q, %q", status, out.String(), diag.String())
	}
	if got := perform[outcome](t, missing, "dispatch", ask(t, "dispatch", key, "a1", "v1", "")); got.Outcome != "unknown" {
		t.Fatalf("dispatch to a missing repository: %+v", got)
	}
}

// child runs the command as the exec adapter does: a process, JSON in and out.
func child(t *testing.T, text string, args ...string) (string, *os.ProcessState) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = []string{"GITDEST_TEST_MAIN=1"} // no PATH, no HOME
	cmd.Stdin = strings.NewReader(text)
	out, _ := cmd.Output() // the state says how it ended
	return string(out), cmd.ProcessState
}

func TestALostAnswerAndALostRequestLookAlikeAndTheReadTellsThemApart(t *testing.T) {
	for kind, want := range map[desk.Kind]int{desk.LostAnswer: 1, desk.LostRequest: 0} {
		repo, state := repository(t), t.TempDir()
		if err := Inject(state, key, kind); err != nil {
			t.Fatal(err)
		}
		args := []string{"dispatch", "--repo", repo, "--state", state}
		out, ended := child(t, ask(t, "dispatch", key, "a1", "v1.12.3", ""), args...)
		if ws, ok := ended.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() || out != "" {
			t.Fatalf("%s: ended with %v, said %q", kind, ended, out)
		}
		if got := perform[reading](t, repo, "read", ask(t, "read", key, "", "v1.12.3", "")); len(got.Items) != want {
			t.Fatalf("%s: read %+v", kind, got)
		}
		out, ended = child(t, ask(t, "dispatch", key, "a2", "v1.12.3", ""), args...)
		wanted := map[int]string{0: `"done"`, 1: `"unknown"`}[want]
		if ended.ExitCode() != 0 || !strings.Contains(out, wanted) {
			t.Fatalf("%s: second dispatch ended with %v, said %q", kind, ended, out)
		}
		if a := audited(t, repo, key); len(a.Tags) != 1 || a.Created != 1 {
			t.Fatalf("%s: audit %+v", kind, a)
		}
		if n, err := Dispatches(state, key); n != 2 || err != nil {
			t.Fatalf("%s: %d dispatches, %v", kind, n, err)
		}
	}
}

func TestAPlanLosesTheFirstDispatchOnly(t *testing.T) {
	repo, state := repository(t), t.TempDir()
	args := []string{"dispatch", "--repo", repo, "--state", state, "--plan", "lost-request=1", "--seed", "3"}
	if _, ended := child(t, ask(t, "dispatch", key, "a1", "v1", ""), args...); ended.Exited() {
		t.Fatalf("first: %v", ended)
	}
	if out, ended := child(t, ask(t, "dispatch", key, "a2", "v1", ""), args...); ended.ExitCode() != 0 || !strings.Contains(out, `"done"`) {
		t.Fatalf("second: %v %q", ended, out)
	}
}

func TestAHangEndsAtTheDeadlineWithoutAnAnswer(t *testing.T) {
	repo, state := repository(t), t.TempDir()
	if err := Inject(state, key, desk.HangCommit); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for range 1000 { // until the push is there
			if data, err := os.ReadFile(filepath.Join(repo, auditLog)); err == nil && strings.Count(string(data), "\n") == 2 {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	var out, diag bytes.Buffer
	status := Run(ctx, []string{"dispatch", "--repo", repo, "--state", state}, strings.NewReader(ask(t, "dispatch", key, "a1", "v1", "")), &out, &diag)
	if status != exitNoAnswer || out.Len() != 0 {
		t.Fatalf("exit %d, said %q", status, out.String())
	}
	if a := audited(t, repo, key); a.Created != 1 {
		t.Fatalf("audit: %+v", a)
	}
}

func TestKeyRefsAreValidDistinctAndReversible(t *testing.T) {
	keys := []string{
		"deploy-42", key, "a", "a/b", "a:b", "a.b", "a..b", "a.lock", "-x", "x~1", "x=", "x+y", "x_y", "/", ".", "@{x",
		strings.Repeat("k", 255), strings.Repeat("k", 254) + "j", strings.Repeat(":", 255),
	}
	seen := map[string]string{}
	for _, k := range keys {
		ref := KeyRef(k)
		if other, ok := seen[ref]; ok {
			t.Errorf("%q and %q share %s", k, other, ref)
		}
		seen[ref] = k
		if out, err := exec.Command("git", "check-ref-format", ref).CombinedOutput(); err != nil {
			t.Errorf("%q gives the invalid ref %s: %v %s", k, ref, err, out)
		}
		if len(k) < 60 && keyOf(ref) != k {
			t.Errorf("%q came back as %q", k, keyOf(ref))
		}
		if len(filepath.Base(ref)) > 250 {
			t.Errorf("%q gives a name of %d bytes", k, len(filepath.Base(ref)))
		}
	}
}

func TestWrongCommandLinesAreUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"dispatch"},
		{"read", "--repo", "x", "extra"},
		{"dispatch", "--repo", "x", "--plan", "lost-answer=1"},
		{"dispatch", "--repo", "x", "--state", "s", "--plan", "error-500=1"},
	} {
		if got := Run(t.Context(), args, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}); got != exitUsage {
			t.Errorf("%q: exit %d", args, got)
		}
	}
	if err := Inject(t.TempDir(), key, desk.Error500); err == nil {
		t.Error("a fault that git cannot do was queued")
	}
}

func TestTheAuditSeesADuplicateThatWentAroundTheKeysRef(t *testing.T) {
	repo := repository(t)
	done := perform[outcome](t, repo, "dispatch", ask(t, "dispatch", key, "a1", "v1.12.3", ""))
	if out, err := exec.Command("git", "-c", "safe.directory=*", "-C", repo, "update-ref", "refs/tags/again", done.ObjectID).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if a := audited(t, repo, key); len(a.Tags) != 2 || a.Tags[0].Name == a.Tags[1].Name {
		t.Fatalf("audit: %+v", a)
	}
	const other = "release:etcd-3.5.18:tag:v1"
	perform[outcome](t, repo, "dispatch", ask(t, "dispatch", other, "a9", "v3.5.18", ""))
	if gone := perform[outcome](t, repo, "undo", ask(t, "undo", "repair:1:undo:v1", "a2", "", done.ObjectID)); gone.Outcome != "done" {
		t.Fatalf("undo: %+v", gone)
	}
	if a := audited(t, repo, other); len(a.Tags) != 1 || a.Removed != 0 {
		t.Fatalf("the undo took another effect's tag: %+v", a)
	}
	if a := audited(t, repo, key); len(a.Tags) != 0 || a.Removed != 1 {
		t.Fatalf("after the undo: %+v", a)
	}
}
