package desk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestMain lets the test binary be the desk, so that it can be killed.
func TestMain(m *testing.M) {
	if os.Getenv("DESK_TEST_MAIN") != "" {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func process(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "DESK_TEST_MAIN=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	first, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(first), "listening ")
	if err != nil || !ok {
		t.Fatalf("first line %q: %v", first, err)
	}
	return cmd, url
}

func TestAKilledDeskRestartsWithEverythingItCommitted(t *testing.T) {
	dir := t.TempDir()
	cmd, url := process(t, "--data", dir)
	var (
		mu       sync.Mutex
		answered []string
		group    sync.WaitGroup
		enough   = make(chan struct{})
		once     sync.Once
	)
	for worker := range 4 {
		group.Go(func() {
			for i := range 1000 {
				ref := fmt.Sprintf("ticket:SUP-%d:create:v%d", worker, i+1)
				r := call(t, "POST", url+"/tickets", `{"external_ref":"`+ref+`","subject":"s"}`)
				if r.status != 201 || r.err != nil {
					return
				}
				mu.Lock()
				if answered = append(answered, ref); len(answered) >= 20 {
					once.Do(func() { close(enough) })
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed on purpose
	group.Wait()

	again, url := process(t, "--data", dir)
	var ledger Ledger
	if r := call(t, "GET", url+"/_ledger", ""); json.Unmarshal(r.body, &ledger) != nil {
		t.Fatalf("ledger: %s", r.body)
	}
	for _, ref := range answered {
		if e := ledger.Of(ref); len(e.Commits) != 1 || len(e.Requests) != 1 {
			t.Errorf("%s was answered and is now %+v", ref, e)
		}
	}
	if len(ledger.Duplicates()) != 0 {
		t.Errorf("duplicates: %+v", ledger.Duplicates())
	}
	r := call(t, "POST", url+"/tickets", `{"external_ref":"after","subject":"s"}`)
	var made Ticket
	if err := json.Unmarshal(r.body, &made); err != nil || r.status != 201 {
		t.Fatalf("after the restart: %d %s", r.status, r.body)
	}
	for _, e := range ledger {
		for _, c := range e.Commits {
			if c.ID == made.ID {
				t.Fatalf("the id %s was given again", made.ID)
			}
		}
	}
	if err := again.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(); err != nil {
		t.Fatalf("stopped with %v", err)
	}
}

func TestATornLastLineIsCutAndATornMiddleIsRefused(t *testing.T) {
	dir := t.TempDir()
	d := start(t, Config{Data: dir})
	create(t, d)
	create(t, d)
	call(t, "DELETE", d.URL()+"/tickets/"+d.Tickets()[0].ID, "")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "desk.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(bytes.Clone(whole), `{"ref":"x","row":{"tick`...), 0o640); err != nil {
		t.Fatal(err)
	}
	d = start(t, Config{Data: dir})
	if e := d.Ledger().Of(ref); len(e.Commits) != 2 || len(e.Removals) != 1 || len(d.Tickets()) != 1 {
		t.Fatalf("after the torn line: %+v", e)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, whole) {
		t.Fatalf("the torn line is still there: %v", err)
	}
	if err := os.WriteFile(path, append([]byte("{\"ref\n"), whole...), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Config{Data: dir}); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Fatalf("a torn middle gave %v", err)
	}
}

func TestWrongFlagsAreAUsageError(t *testing.T) {
	for _, args := range [][]string{{"--plan", "gone=1"}, {"--nope"}, {"extra"}} {
		if got := Main(args); got != 2 {
			t.Errorf("%v: exit %d", args, got)
		}
	}
	if got := Main([]string{"--listen", "127.0.0.1:notaport"}); got != 1 {
		t.Errorf("an impossible address: exit %d", got)
	}
}
