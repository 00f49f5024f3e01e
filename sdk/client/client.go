package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client is a connection to one daemon. It is safe for concurrent use and
// retries nothing by itself. Close it to drop idle connections.
type Client struct {
	socket string
	http   *http.Client
}

// New returns a client of the daemon that listens on the socket. It does not connect yet.
func New(socket string) *Client {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "unix", socket)
			if err != nil && ctx.Err() == nil {
				return nil, &UnreachableError{Socket: socket, Err: err}
			}
			return conn, err
		},
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
	return &Client{socket: socket, http: &http.Client{Transport: t, CheckRedirect: noRedirect}}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Socket is the path that the client connects to.
func (c *Client) Socket() string { return c.socket }

// Close drops idle connections. Calls in flight go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call sends a JSON body (nil = none; json.RawMessage as it is) and decodes a JSON answer (nil = ignored).
func (c *Client) call(ctx context.Context, method, path string, q url.Values, h http.Header, body, answer any) error {
	var r io.Reader
	if body != nil {
		data, ready := body.(json.RawMessage)
		var err error
		if !ready {
			data, err = json.Marshal(body)
		}
		if err != nil {
			return fmt.Errorf("encode the request: %w (%w)", err, errNotSent)
		}
		r = bytes.NewReader(data)
		if h == nil {
			h = http.Header{}
		}
		h.Set("Content-Type", "application/json")
	}
	res, err := c.send(ctx, method, path, q, h, r)
	if err != nil {
		return err
	}
	defer drain(res.Body)
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
		return lost(ctx, err)
	}
	return nil
}

// send makes one request. Any answer that is not 2xx becomes a [*Problem].
func (c *Client) send(ctx context.Context, method, path string, q url.Values, h http.Header, body io.Reader) (*http.Response, error) {
	target := "http://settled" + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, fmt.Errorf("build the request: %w (%w)", err, errNotSent)
	}
	for k, v := range h {
		req.Header[k] = v
	}
	res, err := c.http.Do(req)
	if err != nil {
		var gone *UnreachableError
		if errors.As(err, &gone) {
			return nil, gone
		}
		return nil, lost(ctx, err)
	}
	if res.StatusCode/100 != 2 {
		defer drain(res.Body)
		return nil, problemOf(res)
	}
	return res, nil
}

func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &LostError{Err: ctx.Err()}
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return &LostError{Err: err}
}

// problemOf reads an answer that is not 2xx; one without a problem document becomes a plain one.
func problemOf(res *http.Response) *Problem {
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	var p Problem
	if json.Unmarshal(data, &p) != nil || p.Code == "" {
		p = Problem{Title: http.StatusText(res.StatusCode), Code: CodeInternal, Detail: strings.TrimSpace(string(data))}
	}
	p.Status = res.StatusCode
	return &p
}

// drain reads what is left, so that the connection can be used again, and closes it.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// effectPath escapes a key into one path segment. A dot alone would be taken as a directory.
func effectPath(key string) string { return "/v1/effects/" + segment(key) }

func segment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}
