package http

import (
	"context"
	"net"
	nethttp "net/http"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

func TestPrepareNamesTheTargetAndWritesNothing(t *testing.T) {
	d := newDesk(t)
	a := open(t, d.URL, nil)
	o := operation1("k:1")
	for payload, want := range map[string]string{`{"queue":"printers"}`: "printers", `{}`: "default"} {
		o.Payload = []byte(payload)
		p, err := a.Prepare(t.Context(), o)
		if err != nil || p.Ready == nil || p.Ready.Target != want || p.Ready.Baseline != nil {
			t.Errorf("%s: %+v %v", payload, p.Ready, err)
		}
	}
	if d.writes() != 0 || len(d.requests) != 0 {
		t.Errorf("requests %v", d.requests)
	}
}

func TestAPreconditionIsReadAndTravelsAsIfMatch(t *testing.T) {
	d := newDesk(t)
	d.tickets = []map[string]any{{"id": "5", "status": "open", "version": 3}}
	var ifMatch string
	d.setHook(func(_ nethttp.ResponseWriter, r *nethttp.Request) bool {
		if r.Method == "POST" {
			ifMatch = r.Header.Get("If-Match")
		}
		return false
	})
	a := open(t, d.URL, map[string]any{"create.precondition": map[string]any{"path": "/tickets/5", "value": `$response.body.status == "open"`, "etag": "$response.headers.etag"}})
	p, err := a.Prepare(t.Context(), operation1("k:1"))
	if err != nil || p.Ready == nil || p.Ready.Revision != `"3"` || p.Ready.PreconditionFailed {
		t.Fatalf("%+v %v", p, err)
	}
	r, err := a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: operation1("k:1"), ExpectedRevision: p.Ready.Revision, Deadline: time.Now().Add(time.Second)})
	if err != nil || ifMatch != `"3"` {
		t.Fatalf("If-Match %q, %s", ifMatch, class(r.Outcome))
	}
	d.tickets[0]["status"] = "closed"
	if p, err := a.Prepare(t.Context(), operation1("k:1")); err != nil || p.Ready == nil || !p.Ready.PreconditionFailed {
		t.Errorf("a precondition that no longer holds: %+v %v", p, err)
	}
	d.tickets = nil
	if p, err := a.Prepare(t.Context(), operation1("k:1")); err != nil || p.Ready == nil || !p.Ready.PreconditionFailed {
		t.Errorf("its object is gone: %+v %v", p, err)
	}
	plain := open(t, d.URL, nil)
	writes := d.writes()
	r, err = plain.Dispatch(t.Context(), sdk.DispatchRequest{Operation: operation1("k:1"), ExpectedRevision: `"3"`, Deadline: time.Now().Add(time.Second)})
	if err != nil || class(r.Outcome) != "rejected 10" || d.writes() != writes {
		t.Errorf("a revision that cannot be expressed is %s", class(r.Outcome))
	}
}

func TestAFaultOfTheMomentDefersAndAnyOtherRejects(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	edits := map[string]any{"create.snapshot": map[string]any{"path": "/tickets/5"}}
	if p, err := open(t, "http://"+closed.Addr().String(), edits).Prepare(t.Context(), operation1("k:1")); err != nil || p.Deferred == nil {
		t.Errorf("unreachable: %+v %v", p, err)
	}
	for status, deferred := range map[int]bool{500: true, 503: true, 429: true, 404: false, 403: false, 301: false} {
		d := newDesk(t)
		d.setHook(func(w nethttp.ResponseWriter, _ *nethttp.Request) bool {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(status)
			return true
		})
		p, err := open(t, d.URL, edits).Prepare(t.Context(), operation1("k:1"))
		if err != nil || (p.Deferred != nil) != deferred || (p.Rejected != nil) == deferred {
			t.Errorf("%d: %+v %v", status, p, err)
		}
		if deferred && p.Deferred.RetryAfter != 3*time.Second {
			t.Errorf("%d: Retry-After is lost: %+v", status, p.Deferred)
		}
	}
	d := newDesk(t)
	d.tickets = []map[string]any{{"id": "5"}}
	for name, edits := range map[string]map[string]any{
		"the snapshot's program errs": {"create.snapshot": map[string]any{"path": "/tickets/5", "items": "$response.status.x"}},
		"no revision":                 {"create.precondition": map[string]any{"path": "/me", "etag": "$response.headers.etag"}},
		"value is no test":            {"create.precondition": map[string]any{"path": "/tickets/5", "value": "$response.body.id"}},
		"the target errs":             {"create.dispatch.target": "$payload.subject.x"},
	} {
		if p, err := open(t, d.URL, edits).Prepare(t.Context(), operation1("k:1")); err != nil || p.Rejected == nil {
			t.Errorf("%s: %+v %v", name, p, err)
		}
	}
}

func TestAPrepareThatRanOutOfTimeIsDeferred(t *testing.T) {
	d := newDesk(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if p, err := open(t, d.URL, nil).Prepare(over, operation1("k:1")); err != nil || p.Deferred == nil {
		t.Fatalf("%+v %v", p, err)
	}
}

func TestAnIncompleteListingIsNoBaseline(t *testing.T) {
	d := newDesk(t)
	d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
		reply(w, 200, map[string]any{"items": []any{}, "complete": false})
		return true
	})
	a := open(t, d.URL, map[string]any{"create.read.identify": "snapshot", "create.read.marker": nil, "create.read.path": "/tickets"})
	if p, err := a.Prepare(t.Context(), operation1("k:1")); err != nil || p.Rejected == nil {
		t.Fatalf("%+v %v", p, err)
	}
}

func TestThePriorStateKeepsItsDigits(t *testing.T) {
	d := newDesk(t)
	d.setHook(func(w nethttp.ResponseWriter, _ *nethttp.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"n":9007199254740993,"price":10.10}`))
		return true
	})
	p, err := open(t, d.URL, map[string]any{"create.snapshot": map[string]any{"path": "/tickets/5"}}).Prepare(t.Context(), operation1("k:1"))
	if err != nil || p.Ready == nil {
		t.Fatalf("%+v %v", p, err)
	}
	b, err := parseBaseline(p.Ready.Baseline)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := writeJSON(b.Snapshot)
	if err != nil || string(raw) != `{"n":9007199254740993,"price":10.10}` {
		t.Fatalf("%s %v", raw, err)
	}
}
