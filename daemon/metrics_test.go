package daemon_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/settled-dev/settled/daemon/daemontest"
)

// TestEveryAlertWatchesAMetricThatExists holds the rules, the runbook and the
// daemon's own numbers against each other.
func TestEveryAlertWatchesAMetricThatExists(t *testing.T) {
	rules, err := os.ReadFile("../systemd/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../cmd/settled/internal/cli/topics/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		var out bytes.Buffer
		if err := run.Metrics(&out); err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\bsettled_[a-z_]+`).FindAllString(string(rules), -1)
		if len(names) < 8 {
			t.Fatalf("only %d metrics in the rules", len(names))
		}
		for _, name := range names {
			if !strings.Contains(out.String(), "# TYPE "+name+" ") {
				t.Errorf("an alert watches %s, which the daemon does not write", name)
			}
		}
		for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
			if !strings.Contains(string(runbook), "## "+m[1]+"\n") {
				t.Errorf("the runbook does not say what to do for %s", m[1])
			}
		}
	})
}
