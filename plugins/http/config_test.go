package http

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

func diagnose(t *testing.T, raw []byte, secrets map[string]string) []sdk.Diagnostic {
	t.Helper()
	c, err := New().Configure(t.Context(), sdk.Configuration{Destination: "desk", Config: raw, Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	return c.Diagnostics
}

func TestFaultsOfTheConfigurationHavePointersAndSuggestions(t *testing.T) {
	const at = "/operations/create"
	cases := []struct {
		edits            map[string]any
		pointer, summary string
	}{
		{map[string]any{".base_url": nil}, "/base_url", "required"},
		{map[string]any{".base_url": "desk.example"}, "/base_url", "absolute"},
		{map[string]any{".base_url": "ftp://desk.example"}, "/base_url", "http"},
		{map[string]any{".base_url": "http://me:pw@desk.example"}, "/base_url", "password"},
		{map[string]any{".base_url": "http://desk.example?x=1"}, "/base_url", "query"},
		{map[string]any{".base_ulr": "x"}, "/base_ulr", `did you mean "base_url"`},
		{map[string]any{".operations": map[string]any{}}, "/operations", "at least one"},
		{map[string]any{"create.dispatch": nil}, at + "/dispatch", "required"},
		{map[string]any{"create.dispatch.done": nil}, at + "/dispatch/done", "required"},
		{map[string]any{"create.dispatch.donne": "true"}, at + "/dispatch/donne", `did you mean "done"`},
		{map[string]any{"create.dispatch.method": "GET"}, at + "/dispatch/method", "does not fit"},
		{map[string]any{"create.dispatch.method": nil}, at + "/dispatch/method", "required"},
		{map[string]any{"create.dispatch.path": "tickets"}, at + "/dispatch/path", "begin with"},
		{map[string]any{"create.dispatch.path": "/t/${$effect.key"}, at + "/dispatch/path", "closing brace"},
		{map[string]any{"create.dispatch.path": "/t/${$response.status}"}, at + "/dispatch/path", "$response"},
		{map[string]any{"create.dispatch.path": 5}, at + "/dispatch/path", "must be a string"},
		{map[string]any{"create.dispatch.body": "$payload +"}, at + "/dispatch/body", "jq"},
		{map[string]any{"create.dispatch.body": "$nothing"}, at + "/dispatch/body", "$nothing"},
		{map[string]any{"create.dispatch.body": "$secret.other"}, at + "/dispatch/body", `no credential "other"`},
		{map[string]any{"create.dispatch.headers": map[string]any{"Content-Length": "5"}}, at + "/dispatch/headers/Content-Length", "cannot be set"},
		{map[string]any{"create.dispatch.headers": map[string]any{"X A": "5"}}, at + "/dispatch/headers/X A", "cannot be set"},
		{map[string]any{"create.dispatch.headers": map[string]any{"X-A": "a\nb"}}, at + "/dispatch/headers/X-A", "control character"},
		{map[string]any{"create.dispatch.not_executed_final": []int{201}}, at + "/dispatch/not_executed_final/0", "from 300"},
		{map[string]any{"create.dispatch.not_executed_final": []int{429}}, at + "/dispatch/not_executed_final", "both lists"},
		{map[string]any{"create.dispatch.not_executed_final": "400"}, at + "/dispatch/not_executed_final", "list"},
		{map[string]any{"create.read.marker": nil}, at + "/read/marker", "where does an object carry"},
		{map[string]any{"create.read.items": nil}, at + "/read/items", "required"},
		{map[string]any{"create.read.identify": "markers"}, at + "/read/identify", `did you mean "marker"`},
		{map[string]any{"create.read.method": "DELETE"}, at + "/read/method", "does not fit"},
		{map[string]any{"create.read.lag": nil}, at + "/read/lag", "needs it"},
		{map[string]any{"create.read.lag": "soon"}, at + "/read/lag", "duration"},
		{map[string]any{"create.read.consistency": "strong"}, at + "/read/lag", "belongs to"},
		{map[string]any{"create.read.guard": map[string]any{"path": "/me"}}, at + "/read/guard/when", "required"},
		{map[string]any{"create.undo": nil}, at + "/undo", "needs an undo"},
		{map[string]any{"create.undo.verify": map[string]any{"path": "/x", "when": "true", "then": "x"}}, at + "/undo/verify/then", `did you mean "when"`},
		{map[string]any{"create.webhook": map[string]any{}}, at + "/webhook/scheme", "required"},
		{map[string]any{"create.webhook": map[string]any{"scheme": "stripe", "credential": "x", "key": ".id"}}, at + "/webhook/verdict", "required"},
		{map[string]any{"create.webhook": map[string]any{"scheme": "strip", "credential": "x", "key": ".id", "verdict": ".v"}}, at + "/webhook/scheme", `did you mean "stripe"`},
		{map[string]any{"create.webhook": map[string]any{"scheme": "github", "credential": "x", "key": "$payload", "verdict": ".v"}}, at + "/webhook/key", "jq program"},
		{map[string]any{"create.dedupe.replay": "first"}, at + "/dedupe/replay", "not one of"},
		{map[string]any{"create.dedupe.verified_on": "yesterday"}, at + "/dedupe/verified_on", "date"},
		{map[string]any{"create.snapshot": map[string]any{"path": "/x", "method": "DELETE"}}, at + "/snapshot/method", "does not fit"},
		{map[string]any{"create.poll": map[string]any{"path": "/x"}}, at + "/poll/done", "required"},
		{map[string]any{"create.precondition": map[string]any{"path": "/x"}}, at + "/precondition/value", "required"},
		{map[string]any{"create.reversibel": "reversible"}, at + "/reversibel", `did you mean "reversible"`},
		{map[string]any{"a.undo.x": 1}, "/operations/a", "dispatch"},
	}
	for _, c := range cases {
		got := diagnose(t, config(t, "http://127.0.0.1:1", c.edits), map[string]string{"desk_token": deskToken})
		match := slices.ContainsFunc(got, func(d sdk.Diagnostic) bool {
			return !d.Warning && strings.HasPrefix(d.Pointer, c.pointer) && strings.Contains(d.Summary+d.Pointer, c.summary)
		})
		if !match {
			t.Errorf("%v: want %s %q, got %+v", c.edits, c.pointer, c.summary, got)
		}
	}
}

func TestTheExampleOfTheDocumentationIsSound(t *testing.T) {
	got := diagnose(t, config(t, "http://127.0.0.1:9900", nil), map[string]string{"desk_token": deskToken})
	for _, d := range got {
		if !d.Warning {
			t.Errorf("%+v", d)
		}
	}
	warned := diagnose(t, config(t, "http://127.0.0.1:9900", map[string]any{"create.dispatch.not_executed_final": []int{400, 409}, "create.read.guard": nil}), nil)
	for _, want := range []string{"read now", "assumed", "no credential"} {
		if !slices.ContainsFunc(warned, func(d sdk.Diagnostic) bool { return d.Warning && strings.Contains(d.Summary, want) }) {
			t.Errorf("no warning about %q: %+v", want, warned)
		}
	}
}

func TestTheCapabilityCardAnswersItsQuestions(t *testing.T) {
	a := open(t, "http://127.0.0.1:9900", map[string]any{"create.precondition": map[string]any{"path": "/x", "etag": "$response.headers.etag"}})
	d, err := a.Describe(t.Context())
	if err != nil || len(d.Actions) != 2 || !d.HasFeature(sdk.FeaturePrepare) || len(d.Egress) != 1 || d.Egress[0] != "127.0.0.1:9900" {
		t.Fatalf("%+v %v", d, err)
	}
	card, undo := d.Actions[0], d.Actions[1]
	if card.Name != "create" || card.Idempotency.Mode != sdk.IdempotencyKey || *card.Idempotency.Retention != 24*time.Hour ||
		card.Idempotency.VerifiedOn != "2026-11-30" || card.Idempotency.Replay != sdk.ReplayFirstResponse || card.LateEffectBound != nil ||
		card.Read.Lookup != sdk.LookupByMarker || card.Read.Authority != sdk.Eventual || *card.Read.MaxLag != 2*time.Second || !card.Read.ProvesAbsence ||
		card.Read.View != "by_ref" || card.Reversal != (sdk.Reversal{Kind: sdk.Reversible, Action: "create.undo"}) || !card.Precondition || len(card.Consequences) == 0 {
		t.Errorf("card %+v", card)
	}
	classes := map[string]sdk.OutcomeClass{}
	for _, rule := range card.Outcomes {
		classes[rule.Code] = rule.Class
	}
	if classes["429"] != sdk.ClassNotExecutedRetryable || classes["422"] != sdk.ClassNotExecutedFinal || classes["$response.status == 201"] != sdk.ClassExecuted || classes["409"] != sdk.ClassUnknown {
		t.Errorf("outcomes %+v", classes)
	}
	if undo.Name != "create.undo" || undo.Reversal.Kind != sdk.Irreversible || undo.Postcondition == "" || undo.Consequences[0] != sdk.ConsequenceDelete {
		t.Errorf("undo %+v", undo)
	}
	simple := open(t, "http://127.0.0.1:9900", map[string]any{"create.dispatch.target": nil})
	if d, err := simple.Describe(t.Context()); err != nil || d.HasFeature(sdk.FeaturePrepare) {
		t.Errorf("prepare is listed without need: %v", err)
	}
	if d, err := New().Describe(t.Context()); err != nil || !d.HasFeature(sdk.FeaturePrepare) || !json.Valid(d.ConfigSchema) {
		t.Errorf("before Configure: %+v %v", d, err)
	}
}

func TestARefusedConfigurationLeavesTheAdapterUnconfigured(t *testing.T) {
	a := New()
	if _, err := a.Configure(t.Context(), sdk.Configuration{Config: []byte(`{"base_url":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	if got := class(send(t, a, operation1("k:1")).Outcome); got != "not executed 4 after 0s" {
		t.Fatal(got)
	}
}

func TestCheckReachesTheDestinationAndRunsTheGuards(t *testing.T) {
	d := newDesk(t)
	a := open(t, d.URL, nil)
	h, err := a.Check(t.Context(), nil)
	if err != nil || h.Status != sdk.HealthOK || len(h.Permissions) != 1 || h.ClockSkew == nil || h.ClockSkew.Abs() > 2*time.Second {
		t.Errorf("%+v %v", h, err)
	}
	d.sees = false
	if h, err = a.Check(t.Context(), []string{"create"}); err != nil || h.Status != sdk.HealthDegraded || len(h.Permissions) != 0 || len(h.Diagnostics) != 1 {
		t.Errorf("%+v %v", h, err)
	}
	if h, err = a.Check(t.Context(), []string{"other"}); err != nil || h.Status != sdk.HealthOK {
		t.Errorf("%+v %v", h, err)
	}
	if d.writes() != 0 {
		t.Error("check wrote")
	}
	d.Close()
	if h, err = a.Check(t.Context(), nil); err != nil || h.Status != sdk.HealthDown {
		t.Errorf("%+v %v", h, err)
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(`{"base_url":"http://h","headers":{"A":"${$secret.x}"},"operations":{"create":{"dispatch":{"method":"POST","path":"/a","done":"true"},"read":{"path":"/b","items":"[]","marker":".x"}}}}`))
	f.Add([]byte(`{"operations":{"":{"dispatch":[]}}}`))
	f.Add([]byte(`[1]`))
	f.Add([]byte(`{"base_url":"http://[::1]:80/a/","operations":{"~1":{"undo":{"verify":{"path":"${","when":"}"}}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		faults := &decode.Faults{}
		cfg := compile(raw, nil, faults)
		if !faults.Failed() {
			if cfg.base == nil || len(cfg.names) == 0 || len(cfg.actions()) == 0 {
				t.Fatalf("a configuration without faults is not usable: %s", raw)
			}
		}
		for _, d := range faults.List {
			if d.Summary == "" || (d.Pointer != "" && d.Pointer[0] != '/') {
				t.Fatalf("a fault without words or place: %+v", d)
			}
		}
	})
}
