package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/serve"
)

// The test program is also the adapters: started with a mode it is right, or wrong as named.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "mode=") {
		os.Exit(adapterMain(strings.TrimPrefix(os.Args[1], "mode=")))
	}
	// A program built with the race detector sleeps a second before it ends,
	// which check 09 would take for life after the daemon.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

type shopConfig struct {
	URL   string     `json:"url"`
	Token sdk.Secret `json:"token"`
}

type invoice struct {
	Customer string `json:"customer" min:"1" doc:"Who pays"`
	Cents    int64  `json:"cents" min:"1"`
}

// shop is a right adapter; mode makes it wrong in one way.
type shop struct {
	api   *sdk.API
	mode  string
	token string
}

func (s *shop) me(ctx context.Context) error {
	_, err := s.api.Get(ctx, "/me", nil)
	return err
}

func (s *shop) create(ctx context.Context, op sdk.Op[invoice]) (sdk.Outcome, error) {
	var made struct{ ID string }
	if op.ExpectedRevision != "" {
		return sdk.Reject(sdk.ReasonPrecondition, "stale", "another revision"), nil
	}
	res, err := s.api.Send(ctx, "POST", "/invoices", op.Payload, "Idempotency-Key", op.Key)
	if err != nil {
		return nil, err
	}
	if res.Status != 201 {
		return res.Outcome(), nil
	}
	if err := res.Decode(&made); err != nil {
		return nil, err
	}
	return sdk.Done("invoice", made.ID), nil
}

type listed struct {
	invoice
	ID, Key string
}

func (s *shop) find(ctx context.Context, q sdk.Query[invoice]) (*sdk.ReadResponse, error) {
	var page struct {
		Items *[]listed
		More  bool
	}
	if _, err := s.api.Get(ctx, "/invoices?key="+url.QueryEscape(q.Key), &page); err != nil {
		return nil, err
	}
	if page.Items == nil {
		return nil, errors.New("the list has no items")
	}
	var seen []sdk.Match
	for _, it := range *page.Items {
		if it.Key == q.Key {
			seen = append(seen, sdk.Hit(sdk.StrengthKey, "invoice", it.ID, sdk.Differences(q.Payload, it.invoice)...))
		}
	}
	return sdk.FoundAll(!page.More, seen...), nil
}

func (s *shop) void(ctx context.Context, op sdk.Op[invoice]) (sdk.Outcome, error) {
	if s.mode == "undoes-nothing" {
		return sdk.Done("invoice", "none"), nil
	}
	if op.Target == nil {
		return sdk.Reject(sdk.ReasonValidation, "target", "which one?"), nil
	}
	res, err := s.api.Send(ctx, "DELETE", "/invoices/"+op.Target.ID, nil)
	if err != nil {
		return nil, err
	}
	if res.Status != 204 && res.Status != 404 {
		return res.Outcome(), nil
	}
	return sdk.Done("invoice", op.Target.ID), nil
}

func (s *shop) Prepare(ctx context.Context, op sdk.Operation) (sdk.Prepared, error) {
	if s.mode == "prepare-writes" {
		_, _ = s.api.Send(ctx, "POST", "/invoices", invoice{"Eve", 1}, "Idempotency-Key", op.Key)
	}
	return sdk.Prepared{Ready: &sdk.Ready{}}, nil
}

func define(mode string) sdk.Adapter {
	spec := sdk.Spec{
		Summary: "creates an invoice", Idempotent: sdk.ByKey(24*time.Hour, sdk.MismatchRejects),
		Read: sdk.StrongRead(sdk.LookupByKey), LateEffect: time.Minute, Reversal: "void-invoice",
		Limits: sdk.Limits{MaxPayload: 4096}, Precondition: true,
	}
	d := sdk.Define[shopConfig, *shop]{
		Name: "shop", Version: "0.1.0",
		Open: func(_ context.Context, env sdk.Env, c shopConfig) (*shop, error) {
			return &shop{env.HTTP(c.URL, sdk.Bearer(c.Token)), mode, c.Token.Reveal()}, nil
		},
		Check: (*shop).me, Guard: (*shop).me,
		Actions: []sdk.Action[*shop]{
			sdk.NewAction("create-invoice", spec, (*shop).create, (*shop).find),
			sdk.NewAction("void-invoice", sdk.Spec{}, (*shop).void, nil),
		},
	}
	if mode == "no-guard" {
		d.Guard = nil
	}
	return d.Adapter()
}

// world is the destination for tests: the truth.
type world struct {
	mu     sync.Mutex
	rows   []listed
	n      int
	hidden bool
}

const goodToken = "t0ken/for+tests"

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := r.URL.Query().Get("key")
	switch r.URL.Path {
	case "/_effects":
		n := 0
		for _, row := range w.rows {
			if row.Key == key {
				n++
			}
		}
		fmt.Fprintf(rw, `{"effects":%d}`, n)
		return
	case "/_tamper":
		for i := range w.rows {
			if w.rows[i].Key == key {
				w.rows[i].Cents++
			}
		}
		return
	case "/_twin":
		for _, row := range w.rows {
			if row.Key == key {
				w.n++
				w.rows = append(w.rows, listed{row.invoice, fmt.Sprint("inv_", w.n), ""})
				return
			}
		}
		return
	case "/_hide", "/_show":
		w.hidden = r.URL.Path == "/_hide"
		return
	}
	switch auth := r.Header.Get("Authorization"); {
	case auth == "Bearer readonly-token" && r.Method != "GET":
		rw.WriteHeader(403)
		return
	case auth != "Bearer "+goodToken && auth != "Bearer readonly-token":
		rw.WriteHeader(401)
		return
	}
	w.business(rw, r, key)
}

func (w *world) business(rw http.ResponseWriter, r *http.Request, key string) {
	switch {
	case r.URL.Path == "/me":
		if w.hidden {
			rw.WriteHeader(403)
			return
		}
		fmt.Fprint(rw, `{}`)
	case r.Method == "DELETE":
		id := strings.TrimPrefix(r.URL.Path, "/invoices/")
		before := len(w.rows)
		w.rows = slices.DeleteFunc(w.rows, func(l listed) bool { return l.ID == id })
		rw.WriteHeader(map[bool]int{true: 204, false: 404}[len(w.rows) < before])
	case r.Method == "POST":
		w.create(rw, r)
	default:
		items := []map[string]any{}
		for _, row := range w.rows { // an unknown filter would be dropped; this one lists all but foreign keys
			if !w.hidden && (row.Key == key || row.Key == "") {
				items = append(items, map[string]any{"id": row.ID, "key": row.Key, "customer": row.Customer, "cents": row.Cents})
			}
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"items": items, "more": false})
	}
}

func (w *world) create(rw http.ResponseWriter, r *http.Request) {
	var in invoice
	raw, _ := io.ReadAll(r.Body)
	if json.Unmarshal(raw, &in) != nil || in.Cents < 1 || in.Customer == "" {
		rw.WriteHeader(422)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	for _, row := range w.rows {
		if key == "" || row.Key != key {
			continue
		}
		if row.invoice != in {
			rw.WriteHeader(409)
			return
		}
		rw.WriteHeader(201)
		fmt.Fprintf(rw, `{"id":%q}`, row.ID)
		return
	}
	w.n++
	id := fmt.Sprint("inv_", w.n)
	w.rows = append(w.rows, listed{in, id, key})
	rw.WriteHeader(201)
	fmt.Fprintf(rw, `{"id":%q}`, id)
}

func planFor(t *testing.T, mode string) Plan {
	t.Helper()
	server := httptest.NewServer(&world{})
	t.Cleanup(server.Close)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Plan{
		Adapter: []string{exe, "mode=" + mode}, URL: server.URL,
		Config: json.RawMessage(`{"url":"{{url}}"}`), Secrets: map[string]string{"token": goodToken},
		ReadOnly:  map[string]string{"token": "readonly-token"},
		BadConfig: []Bad{{json.RawMessage(`{}`), "/url"}, {json.RawMessage(`{"url":7}`), "/url"}},
		Action:    "create-invoice", Payload: json.RawMessage(`{"customer":"Ada {{n}}","cents":100}`),
		Invalid: []Bad{{json.RawMessage(`{"customer":"Ada","cents":0}`), "/cents"}, {json.RawMessage(`{"cents":5}`), "/customer"}},
		Old:     []Old{{"old-1", json.RawMessage(`{"customer":"Ada","cents":5,"gone":true}`)}},
		Text:    "/customer", Integer: "/cents", Effects: "/_effects?key={{key}}", Tamper: "/_tamper?key={{key}}",
		Twin: "/_twin?key={{key}}", Hide: "/_hide", Show: "/_show", MorePage: json.RawMessage(`{"items":[],"more":true}`),
	}
}

func adapterMain(mode string) int {
	switch mode {
	case "noisy":
		fmt.Println("Welcome to shop!")
	case "quitter":
		fmt.Fprintln(os.Stderr, "no database")
		return 3
	case "immortal":
		held, end, err := os.Pipe()
		if err != nil {
			return 1
		}
		os.Stdin = held
		defer runtime.KeepAlive(end) // the end of it would be a finalizer's work
	case "mortal":
		terms := make(chan os.Signal, 1)
		signal.Notify(terms, syscall.SIGTERM)
		go func() { <-terms; os.Exit(1) }()
	}
	return serve.Run(wrong(mode), nil)
}

func testMode(t *testing.T, mode string, only ...string) Report {
	t.Helper()
	r, err := Test(t.Context(), planFor(t, mode), Options{Short: true, Only: only})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestARightAdapterPassesEverythingThatIsBuilt(t *testing.T) {
	r := testMode(t, "right")
	want := map[Status]string{Skip: "11 29 44 57", NotBuilt: "32 53 54 55", Fail: ""}
	got := map[Status]string{}
	for _, c := range r.Results {
		if c.Status != Pass {
			got[c.Status] = strings.TrimSpace(got[c.Status] + " " + c.ID)
		}
		if c.Status == Fail {
			t.Errorf("%s %s: %s", c.ID, c.Name, c.Reason)
		}
		if (c.Status == Pass) != (c.Reason == "") {
			t.Errorf("%s is %s with the reason %q", c.ID, c.Status, c.Reason)
		}
	}
	for s, ids := range want {
		if got[s] != ids {
			t.Errorf("%s: %s, want %s", s, got[s], ids)
		}
	}
	if len(r.Results) != 57 {
		t.Errorf("%d checks", len(r.Results))
	}
	if b := r.Badge(); !strings.Contains(b, r.SHA256) || len(r.SHA256) != 64 || !strings.Contains(b, "L2 17/18") {
		t.Error(b)
	}
}
