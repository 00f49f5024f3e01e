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
		if !p.exchange(client, head, bytes.Clone(raw.Bytes()), p.open(req, action)) {
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
func (p *Proxy) exchange(client net.Conn, head *http.Request, raw []byte, e *entry) bool {
	switch e.Action.Kind {
	case BeforeForward:
		reset(client)
		return false
	case LateForward:
		reset(client)
		if p.wait(e.Action.Delay) {
			p.forward(head, raw, e)
		}
		return false
	case DelayRequest:
		if !p.wait(e.Action.Delay) {
			return false
		}
	}
	answer := p.forward(head, raw, e)
	if answer == nil {
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
	p.answered(e, 1)
	if _, err := client.Write(answer); err != nil {
		p.answered(e, -1)
		return false
	}
	return !head.Close
}

// cutAnswer sends half of the answer. The pause lets the half arrive: a reset
// overtakes what the peer has not read.
func cutAnswer(client net.Conn, answer []byte) {
	_, _ = client.Write(answer[:len(answer)/2])
	time.Sleep(20 * time.Millisecond)
	reset(client)
}

// forward sends the request over a connection of its own and reads the whole
// answer; nil means that there was none.
func (p *Proxy) forward(head *http.Request, raw []byte, e *entry) []byte {
	server, err := p.dial()
	if err != nil {
		return nil
	}
	defer p.drop(server)
	_ = server.SetDeadline(time.Now().Add(patience))
	if _, err := server.Write(raw); err != nil {
		return nil
	}
	answer, status := readAnswer(server, head)
	p.forwarded(e, status)
	return answer
}

// readAnswer skips interim answers; nil and 0 mean that the server broke off.
func readAnswer(server net.Conn, head *http.Request) ([]byte, int) {
	var back bytes.Buffer
	in := bufio.NewReader(io.TeeReader(server, &back))
	for {
		res, err := http.ReadResponse(in, head)
		if err != nil {
			return nil, 0
		}
		if res.StatusCode >= 100 && res.StatusCode < 200 {
			continue
		}
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if err != nil {
			return nil, 0
		}
		return back.Bytes(), res.StatusCode
	}
}
