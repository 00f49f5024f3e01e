package exec

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/settled-dev/settled/sdk"
)

func TestAnAnswerThatContradictsItselfIsUnknown(t *testing.T) {
	for name, answer := range map[string]string{
		"a name twice":      `{"outcome":"done","object_id":"1","outcome":"not_executed"}`,
		"a name in capital": `{"outcome":"done","object_id":"1","OUTCOME":"not_executed"}`,
		"only in capitals":  `{"Outcome":"not_executed"}`,
	} {
		a := open(t, map[string]any{"dispatch": `echo '` + answer + `'`})
		if got := class(send(t, a, operation1("tag"), 10*time.Second).Outcome); got != "unknown" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestAReadThatContradictsItselfOrSpeaksOtherWordsFails(t *testing.T) {
	for name, answer := range map[string]string{
		"items twice":         `{"items":[{"key":"release:app:tag:v1","object_id":"1"}],"items":[],"complete":true}`,
		"complete in capital": `{"items":[],"complete":false,"Complete":true}`,
		"a key in capital":    `{"items":[{"key":"other","KEY":"release:app:tag:v1"}],"complete":true}`,
		"postcondition HOLDS": `{"items":[{"key":"release:app:tag:v1","object_id":"1"}],"complete":true,"postcondition":"HOLDS"}`,
		"postcondition false": `{"items":[{"key":"release:app:tag:v1","object_id":"1"}],"complete":true,"postcondition":"failed"}`,
	} {
		a := open(t, map[string]any{"read": `echo '` + answer + `'`})
		if f := readBack(t, a, operation1("tag")).Finding; !isIndeterminate(f) {
			t.Errorf("%s: %#v", name, f)
		}
	}
}

func isIndeterminate(f sdk.Finding) bool { _, ok := f.(*sdk.Indeterminate); return ok }

func TestWhatACommandPrintsIsKeptAsText(t *testing.T) {
	a := open(t, map[string]any{"read": `printf '{"items":[{"key":"release:app:tag:v1","object_id":"\377","account":"\376"}],"complete":true}'`})
	f, ok := readBack(t, a, operation1("tag")).Finding.(*sdk.Found)
	if !ok || len(f.Matches) != 1 || !utf8.Valid(f.Matches[0].Observed) {
		t.Fatalf("%#v", f)
	}
}
