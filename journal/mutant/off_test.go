//go:build !mutants

package mutant

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// In a normal build the mutants are constants: this does not compile if one becomes a variable.
const _ = NoGrace || UnknownToAuthorized || OrphanNotKilled || SentAfterCall

func TestNoEnvironmentWakesAMutantInANormalBuild(t *testing.T) {
	t.Setenv("SETTLED_MUTANT", "noGrace")
	for name, on := range map[string]bool{"noGrace": NoGrace, "unknownToAuthorized": UnknownToAuthorized, "orphanNotKilled": OrphanNotKilled, "sentAfterCall": SentAfterCall} {
		if on {
			t.Errorf("%s is on", name)
		}
	}
}

// Each mutant of the core is caught by the core's own tests, and with none
// selected the same build passes. The other two mutants are the host's and the daemon's.
func TestTheCoreCatchesItsMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the core a second time")
	}
	run := func(mutant string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-tags", "mutants", "-run", "TestScenario0|TestRapid", "..", "-rapid.nofailfile", "-rapid.shrinktime=1s")
		cmd.Env = append(os.Environ(), "SETTLED_MUTANT="+mutant)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(""); err != nil {
		t.Fatalf("with no mutant selected: %v\n%s", err, out)
	}
	for mutant, caught := range map[string][]string{
		"noGrace":             {"FAIL: TestScenario02", "FAIL: TestScenario03", "FAIL: TestRapid", "I11"},
		"unknownToAuthorized": {"FAIL: TestScenario09", "FAIL: TestRapid", "I9"},
	} {
		out, err := run(mutant)
		if err == nil {
			t.Errorf("%s: every test passes", mutant)
		}
		for _, want := range caught {
			if !strings.Contains(out, want) {
				t.Errorf("%s: not caught by %q\n%s", mutant, want, out)
			}
		}
	}
}
