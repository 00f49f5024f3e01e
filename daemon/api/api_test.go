package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/api"
	"github.com/settled-dev/settled/daemon/api/apitest"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk/client"
)

// wire is a bare HTTP client on the socket: it sees what any curl sees.
type wire struct {
	t    *testing.T
	fake *apitest.Fake
	http *http.Client
	sock string
}

func start(t *testing.T, opts api.Options) *wire {
	t.Helper()
	f := apitest.New()
	sock := apitest.Start(t, f, opts)
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", sock)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &wire{t: t, fake: f, http: &http.Client{Transport: tr}, sock: sock}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (w *wire) do(method, path, body string, header ...string) answer {
	w.t.Helper()
	req, err := http.NewRequest(method, "http://settled"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(data)}
}

func (a answer) problem(t *testing.T) client.Problem {
	t.Helper()
	var p client.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("no problem document: %v\n%s", err, a.body)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("content type of a problem is %q", ct)
	}
	if p.Status != a.status || !strings.HasSuffix(p.Type, p.Code) || p.Title == "" {
		t.Errorf("problem document does not fit its answer %d: %+v", a.status, p)
	}
	return p
}

const intent = `{"destination":"desk","operation":"create","key":"ticket:SUP-1:reply:v1","payload":{"b":1,"a":2}}`

func TestSubmitIsNewOnceAndTheSameAfterwards(t *testing.T) {
	w := start(t, api.Options{})
	first := w.do("POST", "/v1/effects", intent)
	if first.status != 201 || first.header.Get("Location") != "/v1/effects/ticket:SUP-1:reply:v1" || first.header.Get("ETag") != `"2"` {
		t.Fatalf("first submit: %d %v %s", first.status, first.header, first.body)
	}
	want := `{"key":"ticket:SUP-1:reply:v1","created":true,"phase":"authorized","standing":"not_started","seq":2}` + "\n"
	if first.body != want {
		t.Errorf("answer is %s, want %s", first.body, want)
	}
	if got := string(w.fake.LastSubmit.Payload); got != `{"b":1,"a":2}` {
		t.Errorf("the payload was changed on its way: %s", got)
	}
	uid := fmt.Sprintf("uid:%d", os.Getuid())
	if w.fake.LastBy.Actor != uid || w.fake.LastBy.Kind != journal.Human || w.fake.LastSubmit.Actor != uid {
		t.Errorf("who acts is %+v, actor %q; want the socket's peer %s", w.fake.LastBy, w.fake.LastSubmit.Actor, uid)
	}
	again := w.do("POST", "/v1/effects", intent)
	if again.status != 200 || !strings.Contains(again.body, `"created":false`) || again.header.Get("Location") != "" {
		t.Errorf("the same again: %d %s", again.status, again.body)
	}
}

func TestAnotherRequestUnderTheSameKeyIsAConflictWithoutPayloads(t *testing.T) {
	w := start(t, api.Options{})
	w.do("POST", "/v1/effects", intent)
	a := w.do("POST", "/v1/effects", strings.Replace(intent, `"b":1`, `"b":"secret-word"`, 1))
	p := a.problem(t)
	if a.status != 409 || p.Code != "key-conflict" || p.BoundFingerprint == "" || p.GivenFingerprint == "" || p.BoundFingerprint == p.GivenFingerprint {
		t.Errorf("conflict: %d %+v", a.status, p)
	}
	if strings.Contains(a.body, "secret-word") || strings.Contains(a.body, `"b"`) {
		t.Errorf("a conflict shows a payload: %s", a.body)
	}
}

func TestAnActorInTheBodyChangesTheIntentAndNotWhoActs(t *testing.T) {
	w := start(t, api.Options{})
	w.do("POST", "/v1/effects", strings.Replace(intent, `"key"`, `"actor":"bot:7","key"`, 1))
	if w.fake.LastSubmit.Actor != "bot:7" || !strings.HasPrefix(w.fake.LastBy.Actor, "uid:") {
		t.Errorf("actor %q, by %+v", w.fake.LastSubmit.Actor, w.fake.LastBy)
	}
}

func TestEveryFaultOfABodyIsNamedAtOnce(t *testing.T) {
	w := start(t, api.Options{})
	a := w.do("POST", "/v1/effects", `{"destination":7,"Operation":"create","key":"k:1","key":"k:2","colour":"red"} true`)
	p := a.problem(t)
	if a.status != 422 || p.Code != "invalid" {
		t.Fatalf("%d %+v", a.status, p)
	}
	all := strings.Join(p.Faults, "\n")
	for _, want := range []string{`destination: a JSON number does not fit`, `unknown member "Operation"; did you mean "operation"?`, `unknown member "colour"`, `"key" is given twice`, "more after"} {
		if !strings.Contains(all, want) {
			t.Errorf("faults lack %q:\n%s", want, all)
		}
	}
	for body, want := range map[string]string{"": "empty", "[1]": "object", `{"key":`: "ends too early", `{"key":nope}`: "not JSON", `{"not_before":"tomorrow"}`: "not_before: a time such as", `"x"`: "object"} {
		if p := w.do("POST", "/v1/effects", body).problem(t); p.Status != 422 || !strings.Contains(p.Error(), want) {
			t.Errorf("%q: %d %v, want %q", body, p.Status, p.Error(), want)
		}
	}
}

func TestErrorsOfTheServiceBecomeTheirProblems(t *testing.T) {
	w := start(t, api.Options{})
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  string
	}{
		{daemon.ErrJournalFull, 507, "journal-full", ""},
		{fmt.Errorf("commit: %w", daemon.ErrSubmissionUnknown), 503, "submission-unknown", ""},
		{daemon.ErrDraining, 503, "draining", "5"},
		{&daemon.BusyError{Why: "queue full", RetryAfter: 1500 * time.Millisecond}, 429, "busy", "2"},
		{&daemon.BusyError{Why: "down", Outage: true}, 503, "outage", "1"},
		{&daemon.InvalidError{Faults: []string{"a", "b"}}, 422, "invalid", ""},
		{&journal.KeyError{Why: "it is empty"}, 422, "invalid", ""},
		{&journal.PayloadError{Why: "number"}, 422, "invalid", ""},
		{daemon.ErrForbidden, 403, "forbidden", ""},
		{daemon.ErrNotBuilt, 501, "not-built", ""},
		{errors.New("disk /secret/path broke"), 500, "internal", ""},
	} {
		w.fake.Fail("Submit", c.err)
		a := w.do("POST", "/v1/effects", intent)
		p := a.problem(t)
		if a.status != c.status || p.Code != c.code || a.header.Get("Retry-After") != c.retry {
			t.Errorf("%v: %d %s Retry-After %q, want %d %s %q", c.err, a.status, p.Code, a.header.Get("Retry-After"), c.status, c.code, c.retry)
		}
		if strings.Contains(a.body, "/secret/path") {
			t.Errorf("an internal error shows its inside: %s", a.body)
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	w := start(t, api.Options{})
	big := `{"destination":"desk","operation":"create","key":"k:1","payload":"` + strings.Repeat("x", api.MaxPayload) + `"}`
	if p := w.do("POST", "/v1/effects", big).problem(t); p.Status != 413 || !strings.Contains(p.Detail, "payload") {
		t.Errorf("a payload above the limit: %+v", p)
	}
	if p := w.do("POST", "/v1/effects", strings.Repeat(" ", 3<<20)).problem(t); p.Status != 413 {
		t.Errorf("a body above the limit: %+v", p)
	}
	fits := `{"destination":"desk","operation":"create","key":"k:1","payload":"` + strings.Repeat("x", api.MaxPayload-2) + `"}`
	if a := w.do("POST", "/v1/effects", fits); a.status != 201 {
		t.Errorf("a payload of exactly the limit: %d %s", a.status, a.body)
	}
}

func TestPayloadsThatAreNotJSONTravelAsTextOrBase64(t *testing.T) {
	w := start(t, api.Options{})
	send := func(key, payload string) answer {
		return w.do("POST", "/v1/effects", `{"destination":"desk","operation":"create","key":"`+key+`","content_type":"text/plain",`+payload+`}`)
	}
	if a := send("k:1", `"payload":"hello \u00e9"`); a.status != 201 || string(w.fake.LastSubmit.Payload) != "hello é" {
		t.Errorf("text: %d %q", a.status, w.fake.LastSubmit.Payload)
	}
	if a := send("k:2", `"payload_base64":"/wD+"`); a.status != 201 || !bytes.Equal(w.fake.LastSubmit.Payload, []byte{0xff, 0, 0xfe}) {
		t.Errorf("base64: %d %q", a.status, w.fake.LastSubmit.Payload)
	}
	if a := send("k:3", `"payload":{"a":1}`); a.status != 422 {
		t.Errorf("an object as text: %d", a.status)
	}
	if a := send("k:4", `"payload":"a","payload_base64":"YQ=="`); a.status != 422 {
		t.Errorf("both: %d", a.status)
	}
}

func TestKeysWithColonsSlashesAndDotsFindTheirEffect(t *testing.T) {
	w := start(t, api.Options{})
	c := client.New(w.sock)
	defer c.Close()
	for _, key := range []string{"a:b:v1", "a/b/../c", ".", "..", "a%2Fb"[:1] + "/x:decisions", "~a+b=c-d_e", "/lead", "trail/"} {
		if _, err := c.Submit(t.Context(), client.SubmitRequest{Destination: "desk", Operation: "create", Key: key, Payload: []byte("{}")}); err != nil {
			t.Fatalf("submit %q: %v", key, err)
		}
		e, err := c.Effect(t.Context(), key)
		if err != nil || e.Key != key {
			t.Errorf("show %q: %q %v", key, e.Key, err)
		}
		if e, err := c.Cancel(t.Context(), key, "test"); err != nil || e.Key != key || e.Phase != "failed" {
			t.Errorf("cancel %q: %+v %v", key, e.Key, err)
		}
	}
}

func TestPreferWaitAnswersWithTheStateAtItsEnd(t *testing.T) {
	w := start(t, api.Options{})
	got := make(chan answer, 1)
	go func() { got <- w.do("POST", "/v1/effects", intent, "Prefer", "respond-async, wait=30") }()
	key := "ticket:SUP-1:reply:v1"
	for !w.has(key) {
		time.Sleep(time.Millisecond)
	}
	w.fake.Change(key, func(e *journal.Effect) { e.Phase = journal.Dispatching })
	w.fake.Change(key, func(e *journal.Effect) { *e = withSeq(apitest.Effect(key, journal.Succeeded), e.Seq) })
	a := <-got
	if a.status != 201 || !strings.Contains(a.body, `"phase":"succeeded"`) || a.header.Get("Preference-Applied") != "wait=30" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	now := w.do("POST", "/v1/effects", strings.Replace(intent, "SUP-1", "SUP-2", 1), "Prefer", "wait=0")
	if now.status != 201 || !strings.Contains(now.body, `"phase":"authorized"`) {
		t.Errorf("a wait that is over answers with the state as it is: %d %s", now.status, now.body)
	}
}

func withSeq(e journal.Effect, seq int64) journal.Effect { e.Seq = seq; return e }

// has polls the fake until the key is there.
func (w *wire) has(key string) bool {
	_, err := w.fake.Effect(context.Background(), key)
	return err == nil
}

func TestLongPollReturnsOnTheNextChangeOrWithTheStateAsItIs(t *testing.T) {
	w := start(t, api.Options{})
	w.fake.Put(apitest.Effect("k:1", journal.Unknown))
	idle := w.do("GET", "/v1/effects/k:1?after=7&wait=10ms", "")
	if idle.status != 200 || idle.header.Get("ETag") != `"7"` {
		t.Errorf("nothing changed: %d %s", idle.status, idle.header.Get("ETag"))
	}
	got := make(chan answer, 1)
	go func() { got <- w.do("GET", "/v1/effects/k:1?after=7&wait=30s", "") }()
	w.fake.Change("k:1", func(e *journal.Effect) { e.Phase = journal.Reconciling })
	if a := <-got; a.header.Get("ETag") != `"8"` || !strings.Contains(a.body, `"phase":"reconciling"`) {
		t.Errorf("after a change: %s %s", a.header.Get("ETag"), a.body)
	}
	for q, status := range map[string]int{"?after=x": 422, "?after=1&wait=soon": 422} {
		if a := w.do("GET", "/v1/effects/k:1"+q, ""); a.status != status {
			t.Errorf("%s: %d", q, a.status)
		}
	}
	if a := w.do("GET", "/v1/effects/none:1?after=1&wait=30s", ""); a.status != 404 {
		t.Errorf("long poll of an unknown key: %d", a.status)
	}
}

func TestADecisionOnAStaleStateIsRefusedWithTheStateNow(t *testing.T) {
	w := start(t, api.Options{})
	w.fake.Put(apitest.Effect("k:1", journal.NeedsHuman))
	body := `{"decision":"happened","because":"seen it","object":"T-17"}`
	a := w.do("POST", "/v1/effects/k:1/decisions", body, "If-Match", `"6"`)
	p := a.problem(t)
	if a.status != 412 || p.Code != "stale" || p.Seq != 7 || p.Phase != "needs_human" || a.header.Get("ETag") != `"7"` {
		t.Errorf("stale: %d %+v", a.status, p)
	}
	a = w.do("POST", "/v1/effects/k:1/decisions", body, "If-Match", `"7"`)
	if a.status != 200 || a.header.Get("ETag") != `"8"` || w.fake.LastDecide.IfSeq != 7 || w.fake.LastDecide.Object != "T-17" || w.fake.LastBy.Because != "seen it" {
		t.Errorf("fresh: %d %s %+v", a.status, a.body, w.fake.LastDecide)
	}
	if a = w.do("POST", "/v1/effects/k:1/decisions", body); a.status != 200 || w.fake.LastDecide.IfSeq != 0 {
		t.Errorf("without If-Match: %d %s", a.status, a.body)
	}
	if a := w.do("POST", "/v1/effects/k:1/decisions", body, "If-Match", "soon"); a.status != 422 {
		t.Errorf("a bad If-Match: %d", a.status)
	}
}

func TestADecisionLacksWhatItLacks(t *testing.T) {
	w := start(t, api.Options{})
	w.fake.Put(apitest.Effect("k:1", journal.NeedsHuman))
	for body, want := range map[string]string{
		`{"decision":"guess","because":"x"}`:          "known are read, happened",
		`{"decision":"read"}`:                         "because:",
		`{"decision":"happened","because":"x"}`:       "object:",
		`{"decision":"did-not-happen","because":"x"}`: "then: say retry or close",
		`{"decision":"retire","because":"x"}`:         "keep:",
		`{"decision":"assign","because":"x"}`:         "to:",
		`{"decision":"keep-waiting","because":"x"}`:   "until:",
		`{"decision":"fix","because":"x"}`:            "operation:",
	} {
		if p := w.do("POST", "/v1/effects/k:1/decisions", body).problem(t); p.Status != 422 || !strings.Contains(p.Error(), want) {
			t.Errorf("%s: %d %q, want %q", body, p.Status, p.Error(), want)
		}
	}
}

func TestARefusalByPhaseSaysWhetherSomethingMayHaveBeenSent(t *testing.T) {
	w := start(t, api.Options{})
	for phase, sent := range map[journal.Phase]bool{journal.Unknown: true, journal.NeedsHuman: true, journal.Succeeded: true, journal.Failed: false, journal.ConfirmedAbsent: false} {
		key := "k:" + string(phase)
		w.fake.Put(apitest.Effect(key, phase))
		p := w.do("POST", "/v1/effects/"+key+"/cancel", `{"because":"x"}`).problem(t)
		if p.Status != 409 || p.Code != "phase-refused" || p.MayHaveBeenSent != sent || p.Phase != string(phase) {
			t.Errorf("%s: %+v, want may_have_been_sent %v", phase, p, sent)
		}
	}
	if a := w.do("POST", "/v1/effects/none:1/cancel", `{"because":"x"}`); a.status != 404 {
		t.Errorf("cancel of an unknown key: %d", a.status)
	}
}

func TestABatchAnswersEveryLineInOrderAndTakesTheGoodOnes(t *testing.T) {
	w := start(t, api.Options{})
	w.fake.Fail("Submit k:bad", daemon.ErrJournalFull)
	var in strings.Builder
	for i := range 600 {
		fmt.Fprintf(&in, `{"destination":"desk","operation":"create","key":"k:%d","payload":{}}`+"\n", i)
	}
	in.WriteString("{nonsense\n\n")
	in.WriteString(`{"destination":"desk","operation":"create","key":"k:bad","payload":{}}` + "\n")
	in.WriteString(strings.Repeat("x", 3<<20) + "\n")
	in.WriteString(`{"destination":"desk","operation":"create","key":"k:1","payload":{"other":1}}` + "\n")
	in.WriteString(`{"destination":"desk","operation":"create","key":"k:2","payload":{}}`) // no newline at the end
	a := w.do("POST", "/v1/effects:batch", in.String(), "Content-Type", "application/x-ndjson")
	lines := strings.Split(strings.TrimSpace(a.body), "\n")
	if a.status != 200 || len(lines) != 605 {
		t.Fatalf("%d, %d lines", a.status, len(lines))
	}
	if lines[0] != `{"line":1,"key":"k:0","created":true,"phase":"authorized","standing":"not_started","seq":2}` {
		t.Errorf("first line: %s", lines[0])
	}
	for i, want := range map[int]string{
		599: `"line":600`, 600: `"line":601,"key":"","error":{"code":"invalid"`, 601: `"line":603,"key":"k:bad","error":{"code":"journal-full"`,
		602: `"line":604,"key":"","error":{"code":"too-large"`, 603: `"line":605,"key":"k:1","error":{"code":"key-conflict"`, 604: `"line":606,"key":"k:2","created":false`,
	} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %s, want %s", i, lines[i], want)
		}
	}
}

func TestLinesOfOneKeyAreSubmittedInTheirOrder(t *testing.T) {
	w := start(t, api.Options{})
	var in strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&in, `{"destination":"desk","operation":"create","key":"k:%d","payload":{"n":%d}}`+"\n", i/2, i%2)
	}
	a := w.do("POST", "/v1/effects:batch", in.String())
	for i, line := range strings.Split(strings.TrimSpace(a.body), "\n") {
		if want := []string{`"created":true`, `"code":"key-conflict"`}[i%2]; !strings.Contains(line, want) {
			t.Fatalf("line %d: %s, want %s", i+1, line, want)
		}
	}
}

func TestABatchAnswersBeforeItsLastLineCame(t *testing.T) {
	w := start(t, api.Options{})
	pr, pw := io.Pipe()
	req, _ := http.NewRequest("POST", "http://settled/v1/effects:batch", pr)
	go func() { fmt.Fprintln(pw, intent) }()
	res, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"line":1`) {
		t.Fatalf("no answer while the batch is open: %q", lines.Text())
	}
	fmt.Fprintln(pw, intent)
	_ = pw.Close()
	if !lines.Scan() || !strings.Contains(lines.Text(), `"created":false`) {
		t.Errorf("second answer: %q", lines.Text())
	}
}

func TestEventsAreServerSentAndResumeAfterTheLastOne(t *testing.T) {
	w := start(t, api.Options{Heartbeat: 5 * time.Millisecond})
	w.fake.Put(apitest.Effect("a:1", journal.Unknown))
	w.fake.Put(apitest.Effect("b:1", journal.Unknown))
	req, _ := http.NewRequest("GET", "http://settled/v1/events?after=0&q=key:b:1", nil)
	req.Header.Set("Last-Event-ID", "1")
	res, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if ct := res.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("content type %q", ct)
	}
	in := bufio.NewScanner(res.Body)
	next := func(prefix string) string {
		for in.Scan() {
			if s, ok := strings.CutPrefix(in.Text(), prefix); ok {
				return s
			}
		}
		t.Fatalf("the stream ended before %q", prefix)
		return ""
	}
	if id := next("id: "); id != "2" {
		t.Errorf("first id %s, want 2", id)
	}
	if data := next("data: "); !strings.Contains(data, `"key":"b:1"`) || !strings.Contains(data, `"prev_hash":"01"`) {
		t.Errorf("data %s", data)
	}
	next(": still here")
	w.fake.Put(apitest.Effect("a:2", journal.Unknown)) // filtered out
	w.fake.Put(apitest.Effect("b:1", journal.Succeeded))
	if id := next("id: "); id != "4" {
		t.Errorf("next id %s, want 4", id)
	}
}

func TestEventsAsLinesEndAtTheNewest(t *testing.T) {
	w := start(t, api.Options{})
	for i := range 1203 {
		w.fake.Put(apitest.Effect(fmt.Sprintf("k:%d", i), journal.Unknown))
	}
	a := w.do("GET", "/v1/events?after=2", "", "Accept", "application/x-ndjson")
	if n := strings.Count(a.body, "\n"); a.status != 200 || n != 1201 {
		t.Errorf("%d, %d lines, want 1201", a.status, n)
	}
	if a := w.do("GET", "/v1/events?after=x", ""); a.status != 422 {
		t.Errorf("bad after: %d", a.status)
	}
}

func TestAStreamThatFiltersEverythingOutRests(t *testing.T) {
	w := start(t, api.Options{Heartbeat: 5 * time.Millisecond})
	for i := range 10 {
		w.fake.Put(apitest.Effect(fmt.Sprintf("k:%d", i), journal.Unknown))
	}
	req, _ := http.NewRequest("GET", "http://settled/v1/events?q=key:none", nil)
	res, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(res.Body)
	for beats := 0; beats < 3 && in.Scan(); {
		if strings.HasPrefix(in.Text(), ": still here") {
			beats++
		}
	}
	res.Body.Close()
	if w.fake.Pages != 1 {
		t.Errorf("an idle stream asked for %d pages", w.fake.Pages)
	}
}

func TestARefusalWhoseEffectCannotBeReadSaysThatItMayHaveBeenSent(t *testing.T) {
	w := start(t, api.Options{})
	w.fake.Put(apitest.Effect("k:1", journal.Failed))
	w.fake.Fail("Effect", errors.New("disk"))
	if p := w.do("POST", "/v1/effects/k:1/cancel", `{"because":"x"}`).problem(t); p.Code != "phase-refused" || !p.MayHaveBeenSent {
		t.Errorf("%+v", p)
	}
}

func TestASweepStreamsItsProgressAndEndsWithDone(t *testing.T) {
	w := start(t, api.Options{})
	a := w.do("POST", "/v1/schedules/desk-sweep/runs", "")
	lines := strings.Split(strings.TrimSpace(a.body), "\n")
	if a.status != 200 || len(lines) != 2 || !strings.Contains(lines[0], `"done":false`) || !strings.Contains(lines[1], `"waiting_for_grace":1,"skipped":0,"raised":0,"detail":"","resumed":false,"done":true`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("POST", "/v1/schedules/none/runs", ""); a.status != 404 {
		t.Errorf("unknown schedule: %d", a.status)
	}
}

func TestAPanicStaysInItsRequest(t *testing.T) {
	w := start(t, api.Options{Metrics: func(io.Writer) error { panic("boom") }})
	if a := w.do("GET", "/metrics", ""); a.status != 500 || a.problem(t).Code != "internal" || strings.Contains(a.body, "boom") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("GET", "/healthz", ""); a.status != 200 || a.body != "ok\n" {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

func TestARequestOfNobodyIsRefused(t *testing.T) {
	f := apitest.New()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- api.Serve(ctx, l, api.New(f, api.Options{}), nil, time.Second) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for path, status := range map[string]int{"/v1/effects": 401, "/v1/status": 401, "/healthz": 200} {
		res, err := (&http.Client{Transport: tr}).Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, status)
		}
	}
}

func TestAForeignPageMayNotAct(t *testing.T) {
	w := start(t, api.Options{})
	a := w.do("POST", "/v1/effects", intent, "Sec-Fetch-Site", "cross-site")
	if a.status != 403 || w.has("ticket:SUP-1:reply:v1") {
		t.Errorf("a cross-site POST: %d", a.status)
	}
}

func TestWhatIsNotThereSaysSo(t *testing.T) {
	w := start(t, api.Options{})
	if p := w.do("GET", "/v1/nothing", "").problem(t); p.Status != 404 {
		t.Errorf("%+v", p)
	}
	a := w.do("DELETE", "/v1/status", "")
	if p := a.problem(t); p.Status != 405 || a.header.Get("Allow") != "GET" {
		t.Errorf("%+v allow %q", p, a.header.Get("Allow"))
	}
	w.fake.Fail("Ready", errors.New("recovering"))
	if p := w.do("GET", "/readyz", "").problem(t); p.Status != 503 || p.Detail != "recovering" {
		t.Errorf("%+v", p)
	}
}

func TestTheDocumentNamesEveryRouteAndNoOther(t *testing.T) {
	w := start(t, api.Options{})
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]struct{ OperationID string }
		Components struct{ Schemas map[string]any }
	}
	a := w.do("GET", "/openapi.json", "")
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("version %s", doc.OpenAPI)
	}
	n := 0
	for path, methods := range doc.Paths {
		for method := range methods {
			n++
			if strings.Contains(path, "{name}/runs") || path == "/v1/events" {
				continue // streams; tested above
			}
			real := strings.NewReplacer("{key}", "no:such:v1", "{name}", "none", "{scope}", "all").Replace(path)
			a := w.do(strings.ToUpper(method), real, "")
			if a.status == 405 || (a.status == 404 && strings.Contains(a.body, "no such route")) {
				t.Errorf("%s %s is documented and not served: %d", method, path, a.status)
			}
		}
	}
	served := api.RouteIDs()
	if n != len(served) {
		t.Errorf("%d operations documented, %d served", n, len(served))
	}
	for _, must := range []string{"POST /v1/effects", "GET /v1/effects", "POST /v1/effects:batch", "GET /v1/effects/{key}", "POST /v1/effects/{key}/decisions", "POST /v1/effects/{key}/cancel", "GET /v1/status", "GET /v1/reviews", "GET /v1/events", "GET /healthz", "GET /readyz", "GET /metrics"} {
		method, path, _ := strings.Cut(must, " ")
		if doc.Paths[path][strings.ToLower(method)].OperationID == "" {
			t.Errorf("%s is missing", must)
		}
	}
	for ref := range strings.SplitSeq(a.body, `"$ref":"#/components/schemas/`) {
		name, _, _ := strings.Cut(ref, `"`)
		if name != "{" && !strings.HasPrefix(ref, "{") && doc.Components.Schemas[name] == nil {
			t.Errorf("schema %s is referred to and not there", name)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the golden files")

func TestGoldenJSON(t *testing.T) {
	w := start(t, api.Options{})
	for _, p := range []journal.Phase{journal.Unknown, journal.NeedsHuman, journal.Succeeded, journal.Failed, journal.Prepared} {
		w.fake.Put(apitest.Effect("ticket:"+string(p)+":reply:v1", p))
	}
	for name, path := range map[string]string{
		"show_unknown": "/v1/effects/ticket:unknown:reply:v1", "show_needs_human": "/v1/effects/ticket:needs_human:reply:v1?include=payload",
		"show_succeeded": "/v1/effects/ticket:succeeded:reply:v1", "list": "/v1/effects", "reviews": "/v1/reviews", "status": "/v1/status",
		"destination": "/v1/destinations/desk", "schedules": "/v1/schedules", "verify": "/v1/journal/verify",
	} {
		a := w.do("GET", path, "")
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, []byte(a.body), "", " "); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		file := filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(file, pretty.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if pretty.String() != string(want) {
			t.Errorf("%s differs from %s (run with -update and read the difference):\n%s", path, file, pretty.String())
		}
	}
}

func TestNoSentenceSaysFailedWhileNothingIsKnown(t *testing.T) {
	w := start(t, api.Options{})
	for _, p := range []journal.Phase{journal.Unknown, journal.Reconciling, journal.NeedsHuman} {
		w.fake.Put(apitest.Effect("k:"+string(p), p))
		var e client.Effect
		if err := json.Unmarshal([]byte(w.do("GET", "/v1/effects/k:"+string(p), "").body), &e); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ToLower(e.Words), "fail") || e.Unknown == nil || !e.Unknown.WriteForbidden {
			t.Errorf("%s: %q %+v", p, e.Words, e.Unknown)
		}
		for _, d := range append([]string{}, allowed(e)...) {
			if d == "retry" {
				t.Errorf("%s offers a retry", p)
			}
		}
	}
}

func allowed(e client.Effect) []string {
	if e.Review == nil {
		return nil
	}
	return e.Review.Allowed
}
