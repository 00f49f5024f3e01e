package serve

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settled-dev/settled/sdk"
)

type pad struct {
	Prefix string     `json:"prefix"`
	Token  sdk.Secret `json:"token"`
}

func notes() sdk.Adapter {
	type note struct {
		Text string `json:"text" min:"1"`
	}
	return sdk.Define[pad, *pad]{
		Name: "notes", Version: "0.1.0", Open: func(_ context.Context, _ sdk.Env, p pad) (*pad, error) { return &p, nil },
		Actions: []sdk.Action[*pad]{sdk.NewAction("write", sdk.Spec{}, func(p *pad, _ context.Context, op sdk.Op[note]) (sdk.Outcome, error) {
			return sdk.Done("note", p.Prefix+op.Payload.Text+op.Key+p.Token.Reveal()), nil
		}, nil)},
	}.Adapter()
}

func file(t *testing.T, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestACallByHandIsMadeAsTheDaemonWould(t *testing.T) {
	config, payload, token := file(t, "c", `{"prefix":"p-"}`), file(t, "p", `{"text":"hello"}`), file(t, "t", "t0psecret\n")
	status, out, errs := hand(notes(), "call", "dispatch", "--config", config, "--payload", payload, "--secret", "token="+token, "--key", "k9")
	if status != 0 || !strings.Contains(out, "p-hellok9") || strings.Contains(out, "t0psecret") || errs != "" {
		t.Errorf("status %d, %q %q", status, out, errs)
	}
	for want, args := range map[string][]string{
		"/token":                    {"call", "check", "--config", config},
		"the methods are":           {"call", "destroy", "--config", config, "--secret", "token=" + token},
		"write NAME=FILE":           {"call", "check", "--config", config, "--secret", "t0psecret"},
		"usage":                     {"call", "--nonsense"},
		"/prefix is required":       {"call", "check", "--secret", "token=" + token},
		"no such file or directory": {"call", "check", "--config", "/nowhere"},
	} {
		status, _, errs := hand(notes(), args...)
		if status == 0 || !strings.Contains(errs, want) {
			t.Errorf("%q: status %d, %q", args, status, errs)
		}
	}
}

func TestDevAnswersARequestALine(t *testing.T) {
	config, token := file(t, "c", `{"prefix":"p-"}`), file(t, "t", "t0psecret")
	lines := `{"method":"check"}` + "\n\nnonsense\n" + `{"method":"dispatch","key":"k1","payload":{"text":"a"}}` + "\n" + `{"method":"dispatch","payload":{}}` + "\n"
	var out, errs bytes.Buffer
	status := byHand(notes(), []string{"dev", "--config", config, "--secret", "token=" + token}, strings.NewReader(lines), &out, &errs)
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if status != 0 || len(got) != 3 || !strings.Contains(got[0], "OK") || !strings.Contains(got[1], "p-ak1") || !strings.Contains(got[2], "/text") || !strings.Contains(errs.String(), "invalid character") {
		t.Errorf("status %d, %q %q", status, out.String(), errs.String())
	}
}

func TestDocsPrintMarkdown(t *testing.T) {
	status, out, _ := hand(notes(), "docs")
	if status != 0 || !strings.Contains(out, "## Operation `write`") || !strings.Contains(out, "| `token` | name of a credential | yes |") {
		t.Errorf("status %d, %s", status, out)
	}
}
