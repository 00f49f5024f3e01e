package cutproxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// serveHTTP reads whole requests from one caller, one after the other.
func (p *Proxy) serveHTTP(client net.Conn) {
	var raw bytes.Buffer
	in := bufio.NewReader(io.TeeReader(client, &raw))
	for {
		raw.Reset()
		head, err := readRequest(in, client)
		if err != nil {
			return
		}
		req, action := p.choose(Request{
			Method: head.Method, Path: head.URL.RequestURI(), Key: head.Header.Get("Idempotency-Key"),
		})
		if !p.exchange(client, head, bytes.Clone(raw.Bytes()), Event{Request: req, Action: action}) {
			return
		}
	}
}

// readRequest reads to the end of the body. The caller asks for no second
// request before its answer, so nothing of a next one is read.
func readRequest(in *bufio.Reader, client net.Conn) (*http.Request, error) {
	head, err := http.ReadRequest(in)
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(head.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(client, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return nil, err
		}
	}
	_, err = io.Copy(io.Discard, head.Body)
	return head, err
}

// exchange does what the action says; true means that the connection lives on.
func (p *Proxy) exchange(client net.Conn, head *http.Request, raw []byte, e Event) bool {
	defer func() { p.record(e) }()
	switch e.Action.Kind {
	case BeforeForward:
		reset(client)
		return false
	case LateForward:
		reset(client)
		if p.wait(e.Action.Delay) {
			_, e.Status, e.Forwarded = p.forward(head, raw)
		}
		return false
	case DelayRequest:
		if !p.wait(e.Action.Delay) {
			return false
		}
	}
	var answer []byte
	answer, e.Status, e.Forwarded = p.forward(head, raw)
	if e.Status == 0 {
		reset(client) // the server is away or broke off; so does the proxy
		return false
	}
	switch e.Action.Kind {
	case AfterForward:
		reset(client)
		return false
	case MidAnswer:
		cutAnswer(client, answer)
		return false
	case DelayAnswer:
		if !p.wait(e.Action.Delay) {
			return false
		}
	}
	_, err := client.Write(answer)
	e.Answered = err == nil
	return e.Answered && !head.Close
}

// cutAnswer sends half of the answer. The pause lets the half arrive: a reset
// overtakes what the peer has not read.
func cutAnswer(client net.Conn, answer []byte) {
	_, _ = client.Write(answer[:len(answer)/2])
	time.Sleep(20 * time.Millisecond)
	reset(client)
}

// forward sends the request over a connection of its own and reads the whole
// answer; status 0 means that there was none.
func (p *Proxy) forward(head *http.Request, raw []byte) (answer []byte, status int, forwarded bool) {
	server, err := p.dial()
	if err != nil {
		return nil, 0, false
	}
	defer p.drop(server)
	_ = server.SetDeadline(time.Now().Add(patience))
	if _, err := server.Write(raw); err != nil {
		return nil, 0, false
	}
	var back bytes.Buffer
	in := bufio.NewReader(io.TeeReader(server, &back))
	for {
		res, err := http.ReadResponse(in, head)
		if err != nil {
			return nil, 0, true
		}
		if res.StatusCode >= 100 && res.StatusCode < 200 {
			continue
		}
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if err != nil {
			return nil, 0, true
		}
		return back.Bytes(), res.StatusCode, true
	}
}
