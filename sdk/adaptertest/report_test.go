package adaptertest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAReportIsToldInEveryForm(t *testing.T) {
	r := Report{Name: "shop", Version: "1.0.0", SHA256: strings.Repeat("ab", 32), Results: []Result{
		{ID: "01", Level: L0, Status: Pass, Name: "handshake"},
		{ID: "12", Level: L1, Status: Fail, Reason: "two <effects>"},
		{ID: "33", Level: L2, Status: Skip, Reason: "no proxy"},
		{ID: "54", Level: L3, Status: NotBuilt, Reason: "no namespace"},
	}}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Passed, Failed, Skipped int
		NotBuilt                int `json:"not_built"`
		Badge                   string
		Checks                  []Result
	}
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil || doc.Passed != 1 || doc.Failed != 1 || doc.Skipped != 1 || doc.NotBuilt != 1 || len(doc.Checks) != 4 {
		t.Fatalf("%v %s", err, b.String())
	}
	if doc.Badge != "settled conformance: L0 1/1 · shop 1.0.0 · sha256:"+r.SHA256 {
		t.Error(doc.Badge)
	}
	b.Reset()
	if err := r.WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	var suite junitSuite
	if err := xml.Unmarshal(b.Bytes(), &suite); err != nil || suite.Failures != 1 || suite.Skipped != 2 || suite.Tests != 4 || suite.Cases[1].Failure.Message != "two <effects>" {
		t.Fatalf("%v %+v", err, suite)
	}
	if r.OK() || (Report{}).OK() {
		t.Error("a failure, and nothing at all, are no success")
	}
}

func TestAPlanIsReadStrictly(t *testing.T) {
	for text, want := range map[string]string{
		`{"adapter":["./x"],"payloat":{}}`: "payloat",
		`{}`:                               "no adapter",
		`{"adapter":["./x"],"secrets":{"t":"short"}}`:        "shorter than 8",
		`{"adapter":["./x"],"skip":{"99":"does not apply"}}`: "does not exist",
	} {
		file := filepath.Join(t.TempDir(), PlanName)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadPlan(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Test(t.Context(), Plan{Adapter: []string{"/nowhere/acme"}}, Options{}); err == nil {
		t.Error("a program that is not there was tested")
	}
}

func TestTheKitLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r := testMode(t, "right", "12", "42")
	if r.Count(Pass) != 2 {
		t.Fatalf("%+v", r.Failed())
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}
