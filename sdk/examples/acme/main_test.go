package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/adaptertest"
)

// service is a fake destination in forty lines; effects is the truth.
type service struct {
	mu      sync.Mutex
	effects map[string]map[string]any // by key
	lose    bool                      // the next answer, after the commit
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Header.Get("Authorization") != "Bearer t0ken-for-tests":
		w.WriteHeader(401)
	case r.URL.Path == "/v1/me":
		fmt.Fprint(w, `{}`)
	case r.Method == "POST":
		var v map[string]any
		_ = json.NewDecoder(r.Body).Decode(&v)
		key := r.Header.Get("Idempotency-Key")
		if s.effects[key] == nil {
			v["id"], v["key"] = fmt.Sprint("inv_", len(s.effects)+1), key
			s.effects[key] = v
		}
		if s.lose {
			s.lose = false
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(201)
		_ = json.NewEncoder(w).Encode(s.effects[key])
	default:
		items := []map[string]any{}
		if v := s.effects[r.URL.Query().Get("key")]; v != nil {
			items = append(items, v)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
	}
}

func connected(t *testing.T) (*service, *adaptertest.Wired) {
	s := &service{effects: map[string]map[string]any{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, adaptertest.Configured(t, adapter(), fmt.Sprintf(`{"url":%q}`, server.URL), map[string]string{"token": "t0ken-for-tests"})
}

func op(key, payload string) sdk.Operation {
	return sdk.Operation{ID: key, AttemptID: key, Action: "create-invoice", Key: key, Payload: []byte(payload)}
}

func TestAnInvoiceIsCreatedOnceAndFoundAgain(t *testing.T) {
	s, w := connected(t)
	o := op("k1", `{"customer":"Ada","cents":100}`)
	before, err := w.Read(t.Context(), sdk.ReadRequest{Operation: o})
	if _, none := before.Finding.(*sdk.NoneSeen); !none || err != nil || !before.View.VisibilityProven || before.Coverage != sdk.CoverageComplete {
		t.Fatalf("%+v %v", before, err)
	}
	for range 2 {
		r, err := w.Dispatch(t.Context(), sdk.DispatchRequest{Operation: o})
		if c, ok := r.Outcome.(*sdk.Committed); !ok || c.Object.ID != "inv_1" || err != nil {
			t.Fatalf("%+v %v", r.Outcome, err)
		}
	}
	after, err := w.Read(t.Context(), sdk.ReadRequest{Operation: o})
	if f, ok := after.Finding.(*sdk.Found); !ok || len(f.Matches) != 1 || f.Matches[0].Agreement != sdk.AgreementSame || err != nil {
		t.Fatalf("%+v %v", after, err)
	}
	if len(s.effects) != 1 {
		t.Fatalf("%d effects", len(s.effects))
	}
}

func TestALostAnswerIsUnknownAndTheReadFindsTheInvoice(t *testing.T) {
	s, w := connected(t)
	s.lose = true
	o := op("k2", `{"customer":"Ada","cents":100}`)
	r, err := w.Dispatch(t.Context(), sdk.DispatchRequest{Operation: o})
	if u, ok := r.Outcome.(*sdk.Unknown); !ok || u.Cause != sdk.CauseConnectionLost || err != nil {
		t.Fatalf("%+v %v", r.Outcome, err)
	}
	after, err := w.Read(t.Context(), sdk.ReadRequest{Operation: o})
	if _, ok := after.Finding.(*sdk.Found); !ok || err != nil {
		t.Fatalf("%+v %v", after, err)
	}
}

func TestAnInvalidPayloadIsRefusedBeforeItIsSent(t *testing.T) {
	s, w := connected(t)
	r, err := w.Dispatch(t.Context(), sdk.DispatchRequest{Operation: op("k3", `{"customer":"Ada","cents":0}`)})
	if o, ok := r.Outcome.(*sdk.Rejected); !ok || o.Reason != sdk.ReasonValidation || o.Diagnostics[0].Pointer != "/cents" || err != nil {
		t.Fatalf("%+v %v", r.Outcome, err)
	}
	if len(s.effects) != 0 {
		t.Fatalf("%d effects", len(s.effects))
	}
}

func TestAWireFaultIsAnErrorAndNeverAnOutcome(t *testing.T) {
	s, w := connected(t)
	w.Fault("Dispatch", adaptertest.LoseRequest, adaptertest.LoseAnswer)
	for want := range 2 {
		if r, err := w.Dispatch(t.Context(), sdk.DispatchRequest{Operation: op("k4", `{"customer":"Ada","cents":1}`)}); err == nil {
			t.Fatalf("%+v", r.Outcome)
		}
		if len(s.effects) != want {
			t.Fatalf("%d effects, want %d", len(s.effects), want)
		}
	}
}

func TestTheDocumentationIsMadeFromTheDefinition(t *testing.T) {
	d, err := adapter().Describe(t.Context())
	if err != nil || !strings.Contains(string(d.ConfigSchema), "writeOnly") {
		t.Fatalf("%s %v", d.ConfigSchema, err)
	}
}
