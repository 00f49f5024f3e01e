package http

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// class is an outcome in short, for tables.
func class(o sdk.Outcome) string {
	switch o := o.(type) {
	case *sdk.Committed:
		return "committed " + o.Object.ID
	case *sdk.Accepted:
		return "accepted " + o.Handle
	case *sdk.Rejected:
		return "rejected " + strconv.Itoa(int(o.Reason))
	case *sdk.NotExecuted:
		return "not executed " + strconv.Itoa(int(o.Basis)) + " after " + o.RetryAfter.String()
	case *sdk.Unknown:
		return "unknown " + strconv.Itoa(int(o.Cause))
	}
	return "none"
}

func TestEveryAnswerHasOneMeaning(t *testing.T) {
	const asJSON = "application/json"
	cases := []struct {
		name              string
		status            int
		contentType, body string
		edits             map[string]any
		want              string
	}{
		{"done", 201, asJSON, `{"id":"7"}`, nil, "committed 7"},
		{"a number as id", 201, asJSON, `{"id":9007199254740993}`, nil, "committed 9007199254740993"},
		{"done without an id", 201, asJSON, `{}`, nil, "unknown 3"},
		{"done with an empty id", 201, asJSON, `{"id":""}`, nil, "unknown 3"},
		{"done, but the program errs", 201, asJSON, `[]`, nil, "unknown 3"},
		{"done, but garbage", 201, asJSON, `{"id":`, nil, "unknown 3"},
		{"done, but HTML", 201, "text/html", `<p>created`, nil, "unknown 3"},
		{"done, but two values", 201, asJSON, `{"id":"7"}{"id":"8"}`, nil, "unknown 3"},
		{"garbage, no id asked", 201, asJSON, `{"id":`, map[string]any{"create.dispatch.object_id": nil}, "unknown 3"},
		{"200 is in no rule", 200, asJSON, `{"id":"7"}`, nil, "unknown 3"},
		{"accepted", 202, asJSON, `{"job":"j-1"}`, map[string]any{"create.handle": "$response.body.job"}, "accepted j-1"},
		{"accepted without handle", 202, asJSON, `{}`, map[string]any{"create.handle": "$response.body.job"}, "unknown 3"},
		{"accepted, nothing configured", 202, asJSON, `{}`, nil, "accepted k:1"},
		{"accepted, an object", 202, asJSON, `{"id":"7"}`, nil, "accepted 7"},
		{"bad", 400, asJSON, `{"error":"no"}`, nil, "rejected 1"},
		{"bad and HTML", 422, "text/html", `<p>no`, nil, "rejected 1"},
		{"who", 401, asJSON, `{}`, nil, "rejected 2"},
		{"not you", 403, asJSON, `{}`, nil, "rejected 3"},
		{"not there", 404, asJSON, `{}`, nil, "rejected 4"},
		{"conflict", 409, asJSON, `{}`, nil, "rejected 5"},
		{"precondition", 412, asJSON, `{}`, nil, "rejected 6"},
		{"conflict wins over done", 409, asJSON, `{"id":"7"}`, map[string]any{"create.dispatch.done": "true"}, "rejected 5"},
		{"conflict cannot be listed", 409, asJSON, `{}`, map[string]any{"create.dispatch.not_executed_final": []int{409}}, "rejected 5"},
		{"too many", 429, "text/plain", `slow down`, nil, "not executed 2 after 7s"},
		{"429 off the list", 429, asJSON, `{}`, map[string]any{"create.dispatch.not_executed_retryable": []int{}}, "unknown 3"},
		{"503", 503, asJSON, `{}`, nil, "unknown 4"},
		{"503 on the list", 503, asJSON, `{}`, map[string]any{"create.dispatch.not_executed_retryable": []int{503}}, "not executed 3 after 7s"},
		{"500", 500, asJSON, `{"id":"7"}`, nil, "unknown 4"},
		{"404 off the list", 404, asJSON, `{}`, map[string]any{"create.dispatch.not_executed_final": []int{400}}, "unknown 3"},
		{"a list and done contradict", 400, asJSON, `{}`, map[string]any{"create.dispatch.done": "$response.status == 400"}, "unknown 3"},
		{"redirect", 302, asJSON, `{}`, nil, "unknown 3"},
		{"307", 307, asJSON, `{}`, nil, "unknown 3"},
		{"418", 418, asJSON, `{}`, nil, "unknown 3"},
		{"done is neither true nor false", 201, asJSON, `{"id":"7"}`, map[string]any{"create.dispatch.done": "$response.body.id"}, "unknown 3"},
		{"done errs", 201, asJSON, `{"id":"7"}`, map[string]any{"create.dispatch.done": "$response.body.id.x"}, "unknown 3"},
		{"done runs for ever", 201, asJSON, `{"id":"7"}`, map[string]any{"create.dispatch.done": "def f: f; f"}, "unknown 3"},
		{"accepted errs", 202, asJSON, `{}`, map[string]any{"create.dispatch.accepted": "$response.status.x"}, "unknown 3"},
		{"request_id errs", 201, asJSON, `{"id":"7"}`, map[string]any{"create.dispatch.request_id": "$response.status.x"}, "unknown 3"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.setHook(func(w nethttp.ResponseWriter, _ *nethttp.Request) bool {
				w.Header().Set("Content-Type", c.contentType)
				w.Header().Set("Retry-After", "7")
				w.Header().Set("Content-Length", strconv.Itoa(len(c.body)))
				w.Header().Set("X-Request-Id", "req-9")
				if c.status/100 == 3 {
					w.Header().Set("Location", "/elsewhere")
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
				return true
			})
			a := open(t, d.URL, c.edits)
			r := send(t, a, operation1("k:1"))
			if got := class(r.Outcome); got != c.want {
				t.Fatalf("got %q, want %q: %+v", got, c.want, r.Outcome)
			}
			if d.writes() != 1 {
				t.Fatalf("%d requests for one dispatch", d.writes())
			}
			if r.ProviderRequestID != "req-9" && c.edits["create.dispatch.request_id"] == nil {
				t.Errorf("request id %q is not kept", r.ProviderRequestID)
			}
			if len(r.Evidence) != 1 || r.Evidence[0].Fields["status"] != strconv.Itoa(c.status) {
				t.Errorf("evidence %+v", r.Evidence)
			}
		})
	}
}

// cut serves one connection after the other: it reads what it wants of a request,
// writes raw bytes and closes.
func cut(t *testing.T, handle func(n int, conn net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handle(n, conn)
			conn.Close()
		}
	})
	t.Cleanup(func() { l.Close(); done.Wait() })
	return "http://" + l.Addr().String()
}

func TestALostAnswerAndALostRequestLookTheSame(t *testing.T) {
	created := "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{\"id\":\"7\"}"
	for at := range len(created) {
		var mu sync.Mutex
		requests := 0
		url := cut(t, func(_ int, conn net.Conn) {
			if req, err := nethttp.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				mu.Lock()
				requests++
				mu.Unlock()
			}
			_, _ = io.WriteString(conn, created[:at])
		})
		r := send(t, open(t, url, nil), operation1("k:1"))
		if _, unknown := r.Outcome.(*sdk.Unknown); !unknown {
			t.Fatalf("cut after %d bytes (%q): %s", at, created[:at], class(r.Outcome))
		}
		mu.Lock()
		if requests != 1 {
			t.Fatalf("cut after %d bytes: %d requests", at, requests)
		}
		mu.Unlock()
	}
	lost := cut(t, func(_ int, conn net.Conn) {
		_, _ = conn.Read(make([]byte, 5)) // not even the request line
	})
	if got := class(send(t, open(t, lost, nil), operation1("k:1")).Outcome); got != "unknown 2" {
		t.Fatalf("a lost request is %s", got)
	}
}

func TestARefusedConnectionIsProofThatNothingWasSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if got := class(send(t, open(t, "http://"+l.Addr().String(), nil), operation1("k:1")).Outcome); got != "not executed 1 after 0s" {
		t.Fatal(got)
	}
	d := newDesk(t)
	r, err := open(t, d.URL, nil).Dispatch(t.Context(), sdk.DispatchRequest{Operation: operation1("k:1"), Deadline: time.Now().Add(-time.Second)})
	if err != nil || class(r.Outcome) != "not executed 1 after 0s" || d.writes() != 0 {
		t.Fatalf("after the deadline: %s, %d writes", class(r.Outcome), d.writes())
	}
}

func TestTheDeadlineOfADispatchMakesItUnknown(t *testing.T) {
	d := newDesk(t)
	release := make(chan struct{})
	d.setHook(func(nethttp.ResponseWriter, *nethttp.Request) bool { <-release; return false })
	defer close(release)
	r, err := open(t, d.URL, nil).Dispatch(t.Context(), sdk.DispatchRequest{Operation: operation1("k:1"), Deadline: time.Now().Add(100 * time.Millisecond)})
	if err != nil || class(r.Outcome) != "unknown 1" {
		t.Fatalf("%s %v", class(r.Outcome), err)
	}
}

func TestAnAnswerThatIsHereIsReadAfterTheDeadline(t *testing.T) {
	s := open(t, "http://127.0.0.1:9", nil).(*Adapter).configured()
	sc, err := s.scope(operation1("k:1"), "create", nil, "", "")
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	resp := &sdk.HTTPResponse{Status: 201, Header: nethttp.Header{}, Body: []byte(`{"id":"7"}`)}
	r := s.conclude(over, s.cfg.operations["create"], false, operation1("k:1"), sdk.HTTPRequest{}, sc, resp)
	if got := class(r.Outcome); got != "committed 7" {
		t.Fatal(got)
	}
}

func TestTextThatEndsWithTheConnectionMayBeCut(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.0 201 Created\r\n\r\nticket-4":                       "unknown 3",
		"HTTP/1.0 201 Created\r\nContent-Length: 9\r\n\r\nticket-42": "committed ticket-42",
	} {
		url := cut(t, func(_ int, conn net.Conn) {
			if req, err := nethttp.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
			}
			_, _ = io.WriteString(conn, answer)
		})
		a := open(t, url, map[string]any{"create.dispatch.object_id": "$response.body"})
		if got := class(send(t, a, operation1("k:1")).Outcome); got != want {
			t.Errorf("%q: %s, want %s", answer, got, want)
		}
	}
}

func TestAFaultBeforeTheCallRejectsAndSendsNothing(t *testing.T) {
	cases := map[string]map[string]any{
		"null in the path":         {"create.dispatch.path": "/tickets/${$payload.nothing}"},
		"empty in the path":        {"create.dispatch.path": "/tickets/${\"\"}"},
		"no value in the path":     {"create.dispatch.path": "/tickets/${empty}"},
		"an object in the path":    {"create.dispatch.path": "/tickets/${$payload}"},
		"a list in the path":       {"create.dispatch.path": "/tickets/${[1]}"},
		"two values in the path":   {"create.dispatch.path": "/tickets/${1,2}"},
		"dots in the path":         {"create.dispatch.path": "/tickets/${\"..\"}"},
		"encoded dots in the path": {"create.dispatch.path": "/tickets/${\"%2e%2e\"}"},
		"white space in the path":  {"create.dispatch.path": "/tickets/${\"a b\"}"},
		"a fragment in the path":   {"create.dispatch.path": "/tickets/${\"a#b\"}"},
		"another host":             {"create.dispatch.path": "${\"http://127.0.0.1:1/\"}"},
		"another host without //":  {"create.dispatch.path": "${\"x\"}"},
		"null in a header":         {"create.dispatch.headers": map[string]any{"X-A": "${null}"}},
		"a line in a header":       {"create.dispatch.headers": map[string]any{"X-A": "${\"a\\r\\nX-B: c\"}"}},
		"the body errs":            {"create.dispatch.body": "$payload.subject.x"},
	}
	for name, edits := range cases {
		d := newDesk(t)
		a := open(t, d.URL, edits)
		if got := class(send(t, a, operation1("k:1")).Outcome); got != "rejected 1" {
			t.Errorf("%s: %s", name, got)
		}
		if p, err := a.Prepare(t.Context(), operation1("k:1")); err != nil || p.Rejected == nil {
			t.Errorf("%s: prepare says %+v, %v", name, p, err)
		}
		if d.writes() != 0 {
			t.Errorf("%s: something was sent", name)
		}
	}
	d := newDesk(t)
	broken := operation1("k:1")
	broken.Payload = []byte(`{"a":`)
	if got := class(send(t, open(t, d.URL, nil), broken).Outcome); got != "rejected 1" || d.writes() != 0 {
		t.Errorf("a payload that is no JSON: %s", got)
	}
	broken.Action = "crate"
	if got := class(send(t, open(t, d.URL, nil), broken).Outcome); got != "rejected 10" {
		t.Errorf("an unknown operation: %s", got)
	}
	if got := class(send(t, New(), operation1("k:1")).Outcome); got != "not executed 4 after 0s" {
		t.Errorf("before Configure: %s", got)
	}
}

func TestTheRequestCarriesKeyDigestAndExactNumbers(t *testing.T) {
	d := newDesk(t)
	var got struct {
		header nethttp.Header
		body   []byte
	}
	d.setHook(func(_ nethttp.ResponseWriter, r *nethttp.Request) bool {
		got.header = r.Header.Clone()
		got.body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(got.body)))
		return false
	})
	o := operation1("k:1")
	o.Payload = []byte(`{"n":9007199254740993,"price":10.10,"text":"<&>"}`)
	send(t, open(t, d.URL, nil), o)
	if got.header.Get("Idempotency-Key") != "k:1" || got.header.Get("Authorization") != "Bearer "+deskToken || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", got.header)
	}
	for _, want := range []string{`"n":9007199254740993`, `"external_ref":"k:1"`, `"digest":"` + digestOf(payload) + `"`, `"text":"<&>"`, `"price":10.10`} {
		if !strings.Contains(string(got.body), want) {
			t.Errorf("the body %s lacks %s", got.body, want)
		}
	}
	text := open(t, d.URL, map[string]any{"create.dispatch.body": `"BEGIN:" + $effect.key`, "create.dispatch.headers": map[string]any{"content-type": "text/calendar"}})
	send(t, text, operation1("k:1"))
	if string(got.body) != "BEGIN:k:1" || got.header.Get("Content-Type") != "text/calendar" {
		t.Errorf("a text body is sent as %q", got.body)
	}
}

// An echoing destination puts the credential wherever it can.
func TestNoSecretLeavesInAnAnswer(t *testing.T) {
	d := newDesk(t)
	basic := base64.StdEncoding.EncodeToString([]byte("bot:" + deskToken))
	for _, status := range []int{201, 400, 401, 429, 500, 202} {
		d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
			w.Header().Set("X-Request-Id", deskToken)
			w.Header().Set("Location", "/x?token="+strings.ReplaceAll(deskToken, "/", "%2F"))
			reply(w, status, map[string]any{"id": "1", "auth": r.Header.Get("Authorization"), "basic": basic, "items": []any{}, "next": 5})
			return true
		})
		a := open(t, d.URL, map[string]any{"create.read.path": "/tickets?token=${$secret.desk_token|@uri}&ref=${$effect.key|@uri}"})
		dispatched := send(t, a, operation1("k:1"))
		reading := readBack(t, a, sdk.ReadRequest{Operation: operation1("k:1")})
		for name, v := range map[string]any{"dispatch": dispatched, "read": reading} {
			raw, _ := json.Marshal(v)
			var result []byte
			if c, ok := dispatched.Outcome.(*sdk.Committed); ok && name == "dispatch" {
				result = c.Result // base64 inside the marshalled answer
			}
			for _, form := range []string{deskToken, strings.ReplaceAll(deskToken, "/", "%2F"), "s3cr3t%2Ftoken%2Bvalue", basic, base64.StdEncoding.EncodeToString([]byte(deskToken))} {
				if strings.Contains(string(raw)+string(result), form) {
					t.Errorf("%d: %s shows %s: %s %s", status, name, form, raw, result)
				}
			}
		}
	}
}

func TestAnOperationAcceptedIsPolledToItsEnd(t *testing.T) {
	d := newDesk(t)
	state := "running"
	d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
		switch {
		case r.Method == "POST":
			reply(w, 202, map[string]any{"job": "/jobs/1"})
		case r.URL.Path == "/jobs/1":
			reply(w, 200, map[string]any{"state": state})
		default:
			return false
		}
		return true
	})
	a := open(t, d.URL, map[string]any{
		"create.handle": "$response.body.job",
		"create.poll":   map[string]any{"path": "${$effect.handle}", "done": `$response.body.state == "done"`, "failed": `$response.body.state == "failed"`},
	})
	accepted := as[*sdk.Accepted](t, send(t, a, operation1("k:1")).Outcome)
	poll := sdk.ReadRequest{Purpose: sdk.PurposePoll, Handle: accepted.Handle, Operation: operation1("k:1")}
	as[*sdk.Pending](t, readBack(t, a, poll).Finding)
	state = "failed"
	if f := as[*sdk.Failed](t, readBack(t, a, poll).Finding); f.MayResend {
		t.Error("a failed operation may not be sent again by its own")
	}
	state = "done"
	as[*sdk.Pending](t, readBack(t, a, poll).Finding) // done, but not visible yet
	d.tickets = append(d.tickets, map[string]any{"id": "1", "external_ref": "k:1", "digest": digestOf(payload), "body": "b", "project": "acme", "created_at": time.Now().Unix()})
	if m := found(t, readBack(t, a, poll)); len(m) != 1 || m[0].Strength != sdk.StrengthMarker {
		t.Errorf("found %+v", m)
	}
	d.setHook(func(w nethttp.ResponseWriter, _ *nethttp.Request) bool { w.WriteHeader(404); return true })
	as[*sdk.Indeterminate](t, readBack(t, a, poll).Finding)
}

func TestAPollWithoutPollIsTheOrdinaryReadAndNeverAbsence(t *testing.T) {
	d := newDesk(t)
	a := open(t, d.URL, nil)
	poll := sdk.ReadRequest{Purpose: sdk.PurposePoll, Handle: "k:1", Operation: operation1("k:1")}
	as[*sdk.Pending](t, readBack(t, a, poll).Finding)
	send(t, a, operation1("k:1"))
	if m := found(t, readBack(t, a, poll)); len(m) != 1 {
		t.Errorf("found %+v", m)
	}
}

func TestARollbackNeedsTheStoredPriorState(t *testing.T) {
	d := newDesk(t)
	d.tickets = append(d.tickets, map[string]any{"id": "5", "status": "open", "version": 3})
	var body string
	d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
		if r.Method != "PUT" {
			return false
		}
		raw, _ := io.ReadAll(r.Body)
		body = string(raw)
		reply(w, 200, nil)
		return true
	})
	a := open(t, d.URL, map[string]any{
		"create.snapshot": map[string]any{"path": "/tickets/5", "items": "$response.body|{status,version}"},
		"create.undo":     map[string]any{"method": "PUT", "path": "/tickets/${$effect.object_id}", "body": "$snapshot", "verify": map[string]any{"path": "/tickets/5", "when": "$response.body.status == $snapshot.status"}},
	})
	p, err := a.Prepare(t.Context(), operation1("k:1"))
	if err != nil || p.Ready == nil {
		t.Fatalf("%+v %v", p, err)
	}
	undo := operation1("repair:1")
	undo.Action, undo.Target = "create.undo", &sdk.ObjectRef{ID: "5"}
	if got := class(send(t, a, undo).Outcome); got != "rejected 1" || body != "" {
		t.Fatalf("an undo without prior state is %s", got)
	}
	r, err := a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: undo, Baseline: p.Ready.Baseline, Deadline: time.Now().Add(time.Second)})
	if err != nil || class(r.Outcome) != "committed 5" || body != `{"status":"open","version":3}` {
		t.Fatalf("%s, sent %s", class(r.Outcome), body)
	}
	if m := found(t, readBack(t, a, sdk.ReadRequest{Operation: undo, Baseline: p.Ready.Baseline})); len(m) != 1 {
		t.Fatal("the rollback is not verified")
	}
	d.tickets[0]["status"] = "closed"
	as[*sdk.NoneSeen](t, readBack(t, a, sdk.ReadRequest{Operation: undo, Baseline: p.Ready.Baseline}).Finding)
}

func TestVerifyIsNotBelievedWhenSightIsLost(t *testing.T) {
	d := newDesk(t)
	a := open(t, d.URL, nil)
	undo := operation1("repair:1")
	undo.Action, undo.Target = "create.undo", &sdk.ObjectRef{ID: "1"}
	found(t, readBack(t, a, sdk.ReadRequest{Operation: undo}))
	d.sees = false
	as[*sdk.Indeterminate](t, readBack(t, a, sdk.ReadRequest{Operation: undo}).Finding)
	for _, status := range []int{401, 403, 429, 500, 503} {
		d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/tickets/") {
				w.WriteHeader(status)
				return true
			}
			return false
		})
		b := open(t, d.URL, map[string]any{"create.undo.verify": map[string]any{"path": "/tickets/1", "when": "$response.status != 200"}})
		if r := readBack(t, b, sdk.ReadRequest{Operation: undo}); fmt.Sprintf("%T", r.Finding) != "*sdk.Indeterminate" {
			t.Errorf("%d counts as undone: %T", status, r.Finding)
		}
	}
}

func TestHalfASurrogateIsRefusedAndNotReplaced(t *testing.T) {
	if _, err := payloadValue(sdk.Operation{Payload: []byte(`{"subject":"\ud800"}`)}); err == nil {
		t.Error("it would be sent as another payload")
	}
	if _, err := payloadValue(sdk.Operation{Payload: []byte(`{"subject":"\ud83d\ude00 \\ud800"}`)}); err != nil {
		t.Error(err)
	}
}
