package desk

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

func TestAPlanIsTheSameEveryTimeAndFollowsItsWeights(t *testing.T) {
	plan, err := ParsePlan(42, "none=2,lost-answer=1,late-commit:250ms=1")
	if err != nil {
		t.Fatal(err)
	}
	counts, differs := map[Kind]int{}, false
	for i := range 400 {
		ref := fmt.Sprintf("ticket:SUP-%d:create:v1", i)
		got := plan.Choose(ref, 1)
		if again := plan.Choose(ref, 1); again != got {
			t.Fatalf("%s: %v, then %v", ref, got, again)
		}
		if plan.Choose(ref, 2) != (Fault{}) {
			t.Fatalf("%s: the second request is affected", ref)
		}
		other := plan
		other.Seed = 43
		differs = differs || other.Choose(ref, 1) != got
		counts[got.Kind]++
		if got.Kind == LateCommit && got.Delay != 250*time.Millisecond {
			t.Fatalf("delay %v", got.Delay)
		}
	}
	if !differs {
		t.Error("the seed changes nothing")
	}
	if n := counts[None]; n < 150 || n > 250 || counts[LostAnswer] < 60 || counts[LateCommit] < 60 {
		t.Errorf("the weights are not kept: %v", counts)
	}
}

func TestFaultsAndPlansAreRefusedWithTheReason(t *testing.T) {
	for _, text := range []string{"lost", "late-commit:soon", "late-commit:-1s"} {
		if f, err := ParseFault(text); err == nil {
			t.Errorf("fault %q gave %v", text, f)
		}
	}
	for _, text := range []string{"lost-answer", "lost-answer=0", "lost-answer=x", "gone=1"} {
		if p, err := ParsePlan(1, text); err == nil {
			t.Errorf("plan %q gave %v", text, p)
		}
	}
}

func TestEveryFaultSurvivesItsTextForm(t *testing.T) {
	for _, k := range append(kinds(), None) {
		want := Fault{Kind: k, Delay: 1500 * time.Millisecond}
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Fault
		if err := json.Unmarshal(data, &got); err != nil || got != want {
			t.Errorf("%s came back as %v (%v)", data, got, err)
		}
	}
}
