package spec

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/settled-dev/settled/journal"
)

// TestEveryMoveOfTheModelIsATransitionOfTheJournal keeps the two in step.
func TestEveryMoveOfTheModelIsATransitionOfTheJournal(t *testing.T) {
	text, err := os.ReadFile("effect.pml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[journal.Transition]bool{}
	for _, tr := range journal.Transitions() {
		known[tr] = true
	}
	numbers := map[int]bool{}
	for _, m := range regexp.MustCompile(`MOVE\((\d+), (\w+), +(\w+)\)`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if !known[journal.Transition{Number: n, From: journal.Phase(m[2]), To: journal.Phase(m[3])}] {
			t.Errorf("the model moves by %s, which the journal does not know", m[0])
		}
		numbers[n] = true
	}
	if len(numbers) < 18 {
		t.Errorf("the model has %d kinds of move only; was the pattern broken?", len(numbers))
	}
	if writes := regexp.MustCompile(`phase = (authorized|dispatching)`).FindAllString(string(text), -1); len(writes) != 1 {
		t.Errorf("%d direct writes of phase, want one: the twin UNKNOWN_TO_AUTHORIZED", len(writes))
	}
}

// check builds a verifier and returns what it says.
func check(t *testing.T, twin string, cflags, pan []string) string {
	t.Helper()
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (Debian: spin, gcc)", tool)
		}
	}
	dir := t.TempDir()
	model, err := filepath.Abs("effect.pml")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-a"}
	if twin != "" {
		args = append(args, "-D"+twin)
	}
	for _, c := range [][]string{
		append(append([]string{"spin"}, args...), model),
		append([]string{"gcc", "-O0", "-o", "pan", "pan.c"}, cflags...),
		append([]string{"./pan", "-m200000"}, pan...),
	} {
		cmd := exec.Command(c[0], c[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if c[0] == "./pan" {
			return string(out)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(c, " "), err, out)
		}
	}
	return ""
}

func TestTheModelHoldsInEveryOrderOfEvents(t *testing.T) {
	for name, run := range map[string][2][]string{
		"safety":        {{"-DSAFETY", "-DNOCLAIM"}, nil},
		"no_blind_send": {nil, {"-a", "-N", "no_blind_send"}},
		"doubt_ends":    {nil, {"-a", "-f", "-N", "doubt_ends"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := check(t, "", run[0], run[1])
			if !strings.Contains(out, "errors: 0") || strings.Contains(out, "max search depth too small") {
				t.Errorf("the model does not hold:\n%s", out)
			}
			states := regexp.MustCompile(`(\d+) states, stored`).FindStringSubmatch(out)
			if states == nil {
				t.Fatalf("no count of states:\n%s", out)
			}
			if n, _ := strconv.Atoi(states[1]); n < 20_000 {
				t.Errorf("%d states only: the model has lost part of its world", n)
			}
		})
	}
}

func TestEveryTwinWithAGuardBrokenIsCaught(t *testing.T) {
	for _, twin := range []string{
		"NO_GRACE", "UNKNOWN_TO_AUTHORIZED", "ORPHAN_NOT_KILLED", "SENT_AFTER_CALL",
		"ONE_READ", "NO_RECOVERY", "BLIND_RESTORE",
	} {
		t.Run(twin, func(t *testing.T) {
			if out := check(t, twin, []string{"-DSAFETY", "-DNOCLAIM"}, nil); !strings.Contains(out, "assertion violated (objects<=1)") {
				t.Errorf("no second object was found:\n%s", out)
			}
		})
	}
	t.Run("NO_READS", func(t *testing.T) {
		if out := check(t, "NO_READS", nil, []string{"-a", "-f", "-N", "doubt_ends"}); !strings.Contains(out, "acceptance cycle") {
			t.Errorf("no endless doubt was found:\n%s", out)
		}
	})
}
