// Command acme is a complete adapter: it creates invoices at a REST service
// that takes an Idempotency-Key and lists invoices by it.
package main

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/serve"
)

// Config is destinations.NAME.with.
type Config struct {
	URL   string     `json:"url" doc:"Base URL of the API"`
	Token sdk.Secret `json:"token" doc:"Needs invoices:write and invoices:read"`
}

// Invoice is the payload; its JSON Schema comes from this type.
type Invoice struct {
	Customer string `json:"customer" min:"1"`
	Cents    int64  `json:"cents" min:"1"`
}

type acme struct{ api *sdk.API }

func main() { serve.Main(adapter()) }

func adapter() sdk.Adapter {
	return sdk.Define[Config, *acme]{
		Name: "acme", Version: "0.1.0",
		Open: func(_ context.Context, env sdk.Env, c Config) (*acme, error) {
			return &acme{env.HTTP(c.URL, sdk.Bearer(c.Token))}, nil
		},
		Check: (*acme).me, Guard: (*acme).me,
		Actions: []sdk.Action[*acme]{sdk.NewAction("create-invoice", sdk.Spec{
			Idempotent: sdk.ByKey(24*time.Hour, sdk.MismatchRejects),
			Read:       sdk.StrongRead(sdk.LookupByKey, "invoices:read"),
			LateEffect: 2 * time.Minute,
		}, (*acme).create, (*acme).find)},
	}.Adapter()
}

func (a *acme) me(ctx context.Context) error {
	_, err := a.api.Get(ctx, "/v1/me", nil)
	return err
}

func (a *acme) create(ctx context.Context, op sdk.Op[Invoice]) (sdk.Outcome, error) {
	var made struct{ ID string }
	res, err := a.api.Send(ctx, "POST", "/v1/invoices", op.Payload, "Idempotency-Key", op.Key)
	if err != nil {
		return nil, err // no byte sent = not executed, else unknown: the SDK watched the wire
	}
	if res.Status != 201 {
		return res.Outcome(), nil // 400 404 422 rejected, 401 403 pause, 429 refused, the rest unknown
	}
	if err := res.Decode(&made); err != nil {
		return nil, err // 201 with an unreadable body: unknown, then the read decides
	}
	return sdk.Done("invoice", made.ID), nil
}

func (a *acme) find(ctx context.Context, q sdk.Query[Invoice]) (*sdk.ReadResponse, error) {
	var page struct {
		Items *[]struct {
			Invoice
			ID, Key string
		}
		More bool
	}
	if _, err := a.api.Get(ctx, "/v1/invoices?key="+url.QueryEscape(q.Key), &page); err != nil {
		return nil, err // indeterminate: the daemon asks again
	}
	if page.Items == nil {
		return nil, errors.New("the list has no items")
	}
	var seen []sdk.Match
	for _, it := range *page.Items {
		if it.Key == q.Key { // a filter that the server does not know is silently dropped
			seen = append(seen, sdk.Hit(sdk.StrengthKey, "invoice", it.ID, sdk.Differences(q.Payload, it.Invoice)...))
		}
	}
	return sdk.FoundAll(!page.More, seen...), nil
}
