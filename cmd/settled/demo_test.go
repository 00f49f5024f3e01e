package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/sdk/client"
)

func TestTheDemoTellsEveryFaultAndEveryNumberIsRight(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	before, err := filepath.Glob(filepath.Join(os.TempDir(), "settled-demo-*"))
	if err != nil {
		t.Fatal(err)
	}
	var story bytes.Buffer
	result, err := runDemo(t.Context(), demoOptions{effects: 18, seed: 3, plain: true}, &story)
	if err != nil || !result.OK {
		t.Fatalf("%v %v\n%s", err, result.Wrong, story.String())
	}
	a := result.All
	if a.Effects != 18 || a.Objects != 18 || a.Duplicates != 0 || a.Lost != 0 || a.Waiting != 1 || a.Unknown < 7 || a.Unknown != a.SettledByRead+a.SentAgain {
		t.Errorf("numbers: %+v", a)
	}
	for _, words := range []string{
		"[answer lost:", "[request lost:", "[late commit:", "[500 after commit:", "[throttled:", "[done, but wrong:", "[killed after commit:",
		"[killed before commit:", "[push, no answer:", "kill -9 of the daemon", "the daemon died during the call", "will not send again",
		"early read: nothing; not believed before", "confirmed not executed", "sent again, once: attempt 2", "needs support-ops by",
		"duplicates                                            0        0        0",
	} {
		if !strings.Contains(story.String(), words) {
			t.Errorf("the story lacks %q", words)
		}
	}
	if i := strings.IndexFunc(story.String(), func(r rune) bool { return r > 126 }); i >= 0 {
		t.Errorf("--plain is not ASCII: %q", story.String()[i:min(i+40, story.Len())])
	}
	after, err := filepath.Glob(filepath.Join(os.TempDir(), "settled-demo-*"))
	if err != nil || len(after) > len(before) {
		t.Errorf("left behind: %v, before: %v (%v)", after, before, err)
	}
}

func TestTheDemoNamesEveryNumberThatIsWrong(t *testing.T) {
	good := client.Effect{Phase: "succeeded", Attempts: []client.Attempt{{State: "committed"}}}
	held := client.Effect{Phase: "needs_human", Attempts: good.Attempts}
	plain, bad := part{key: "ticket:1:create:v1"}, part{key: "ticket:2:create:v1", needsPerson: true}
	cases := []struct {
		name           string
		p              part
		e              client.Effect
		calls, objects int
		wrong          string // "" = nothing
	}{
		{"as it should be", plain, good, 1, 1, ""},
		{"a person is the right end", bad, held, 1, 1, ""},
		{"duplicate", plain, good, 1, 2, "2 objects"},
		{"lost", plain, good, 1, 0, "0 objects"},
		{"a call that the journal does not know", plain, good, 2, 1, "called 2 times"},
		{"in limbo", plain, client.Effect{Phase: "unknown", Attempts: good.Attempts}, 1, 1, "unknown instead of succeeded"},
		{"a person, for nothing", plain, held, 1, 1, "needs_human instead of succeeded"},
		{"called right though it is wrong", bad, good, 1, 1, "succeeded instead of needs_human"},
	}
	for _, c := range cases {
		got := strings.Join(wrongWith(c.p, c.e, countOne(c.p, c.e, c.calls, c.objects)), "; ")
		if c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %q, want %q", c.name, got, c.wrong)
		}
	}
}

func TestTheDemoCastHasEveryFaultAndDependsOnTheSeedOnly(t *testing.T) {
	kinds := func(o demoOptions) (out []desk.Kind) {
		cast, err := newCast(o)
		if err != nil {
			t.Fatal(err)
		}
		if len(cast) != o.effects {
			t.Errorf("%d effects, want %d", len(cast), o.effects)
		}
		for _, p := range cast {
			out = append(out, p.fault.Kind)
		}
		return out
	}
	for _, n := range []int{12, 36, 240} {
		one, same, other := kinds(demoOptions{effects: n, seed: 1}), kinds(demoOptions{effects: n, seed: 1}), kinds(demoOptions{effects: n, seed: 2})
		if !slices.Equal(one, same) || n > 12 && slices.Equal(one, other) {
			t.Errorf("%d effects: the faults do not follow the seed", n)
		}
		for _, k := range []desk.Kind{desk.LostAnswer, desk.LostRequest, desk.LateCommit, desk.Error500, desk.Busy, desk.DropBody, desk.Hang, desk.HangCommit} {
			if !slices.Contains(one, k) {
				t.Errorf("%d effects: no %s", n, k)
			}
		}
	}
}
