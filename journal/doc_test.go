package journal

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/settled-dev/settled/journal/mutant"
)

// parts splits the package's documentation into the picture and the list.
func parts(t *testing.T) (picture, list string) {
	t.Helper()
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(b), "# The state machine")
	picture, list, ok2 := strings.Cut(after, "The same as a list")
	if !ok || !ok2 {
		t.Fatal("doc.go has no picture and list of the state machine")
	}
	return picture, list
}

// The picture shows every phase and every transition that the code has, and no other.
func TestThePictureShowsTheWholeMachine(t *testing.T) {
	picture, _ := parts(t)
	for _, p := range Phases() {
		if !strings.Contains(picture, string(p)) {
			t.Errorf("the picture lacks %s", p)
		}
	}
	shown := map[int]bool{}
	for _, n := range regexp.MustCompile(`\b\d+\b`).FindAllString(picture, -1) {
		v, _ := strconv.Atoi(n)
		shown[v] = true
	}
	known := map[int]bool{}
	for _, m := range Transitions() {
		known[m.Number] = true
		if !shown[m.Number] {
			t.Errorf("the picture lacks transition %d", m.Number)
		}
	}
	for n := range shown {
		if !known[n] {
			t.Errorf("the picture shows %d, which is no transition", n)
		}
	}
	if len(known) != 42 {
		t.Errorf("the table has %d numbers, the model 42", len(known))
	}
}

// The list in the documentation and the table in the code are the same set of moves.
func TestTheListIsTheTable(t *testing.T) {
	if mutant.UnknownToAuthorized {
		t.Skip("this mutant adds a move on purpose")
	}
	_, list := parts(t)
	line := regexp.MustCompile(`(?m)^//\t *(\d+)  (.+) -> (.+)$`)
	listed := map[Transition]bool{}
	for _, m := range line.FindAllStringSubmatch(list, -1) {
		n, _ := strconv.Atoi(m[1])
		for _, from := range strings.Split(m[2], ", ") {
			for _, to := range strings.Split(m[3], ", ") {
				if from == "new" {
					from = ""
				}
				listed[Transition{n, Phase(from), Phase(to)}] = true
			}
		}
	}
	for _, m := range Transitions() {
		if !listed[m] {
			t.Errorf("not in the documentation: %v", m)
		}
		delete(listed, m)
	}
	for m := range listed {
		t.Errorf("documented and not in the table: %s", fmt.Sprint(m))
	}
}
