package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/settled-dev/settled/daemon/config"
)

const reloadBase = `
[owners.ops]
[owners.leads]
[destinations.a]
adapter = "exec"
owner = "ops"
rate = "5/s"
concurrency = 2
[destinations.a.with]
dispatch = ["/bin/true"]
[destinations.b]
adapter = "exec"
owner = "leads"
[destinations.b.with]
dispatch = ["/bin/true"]
[schedules.look]
do = "reconcile"
destination = "a"
cron = "@hourly"
`

// What a process, a lock or a socket rests on stays as it is until a restart;
// everything else is in the configuration that goes on.
func TestAReloadKeepsWhatOnlyARestartCanChange(t *testing.T) {
	parse := func(text string) *config.Config {
		t.Helper()
		c, err := config.Parse("x.toml", []byte(text), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	edit := func(pairs ...string) *config.Config {
		t.Helper()
		text := reloadBase
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(text, pairs[i]) {
				t.Fatalf("%q is not there", pairs[i])
			}
			text = strings.Replace(text, pairs[i], pairs[i+1], 1)
		}
		return parse(text)
	}
	bBegins := strings.Index(reloadBase, "[destinations.b]")
	bEnds := strings.Index(reloadBase, "[schedules")
	for name, c := range map[string]struct {
		next             *config.Config
		changed, restart []string
	}{
		"nothing":        {edit(), nil, nil},
		"a rate":         {edit(`"5/s"`, `"6/s"`), []string{"destinations.a.rate"}, nil},
		"an owner":       {edit("[owners.ops]", "[owners.ops]\nsecond = \"leads\""), []string{"owners.ops"}, nil},
		"slots":          {edit("concurrency = 2", "concurrency = 3"), nil, []string{"destinations.a.concurrency"}},
		"the adapter's":  {edit(`"/bin/true"`, `"/bin/false"`), nil, []string{"destinations.a.with"}},
		"a socket":       {edit("[owners.ops]", "[listen]\nsocket = \"/run/x.sock\"\n[owners.ops]"), nil, []string{"listen.socket"}},
		"a journal":      {edit("[owners.ops]", "[journal]\npath = \"/x/j.db\"\n[owners.ops]"), nil, []string{"journal.path"}},
		"stop_budget":    {edit("[owners.ops]", "[daemon]\nstop_budget = \"5s\"\n[owners.ops]"), []string{"daemon.stop_budget"}, nil},
		"a schedule":     {edit("@hourly", "@daily"), []string{"schedules.look.cron"}, nil},
		"a destination":  {edit("[schedules.look]", "[destinations.c]\nadapter = \"exec\"\nowner = \"ops\"\n[destinations.c.with]\ndispatch = [\"/bin/true\"]\n[schedules.c]\ndo = \"reconcile\"\ndestination = \"c\"\ncron = \"@daily\"\n[schedules.look]"), nil, []string{"destinations.c", "schedules.c"}},
		"one that left":  {parse(strings.Replace(reloadBase[:bBegins]+reloadBase[bEnds:], "[owners.leads]\n", "", 1)), nil, []string{"destinations.b"}},
		"a half of each": {edit(`"5/s"`, `"6/s"`, "concurrency = 2", "concurrency = 3"), []string{"destinations.a.rate"}, []string{"destinations.a.concurrency"}},
	} {
		t.Run(name, func(t *testing.T) {
			old := parse(reloadBase)
			before := old.PolicySHA256()
			merged, changed, restart := old.Reloaded(c.next)
			if !slices.Equal(changed, c.changed) || !slices.Equal(restart, c.restart) {
				t.Errorf("changed %q, restart %q; want %q and %q", changed, restart, c.changed, c.restart)
			}
			if d := merged.Destinations["a"]; d.Concurrency != 2 || string(d.With.RawMessage) != `{"dispatch":["/bin/true"]}` {
				t.Errorf("a process changed under the daemon: %+v", d)
			}
			if len(merged.Destinations) != 2 || merged.Destinations["b"].ForOperation("x").ReviewTime() == 0 {
				t.Errorf("the destinations are not what runs, or one has lost its owner: %v", merged.Destinations)
			}
			if merged.Journal != old.Journal || merged.Listen != old.Listen {
				t.Errorf("journal or socket changed under the daemon")
			}
			if (merged.PolicySHA256() == before) != (len(c.changed) == 0) || old.PolicySHA256() != before {
				t.Error("the digest does not say what changed, or the old configuration was touched")
			}
		})
	}
}
