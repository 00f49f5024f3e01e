package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// wrongAdapter is the right one with one mistake.
type wrongAdapter struct {
	sdk.Adapter
	mode  string
	conf  sdk.Configuration
	calls atomic.Int64
	mu    sync.Mutex
	kept  []*os.File // what leaks; guarded by mu
}

func wrong(mode string) sdk.Adapter { return &wrongAdapter{Adapter: define(mode), mode: mode} }

func (w *wrongAdapter) Describe(ctx context.Context) (sdk.Description, error) {
	d, err := w.Adapter.Describe(ctx)
	actions := append([]sdk.ActionSpec(nil), d.Actions...)
	d.Actions = actions
	switch w.mode {
	case "impure":
		actions[0].Summary = time.Now().String()
	case "undeclared":
		actions[0].Reversal.Kind = sdk.ReversalUnspecified
	case "open-secret":
		d.ConfigSchema = []byte(strings.ReplaceAll(string(d.ConfigSchema), `"writeOnly":true`, `"writeOnly":false`))
	case "returns-first":
		actions[0].Idempotency.SameKeyOtherPayload = sdk.MismatchReturnsFirst
	case "higher-limit":
		actions[0].Limits.MaxPayload = 2048 // and 4096 are taken
	case "eventual-liar":
		lag := time.Second
		actions[0].Read.Authority, actions[0].Read.MaxLag = sdk.Eventual, &lag
	}
	return d, err
}

func (w *wrongAdapter) Configure(ctx context.Context, c sdk.Configuration) (sdk.Configured, error) {
	w.conf = c
	if w.mode == "lax-config" {
		c.Config = []byte(strings.Replace(string(c.Config), `"zz-unknown":1`, `"url":`+field(c.Config), 1))
	}
	return w.Adapter.Configure(ctx, c)
}

func field(config []byte) string {
	_, rest, _ := strings.Cut(string(config), `"url":`)
	value, _, _ := strings.Cut(rest[1:], `"`)
	return `"` + value + `"`
}

func (w *wrongAdapter) Dispatch(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	op := &r.Operation
	switch w.mode {
	case "any-action":
		if op.Action == "zz-no-such-action" {
			op.Action = "create-invoice"
		}
	case "fresh-key":
		if op.Action == "create-invoice" {
			op.Key += time.Now().String()
		}
	case "remembers":
		if w.calls.Load() > 0 && op.Attempt == 1 && w.conf.Destination == op.Key {
			return sdk.Response{Outcome: sdk.Reject(sdk.ReasonValidation, "again", "rejected before")}, nil
		}
	case "rounds":
		op.Payload = []byte(strings.ReplaceAll(string(op.Payload), "9007199254740993", "9007199254740992"))
	case "logs-secret":
		fmt.Fprintln(os.Stderr, "Authorization: Bearer "+w.conf.Secrets["token"])
	case "leaks-files":
		f, err := os.Open("/dev/null")
		if err != nil {
			return sdk.Response{}, err
		}
		w.mu.Lock()
		w.kept = append(w.kept, f)
		w.mu.Unlock()
	case "panics":
		if strings.Contains(string(op.Payload), "Ada 3\"") { // the operation of check 12
			panic("no such customer")
		}
	case "drops-precondition":
		r.ExpectedRevision = ""
	case "naive":
		return w.naive(ctx, r)
	case "patient":
		return w.Adapter.Dispatch(context.WithoutCancel(ctx), r)
	}
	out, err := w.Adapter.Dispatch(ctx, r)
	w.calls.Add(1)
	return w.twist(ctx, r, out), err
}

// twist falsifies an answer.
func (w *wrongAdapter) twist(ctx context.Context, r sdk.DispatchRequest, out sdk.Response) sdk.Response {
	switch o := out.Outcome.(type) {
	case *sdk.Committed:
		if w.mode == "wrong-object" {
			o.Object.ID = "another"
		}
	case *sdk.Unknown:
		switch w.mode {
		case "optimist": // it will have worked
			out.Outcome = &sdk.Committed{Object: sdk.ObjectRef{ID: "surely"}}
		case "pessimist": // no answer, no effect
			out.Outcome = &sdk.NotExecuted{Basis: sdk.BasisNotSent}
		case "retries":
			again, err := w.Adapter.Dispatch(ctx, r)
			if err == nil {
				return again
			}
		case "vague":
			o.Cause = sdk.CauseServerError
		}
	case *sdk.NotExecuted:
		switch w.mode {
		case "all-unknown":
			out.Outcome = &sdk.Unknown{Cause: sdk.CauseConnectionLost}
		case "impatient":
			o.RetryAfter = 0
		}
	case *sdk.Rejected:
		switch w.mode {
		case "one-reason":
			o.Reason, o.WholeDestination = sdk.ReasonPolicy, false
		case "remembers":
			w.conf.Destination = r.Operation.Key
		}
	}
	return out
}

// naive is the adapter that everybody writes first, without the SDK: net/http
// follows redirects and sends twice when a kept connection dies.
func (w *wrongAdapter) naive(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	if r.Operation.Action != "create-invoice" {
		return w.Adapter.Dispatch(ctx, r)
	}
	var config struct{ URL string }
	_, rest, _ := strings.Cut(string(w.conf.Config), `"url":"`)
	config.URL, _, _ = strings.Cut(rest, `"`)
	req, err := http.NewRequestWithContext(ctx, "POST", config.URL+"/invoices", strings.NewReader(string(r.Operation.Payload)))
	if err != nil {
		return sdk.Response{}, err
	}
	req.Header.Set("Idempotency-Key", r.Operation.Key)
	req.Header.Set("Authorization", "Bearer "+goodToken)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return sdk.Response{Outcome: sdk.Uncertain(err)}, nil
	}
	defer res.Body.Close()
	raw := make([]byte, 1<<10)
	n, _ := res.Body.Read(raw)
	_, id, _ := strings.Cut(string(raw[:n]), `"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	if res.StatusCode != 201 {
		return sdk.Response{Outcome: sdk.StatusOutcome(res.StatusCode, res.Header, time.Now())}, nil
	}
	return sdk.Response{Outcome: sdk.Done("invoice", id)}, nil
}

func (w *wrongAdapter) Read(ctx context.Context, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	if w.mode == "read-writes" {
		_, _ = w.Adapter.Dispatch(ctx, sdk.DispatchRequest{Operation: r.Operation})
	}
	if w.mode == "forgets-old" && strings.Contains(string(r.Operation.Payload), `"gone"`) {
		return sdk.ReadResponse{}, errors.New("unknown property gone")
	}
	out, err := w.Adapter.Read(ctx, r)
	_, none := out.Finding.(*sdk.NoneSeen)
	switch {
	case err != nil && w.mode == "empty-on-error":
		return sdk.ReadResponse{
			Finding: &sdk.NoneSeen{}, Coverage: sdk.CoverageComplete, Authority: sdk.Authoritative, AsOf: time.Now(),
			View: &sdk.View{VisibilityProven: true},
		}, nil
	case err != nil:
		return out, err
	case none && w.mode == "one-page":
		out.Coverage = sdk.CoverageComplete
	case none && w.mode == "sees-all":
		out.Coverage, out.View.VisibilityProven = sdk.CoverageComplete, true
	case none && w.mode == "guesses":
		out.Finding = &sdk.Found{Matches: []sdk.Match{{Object: sdk.ObjectRef{ID: "like"}, Strength: sdk.StrengthMarker, Agreement: sdk.AgreementSame}}}
	case w.mode == "eventual-liar":
		out.Authority = sdk.Authoritative
	}
	if f, ok := out.Finding.(*sdk.Found); ok {
		for i := range f.Matches {
			switch w.mode {
			case "never-compares":
				f.Matches[i].Agreement, f.Matches[i].Differences = sdk.AgreementSame, nil
			case "no-pointers":
				f.Matches[i].Differences = nil
			}
		}
	}
	return out, nil
}

func (w *wrongAdapter) Prepare(ctx context.Context, op sdk.Operation) (sdk.Prepared, error) {
	return w.Adapter.Prepare(ctx, op)
}
