package sdk

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// Defaults of [HTTPOptions].
const (
	DefaultHTTPMaxBody = 4 << 20
	DefaultHTTPTimeout = 30 * time.Second
)

// HTTPOptions configure [NewHTTP]. The zero value is usable.
type HTTPOptions struct {
	ProxyURL   string        // forward proxy; empty = none, the environment is never consulted
	ExtraCAPEM []byte        // trusted beside the system's roots
	MaxBody    int64         // bytes of a response body; a longer one is an error; 0 = DefaultHTTPMaxBody
	Timeout    time.Duration // of a call whose context has no deadline; 0 = DefaultHTTPTimeout
}

// HTTP is the client for destinations that speak HTTP. It differs from
// http.Client in what it refuses to do:
//
//   - Write uses a fresh connection for every request, gives the library no way
//     to rewind the body, speaks HTTP/1.1 only, and so sends at most once.
//     (net/http repeats a POST that carries an Idempotency-Key when a reused
//     connection dies.)
//   - Nothing is retried and no redirect is followed.
//   - A body that is longer than allowed, or shorter than announced, is an error.
//
// An error of Write wraps [ErrNotSent] exactly when no connection was ever
// handed to the request, so that no byte of it can have left. Every other error
// is a *[WireError] with its cause and means unknown. It is safe for concurrent use.
type HTTP struct {
	write, read *http.Transport
	maxBody     int64
	timeout     time.Duration
}

// HTTPRequest is one request. URL is absolute; a nil Body sends none.
type HTTPRequest struct {
	Method, URL string
	Header      http.Header
	Body        []byte
}

// HTTPResponse is one whole response.
type HTTPResponse struct {
	Status int
	Header http.Header
	Body   []byte
	At     time.Time // when the request was begun
	// Undelimited is set when the body ended with the connection: nothing on
	// the wire tells such a body from one that was cut short.
	Undelimited bool
}

// WireError says why a request that may have been sent has no usable answer.
type WireError struct {
	Cause UnknownCause
	Err   error
}

func (e *WireError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *WireError) Unwrap() error { return e.Err }

// NewHTTP builds a client. It fails on a proxy URL or PEM it cannot use.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(o.ExtraCAPEM) > 0 {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(o.ExtraCAPEM) {
			return nil, errors.New("extra CA: no certificate found in the PEM")
		}
		tlsConfig.RootCAs = roots
	}
	var proxy func(*http.Request) (*url.URL, error)
	if o.ProxyURL != "" {
		u, err := url.Parse(o.ProxyURL)
		if err != nil || u.Host == "" {
			return nil, errors.New("proxy URL: not an absolute URL")
		}
		proxy = http.ProxyURL(u)
	}
	h := &HTTP{maxBody: o.MaxBody, timeout: o.Timeout}
	if h.maxBody <= 0 {
		h.maxBody = DefaultHTTPMaxBody
	}
	if h.timeout <= 0 {
		h.timeout = DefaultHTTPTimeout
	}
	h.write = transport(proxy, tlsConfig)
	h.write.DisableKeepAlives = true
	h.read = transport(proxy, tlsConfig)
	return h, nil
}

func transport(proxy func(*http.Request) (*url.URL, error), tlsConfig *tls.Config) *http.Transport {
	var onlyHTTP1 http.Protocols
	onlyHTTP1.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  proxy,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:        tlsConfig.Clone(),
		TLSHandshakeTimeout:    10 * time.Second,
		DisableCompression:     true, // the digest of a body is the digest of what was sent
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		Protocols:              &onlyHTTP1,
	}
}

// Close closes idle connections. The client must not be used after it.
func (h *HTTP) Close() {
	h.write.CloseIdleConnections()
	h.read.CloseIdleConnections()
}

// Write sends r exactly once or not at all. Any complete answer, whatever its
// status, is returned without error.
func (h *HTTP) Write(ctx context.Context, r HTTPRequest) (*HTTPResponse, error) {
	return h.do(ctx, h.write, r)
}

// Read sends a request without effect; it may reuse a connection.
func (h *HTTP) Read(ctx context.Context, r HTTPRequest) (*HTTPResponse, error) {
	return h.do(ctx, h.read, r)
}

func (h *HTTP) do(ctx context.Context, t *http.Transport, r HTTPRequest) (*HTTPResponse, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.timeout)
		defer cancel()
	}
	if err := ctx.Err(); err != nil {
		return nil, NotSent(err)
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := newRequest(ctx, r)
	if err != nil {
		return nil, NotSent(err)
	}
	begun := time.Now()
	// The transport, not a Client: no redirects, no cookies, no URL in errors.
	resp, err := t.RoundTrip(req)
	if err != nil {
		if !connected.Load() {
			return nil, NotSent(err)
		}
		return nil, &WireError{Cause: causeOf(ctx, err), Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, h.maxBody+1))
	switch {
	case err != nil:
		return nil, &WireError{Cause: causeOf(ctx, err), Err: fmt.Errorf("status %d, then the body broke off after %d bytes: %w", resp.StatusCode, len(body), err)}
	case int64(len(body)) > h.maxBody:
		return nil, &WireError{Cause: CauseBadResponse, Err: fmt.Errorf("status %d with a body of more than %d bytes", resp.StatusCode, h.maxBody)}
	}
	return &HTTPResponse{
		Status: resp.StatusCode, Header: resp.Header, Body: body, At: begun,
		Undelimited: resp.ContentLength < 0 && len(resp.TransferEncoding) == 0,
	}, nil
}

func newRequest(ctx context.Context, r HTTPRequest) (*http.Request, error) {
	var body io.Reader
	if r.Body != nil {
		// The wrapper hides the reader's type, so GetBody stays nil.
		body = io.NopCloser(bytes.NewReader(r.Body))
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		return nil, err
	}
	req.GetBody = nil
	if r.Body != nil {
		req.ContentLength = int64(len(r.Body))
		if len(r.Body) == 0 {
			req.Body = http.NoBody
		}
	}
	if r.Header != nil {
		req.Header = r.Header.Clone()
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "settled")
	}
	return req, nil
}

// causeOf names why a request that may have left has no answer.
func causeOf(ctx context.Context, err error) UnknownCause {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return CauseTimeout
	case errors.Is(ctx.Err(), context.Canceled), errors.Is(err, context.Canceled):
		return CauseCancelled
	case errors.As(err, &timeout) && timeout.Timeout():
		return CauseTimeout
	case isConnectionLoss(err):
		return CauseConnectionLost
	}
	return CauseBadResponse
}

func isConnectionLoss(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) ||
		errors.Is(err, net.ErrClosed)
}

// ErrorOutcome turns an error of [HTTP.Write] into what it proves: not executed
// when nothing was sent, else unknown with the cause.
func ErrorOutcome(err error) Outcome {
	if errors.Is(err, ErrNotSent) {
		return &NotExecuted{Basis: BasisNotSent, Message: err.Error()}
	}
	var wire *WireError
	if errors.As(err, &wire) {
		return &Unknown{Cause: wire.Cause, Message: err.Error()}
	}
	return &Unknown{Cause: CauseAdapterError, Message: err.Error()}
}

// Decode reads a JSON body into v. An empty body, garbage and trailing data are errors.
func (r *HTTPResponse) Decode(v any) error {
	d := json.NewDecoder(bytes.NewReader(r.Body))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return &WireError{Cause: CauseBadResponse, Err: fmt.Errorf("status %d with a body that is not JSON: %w", r.Status, err)}
	}
	if _, err := d.Token(); err != io.EOF {
		return &WireError{Cause: CauseBadResponse, Err: fmt.Errorf("status %d with data after its JSON", r.Status)}
	}
	return nil
}

// Outcome is [StatusOutcome] of this response.
func (r *HTTPResponse) Outcome() Outcome { return StatusOutcome(r.Status, r.Header, time.Now()) }
