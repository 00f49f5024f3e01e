package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/settled-dev/settled/sdk"
)

// mute is an adapter that can only describe itself.
type mute struct {
	sdk.Adapter
	err error
}

func (m mute) Describe(context.Context) (sdk.Description, error) {
	return sdk.Description{
		Name: "acme", Version: "0.1.0", ConfigSchema: []byte(`{"type":"object"}`),
		Actions: []sdk.ActionSpec{{Name: "create-invoice", Summary: "makes an invoice", PayloadSchema: []byte(`{"type":"string"}`)}, {Name: "bare"}},
	}, m.err
}

func hand(a sdk.Adapter, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = byHand(a, args, strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

func TestRunByHandWithoutTheCookieItHelps(t *testing.T) {
	t.Setenv(CookieKey, "")
	if status := Run(mute{}, []string{"nonsense"}); status != 2 {
		t.Errorf("status %d, want 2", status)
	}
	for _, args := range [][]string{nil, {"help"}, {"--help"}, {"-h"}} {
		status, out, _ := hand(mute{}, args...)
		if status != 0 || !strings.Contains(out, "describe") || !strings.Contains(out, "create-invoice") {
			t.Errorf("%q: status %d, %s", args, status, out)
		}
	}
}

func TestDescribePrintsSchemasAsJSON(t *testing.T) {
	status, out, errs := hand(mute{}, "describe")
	var doc struct {
		Name         string
		ConfigSchema struct{ Type string } `json:"config_schema"`
		Actions      []struct {
			Name          string
			PayloadSchema struct{ Type string } `json:"payload_schema"`
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if status != 0 || errs != "" || doc.Name != "acme" || doc.ConfigSchema.Type != "object" || doc.Actions[0].PayloadSchema.Type != "string" {
		t.Errorf("status %d, %+v", status, doc)
	}
}

func TestAWrongCallSaysWhatToTypeNext(t *testing.T) {
	if status, _, errs := hand(mute{}, "frobnicate"); status != 2 || !strings.Contains(errs, " help") {
		t.Errorf("status %d, %q", status, errs)
	}
	if status, _, errs := hand(mute{err: errors.New("no schema")}, "describe"); status != 1 || !strings.Contains(errs, "no schema") {
		t.Errorf("status %d, %q", status, errs)
	}
}
