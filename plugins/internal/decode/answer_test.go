package decode

import "testing"

func TestAnAnswerThatSaysOneThingTwiceIsAmbiguous(t *testing.T) {
	for text, clear := range map[string]bool{
		`{}`: true, `[]`: true, `"a"`: true, `1e999`: true, `null`: true,
		`{"a":1,"b":{"a":[{"a":1},{"a":2}]},"c":"a"}`: true,
		`[{"a":"b"},{"a":"b"},"a","a"]`:               true,
		`{"a":{},"b":[],"c":{"a":1}}`:                 true,
		`{"a":1,"a":1}`:                               false,
		`{"a":{"b":1},"c":[{"x":1,"x":2}]}`:           false,
		`{"a":{},"b":1,"a":[]}`:                       false,
		`{"a":[1],"a":2}`:                             false,
		`{"a":1,"\u0061":2}`:                          false,
		`{"a":`:                                       false, `{"a" 1}`: false,
	} {
		if err := Unambiguous([]byte(text)); (err == nil) != clear {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestANameMayNotDifferFromAKnownOneInCaseAlone(t *testing.T) {
	for text, good := range map[string]bool{
		`{"outcome":"done","other":1}`: true, `{"Outcome":"done"}`: false, `{"outcome":"done","OUTCOME":"x"}`: false,
		`{"evidence":{"OUTCOME":1}}`: true, `{"re\u017fult":1}`: false,
	} {
		if err := Spelt([]byte(text), "outcome", "result"); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}
