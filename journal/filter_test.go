package journal

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestFilterReadsEveryField(t *testing.T) {
	now := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	f, err := ParseFilter(" phase:unknown,needs_human finding:duplicate standing:in_flight destination:desk operation:create\taccount:acme "+
		"owner:x owner:y key:ticket:* run:r-1 actor:uid:1000 kind:hold older:5m ", now)
	if err != nil {
		t.Fatal(err)
	}
	want := Filter{
		Phases: []Phase{Unknown, NeedsHuman}, Findings: []Finding{FindingDuplicate}, Standings: []Standing{InFlight},
		Destinations: []string{"desk"}, Operations: []string{"create"}, Accounts: []string{"acme"}, Owners: []string{"x", "y"},
		Keys: []string{"ticket:*"}, Runs: []string{"r-1"}, Actors: []string{"uid:1000"}, Kinds: []string{"hold"}, Before: now.Add(-5 * time.Minute),
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("got %+v\nwant %+v", f, want)
	}
	if f, err := ParseFilter("", now); err != nil || !f.Match(Effect{}) {
		t.Errorf("the empty filter selects everything: %+v %v", f, err)
	}
}

func TestFilterErrorsNameThePlaceAndSuggest(t *testing.T) {
	for in, want := range map[string]string{
		"destination:desk phase:unknwon": `at 18: "phase:unknwon": no such phase`,
		"phase:unknwon":                  "did you mean phase:unknown?",
		"phse:unknown":                   "did you mean phase:?",
		"ticket:SUP-1:v1":                "did you mean key:ticket:SUP-1:v1?",
		"phase":                          "did you mean phase:?",
		"owner:":                         "no value",
		"phase:unknown,":                 "empty alternative",
		"older:soon":                     "not an age",
		"older:-5m":                      "not an age",
		"finding:dup":                    "there are none not_sent",
		"standing:done":                  "there are not_started",
	} {
		_, err := ParseFilter(in, time.Time{})
		var fe *FilterError
		if !errors.As(err, &fe) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

func TestFilterMatchesKeysByPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"a:1:v1", "a:1:v1", true},
		{"a:1:v1", "a:1:v11", false},
		{"a:*", "a:1:v1", true},
		{"*:v1", "a:1:v1", true},
		{"*:v1", "a:1:v11", false},
		{"a:*:v1", "a:1:v1", true},
		{"a:*:v1", "a:v1", false},
		{"a*b*c", "aXbYc", true},
		{"a*b*c", "acb", false},
		{"*", "anything", true},
		{"ab*ba", "aba", false},
	} {
		if got := (Filter{Keys: []string{c.pattern}}).MatchKey(c.key); got != c.want {
			t.Errorf("%q on %q: %v", c.pattern, c.key, got)
		}
	}
}

func TestAgesAlsoCountDays(t *testing.T) {
	for in, want := range map[string]time.Duration{"90s": 90 * time.Second, "30d": 720 * time.Hour, "1.5d": 36 * time.Hour, "0": 0} {
		if got, err := ParseAge(in); err != nil || got != want {
			t.Errorf("%s: %v %v", in, got, err)
		}
	}
	for _, in := range []string{"", "d", "-1d", "5", "99999999d"} {
		if got, err := ParseAge(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}
