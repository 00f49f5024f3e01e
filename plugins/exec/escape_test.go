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
