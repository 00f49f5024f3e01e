package faultproxy

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

func behind(t *testing.T, c Config) (*Proxy, *atomic.Int32) {
	t.Helper()
	n := new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %s %s", n.Add(1), r.URL.Path, body)
	}))
	t.Cleanup(s.Close)
	if c.Target == "" {
		c.Target = s.URL
	}
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, n
}

func write(t *testing.T, o sdk.HTTPOptions, u string) (string, error) {
	t.Helper()
	h, err := sdk.NewHTTP(o)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	r, err := h.Write(t.Context(), sdk.HTTPRequest{Method: "POST", URL: u, Body: []byte("hello")})
	if err != nil {
		return "", err
	}
	return fmt.Sprint(r.Status, " ", string(r.Body)), nil
}

func TestEveryFaultDoesWhatItSaysAndTheLedgerTells(t *testing.T) {
	for _, c := range []struct {
		f         Fault
		forwarded int
		answer    string // empty = an error
		answered  bool
		complete  bool
	}{
		{Fault{Kind: Pass}, 1, "200 1 /x hello", true, true},
		{Fault{Kind: ResetEarly}, 0, "", false, false},
		{Fault{Kind: LoseRequest}, 0, "", false, true},
		{Fault{Kind: LoseAnswer}, 1, "", false, true},
		{Fault{Kind: Truncate}, 1, "", false, true},
		{Fault{Kind: Replace, Status: 500, Body: "no"}, 1, "500 no", true, true},
		{Fault{Kind: Answer, Status: 429, Body: "later"}, 0, "429 later", true, true},
		{Fault{Kind: Double}, 2, "200 2 /x hello", true, true},
	} {
		p, n := behind(t, Config{})
		var hooked atomic.Bool
		c.f.Hook = func() { hooked.Store(true) }
		p.Inject(c.f)
		got, err := write(t, sdk.HTTPOptions{}, p.URL()+"/x")
		if got != c.answer || (err == nil) != (c.answer != "") {
			t.Errorf("%s: %q %v", c.f.Kind, got, err)
		}
		if !hooked.Load() {
			t.Errorf("%s: no hook", c.f.Kind)
		}
		l := p.Ledger()
		if len(l) != 1 || l[0].Forwarded != c.forwarded || int(n.Load()) != c.forwarded || l[0].Answered != c.answered || l[0].Complete != c.complete || l[0].Fault != c.f.Kind {
			t.Errorf("%s: %+v, %d arrived", c.f.Kind, l, n.Load())
		}
		if got, err := write(t, sdk.HTTPOptions{}, p.URL()+"/y"); err != nil || !strings.Contains(got, "/y hello") {
			t.Errorf("after %s: %q %v", c.f.Kind, got, err)
		}
	}
}

func TestAHeldRequestArrivesAlsoWhenItsCallerHasLeft(t *testing.T) {
	p, n := behind(t, Config{})
	p.Inject(Fault{Kind: Hold})
	if got, err := write(t, sdk.HTTPOptions{Timeout: 100 * time.Millisecond}, p.URL()+"/x"); err == nil || n.Load() != 0 {
		t.Fatalf("%q, %d arrived", got, n.Load())
	}
	p.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if !p.Await(ctx, 0, func(l []Entry) bool { return l[0].Status == 200 }) || n.Load() != 1 {
		t.Fatalf("%+v", p.Ledger())
	}
}

func TestAHangNotesWhenTheCallerLeaves(t *testing.T) {
	p, n := behind(t, Config{})
	p.Inject(Fault{Kind: Hang})
	if _, err := write(t, sdk.HTTPOptions{Timeout: 100 * time.Millisecond}, p.URL()+"/x"); err == nil || n.Load() != 1 {
		t.Fatalf("%v, %d arrived", err, n.Load())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if !p.Await(ctx, 0, func(l []Entry) bool { return l[0].CallerGone }) {
		t.Fatalf("%+v", p.Ledger())
	}
}

func TestItWorksInsideTLSAsAForwardProxy(t *testing.T) {
	n := 0
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n++; fmt.Fprint(w, "secure ", r.URL.Path) }))
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	p, err := Start(Config{Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	o := sdk.HTTPOptions{ProxyURL: p.URL(), ExtraCAPEM: p.CAPEM()}
	if got, err := write(t, o, s.URL+"/x"); err != nil || got != "200 secure /x" {
		t.Fatalf("%q %v", got, err)
	}
	p.Inject(Fault{Kind: LoseAnswer})
	if got, err := write(t, o, s.URL+"/x"); err == nil || n != 2 {
		t.Fatalf("%q, %d arrived", got, n)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "plain ", r.URL.Path) }))
	defer plain.Close()
	if got, err := write(t, o, plain.URL+"/x"); err != nil || got != "200 plain /x" {
		t.Fatalf("%q %v", got, err)
	}
	if l := p.Ledger(); len(l) != 3 {
		t.Fatalf("%+v", l)
	}
}

func TestARelayCutsAtBytes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lines := make(chan string, 10)
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with its connection
				defer c.Close()
				for r := bufio.NewScanner(c); r.Scan(); {
					lines <- r.Text()
					fmt.Fprintln(c, "ok", r.Text())
				}
			}()
		}
	}()
	r, err := StartRelay(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	talk := func(text string) string {
		c, err := net.Dial("tcp", r.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintln(c, text)
		answer, _ := bufio.NewReader(c).ReadString('\n')
		return strings.TrimSpace(answer)
	}
	if got := talk("one"); got != "ok one" || <-lines != "one" {
		t.Fatal(got)
	}
	r.On(Trigger{Bytes: []byte("COMMIT")})
	r.On(Trigger{Bytes: []byte("ok DATA"), FromServer: true})
	if got := talk("COMMIT"); got != "" || len(lines) != 0 {
		t.Fatalf("%q, and %d lines arrived", got, len(lines))
	}
	if got := talk("DATA"); got != "" || <-lines != "DATA" {
		t.Fatal(got)
	}
	if got := talk("COMMIT"); got != "ok COMMIT" || r.Fired() != 2 {
		t.Fatal(got, r.Fired())
	}
}

func TestATargetMustBeAURL(t *testing.T) {
	for _, target := range []string{"host:80", "ftp://x", "%zz"} {
		if p, err := Start(Config{Target: target}); err == nil {
			p.Close()
			t.Error(target)
		}
	}
}
