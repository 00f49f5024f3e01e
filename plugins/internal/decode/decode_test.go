package decode

import (
	"strings"
	"testing"
	"time"
)

func TestEveryFaultIsReportedOnceWithItsPlace(t *testing.T) {
	faults := &Faults{}
	o := Parse([]byte(`{"a/b":{"x~":5,"colour":"red"},"list":["a",1],"n":1.5,"empty":" ","kind":"bigg"}`), faults)
	inner := o.Object("a/b")
	inner.String("x~")
	inner.String("x~")
	inner.String("color")
	inner.Done()
	o.Strings("list")
	o.Int("n", 0, 9)
	o.String("empty")
	o.Enum("kind", "big", "small")
	o.Done()
	want := map[string]string{
		"/a~1b/x~0": "must be a string, not a number", "/a~1b/colour": `did you mean "color"`, "/list/1": "string",
		"/n": "whole number", "/empty": "empty", "/kind": `did you mean "big"`,
	}
	for _, f := range faults.List {
		if !strings.Contains(f.Summary, want[f.Pointer]) || want[f.Pointer] == "" {
			t.Errorf("unexpected fault %+v", f)
		}
		delete(want, f.Pointer)
	}
	if len(want) != 0 || !faults.Failed() {
		t.Errorf("no fault for %v", want)
	}
}

func TestOnlyOneObjectIsAConfiguration(t *testing.T) {
	for text, good := range map[string]bool{"": true, "{}": true, "[]": false, "{}{}": false, "{": false, "null": false} {
		faults := &Faults{}
		Parse([]byte(text), faults).Done()
		if faults.Failed() == good {
			t.Errorf("%q: %+v", text, faults.List)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"2s": 2 * time.Second, "30d": 720 * time.Hour, "1h30m": 90 * time.Minute, "0s": 0} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "-2s", "d", "-1d", "1.5d", "99999999d", "soon"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

func TestASuggestionIsMadeOnlyWhenItIsLikely(t *testing.T) {
	known := []string{"base_url", "headers", "operations"}
	if got := Suggestion("base_ulr", known); !strings.Contains(got, "base_url") {
		t.Errorf("%q", got)
	}
	if got := Suggestion("xyzzy", known); got != "" {
		t.Errorf("%q", got)
	}
}
