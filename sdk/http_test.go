package sdk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cutter is a TCP server that reads whole requests, counts them, and answers
// with raw bytes of the test's choice before it cuts the connection.
type cutter struct {
	net.Listener
	requests, connections atomic.Int32
	answer                func(n int) (raw string, keep bool)
	done                  sync.WaitGroup
}

func newCutter(t *testing.T, answer func(n int) (string, bool)) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l, answer: answer}
	c.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.connections.Add(1)
			c.done.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); c.done.Wait() })
	return c
}

func (c *cutter) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		raw, keep := c.answer(int(c.requests.Add(1)))
		_, _ = io.WriteString(conn, raw)
		if !keep {
			return
		}
	}
}

func (c *cutter) url() string { return "http://" + c.Addr().String() + "/tickets" }

func client(t *testing.T, o HTTPOptions) *HTTP {
	t.Helper()
	h, err := NewHTTP(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func post(url string) HTTPRequest {
	return HTTPRequest{Method: "POST", URL: url, Body: []byte(`{"a":1}`), Header: http.Header{"Idempotency-Key": {"k:1"}}}
}

const whole = "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{\"id\":1}"

// The standard client sends a POST with an Idempotency-Key twice when a reused
// connection dies. Write must not, so the second request meets a cut connection.
func TestAWriteIsSentOnceEvenWithAnIdempotencyKey(t *testing.T) {
	script := func(n int) (string, bool) {
		if n == 2 {
			return "", false
		}
		return whole, true
	}
	trap := newCutter(t, script)
	standard := &http.Client{Transport: &http.Transport{}}
	defer standard.CloseIdleConnections()
	for range 2 {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", trap.url(), strings.NewReader("{}"))
		req.Header.Set("Idempotency-Key", "k:1")
		resp, err := standard.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	if n := trap.requests.Load(); n != 3 {
		t.Fatalf("the trap this test is about is gone: the standard client made %d requests of 2", n)
	}
	c := newCutter(t, script)
	h := client(t, HTTPOptions{})
	if _, err := h.Write(t.Context(), post(c.url())); err != nil {
		t.Fatal(err)
	}
	_, err := h.Write(t.Context(), post(c.url()))
	assertUnknown(t, err, CauseConnectionLost)
	if c.requests.Load() != 2 || c.connections.Load() != 2 {
		t.Fatalf("2 writes made %d requests on %d connections", c.requests.Load(), c.connections.Load())
	}
}

func TestReadsReuseAConnection(t *testing.T) {
	c := newCutter(t, func(int) (string, bool) { return whole, true })
	h := client(t, HTTPOptions{})
	for range 3 {
		if _, err := h.Read(t.Context(), HTTPRequest{Method: "GET", URL: c.url()}); err != nil {
			t.Fatal(err)
		}
	}
	if c.connections.Load() != 1 {
		t.Fatalf("%d connections for 3 reads", c.connections.Load())
	}
}

func assertUnknown(t *testing.T, err error, cause UnknownCause) {
	t.Helper()
	if err == nil || errors.Is(err, ErrNotSent) {
		t.Fatalf("got %v, want an unknown outcome", err)
	}
	u, ok := ErrorOutcome(err).(*Unknown)
	if !ok || u.Cause != cause {
		t.Fatalf("got %+v for %v, want cause %d", ErrorOutcome(err), err, cause)
	}
}

func TestAnAnswerThatIsNotWholeIsUnknown(t *testing.T) {
	cases := []struct {
		name, raw string
		cause     UnknownCause
	}{
		{"nothing", "", CauseConnectionLost},
		{"half a status line", "HTTP/1.1 20", CauseBadResponse},
		{"headers only", "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n", CauseConnectionLost},
		{"no body", "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n", CauseConnectionLost},
		{"half a body", "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{\"id", CauseConnectionLost},
		{"half a chunk", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"id", CauseConnectionLost},
		{"no last chunk", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"id\":1}\r\n", CauseConnectionLost},
		{"half a rejection", "HTTP/1.1 400 Bad Request\r\nContent-Length: 800\r\n\r\nno", CauseConnectionLost},
		{"garbage", "\x16\x03\x01 what is this\r\n\r\n", CauseBadResponse},
		{"too much", "HTTP/1.1 201 Created\r\nContent-Length: 2000\r\n\r\n" + strings.Repeat("x", 2000), CauseBadResponse},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newCutter(t, func(int) (string, bool) { return c.raw, false })
			_, err := client(t, HTTPOptions{MaxBody: 1000}).Write(t.Context(), post(s.url()))
			assertUnknown(t, err, c.cause)
			if s.requests.Load() != 1 {
				t.Fatalf("%d requests", s.requests.Load())
			}
		})
	}
}

func TestABodyThatEndsWithTheConnectionIsMarked(t *testing.T) {
	for raw, want := range map[string]bool{
		"HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n{\"id\":": true, whole: false, "HTTP/1.1 204 No Content\r\n\r\n": false,
	} {
		s := newCutter(t, func(int) (string, bool) { return raw, false })
		r, err := client(t, HTTPOptions{}).Write(t.Context(), post(s.url()))
		if err != nil || r.Undelimited != want {
			t.Errorf("%q: %+v %v", raw, r, err)
		}
	}
}

func TestWhatFailsBeforeAConnectionIsProofThatNothingWasSent(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	plain := newCutter(t, func(int) (string, bool) { return "", false })
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	cases := map[string]struct {
		ctx context.Context
		o   HTTPOptions
		url string
	}{
		"connection refused": {t.Context(), HTTPOptions{}, "http://" + closed.Addr().String()},
		"unknown host":       {t.Context(), HTTPOptions{}, "http://no-such-host.invalid/"},
		"no TLS there":       {t.Context(), HTTPOptions{}, "https://" + plain.Addr().String()},
		"unknown authority":  {t.Context(), HTTPOptions{}, secure.URL},
		"proxy refused":      {t.Context(), HTTPOptions{ProxyURL: "http://" + closed.Addr().String()}, plain.url()},
		"cancelled before":   {over, HTTPOptions{}, plain.url()},
		"a bad URL":          {t.Context(), HTTPOptions{}, "http://[::1/"},
		"a bad header":       {t.Context(), HTTPOptions{}, "ftp://127.0.0.1/"},
	}
	for name, c := range cases {
		_, err := client(t, c.o).Write(c.ctx, post(c.url))
		if n, ok := ErrorOutcome(err).(*NotExecuted); !errors.Is(err, ErrNotSent) || !ok || n.Basis != BasisNotSent {
			t.Errorf("%s: %v", name, err)
		}
	}
	if plain.requests.Load() != 0 {
		t.Error("a request arrived nevertheless")
	}
}

func TestTheDeadlineAndACancelAreToldApart(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 2)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release }))
	defer s.Close()
	defer close(release)
	h := client(t, HTTPOptions{Timeout: 50 * time.Millisecond}) // for want of a deadline
	_, err := h.Write(t.Context(), post(s.URL))
	assertUnknown(t, err, CauseTimeout)
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err = client(t, HTTPOptions{}).Write(ctx, post(s.URL))
	assertUnknown(t, err, CauseCancelled)
}

func TestARedirectIsAnAnswerAndIsNotFollowed(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	r, err := client(t, HTTPOptions{}).Write(t.Context(), post(s.URL))
	if err != nil || r.Status != 307 || requests.Load() != 1 {
		t.Fatalf("%+v %v, %d requests", r, err, requests.Load())
	}
}

func TestStatusTable(t *testing.T) {
	reasons := map[int]RejectReason{
		400: ReasonValidation, 401: ReasonAuthentication, 403: ReasonPermission, 404: ReasonNotFound,
		409: ReasonConflict, 412: ReasonPrecondition, 422: ReasonValidation,
	}
	for status := 100; status < 600; status++ {
		switch o := StatusOutcome(status, http.Header{}, time.Now()).(type) {
		case *Rejected:
			if reason, ok := reasons[status]; !ok || reason != o.Reason {
				t.Errorf("%d is rejected: %+v", status, o)
			}
			delete(reasons, status)
		case *NotExecuted:
			if status != 429 || o.Basis != BasisRefused {
				t.Errorf("%d is not executed: %+v", status, o)
			}
		case *Unknown:
			if (o.Cause == CauseServerError) != (status >= 500) || status == 429 {
				t.Errorf("%d is unknown: %+v", status, o)
			}
		default:
			t.Errorf("%d is %T", status, o)
		}
	}
	if len(reasons) != 0 {
		t.Errorf("not rejected: %v", reasons)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "120": 2 * time.Minute, " 7 ": 7 * time.Second, "-5": 0, "soon": 0, "1.5": 0,
		"99999999999999": MaxRetryAfter, "999999999999999999999999": 0,
		now.Add(90 * time.Second).Format(http.TimeFormat):                  90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):                        0,
		now.Add(1000 * 24 * time.Hour).Format(http.TimeFormat):             MaxRetryAfter,
		now.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05 ") + "GMT": time.Minute,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestDecodeTakesExactlyOneValue(t *testing.T) {
	for body, good := range map[string]bool{`{"id":1}`: true, ``: false, `{"id":1`: false, `{"id":1}{"id":2}`: false, `<html>`: false, " {\"id\":1}\n": true} {
		var v struct{ ID int }
		if err := (&HTTPResponse{Status: 201, Body: []byte(body)}).Decode(&v); (err == nil) != good {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestARedactorFindsASecretInEveryForm(t *testing.T) {
	secret := "p4ss/w+rd \"x\"&é"
	r := NewRedactor(map[string]string{"token": secret, "short": "ab", "empty": ""})
	for prefix := range 4 {
		user := strings.Repeat("u", prefix) + ":"
		for name, text := range map[string]string{
			"raw": "x" + secret + "y", "URL": fmt.Sprintf("/q?a=%s&b", strings.ReplaceAll(urlEscape(secret), "+", "%20")),
			"basic": "Basic " + base64.StdEncoding.EncodeToString([]byte(user+secret)),
			"url64": base64.RawURLEncoding.EncodeToString([]byte(user + secret + "tail")),
			"JSON":  `{"t":"p4ss/w+rd \"x\"&é"}`, "JSON with escapes": `{"t":"p4ss/w+rd \"x\"\u0026é"}`,
		} {
			if got := r.String(text); !strings.Contains(got, redacted) || strings.Contains(got, "p4ss") {
				t.Errorf("%s: %q gives %q", name, text, got)
			}
			if !bytes.Equal(r.Bytes([]byte(text)), []byte(r.String(text))) {
				t.Errorf("%s: Bytes and String differ", name)
			}
		}
	}
	for _, text := range []string{"", "about", "nothing here"} {
		if r.String(text) != text || (*Redactor)(nil).String(text) != text {
			t.Errorf("%q was changed", text)
		}
	}
}

func urlEscape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
