package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

type conf struct {
	URL   string     `json:"url" doc:"Base URL" min:"8"`
	Token sdk.Secret `json:"token"`
	Mode  string     `json:"mode,omitempty" enum:"fast,slow"`
	Deep  struct {
		Key sdk.Secret `json:"key,omitempty"`
		N   int8       `json:"n"`
	} `json:"deep"`
	Spare *sdk.Secret `json:"spare"`
}

type order struct {
	Customer string    `json:"customer" max:"5"`
	Cents    int64     `json:"cents" min:"1"`
	Lines    []line    `json:"lines,omitempty" max:"2"`
	At       time.Time `json:"at,omitzero"`
	Extra    *string   `json:"extra"`
}

type line struct {
	SKU string `json:"sku"`
}

type shop struct {
	api  *sdk.API
	conf conf
}

func define(edit func(*sdk.Define[conf, *shop])) sdk.Adapter {
	d := sdk.Define[conf, *shop]{
		Name: "shop", Version: "0.1.0",
		Open: func(_ context.Context, env sdk.Env, c conf) (*shop, error) {
			return &shop{env.HTTP(c.URL, sdk.Bearer(c.Token)), c}, nil
		},
		Check: func(s *shop, ctx context.Context) error { _, err := s.api.Get(ctx, "/me", nil); return err },
		Actions: []sdk.Action[*shop]{sdk.NewAction("order", sdk.Spec{
			Idempotent: sdk.ByKey(time.Hour, sdk.MismatchRejects), Read: sdk.StrongRead(sdk.LookupByKey, "orders:read"), LateEffect: time.Minute,
		}, (*shop).order, (*shop).find)},
	}
	if edit != nil {
		edit(&d)
	}
	return d.Adapter()
}

func (s *shop) order(ctx context.Context, op sdk.Op[order]) (sdk.Outcome, error) {
	var made struct{ ID string }
	res, err := s.api.Send(ctx, "POST", "/orders", op.Payload, "Idempotency-Key", op.Key)
	if err != nil {
		return nil, err
	}
	if res.Status != 201 {
		return res.Outcome(), nil
	}
	if err := res.Decode(&made); err != nil {
		return nil, err
	}
	return sdk.Done("order", made.ID), nil
}

func (s *shop) find(ctx context.Context, q sdk.Query[order]) (*sdk.ReadResponse, error) {
	var page struct{ IDs []string }
	if _, err := s.api.Get(ctx, "/orders?key="+q.Key, &page); err != nil {
		return nil, err
	}
	var m []sdk.Match
	for _, id := range page.IDs {
		m = append(m, sdk.Hit(sdk.StrengthKey, "order", id))
	}
	return sdk.FoundAll(true, m...), nil
}

func configured(t *testing.T, a sdk.Adapter, url string) {
	t.Helper()
	out, err := a.Configure(t.Context(), sdk.Configuration{
		Config: fmt.Appendf(nil, `{"url":%q,"deep":{"n":1}}`, url), Secrets: map[string]string{"token": "tok-123\n"},
	})
	if err != nil || len(out.Diagnostics) > 0 {
		t.Fatalf("%+v %v", out, err)
	}
}

func serverWith(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestASecretNeverPrints(t *testing.T) {
	s := sdk.NewSecret("hunter2hunter2")
	type holder struct {
		S sdk.Secret
		P *sdk.Secret
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", s, "h", holder{s, &s})
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", s, "h", holder{s, &s})
	raw, err := json.Marshal(map[string]any{"s": s, "h": holder{s, &s}})
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(raw) + s.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		all += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, holder{s, &s})
	}
	if strings.Contains(all, "hunter2") || strings.Contains(all, fmt.Sprintf("%x", "hunter2")) {
		t.Fatal(all)
	}
	if s.Reveal() != "hunter2hunter2" {
		t.Fatal("the value is lost")
	}
}

func TestSchemasComeFromTheTypes(t *testing.T) {
	d, err := define(nil).Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"writeOnly":true`, `"enum":["fast","slow"]`, `"additionalProperties":false`, `2020-12`, `"required":["url","token","deep"]`} {
		if !strings.Contains(string(d.ConfigSchema), want) {
			t.Errorf("no %s in %s", want, d.ConfigSchema)
		}
	}
	for _, want := range []string{`"minimum":1`, `"maxLength":5`, `"maxItems":2`, `"required":["customer","cents"]`, `"type":["string","null"]`, `"format":"date-time"`} {
		if !strings.Contains(string(d.Actions[0].PayloadSchema), want) {
			t.Errorf("no %s in %s", want, d.Actions[0].PayloadSchema)
		}
	}
	if d.Actions[0].Reversal.Kind != sdk.Irreversible || d.Actions[0].Read.View != "order" || d.Actions[0].LateEffectBound == nil {
		t.Errorf("%+v", d.Actions[0])
	}
}

func TestAPayloadIsReadStrictly(t *testing.T) {
	sent := 0
	url := serverWith(t, func(w http.ResponseWriter, _ *http.Request) { sent++; w.WriteHeader(201); fmt.Fprint(w, `{"id":"o1"}`) })
	a := define(nil)
	configured(t, a, url)
	for payload, pointer := range map[string]string{
		`{"cents":1}`:                                    "/customer",
		`{"customer":"a","cents":0}`:                     "/cents",
		`{"customer":"a","cents":1.5}`:                   "/cents",
		`{"customer":"a","cents":9223372036854775808}`:   "/cents",
		`{"customer":"abcdef","cents":1}`:                "/customer",
		`{"customer":"a","cents":1,"more/~":2}`:          "/more~1~0",
		`{"customer":"a","cents":1,"Customer":"b"}`:      "/Customer",
		`{"customer":"a","cents":1,"cents":2}`:           "/cents",
		`{"customer":"a","cents":1,"lines":[{"sku":1}]}`: "/lines/0/sku",
		`{"customer":"a","cents":1,"lines":[{},{},{}]}`:  "/lines",
		`{"customer":null,"cents":1}`:                    "/customer",
		`{"customer":"a","cents":1,"at":"tomorrow"}`:     "/at",
		`{"customer":"a\ud800","cents":1}`:               "",
		"{\"customer\":\"\xff\",\"cents\":1}":            "",
		`[]`:                                             "", ``: "", `{"customer":"a","cents":1}{}`: "",
	} {
		r, err := a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: sdk.Operation{Action: "order", Payload: []byte(payload)}})
		o, ok := r.Outcome.(*sdk.Rejected)
		if err != nil || !ok || o.Reason != sdk.ReasonValidation || o.Diagnostics[0].Pointer != pointer {
			t.Errorf("%s: %+v %v", payload, r.Outcome, err)
		}
	}
	if sent != 0 {
		t.Errorf("%d requests left", sent)
	}
	for _, payload := range []string{`{"customer":"a","cents":9223372036854775807}`, `{"customer":"\ud83d\ude00\\u","cents":1,"extra":null}`} {
		r, err := a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: sdk.Operation{Action: "order", Payload: []byte(payload)}})
		if o, ok := r.Outcome.(*sdk.Committed); !ok || o.Object.ID != "o1" || err != nil {
			t.Errorf("%s: %+v %v", payload, r.Outcome, err)
		}
	}
}

func TestAConfigurationIsReadStrictlyAndSecretsComeFromCredentials(t *testing.T) {
	for text, pointer := range map[string]string{
		`{"url":"http://x.y","deep":{"n":1}}`:                       "", // no fault
		`{"url":"http://x.y","deep":{"n":1},"token":"mine"}`:        "",
		`{"url":"http://x.y","deep":{"n":1,"key":"mine"}}`:          "",
		`{"url":"http://x.y","deep":{"n":1},"token":"sk_live_123"}`: "/token",
		`{"url":"http://x.y","deep":{"n":1},"token":17}`:            "/token",
		`{"url":"http://x.y","deep":{"n":1000}}`:                    "/deep/n",
		`{"url":"http://x.y","deep":{"n":1,"key":"nobody"}}`:        "/deep/key",
		`{"url":"short","deep":{"n":1}}`:                            "/url",
		`{"url":"http://x.y","deep":{"n":1},"mode":"warp"}`:         "/mode",
		`{"url":"http://x.y","deep":{"n":1},"modus":"fast"}`:        "/modus",
	} {
		out, err := define(nil).Configure(t.Context(), sdk.Configuration{
			Config: []byte(text), Secrets: map[string]string{"token": "t0ken", "mine": "m1ne"},
		})
		switch {
		case err != nil:
			t.Errorf("%s: %v", text, err)
		case pointer == "" && len(out.Diagnostics) > 0, pointer != "" && (len(out.Diagnostics) != 1 || out.Diagnostics[0].Pointer != pointer):
			t.Errorf("%s: %+v", text, out.Diagnostics)
		}
		if strings.Contains(fmt.Sprint(out), "sk_live") {
			t.Errorf("a secret in the wrong place is repeated: %+v", out)
		}
	}
	out, _ := define(nil).Configure(t.Context(), sdk.Configuration{Config: []byte(`{"url":"http://x.y","deep":{"n":1}}`)})
	if len(out.Diagnostics) != 1 || out.Diagnostics[0].Pointer != "/token" {
		t.Errorf("a missing credential: %+v", out)
	}
}

func TestSecretsReachTheAdapter(t *testing.T) {
	var got conf
	a := define(func(d *sdk.Define[conf, *shop]) {
		d.Open = func(_ context.Context, _ sdk.Env, c conf) (*shop, error) { got = c; return &shop{}, nil }
	})
	_, err := a.Configure(t.Context(), sdk.Configuration{
		Config:  []byte(`{"url":"http://x.y","deep":{"n":1},"spare":"other"}`),
		Secrets: map[string]string{"token": "tok\n", "deep.key": "k", "other": "o"},
	})
	if err != nil || got.Token.Reveal() != "tok" || got.Deep.Key.Reveal() != "k" || got.Spare == nil || got.Spare.Reveal() != "o" || got.Deep.N != 1 {
		t.Fatalf("%v %q %q %v", err, got.Token.Reveal(), got.Deep.Key.Reveal(), got.Spare)
	}
}

func TestTheWireDecidesWhatAnErrorMeans(t *testing.T) {
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	cut := serverWith(t, func(w http.ResponseWriter, r *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	})
	op := sdk.DispatchRequest{Operation: sdk.Operation{Action: "order", Payload: []byte(`{"customer":"a","cents":1}`)}}
	a := define(nil)
	configured(t, a, dead.URL)
	r, _ := a.Dispatch(t.Context(), op)
	if o, ok := r.Outcome.(*sdk.NotExecuted); !ok || o.Basis != sdk.BasisNotSent {
		t.Errorf("refused: %+v", r.Outcome)
	}
	a = define(nil)
	configured(t, a, cut)
	r, _ = a.Dispatch(t.Context(), op)
	if o, ok := r.Outcome.(*sdk.Unknown); !ok || o.Cause != sdk.CauseConnectionLost {
		t.Errorf("cut: %+v", r.Outcome)
	}
}

func TestTheProofOfASecondRequestSaysNothingOfTheFirst(t *testing.T) {
	url := serverWith(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	a := define(func(d *sdk.Define[conf, *shop]) {
		d.Actions = []sdk.Action[*shop]{sdk.NewAction("order", sdk.Spec{}, func(s *shop, ctx context.Context, _ sdk.Op[order]) (sdk.Outcome, error) {
			if _, err := s.api.Send(ctx, "POST", "/1", nil); err != nil {
				return nil, err
			}
			_, err := sdk.Env{}.HTTP(dead.URL).Send(ctx, "POST", "/2", nil)
			return nil, err
		}, nil)}
	})
	configured(t, a, url)
	r, _ := a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: sdk.Operation{Action: "order", Payload: []byte(`{"customer":"a","cents":1}`)}})
	if o, ok := r.Outcome.(*sdk.Unknown); !ok || o.Cause != sdk.CausePartial {
		t.Errorf("%+v", r.Outcome)
	}
}

func TestAFailedReadIsNeverAnEmptyOne(t *testing.T) {
	status, body := 200, `{"ids":[]}`
	url := serverWith(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status); fmt.Fprint(w, body) })
	guard := errors.New("not allowed to see")
	a := define(func(d *sdk.Define[conf, *shop]) { d.Guard = func(*shop, context.Context) error { return guard } })
	configured(t, a, url)
	read := func() (sdk.ReadResponse, error) {
		return a.Read(t.Context(), sdk.ReadRequest{Operation: sdk.Operation{Action: "order", Key: "k", Payload: []byte(`{"old":"shape","customer":"toolongnow"}`)}})
	}
	if r, err := read(); err != nil || r.Coverage != sdk.CoveragePermissionLimited || r.View.VisibilityProven {
		t.Errorf("the guard failed: %+v %v", r, err)
	}
	guard = nil
	if r, err := read(); err != nil || r.Coverage != sdk.CoverageComplete || !r.View.VisibilityProven || r.Authority != sdk.Authoritative || r.AsOf.IsZero() {
		t.Errorf("%+v %v", r, err)
	}
	for _, s := range []int{404, 403, 500, 301} {
		status = s
		if r, err := read(); err == nil {
			t.Errorf("%d: %+v", s, r)
		}
	}
	status, body = 200, `<html>`
	if r, err := read(); err == nil {
		t.Errorf("%+v", r)
	}
}

func TestAFaultyDefinitionIsToldByDescribe(t *testing.T) {
	type node struct{ Next *node }
	no := func(*shop, context.Context, sdk.Op[order]) (sdk.Outcome, error) { return nil, nil }
	for want, edit := range map[string]func(*sdk.Define[conf, *shop]){
		"contains itself": func(d *sdk.Define[conf, *shop]) {
			d.Actions = append(d.Actions, sdk.NewAction("x", sdk.Spec{}, func(*shop, context.Context, sdk.Op[node]) (sdk.Outcome, error) { return nil, nil }, nil))
		},
		"must not hold a secret": func(d *sdk.Define[conf, *shop]) {
			d.Actions = append(d.Actions, sdk.NewAction("x", sdk.Spec{}, func(*shop, context.Context, sdk.Op[conf]) (sdk.Outcome, error) { return nil, nil }, nil))
		},
		"time.Duration": func(d *sdk.Define[conf, *shop]) {
			d.Actions = append(d.Actions, sdk.NewAction("x", sdk.Spec{}, func(*shop, context.Context, sdk.Op[struct{ D time.Duration }]) (sdk.Outcome, error) { return nil, nil }, nil))
		},
		"no action of this adapter": func(d *sdk.Define[conf, *shop]) {
			d.Actions = append(d.Actions, sdk.NewAction("x", sdk.Spec{Reversal: "unmake"}, no, nil))
		},
		"there twice": func(d *sdk.Define[conf, *shop]) { d.Actions = append(d.Actions, d.Actions[0]) },
		"read function is nil": func(d *sdk.Define[conf, *shop]) {
			d.Actions = append(d.Actions, sdk.NewAction("x", sdk.Spec{Read: sdk.StrongRead(sdk.LookupByKey)}, no, nil))
		},
		"it has no Open function": func(d *sdk.Define[conf, *shop]) { d.Open = nil },
	} {
		if _, err := define(edit).Describe(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestSilenceIsUnknown(t *testing.T) {
	a := define(func(d *sdk.Define[conf, *shop]) {
		d.Actions = []sdk.Action[*shop]{sdk.NewAction("order", sdk.Spec{}, func(*shop, context.Context, sdk.Op[order]) (sdk.Outcome, error) {
			var none *sdk.Committed
			return none, nil
		}, nil)}
	})
	configured(t, a, "http://x.invalid")
	r, _ := a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: sdk.Operation{Action: "order", Payload: []byte(`{"customer":"a","cents":1}`)}})
	if _, ok := r.Outcome.(*sdk.Unknown); !ok {
		t.Errorf("%+v", r.Outcome)
	}
	r, _ = a.Dispatch(t.Context(), sdk.DispatchRequest{Operation: sdk.Operation{Action: "other"}})
	if o, ok := r.Outcome.(*sdk.Rejected); !ok || o.Reason != sdk.ReasonUnsupported {
		t.Errorf("%+v", r.Outcome)
	}
}

// fencingShop has the optional methods.
type fencingShop struct{}

func (*fencingShop) Fence(context.Context, sdk.FenceRequest) (sdk.FenceResponse, error) {
	return sdk.FenceResponse{Fenced: &sdk.ObjectRef{ID: "void"}}, nil
}

func (*fencingShop) ReadMany(_ context.Context, reads []sdk.ReadRequest, answer func(int, sdk.ReadResponse)) error {
	for i := range reads {
		answer(i, *sdk.FoundAll(true))
	}
	return nil
}

func (*fencingShop) Prepare(context.Context, sdk.Operation) (sdk.Prepared, error) {
	return sdk.Prepared{Ready: &sdk.Ready{Target: "t"}}, nil
}

func TestOptionalFeaturesFollowTheMethods(t *testing.T) {
	if _, ok := define(nil).(sdk.Fencer); ok {
		t.Error("a fence from nowhere")
	}
	a := sdk.Define[conf, *fencingShop]{
		Name: "shop", Version: "1.0.0", Open: func(context.Context, sdk.Env, conf) (*fencingShop, error) { return &fencingShop{}, nil },
		Actions: []sdk.Action[*fencingShop]{sdk.NewAction("order", sdk.Spec{}, func(*fencingShop, context.Context, sdk.Op[order]) (sdk.Outcome, error) { return nil, nil }, nil)},
	}.Adapter()
	d, err := a.Describe(t.Context())
	if err != nil || !d.HasFeature(sdk.FeatureFence) || !d.HasFeature(sdk.FeatureReadMany) || !d.HasFeature(sdk.FeaturePrepare) {
		t.Fatalf("%v %v", d.Features, err)
	}
	configured(t, a, "http://x.invalid")
	f, err := a.(sdk.Fencer).Fence(t.Context(), sdk.FenceRequest{})
	if err != nil || f.Fenced == nil {
		t.Errorf("%+v %v", f, err)
	}
	n := 0
	if err := a.(sdk.ManyReader).ReadMany(t.Context(), make([]sdk.ReadRequest, 3), func(int, sdk.ReadResponse) { n++ }); err != nil || n != 3 {
		t.Errorf("%d %v", n, err)
	}
	if p, err := a.Prepare(t.Context(), sdk.Operation{}); err != nil || p.Ready.Target != "t" {
		t.Errorf("%+v %v", p, err)
	}
}

func TestDifferencesArePointersToWhatWasAskedFor(t *testing.T) {
	type m = map[string]any
	for _, c := range []struct {
		want, got any
		pointers  string
	}{
		{m{"a": 1, "b": "x"}, m{"a": 1, "b": "x", "id": 7}, ""},
		{m{"a": int64(9007199254740993)}, m{"a": int64(9007199254740992)}, "/a"},
		{m{"a": m{"b/c": 1}, "l": []int{1, 2}}, m{"a": m{}, "l": []int{1, 3}}, "/a/b~1c /l/1"},
		{m{"l": []int{1}}, m{"l": []int{1, 2}}, "/l"},
		{m{"a": m{}}, m{"a": "text"}, "/a"},
	} {
		got := strings.Join(sdk.Differences(c.want, c.got), " ")
		if got != c.pointers {
			t.Errorf("%v %v: %q, want %q", c.want, c.got, got, c.pointers)
		}
	}
	if len(sdk.Differences(make(chan int), 1)) == 0 {
		t.Error("a channel is the same as a number")
	}
	if _, ok := sdk.Done("invoice", "").(*sdk.Unknown); !ok {
		t.Error("done, but nobody knows what")
	}
}
