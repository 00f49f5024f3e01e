package mail_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	netmail "net/mail"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/settled-dev/settled/plugins/mail"
	"github.com/settled-dev/settled/sdk"
)

// kind is an outcome in one word.
func kind(o sdk.Outcome) string {
	switch o := o.(type) {
	case *sdk.Committed:
		return "done"
	case *sdk.Rejected:
		return fmt.Sprintf("rejected %d whole=%v", o.Reason, o.WholeDestination)
	case *sdk.NotExecuted:
		return fmt.Sprintf("not executed %d whole=%v", o.Basis, o.WholeDestination)
	case *sdk.Unknown:
		return "unknown"
	}
	return fmt.Sprintf("%T", o)
}

func TestEachAnswerOfAServerProvesWhatItProves(t *testing.T) {
	notSent := fmt.Sprintf("not executed %d whole=true", sdk.BasisNotSent)
	busy, busyWhole := fmt.Sprintf("not executed %d whole=false", sdk.BasisBusy), fmt.Sprintf("not executed %d whole=true", sdk.BasisBusy)
	lost := fmt.Sprintf("not executed %d whole=false", sdk.BasisRefused)
	invalid, policy := fmt.Sprintf("rejected %d whole=false", sdk.ReasonValidation), fmt.Sprintf("rejected %d whole=false", sdk.ReasonPolicy)
	for _, c := range []struct {
		name   string
		script script
		want   string
		ended  int // messages that the server got whole
	}{
		{"all is well", script{}, "done", 1},
		{"a reply of several lines", script{".": "250-2.0.0 Ok\r\n250 queued\r\n"}, "done", 1},
		{"no greeting", script{"greeting": ""}, notSent, 0},
		{"half a greeting", script{"greeting": "220"}, notSent, 0},
		{"greeting 421", script{"greeting": "421 later\r\n"}, busyWhole, 0},
		{"greeting 554", script{"greeting": "554 no\r\n"}, fmt.Sprintf("rejected %d whole=true", sdk.ReasonPolicy), 0},
		{"login refused", script{"AUTH": "535 5.7.8 wrong\r\n"}, fmt.Sprintf("rejected %d whole=true", sdk.ReasonAuthentication), 0},
		{"login later", script{"AUTH": "454 later\r\n"}, busyWhole, 0},
		{"lost at the login", script{"AUTH": ""}, notSent, 0},
		{"sender refused", script{"MAIL": "550 5.7.1 no\r\n"}, policy, 0},
		{"sender later", script{"MAIL": "451 later\r\n"}, busy, 0},
		{"lost at the sender", script{"MAIL": ""}, lost, 0},
		{"one recipient refused", script{"RCPT TO:<bob@ops.example.test>": "550 5.1.1 unknown\r\n"}, invalid, 0},
		{"one recipient busy", script{"RCPT TO:<bob@ops.example.test>": "450 4.2.1 busy\r\n"}, busy, 0},
		{"one refused and one busy", script{"RCPT TO:<ann@ops.example.test>": "550 5.1.1 unknown\r\n", "RCPT TO:<bob@ops.example.test>": "450 4.2.1 busy\r\n"}, invalid, 0},
		{"data later", script{"DATA": "451 later\r\n"}, busy, 0},
		{"data refused", script{"DATA": "554 no\r\n"}, invalid, 0},
		{"data answered by 250", script{"DATA": "250 what\r\n"}, lost, 0},
		{"refused at the end", script{".": "554 5.6.0 spam\r\n"}, invalid, 1},
		{"busy at the end", script{".": "451 4.3.0 later\r\n"}, busy, 1},
		{"too big at the end", script{".": "552 5.3.4 size\r\n"}, fmt.Sprintf("rejected %d whole=false", sdk.ReasonQuota), 1},
		{"lost at the end", script{".": ""}, "unknown", 1},
		{"the first digit of a 250", script{".": "2"}, "unknown", 1},
		{"a 250 without its end", script{".": "250 2.0.0 Ok: queued as 1"}, "unknown", 1},
		{"half of several lines", script{".": "250-2.0.0 Ok\r\n25"}, "unknown", 1},
		{"the first digits of a 554", script{".": "55"}, "unknown", 1},
		{"a 354 at the end", script{".": "354 what\r\n"}, "unknown", 1},
		{"no code at the end", script{".": "hello\r\n"}, "unknown", 1},
		{"a 251 at the end", script{".": "251 what\r\n"}, "unknown", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := startFake(t, c.script)
			a := adapter(t, config(f.listener.Addr().String(), func(with map[string]any) {
				with["smtp"].(map[string]any)["user"], with["smtp"].(map[string]any)["password"] = "ops", "${$secret.mail}"
			}), nil)
			r := dispatch(t, a, operation("k1", payload))
			if got := kind(r.Outcome); got != c.want {
				t.Errorf("%s, want %s: %+v", got, c.want, r.Outcome)
			}
			if n := f.messages(); n != c.ended {
				t.Errorf("%d messages ended, want %d", n, c.ended)
			}
		})
	}
}

func TestTheRestGetsItOnlyWhereThatIsConfigured(t *testing.T) {
	f := startFake(t, script{"RCPT TO:<bob@ops.example.test>": "550 5.1.1 unknown\r\n"})
	a := adapter(t, config(f.listener.Addr().String(), func(with map[string]any) { with["recipients"] = "send_to_rest" }), nil)
	done := outcome[*sdk.Committed](t, dispatch(t, a, operation("k1", payload)))
	if !strings.Contains(string(done.Result), "bob@ops.example.test: 550") || f.messages() != 1 {
		t.Fatalf("%s, %d messages", done.Result, f.messages())
	}
}

func TestAConnectionThatNobodyTakesProvesThatNothingWasSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	if n := outcome[*sdk.NotExecuted](t, dispatch(t, adapter(t, config(addr, nil), nil), operation("k1", payload))); n.Basis != sdk.BasisNotSent {
		t.Fatalf("%+v", n)
	}
}

func TestASilentServerAtTheEndIsUnknownAtTheDeadline(t *testing.T) {
	f := startFake(t, script{".": "250-wait\r\n"})
	u := outcome[*sdk.Unknown](t, dispatchWithin(t, adapter(t, config(f.listener.Addr().String(), nil), nil), operation("k1", payload), 300*time.Millisecond))
	if u.Cause != sdk.CauseTimeout || f.messages() != 1 {
		t.Fatalf("%+v", u)
	}
}

func TestTheMessageSaysWhatThePayloadSays(t *testing.T) {
	f := startFake(t, script{})
	a := adapter(t, config(f.listener.Addr().String(), nil), nil)
	o := operation("k1", payload)
	r := dispatch(t, a, o)
	done := outcome[*sdk.Committed](t, r)
	if r.ProviderRequestID != "102BE98C09A" {
		t.Errorf("request id %q", r.ProviderRequestID)
	}
	m, err := netmail.ReadMessage(strings.NewReader(f.body))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil || subject != "Übung macht …" {
		t.Errorf("subject %q %v", subject, err)
	}
	for name, want := range map[string]string{
		"Message-Id": done.Object.ID, "Reply-To": "ops@ops.example.test", "To": `"Ann" <ann@ops.example.test>`, "Cc": "<bob@ops.example.test>",
		"From": `"Ops" <ops@ops.example.test>`, "X-Settled-Digest": fmt.Sprintf("sha256:%x", o.PayloadSHA256),
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(m.Body, params["boundary"])
	for _, want := range []string{"line\r\n.\r\n.two\r\nfür", "<p>für</p>"} {
		part, err := parts.NextRawPart()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(part))
		if err != nil || strings.TrimRight(string(body), "\r\n") != want {
			t.Errorf("part %q %v, want %q", body, err, want)
		}
	}
	for _, line := range strings.SplitAfter(f.body, "\n") {
		if len(line) > 998 || (line != "" && !strings.HasSuffix(line, "\r\n")) || strings.ContainsFunc(line, func(r rune) bool { return r > '~' }) {
			t.Errorf("line %q", line)
		}
	}
}

func TestTheMessageIDIsOfKeyAndPayloadAlone(t *testing.T) {
	f := startFake(t, script{})
	a := adapter(t, config(f.listener.Addr().String(), nil), nil)
	send := func(o sdk.Operation) string { return outcome[*sdk.Committed](t, dispatch(t, a, o)).Object.ID }
	first := operation("k1", payload)
	second := first
	second.Attempt, second.AttemptID = 2, "k1-2"
	if send(first) != send(second) {
		t.Error("two attempts differ")
	}
	if send(first) == send(operation("k2", payload)) || send(first) == send(operation("k1", strings.Replace(payload, "line", "lime", 1))) {
		t.Error("two effects agree")
	}
}

func TestAPayloadThatIsNoMailIsRejectedBeforeAnythingIsSent(t *testing.T) {
	f := startFake(t, script{})
	a := adapter(t, config(f.listener.Addr().String(), nil), nil)
	for _, body := range []string{
		`{`, `[]`, `{"to":["ann@x.test"],"subject":"x","text":"x"} {}`, `{"to":[],"subject":"x","text":"x"}`, `{"to":["nobody"],"subject":"x","text":"x"}`,
		`{"to":["ann@x.test"],"text":"x"}`, `{"to":["ann@x.test"],"subject":"x"}`, `{"to":["ann@x.test"],"subject":"x\r\nBcc: eve@x.test","text":"x"}`,
		`{"to":["ann@x.test"],"subject":"x","text":"x","bcc":["eve@x.test"]}`, `{"to":["ann@x.test"],"subject":"x","text":"x","headers":{"Bcc":"eve@x.test"}}`,
		`{"to":["ann@x.test"],"subject":"x","text":"x","headers":{"X-A":"a\nBcc: eve@x.test"}}`, `{"to":["ann@x.test"],"subject":"x","text":"x","headers":{"X-A: b\r\nBcc":"eve@x.test"}}`,
		`{"to":["ann@x.test"],"subject":"x","text":"x","headers":{"message-id":"<a@b>"}}`, `{"to":["ann@x.test","ann@x.test"],"subject":"x","text":"x"}`,
		`{"to":["a\r\nb@x.test"],"subject":"x","text":"x"}`, `{"to":["ann@x.test> SIZE=1"],"subject":"x","text":"x"}`,
	} {
		if r := outcome[*sdk.Rejected](t, dispatch(t, a, operation("k1", body))); r.Reason != sdk.ReasonValidation {
			t.Errorf("%s: %+v", body, r)
		}
	}
	if len(f.commands) != 0 {
		t.Errorf("sent %q", f.commands)
	}
}

func TestWithoutIMAPThereIsNoReadAndAPersonDecides(t *testing.T) {
	a := adapter(t, config("127.0.0.1:1", nil), nil)
	d, err := a.Describe(context.Background())
	if err != nil || d.Actions[0].Read.Lookup != sdk.LookupNone || d.Actions[0].Reversal.Kind != sdk.Irreversible || d.Actions[0].LateEffectBound != nil {
		t.Fatalf("%+v %v", d, err)
	}
	r, err := a.Read(context.Background(), sdk.ReadRequest{Operation: operation("k1", payload)})
	if _, ok := r.Finding.(*sdk.Indeterminate); !ok || err != nil {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestEveryFaultOfAConfigurationIsNamedWithItsPlace(t *testing.T) {
	c, err := mail.New().Configure(context.Background(), sdk.Configuration{Secrets: map[string]string{"mail": secret}, Config: []byte(`{
		"domain":"a b","from":"x","recipients":"some","smtp":{"addr":"h","security":"ssl","user":"u","password":"plain"},
		"imap":{"addr":"mail.example:143","security":"none","user":"u","password":"${$secret.nope}","proves_absence":true},
		"operations":{"a":{"reversible":"reversible","sumary":"x"}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	words := ""
	for _, d := range c.Diagnostics {
		words += d.Pointer + ": " + d.Summary + "\n"
	}
	for _, want := range []string{
		"/domain: must be a domain", "/from: is no mail address", "/recipients:", "/smtp/addr: must be host:port", "/smtp/security:", "/smtp/password: must be a credential",
		"/imap/security: a password is sent in the clear only", `/imap/password: no credential "nope"`, "/imap/mailboxes: is required", "/imap/lag: proves_absence needs it",
		"/operations/a/reversible: a sent mail cannot be taken back", `/operations/a/sumary: unknown key "sumary"; did you mean "summary"?`,
	} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not in\n%s", want, words)
		}
	}
}

func TestTheRecipeIsAConfiguration(t *testing.T) {
	raw, err := os.ReadFile("../recipes/mail/settled.toml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Destinations map[string]struct {
			With map[string]any `toml:"with"`
		} `toml:"destinations"`
	}
	if err := toml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	with, err := json.Marshal(file.Destinations["post"].With)
	if err != nil {
		t.Fatal(err)
	}
	c, err := mail.New().Configure(context.Background(), sdk.Configuration{Config: with, Secrets: map[string]string{"smtp": "secret1", "archive": "secret2"}})
	if err != nil || len(c.Diagnostics) != 0 || c.Identity != "support@mail.example.org:587" || c.Actions[0].Read.Lookup != sdk.LookupByMarker {
		t.Fatalf("%+v %v", c, err)
	}
}
