package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
)

// Env is what an adapter gets beside its configuration.
type Env struct {
	Destination string       // the operator's name for it
	StateDir    string       // of this destination; empty = none
	ProxyURL    string       // the forward proxy to use; empty = none
	ExtraCAPEM  []byte       // certificates to trust beside the system's
	Log         *slog.Logger // to standard error, which the daemon reads
}

// Auth adds credentials to every request of an [API].
type Auth func(http.Header)

// Bearer sends "Authorization: Bearer …".
func Bearer(token Secret) Auth {
	return func(h http.Header) { h.Set("Authorization", "Bearer "+token.Reveal()) }
}

// Basic sends a user's name and password.
func Basic(user string, password Secret) Auth {
	return func(h http.Header) {
		r := http.Request{Header: h}
		r.SetBasicAuth(user, password.Reveal())
	}
}

// HeaderAuth sends a secret in a header of its own.
func HeaderAuth(name string, value Secret) Auth {
	return func(h http.Header) { h.Set(name, value.Reveal()) }
}

// API is a JSON service under one base URL, over [HTTP]: every write goes over a
// connection of its own and at most once, nothing is retried, no redirect is
// followed, and an error tells whether a byte can have left. It is safe for
// concurrent use.
type API struct {
	client *HTTP
	base   string
	auth   []Auth
	err    error // of the settings; every call returns it, and nothing is sent
}

// HTTP makes an [API]. Faults in the base URL, the proxy or the certificates
// show in the first call, so that Open can be one line.
func (e Env) HTTP(base string, auth ...Auth) *API {
	a := &API{base: strings.TrimRight(base, "/"), auth: auth}
	if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		a.err = fmt.Errorf("the base URL %q must begin with http:// or https://", base)
		return a
	}
	a.client, a.err = NewHTTP(HTTPOptions{ProxyURL: e.ProxyURL, ExtraCAPEM: e.ExtraCAPEM})
	return a
}

// Send performs one write. body becomes JSON ([]byte and json.RawMessage are
// sent as they are, nil sends none); headers are pairs of name and value. Every
// whole answer, whatever its status, is returned without error; an error that
// wraps [ErrNotSent] proves that nothing left.
func (a *API) Send(ctx context.Context, method, path string, body any, headers ...string) (*HTTPResponse, error) {
	r, err := a.request(method, path, body, headers)
	if err != nil {
		return nil, NotSent(err)
	}
	sent := sends(ctx)
	res, err := a.client.Write(ctx, r)
	if err != nil && errors.Is(err, ErrNotSent) {
		return nil, err
	}
	sent.Add(1)
	return res, err
}

// Get reads path and decodes a 2xx answer into v (nil = look at the status
// only). Every other status is an error: a read that failed is never an empty one.
func (a *API) Get(ctx context.Context, path string, v any, headers ...string) (*HTTPResponse, error) {
	r, err := a.request(http.MethodGet, path, nil, headers)
	if err != nil {
		return nil, err
	}
	res, err := a.client.Read(ctx, r)
	if err != nil {
		return nil, err
	}
	if res.Status < 200 || res.Status > 299 {
		return res, &StatusError{Method: r.Method, Path: path, Status: res.Status}
	}
	if v == nil {
		return res, nil
	}
	if res.Undelimited {
		return res, &WireError{Cause: CauseBadResponse, Err: errors.New("an answer whose end nothing marks may have been cut")}
	}
	return res, res.Decode(v)
}

// StatusError is a read that was answered with a status other than 2xx.
type StatusError struct {
	Method, Path string // path without its query, which may hold what is nobody's business
	Status       int
}

func (e *StatusError) Error() string {
	path, _, _ := strings.Cut(e.Path, "?")
	return fmt.Sprintf("%s %s was answered %d %s", e.Method, path, e.Status, http.StatusText(e.Status))
}

// Close closes idle connections.
func (a *API) Close() {
	if a.client != nil {
		a.client.Close()
	}
}

func (a *API) request(method, path string, body any, headers []string) (HTTPRequest, error) {
	if a.err != nil {
		return HTTPRequest{}, a.err
	}
	if len(headers)%2 != 0 {
		return HTTPRequest{}, errors.New("headers must be pairs of name and value")
	}
	r := HTTPRequest{Method: method, URL: a.base + path, Header: http.Header{"Accept": {"application/json"}}}
	switch b := body.(type) {
	case nil:
	case []byte:
		r.Body = b
	case json.RawMessage:
		r.Body = b
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return r, fmt.Errorf("the body cannot be written as JSON: %w", err)
		}
		r.Body = raw
	}
	if r.Body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, add := range a.auth {
		add(r.Header)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r, nil
}

type sendsKey struct{}

// countSends lets a dispatch know how many writes of it may have left: the
// proof of the second one says nothing about the first.
func countSends(ctx context.Context) (context.Context, *atomic.Int32) {
	n := new(atomic.Int32)
	return context.WithValue(ctx, sendsKey{}, n), n
}

func sends(ctx context.Context) *atomic.Int32 {
	if n, ok := ctx.Value(sendsKey{}).(*atomic.Int32); ok {
		return n
	}
	return new(atomic.Int32)
}
