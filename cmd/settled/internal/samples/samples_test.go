package samples

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/cmd/settled/internal/gitdest"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
)

const dir = "../../testdata/"

// effect is a line as the daemon takes it.
type effect struct {
	Destination string          `json:"destination"`
	Operation   string          `json:"operation"`
	Key         string          `json:"key"`
	Payload     json.RawMessage `json:"payload"`
	Context     json.RawMessage `json:"context"`
	NotBefore   string          `json:"not_before"`
	NotAfter    string          `json:"not_after"`
}

func parse(text []byte) (effect, error) {
	var e effect
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return e, err
	}
	if d.More() {
		return e, errors.New("more than one value")
	}
	if err := journal.CheckKey(e.Key, journal.KeyRules{}); err != nil {
		return e, err
	}
	_, err := journal.PayloadDigest(e.Payload, "")
	return e, err
}

func lines(t *testing.T, name string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(dir + name)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

func TestEverySampleEffectIsAcceptable(t *testing.T) {
	keys, subjects := map[string]int{}, map[string]bool{}
	counts := map[string]int{}
	for i, text := range lines(t, "effects.jsonl") {
		e, err := parse(text)
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		if keys[e.Key] != 0 {
			t.Errorf("line %d repeats the key of line %d", i+1, keys[e.Key])
		}
		keys[e.Key] = i + 1
		counts[e.Destination+"/"+e.Operation]++
		var p struct{ Subject, Tag string }
		if err := json.Unmarshal(e.Payload, &p); err != nil || p.Subject+p.Tag == "" || subjects[p.Subject+p.Tag] {
			t.Errorf("line %d: subject or tag %q is missing or repeated (%v)", i+1, p.Subject+p.Tag, err)
		}
		subjects[p.Subject+p.Tag] = true
	}
	if len(keys) < 240 || len(counts) != 2 || counts["desk/create"] < 100 || counts["releases/tag"] < 50 {
		t.Errorf("%d effects: %v", len(keys), counts)
	}
}

func TestTheDeskStoresEverySampleTicketVerbatim(t *testing.T) {
	d, err := desk.Start(desk.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	type sent struct {
		Subject, Body, Queue, Requester string
	}
	want := map[string]sent{}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, text := range lines(t, "effects.jsonl") {
		e, err := parse(text)
		if err != nil || e.Destination != "desk" {
			continue
		}
		var s sent
		var body map[string]any
		if err := errors.Join(json.Unmarshal(e.Payload, &s), json.Unmarshal(e.Payload, &body)); err != nil {
			t.Fatal(err)
		}
		want[e.Key] = s
		body["external_ref"] = e.Key
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Post(d.URL()+"/tickets", "application/json", bytes.NewReader(data))
		if err != nil || res.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %v %v", e.Key, res, err)
		}
		_ = res.Body.Close()
	}
	got := map[string]sent{}
	for _, k := range d.Tickets() {
		got[k.ExternalRef] = sent{k.Subject, *k.Body, k.Queue, k.Requester}
	}
	for key, w := range want {
		if got[key] != w {
			t.Errorf("%s: stored %+v, sent %+v", key, got[key], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d stored, %d sent", len(got), len(want))
	}
}

func TestEverySampleReleaseFitsIntoOneRepository(t *testing.T) {
	var refs strings.Builder
	n := 0
	repo := t.TempDir() + "/releases.git"
	if err := gitdest.Init(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	head, err := exec.Command("git", "-c", "safe.directory=*", "-C", repo, "rev-parse", "main").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range lines(t, "effects.jsonl") {
		e, err := parse(text)
		if err != nil || e.Destination != "releases" {
			continue
		}
		var p struct{ Tag string }
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{"refs/tags/" + p.Tag, gitdest.KeyRef(e.Key)} {
			refs.WriteString("create " + ref + " " + string(head)) // head ends its line
			n++
		}
	}
	cmd := exec.Command("git", "-c", "safe.directory=*", "-C", repo, "update-ref", "--stdin")
	cmd.Stdin = strings.NewReader(refs.String())
	if out, err := cmd.CombinedOutput(); err != nil || n < 100 {
		t.Fatalf("%d refs: %v %s", n, err, out)
	}
}

// shape is what a line is without the daemon's own knowledge of destinations.
func shape(text []byte, seen map[string]string) string {
	if len(bytes.TrimSpace(text)) == 0 {
		return "skipped"
	}
	e, err := parse(text)
	late := e.NotBefore != "" && (!strings.Contains(e.NotBefore, "T") || e.NotAfter < e.NotBefore)
	digest, _ := journal.PayloadDigest(e.Payload, "")
	switch {
	case err != nil, late, len(e.Payload) > 1<<20, len(e.Context) > 4<<10,
		e.Destination+"/"+e.Operation != "desk/create" && e.Destination+"/"+e.Operation != "releases/tag":
		return "refused"
	case seen[e.Key] == digest:
		return "repeated"
	case seen[e.Key] != "":
		return "conflict"
	}
	seen[e.Key] = digest
	return "recorded"
}

func TestEveryMalformedLineIsWhatItsExpectationSays(t *testing.T) {
	given, want := lines(t, "malformed.jsonl"), lines(t, "malformed.expect")
	if len(given) != len(want) {
		t.Fatalf("%d lines, %d expectations", len(given), len(want))
	}
	seen, counts := map[string]string{}, map[string]int{}
	for i, text := range given {
		number, words, _ := strings.Cut(string(want[i]), "\t")
		kind, _, _ := strings.Cut(words, " ")
		if got := shape(text, seen); got != kind || number != strconv.Itoa(i+1) {
			t.Errorf("line %d is %s, expectation %s says %s", i+1, got, number, words)
		}
		counts[kind]++
	}
	if counts["refused"] < 20 || counts["recorded"] < 5 || counts["conflict"] != 1 || counts["repeated"] != 1 {
		t.Errorf("counts: %v", counts)
	}
}

func TestTheSampleConfigurationsLoadAloneAndTogether(t *testing.T) {
	deskText, releases := string(bytes.Join(lines(t, "desk.toml"), []byte("\n"))), string(bytes.Join(lines(t, "releases.toml"), []byte("\n")))
	for name, text := range map[string]string{"desk.toml": deskText, "releases.toml": releases, "both.toml": deskText + "\n" + releases} {
		c, err := config.Parse(name, []byte(text), config.Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(c.Warnings) != 0 || len(c.Overrides) == 0 {
			t.Errorf("%s: warnings %v, overrides %v", name, c.Warnings, c.Overrides)
		}
	}
}
