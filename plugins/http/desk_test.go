package http

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

const deskToken = "s3cr3t/token+value"

// desk is a small ticket system: the ground truth of these tests.
type desk struct {
	*httptest.Server
	mu       sync.Mutex
	tickets  []map[string]any
	posts    int
	hook     func(w nethttp.ResponseWriter, r *nethttp.Request) bool // true: answered
	sees     bool
	requests []string
}

func newDesk(t *testing.T) *desk {
	d := &desk{sees: true}
	d.Server = httptest.NewServer(nethttp.HandlerFunc(d.serve))
	t.Cleanup(d.Close)
	return d
}

func (d *desk) serve(w nethttp.ResponseWriter, r *nethttp.Request) {
	d.mu.Lock()
	d.requests = append(d.requests, r.Method+" "+r.URL.RequestURI())
	if r.Method != "GET" {
		d.posts++
	}
	hook := d.hook
	d.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+deskToken {
		nethttp.Error(w, "who are you", nethttp.StatusUnauthorized)
		return
	}
	if hook != nil && hook(w, r) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := strings.TrimPrefix(r.URL.Path, "/tickets/")
	switch {
	case r.Method == "POST" && r.URL.Path == "/tickets":
		d.create(w, r)
	case r.Method == "GET" && r.URL.Path == "/tickets":
		d.search(w, r)
	case r.URL.Path == "/me":
		reply(w, 200, map[string]any{"can_see_all": d.sees})
	case r.Method == "GET":
		for _, t := range d.tickets {
			if t["id"] == id {
				w.Header().Set("ETag", fmt.Sprintf(`"%v"`, t["version"]))
				reply(w, 200, t)
				return
			}
		}
		reply(w, 404, map[string]any{"error": "no such ticket"})
	case r.Method == "DELETE":
		for i, t := range d.tickets {
			if t["id"] == id {
				d.tickets = append(d.tickets[:i], d.tickets[i+1:]...)
				w.WriteHeader(204)
				return
			}
		}
		reply(w, 404, map[string]any{"error": "no such ticket"})
	default:
		reply(w, 405, nil)
	}
}

func (d *desk) create(w nethttp.ResponseWriter, r *nethttp.Request) {
	var t map[string]any
	raw, _ := io.ReadAll(r.Body)
	if json.Unmarshal(raw, &t) != nil {
		reply(w, 400, map[string]any{"error": "bad JSON"})
		return
	}
	t["id"] = strconv.Itoa(len(d.tickets) + 1)
	t["status"], t["project"], t["version"] = "open", "acme", 1
	t["created_at"] = time.Now().UTC().Format(time.RFC3339)
	d.tickets = append(d.tickets, t)
	w.Header().Set("X-Request-Id", "req-"+t["id"].(string))
	reply(w, 201, t)
}

// search honours external_ref and pages by two.
func (d *desk) search(w nethttp.ResponseWriter, r *nethttp.Request) {
	q := r.URL.Query()
	items := []map[string]any{}
	for _, t := range d.tickets {
		if ref := q.Get("external_ref"); ref == "" || t["external_ref"] == ref {
			items = append(items, t)
		}
	}
	if !d.sees {
		items = items[:0]
	}
	from, _ := strconv.Atoi(q.Get("from"))
	from = min(from, len(items))
	page := map[string]any{"items": items[from:min(from+2, len(items))], "next": nil, "complete": true}
	if from+2 < len(items) {
		q.Set("from", strconv.Itoa(from+2))
		page["next"] = "/tickets?" + q.Encode()
	}
	reply(w, 200, page)
}

func reply(w nethttp.ResponseWriter, status int, v any) {
	raw, _ := json.Marshal(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}

func (d *desk) setHook(hook func(w nethttp.ResponseWriter, r *nethttp.Request) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = hook
}

func (d *desk) writes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.posts
}

// config is the example of the documentation as JSON, changed by edits of the form
// "create.read.lag" = value; a nil value deletes.
func config(t *testing.T, base string, edits map[string]any) []byte {
	t.Helper()
	const text = `{
	 "base_url": "BASE",
	 "headers": {"Authorization": "Bearer ${$secret.desk_token}"},
	 "operations": {"create": {
	  "reversible": "reversible",
	  "dispatch": {"method": "POST", "path": "/tickets", "target": "$payload.queue // \"default\"",
	   "headers": {"Idempotency-Key": "${$effect.key}"},
	   "body": "$payload + {external_ref: $effect.key, digest: $effect.digest}",
	   "done": "$response.status == 201", "accepted": "$response.status == 202", "object_id": "$response.body.id",
	   "not_executed_retryable": [429], "not_executed_final": [400, 401, 403, 404, 422],
	   "request_id": "$response.headers[\"x-request-id\"]"},
	  "read": {"path": "/tickets?external_ref=${$effect.key|@uri}", "view": "by_ref", "identify": "marker",
	   "items": "$response.body.items", "next": "$response.body.next", "marker": ".external_ref", "digest": ".digest",
	   "object_id": ".id", "state": ".status", "account": ".project", "created_at": ".created_at",
	   "partial": "[if .body == null then \"body\" else empty end]", "complete": "$response.body.complete == true",
	   "guard": {"path": "/me", "when": "$response.status == 200 and $response.body.can_see_all == true"},
	   "consistency": "bounded", "lag": "2s", "proves_absence": true},
	  "undo": {"method": "DELETE", "path": "/tickets/${$effect.object_id}",
	   "verify": {"path": "/tickets/${$effect.object_id}", "when": "$response.status == 404"},
	   "headers": {"Authorization": "Bearer ${$secret.desk_token}"}},
	  "dedupe": {"window": "24h", "verified_on": "2026-11-30", "replay": "first_response"}
	 }}}`
	var with map[string]any
	if err := json.Unmarshal([]byte(strings.Replace(text, "BASE", base, 1)), &with); err != nil {
		t.Fatal(err)
	}
	for path, value := range edits {
		at := with
		parts := strings.Split(path, ".")
		if parts[0] != "" {
			at = with["operations"].(map[string]any)
		} else {
			parts = parts[1:]
		}
		for _, p := range parts[:len(parts)-1] {
			if at[p] == nil {
				at[p] = map[string]any{}
			}
			at = at[p].(map[string]any)
		}
		if value == nil {
			delete(at, parts[len(parts)-1])
		} else {
			at[parts[len(parts)-1]] = value
		}
	}
	raw, err := json.Marshal(with)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// open gives an adapter configured for base.
func open(t *testing.T, base string, edits map[string]any) sdk.Adapter {
	t.Helper()
	a := New()
	c, err := a.Configure(t.Context(), sdk.Configuration{
		Destination: "desk", Config: config(t, base, edits), Secrets: map[string]string{"desk_token": deskToken},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range c.Diagnostics {
		if !d.Warning {
			t.Fatalf("configuration refused: %s: %s", d.Pointer, d.Summary)
		}
	}
	t.Cleanup(func() { a.(*Adapter).configured().client.Close() })
	return a
}

const payload = `{"subject":"Printer on fire","body":"Please come"}`

func operation1(key string) sdk.Operation {
	sum := sha256.Sum256([]byte(payload))
	return sdk.Operation{
		ID: "eff-1", Attempt: 1, Action: "create", Key: key, Marker: key, Payload: []byte(payload),
		ContentType: "application/json", PayloadSHA256: sum[:], Account: "acme", AttemptID: "att-1", Actor: "uid:1000",
	}
}

func digestOf(p string) string {
	sum := sha256.Sum256([]byte(p))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func send(t *testing.T, a sdk.Adapter, o sdk.Operation) sdk.Response {
	t.Helper()
	r, err := a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: o, Deadline: time.Now().Add(5 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readBack(t *testing.T, a sdk.Adapter, r sdk.ReadRequest) sdk.ReadResponse {
	t.Helper()
	if r.Purpose == 0 {
		r.Purpose = sdk.PurposeResolve
	}
	got, err := a.Read(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func as[T any](t *testing.T, v any) T {
	t.Helper()
	got, ok := v.(T)
	if !ok {
		raw, _ := json.Marshal(v)
		t.Fatalf("got %T %s, want %T", v, raw, got)
	}
	return got
}

func found(t *testing.T, r sdk.ReadResponse) []sdk.Match {
	t.Helper()
	return as[*sdk.Found](t, r.Finding).Matches
}
