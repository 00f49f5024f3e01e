package exec

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAProcessThatLeftTheGroupCannotHoldTheAnswerBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	a := open(t, map[string]any{"dispatch": `setsid sleep 60 & echo $! >` + file + `; sleep 0.1; echo '{"outcome":"done","object_id":"1"}'`})
	begun := time.Now()
	got := class(send(t, a, operation1("tag"), 30*time.Second).Outcome)
	if raw, err := os.ReadFile(file); err == nil {
		pid, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if got != "committed" || time.Since(begun) > 10*time.Second {
		t.Fatalf("%s after %v", got, time.Since(begun))
	}
}

func TestAProcessThatLeftTheGroupCannotActAfterAnAnswerThatProvesNoEffect(t *testing.T) {
	for name, ending := range map[string]string{
		"time limit": "sleep 60", "no answer": "exit 0", "not executed": "exit 75",
	} {
		t.Run(name, func(t *testing.T) {
			pids := filepath.Join(t.TempDir(), "pids")
			a := open(t, map[string]any{"dispatch": `setsid sh -c 'echo $$ >` + pids + `; exec sleep 60' & while ! [ -s ` + pids + ` ]; do sleep 0.01; done; ` + ending})
			if got := class(send(t, a, operation1("tag"), 2*time.Second).Outcome); got == "committed" {
				t.Fatal(got)
			}
			assertDead(t, pids, 1)
		})
	}
}

func TestACommandCarriesTheMarkByWhichTheHostFindsItAfterTheAdapterDied(t *testing.T) {
	t.Setenv(runMark, "0123")
	file := filepath.Join(t.TempDir(), "env")
	a := open(t, map[string]any{"dispatch": `env >` + file + `; echo '{"outcome":"done","object_id":"1"}'`})
	send(t, a, operation1("tag"), 10*time.Second)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains("\n"+string(raw), "\nSETTLED_ADAPTER_RUN=0123\n") {
		t.Errorf("the command's environment has no mark of the run: %s", raw)
	}
}
