package cutproxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const long = 64 << 10

// server counts complete requests and answers with a long body.
func server(t *testing.T) (string, *atomic.Int64) {
	t.Helper()
	var seen atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if data, err := io.ReadAll(r.Body); err != nil || r.Method == "POST" && len(data) != long {
			http.Error(w, fmt.Sprintf("%d bytes, %v", len(data), err), http.StatusBadRequest)
			return
		}
		seen.Add(1)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(bytes.Repeat([]byte("a"), long))
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), &seen
}

func proxy(t *testing.T, cfg Config) *Proxy {
	t.Helper()
	p, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func send(t *testing.T, client *http.Client, method, url, key string) (int, []byte, error) {
	t.Helper()
	body := ""
	if method == "POST" {
		body = strings.Repeat("x", long)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil // no second send by the client itself
	req.Header.Set("Idempotency-Key", key)
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	data, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	return res.StatusCode, data, err
}

func oneShot() *http.Client { return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} }

func TestEachCutLeavesTheServerWithExactlyWhatItSays(t *testing.T) {
	cases := []struct {
		action   Action
		answered bool
		seen     int64
	}{
		{Action{}, true, 1},
		{Action{Kind: BeforeForward}, false, 0},
		{Action{Kind: AfterForward}, false, 1},
		{Action{Kind: MidAnswer}, false, 1},
		{Action{Kind: DelayRequest, Delay: 30 * time.Millisecond}, true, 1},
		{Action{Kind: DelayAnswer, Delay: 30 * time.Millisecond}, true, 1},
	}
	for _, c := range cases {
		t.Run(string(c.action.Kind), func(t *testing.T) {
			target, seen := server(t)
			p := proxy(t, Config{Target: target, Plan: Script(nil, c.action)})
			began := time.Now()
			status, body, err := send(t, oneShot(), "POST", p.URL()+"/x", "k")
			if c.answered != (err == nil && status == 201 && len(body) == long) {
				t.Fatalf("status %d, %d bytes, %v", status, len(body), err)
			}
			if c.action.Kind == MidAnswer && (status != 201 || len(body) == 0) {
				t.Fatalf("nothing of the answer arrived: %v", err)
			}
			if took := time.Since(began); took < c.action.Delay {
				t.Fatalf("took %v", took)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if seen.Load() != c.seen {
				t.Fatalf("the server saw %d requests, want %d", seen.Load(), c.seen)
			}
			e := p.Events()
			if len(e) != 1 || e[0].Forwarded != (c.seen == 1) || e[0].Answered != c.answered || e[0].Request.Key != "k" {
				t.Fatalf("events %+v", e)
			}
			n := p.Counts()
			if n.Requests != 1 || n.Connections != 1 || n.By[c.action.Kind] != 1 {
				t.Fatalf("counts %+v", n)
			}
		})
	}
}

func TestALateRequestArrivesAfterItsCallerLostTheConnection(t *testing.T) {
	const delay = 150 * time.Millisecond
	target, seen := server(t)
	p := proxy(t, Config{Target: target, Plan: Script(Writes, Action{Kind: LateForward, Delay: delay})})
	if _, _, err := send(t, oneShot(), "GET", p.URL()+"/x", ""); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, _, err := send(t, oneShot(), "POST", p.URL()+"/x", ""); err == nil {
		t.Fatal("answered")
	}
	for seen.Load() != 2 {
		if time.Since(began) > 5*time.Second {
			t.Fatal("never arrived")
		}
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(began); took < delay {
		t.Fatalf("arrived after %v, before its time", took)
	}
}

func TestAKeptConnectionServesManyRequestsAndOneCutEndsIt(t *testing.T) {
	target, seen := server(t)
	p := proxy(t, Config{Target: target})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range 3 {
		if _, _, err := send(t, client, "POST", p.URL()+"/x", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.Counts(); n.Connections != 1 || n.Answered != 3 {
		t.Fatalf("counts %+v", n)
	}
	p.SetPlan(func(r Request) Action {
		if r.Key == "2" && r.Time == 2 && r.Number == 4 {
			return Action{Kind: AfterForward}
		}
		return Action{}
	})
	if _, _, err := send(t, client, "POST", p.URL()+"/x", "2"); err == nil {
		t.Fatal("answered")
	}
	if seen.Load() != 4 {
		t.Fatalf("the server saw %d", seen.Load())
	}
}

func TestAServerThatIsAwayLooksLikeACutAndIsNotCountedAsForwarded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := proxy(t, Config{Target: target})
	if _, _, err := send(t, oneShot(), "POST", p.URL()+"/x", "k"); err == nil {
		t.Fatal("answered")
	}
	if n := p.Counts(); n.Requests != 1 || n.Forwarded != 0 || n.Answered != 0 {
		t.Fatalf("counts %+v", n)
	}
}

func TestASeededPlanFollowsTheRequestAndNotTheOrder(t *testing.T) {
	plan := Seeded(7, Writes, Share{Action{}, 1}, Share{Action{Kind: BeforeForward}, 1}, Share{Action{Kind: AfterForward}, 1})
	first := map[string]Kind{}
	counts := map[Kind]int{}
	for i := range 300 {
		key := fmt.Sprint(i)
		first[key] = plan(Request{Number: i, Method: "POST", Path: "/t", Key: key, Time: 1}).Kind
		counts[first[key]]++
	}
	for i := 299; i >= 0; i-- {
		key := fmt.Sprint(i)
		if got := plan(Request{Number: 1000 - i, Method: "POST", Path: "/t", Key: key, Time: 1}).Kind; got != first[key] {
			t.Fatalf("key %s: %q, then %q", key, first[key], got)
		}
	}
	for _, k := range []Kind{Pass, BeforeForward, AfterForward} {
		if counts[k] < 60 {
			t.Errorf("weights not kept: %v", counts)
		}
	}
	if got := plan(Request{Method: "GET", Path: "/t", Time: 1}); got != (Action{}) {
		t.Errorf("a read was cut: %v", got)
	}
}

// echo answers every line with "ok LINE" and counts the lines.
func echo(t *testing.T) (string, *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var lines atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello\n")
			buf := make([]byte, 100)
			if n, err := c.Read(buf); err == nil {
				lines.Add(1)
				_, _ = c.Write(append([]byte("ok "), buf[:n]...))
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String(), &lines
}

func TestRawModeCutsAroundTheFirstBytesOfTheCaller(t *testing.T) {
	cases := []struct {
		kind   Kind
		answer string // after the greeting
		lines  int64
	}{
		{Pass, "ok mail\n", 1},
		{BeforeForward, "", 0},
		{AfterForward, "", 1},
		{MidAnswer, "ok m", 1},
		{LateForward, "", 1},
		{DelayAnswer, "ok mail\n", 1},
	}
	for _, c := range cases {
		t.Run(string(c.kind), func(t *testing.T) {
			target, lines := echo(t)
			p := proxy(t, Config{Target: target, Raw: true, Plan: Script(nil, Action{Kind: c.kind, Delay: 20 * time.Millisecond})})
			conn, err := net.Dial("tcp", p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			greeting := make([]byte, 6)
			if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting) != "hello\n" {
				t.Fatalf("greeting %q %v", greeting, err)
			}
			if _, err := io.WriteString(conn, "mail\n"); err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(conn) // ends with a reset where it is cut
			if string(answer) != c.answer {
				t.Errorf("answer %q, want %q", answer, c.answer)
			}
			for limit := time.Now().Add(2 * time.Second); lines.Load() != c.lines && time.Now().Before(limit); {
				time.Sleep(time.Millisecond)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if lines.Load() != c.lines {
				t.Errorf("the server got %d lines, want %d", lines.Load(), c.lines)
			}
		})
	}
}
