package adaptertest

import (
	"strings"
	"testing"
)

// mistakes are wrong adapters and the checks that each must fail: these and no others.
var mistakes = map[string]string{
	"impure":             "02",
	"undeclared":         "03",
	"open-secret":        "03",
	"lax-config":         "04",
	"any-action":         "06",
	"immortal":           "09",
	"mortal":             "10",
	"prepare-writes":     "14",
	"read-writes":        "15 21 23 41 42",
	"fresh-key":          "12 16 17 18 19 20 21 22 24 35 41 42 43 47",
	"wrong-object":       "12 28",
	"returns-first":      "17",
	"remembers":          "20",
	"drops-precondition": "27",
	"one-reason":         "13 27 30 31",
	"all-unknown":        "33 37",
	"impatient":          "37",
	"optimist":           "34 35 36 37 38 39 41 48",
	"pessimist":          "34 35 36 37 38 39 41",
	"retries":            "34 35 36 37 38 39 41 48 49 50",
	"vague":              "39",
	"naive":              "13 24 25 27 30 31 33 34 35 39 48 49 50",
	"patient":            "39 40 41",
	"empty-on-error":     "46",
	"one-page":           "45",
	"sees-all":           "45 46",
	"no-guard":           "23",
	"guesses":            "21 23 41 42",
	"never-compares":     "22",
	"no-pointers":        "22",
	"higher-limit":       "25",
	"rounds":             "26",
	"undoes-nothing":     "28",
	"logs-secret":        "51",
	"leaks-files":        "52",
	"forgets-old":        "56",
	"panics":             "12",
	"eventual-liar":      "44",
}

func TestEveryMistakeIsCaughtByItsChecks(t *testing.T) {
	for mode, want := range mistakes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := testMode(t, mode)
			if got := strings.Join(r.Failed(), " "); got != want {
				t.Errorf("failed %q, want %q", got, want)
				for _, c := range r.Results {
					if c.Status == Fail {
						t.Logf("%s: %s", c.ID, c.Reason)
					}
				}
			}
		})
	}
}

func TestAProgramThatDoesNotShakeHandsIsToldWhatToChange(t *testing.T) {
	for mode, want := range map[string]string{"noisy": "print nothing before serve.Main", "quitter": "make its main function call serve.Main"} {
		r := testMode(t, mode, "01")
		if got := strings.Join(r.Failed(), " "); got != "01" || !strings.Contains(r.Results[0].Reason, want) {
			t.Errorf("%s: failed %q, %q", mode, got, r.Results[0].Reason)
		}
	}
}
