package samples

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/plugins/http"
	"github.com/settled-dev/settled/sdk"
)

// adapter is the built-in HTTP adapter as desk.toml configures it, pointed at d.
func adapter(t *testing.T, d *desk.Desk) sdk.Adapter {
	t.Helper()
	text, err := os.ReadFile(dir + "desk.toml")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("http://127.0.0.1:9900"), []byte(d.URL()))
	c, err := config.Parse("desk.toml", text, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := http.New()
	got, err := a.Configure(t.Context(), sdk.Configuration{
		Destination: "desk", Config: c.Destinations["desk"].With.RawMessage,
		Secrets: map[string]string{"desk_token": "write", "desk_repair": "repair"},
	})
	if err != nil || len(got.Diagnostics) != 0 {
		t.Fatalf("configure: %v %+v", err, got.Diagnostics)
	}
	return a
}

func operation(key, action string) sdk.Operation {
	payload := []byte(`{"queue":"network","subject":"Uplink flaps","body":"since noon"}`)
	sum := sha256.Sum256(payload)
	return sdk.Operation{
		ID: "eff-1", Attempt: 1, Action: action, Key: key, Marker: key, Payload: payload, PayloadSHA256: sum[:],
		ContentType: "application/json", Account: "acme", AttemptID: "att-1", Actor: "uid:1000",
	}
}

// seen reads a key and says what there is in one word.
func seen(t *testing.T, a sdk.Adapter, o sdk.Operation) string {
	t.Helper()
	r, err := a.Read(t.Context(), sdk.ReadRequest{
		Purpose: sdk.PurposeResolve, Operation: o,
		DispatchedFrom: time.Now().Add(-time.Minute), DispatchedTo: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	switch f := r.Finding.(type) {
	case *sdk.NoneSeen:
		return fmt.Sprintf("none, visible %t", r.View != nil && r.View.VisibilityProven)
	case *sdk.Found:
		word := fmt.Sprintf("%d found", len(f.Matches))
		if len(f.Matches) == 1 && f.Matches[0].Agreement != sdk.AgreementSame {
			word += ", not the same"
		}
		return word
	default:
		return fmt.Sprintf("%T", f)
	}
}

func TestTheSampleDeskConfigurationReadsEveryFaultAsWhatItIs(t *testing.T) {
	d, err := desk.Start(desk.Config{Token: "write", RepairToken: "repair"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	a := adapter(t, d)
	cases := []struct{ fault, outcome, read string }{
		{"none", "*sdk.Committed", "1 found"},
		{"lost-answer", "*sdk.Unknown", "1 found"},
		{"lost-request", "*sdk.Unknown", "none, visible true"},
		{"error-500", "*sdk.Unknown", "1 found"},
		{"error-502", "*sdk.Unknown", "1 found"},
		{"truncated", "*sdk.Unknown", "1 found"},
		{"garbled", "*sdk.Unknown", "1 found"},
		{"twice", "*sdk.Committed", "2 found"},
		{"drop-ref", "*sdk.Committed", "none, visible true"},
		{"drop-body", "*sdk.Committed", "1 found, not the same"},
		{"busy:2s", "*sdk.NotExecuted", "none, visible true"},
		{"invalid", "*sdk.Rejected", "none, visible true"},
		{"forbidden", "*sdk.Rejected", "none, visible true"},
		{"hang:50ms", "*sdk.Unknown", "none, visible true"},
	}
	for i, c := range cases {
		key := fmt.Sprintf("ticket:SUP-%d:create:v1", 100+i)
		fault, err := desk.ParseFault(c.fault)
		if err != nil {
			t.Fatal(err)
		}
		d.Inject(key, fault)
		r, err := a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: operation(key, "create"), Deadline: time.Now().Add(5 * time.Second)})
		if got := fmt.Sprintf("%T", r.Outcome); err != nil || got != c.outcome {
			t.Errorf("%s: outcome %s, want %s (%v)", c.fault, got, c.outcome, err)
		}
		if got := seen(t, a, operation(key, "create")); got != c.read {
			t.Errorf("%s: read %s, want %s", c.fault, got, c.read)
		}
		if n := len(d.Ledger().Of(key).Requests); n != 1 {
			t.Errorf("%s: %d requests for one dispatch", c.fault, n)
		}
	}
}

func TestTheSampleDeskConfigurationGuardsItsViewAndUndoes(t *testing.T) {
	d, err := desk.Start(desk.Config{Token: "write", RepairToken: "repair"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	a := adapter(t, d)
	o := operation("ticket:SUP-1:create:v1", "create")
	r, err := a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: o, Deadline: time.Now().Add(5 * time.Second)})
	done, ok := r.Outcome.(*sdk.Committed)
	if err != nil || !ok {
		t.Fatalf("%T %v", r.Outcome, err)
	}
	if err := d.SetMode(desk.Mode{Hidden: true}); err != nil {
		t.Fatal(err)
	}
	if got := seen(t, a, o); got == "none, visible true" || got == "1 found" {
		t.Errorf("a hidden ticket reads %s", got)
	}
	if err := d.SetMode(desk.Mode{}); err != nil {
		t.Fatal(err)
	}
	undo := operation("repair:1:undo:v1", "create.undo")
	undo.Target = &done.Object
	r, err = a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: undo, Deadline: time.Now().Add(5 * time.Second)})
	if _, ok := r.Outcome.(*sdk.Committed); err != nil || !ok {
		t.Fatalf("undo: %T %v", r.Outcome, err)
	}
	if got := seen(t, a, o); got != "none, visible true" {
		t.Errorf("after the undo: %s", got)
	}
}
