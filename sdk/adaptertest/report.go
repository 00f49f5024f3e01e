package adaptertest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Level is what a check is about.
type Level string

// The levels.
const (
	L0 Level = "L0" // protocol, no destination
	L1 Level = "L1" // meaning
	L2 Level = "L2" // faults
	L3 Level = "L3" // hygiene
)

// Status is the result of a check.
type Status string

// The results. Only Pass says that the rule was seen to hold.
const (
	Pass     Status = "pass"
	Fail     Status = "fail"
	Skip     Status = "skip"
	NotBuilt Status = "not built"
)

// Result is one check of a run.
type Result struct {
	ID     string        `json:"id"`
	Level  Level         `json:"level"`
	Name   string        `json:"name"`
	Rule   string        `json:"rule"`
	Status Status        `json:"result"`
	Reason string        `json:"reason,omitempty"`
	Took   time.Duration `json:"took_ns"`
}

// Report is one run of the kit.
type Report struct {
	Adapter string   `json:"adapter"` // as it was started
	Name    string   `json:"name"`
	Version string   `json:"version"`
	SHA256  string   `json:"sha256"` // of the program (and the plan's files)
	Results []Result `json:"checks"`
}

// Count counts the results of one status.
func (r Report) Count(s Status) int {
	n := 0
	for _, c := range r.Results {
		if c.Status == s {
			n++
		}
	}
	return n
}

// OK says that nothing failed and something passed.
func (r Report) OK() bool { return r.Count(Fail) == 0 && r.Count(Pass) > 0 }

// Failed lists the ids that failed.
func (r Report) Failed() []string {
	var out []string
	for _, c := range r.Results {
		if c.Status == Fail {
			out = append(out, c.ID)
		}
	}
	return out
}

// Badge says for which program which levels passed. A level counts when none of
// its checks failed and at least one passed; what was skipped is counted, too.
func (r Report) Badge() string {
	var levels []string
	for _, l := range []Level{L0, L1, L2, L3} {
		pass, fail, skip := 0, 0, 0
		for _, c := range r.Results {
			switch {
			case c.Level != l:
			case c.Status == Pass:
				pass++
			case c.Status == Fail:
				fail++
			default:
				skip++
			}
		}
		if fail == 0 && pass > 0 {
			levels = append(levels, fmt.Sprintf("%s %d/%d", l, pass, pass+skip))
		}
	}
	if levels == nil {
		levels = []string{"nothing"}
	}
	return fmt.Sprintf("settled conformance: %s · %s %s · sha256:%s", strings.Join(levels, ", "), r.Name, r.Version, r.SHA256)
}

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(struct {
		Report
		Passed   int    `json:"passed"`
		FailedN  int    `json:"failed"`
		Skipped  int    `json:"skipped"`
		NotBuilt int    `json:"not_built"`
		Badge    string `json:"badge"`
	}{r, r.Count(Pass), r.Count(Fail), r.Count(Skip), r.Count(NotBuilt), r.Badge()})
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Time    string     `xml:"time,attr"`
	Failure *junitNote `xml:"failure"`
	Skipped *junitNote `xml:"skipped"`
}

type junitNote struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report for CI systems. What is not built counts as skipped.
func (r Report) WriteJUnit(w io.Writer) error {
	s := junitSuite{
		Name: strings.TrimSpace(r.Name + " " + r.Version), Tests: len(r.Results), Failures: r.Count(Fail),
		Skipped: r.Count(Skip) + r.Count(NotBuilt),
	}
	for _, c := range r.Results {
		jc := junitCase{Class: "settled.adapter." + string(c.Level), Name: c.ID + " " + c.Name, Time: fmt.Sprintf("%.3f", c.Took.Seconds())}
		switch c.Status {
		case Fail:
			jc.Failure = &junitNote{c.Reason, c.Rule}
		case Skip, NotBuilt:
			jc.Skipped = &junitNote{Message: string(c.Status) + ": " + c.Reason}
		}
		s.Cases = append(s.Cases, jc)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	return xml.NewEncoder(w).Encode(s)
}

// known says whether a check exists.
func known(id string) bool {
	return slices.ContainsFunc(checks(), func(c check) bool { return c.id == id })
}
