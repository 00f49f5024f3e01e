package faultproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxBody  = 16 << 20
	patience = 30 * time.Second // how long a destination may take
)

// serve reads requests of one connection, one after the other. raw is the TCP
// connection below conn; tunnel is host:port inside a CONNECT.
func (p *Proxy) serve(raw, conn net.Conn, number int, tunnel string) {
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if r.Method == http.MethodConnect && tunnel == "" {
			p.tunnel(raw, conn, number, r.Host)
			return
		}
		if !p.exchange(raw, conn, in, r, number, tunnel) {
			return
		}
	}
}

// tunnel is TLS from the caller to us; the destination's TLS is ours to make.
func (p *Proxy) tunnel(raw, conn net.Conn, number int, host string) {
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	inner := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name := h.ServerName
			if name == "" {
				name, _, _ = net.SplitHostPort(host)
			}
			return p.authority.certificate(name)
		},
	})
	if err := inner.HandshakeContext(p.done); err != nil {
		return
	}
	p.serve(raw, inner, number, host)
}

// exchange handles one request; true = the connection lives on.
func (p *Proxy) exchange(raw, conn net.Conn, in *bufio.Reader, r *http.Request, number int, tunnel string) bool {
	e, f := p.open(r, number)
	if f.Kind == ResetEarly {
		f.hook()
		reset(raw)
		return false
	}
	if strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return false
	}
	p.note(func() { e.Complete, e.SHA256, e.Body = true, digest(body), body })
	answer, keep := p.perform(raw, conn, in, r, body, e, f, tunnel)
	if answer == nil {
		reset(raw)
		return false
	}
	if f.Kind == Truncate {
		_, _ = conn.Write(answer[:len(answer)/2])
		time.Sleep(20 * time.Millisecond) // a reset overtakes what the peer has not read
		reset(raw)
		return false
	}
	p.note(func() { e.Answered = true })
	if _, err := conn.Write(answer); err != nil {
		p.note(func() { e.Answered = false })
		return false
	}
	return keep && !r.Close
}

func (f Fault) hook() {
	if f.Hook != nil {
		f.Hook()
	}
}

// perform does what the fault says; a nil answer means that the caller gets none.
func (p *Proxy) perform(raw, conn net.Conn, in *bufio.Reader, r *http.Request, body []byte, e *Entry, f Fault, tunnel string) (answer []byte, keep bool) {
	switch f.Kind {
	case LoseRequest:
		f.hook()
		return nil, false
	case Answer:
		f.hook()
		return response(r, f.Status, header(f.Header), []byte(f.Body)), true
	case Hold:
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		f.hook()
		select {
		case <-held:
		case <-p.done.Done():
			return nil, false
		}
	}
	answer = p.forward(r, body, e, tunnel)
	if f.Kind == Double && answer != nil {
		answer = p.forward(r, body, e, tunnel)
	}
	if f.Kind != Hold {
		f.hook()
	}
	switch f.Kind {
	case LoseAnswer:
		return nil, false
	case Replace:
		return response(r, f.Status, header(f.Header), []byte(f.Body)), true
	case Hang:
		p.untilGone(raw, in, e)
		return nil, false
	}
	return answer, true
}

// untilGone waits until the caller closes its connection.
func (p *Proxy) untilGone(raw net.Conn, in *bufio.Reader, e *Entry) {
	stop := context.AfterFunc(p.done, func() { _ = raw.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := in.Peek(1) // the caller sends nothing more before it is answered
	if err != nil && p.done.Err() == nil {
		p.note(func() { e.CallerGone = true })
	}
}

// forward hands the request to the destination over a connection of its own.
func (p *Proxy) forward(r *http.Request, body []byte, e *Entry, tunnel string) []byte {
	u := *r.URL
	host := r.Host
	switch {
	case tunnel != "":
		u.Scheme, u.Host = "https", tunnel
	case u.IsAbs():
	case p.target != nil:
		u.Scheme, u.Host = p.target.Scheme, p.target.Host
		u.Path, u.RawPath = strings.TrimRight(p.target.Path, "/")+u.Path, ""
		host = p.target.Host
	default:
		return response(r, http.StatusBadGateway, nil, nil)
	}
	ctx, cancel := context.WithTimeout(p.done, patience)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, r.Method, u.String(), io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil
	}
	out.Header, out.Host, out.ContentLength = r.Header.Clone(), host, int64(len(body))
	for _, h := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Te", "Expect"} {
		out.Header.Del(h)
	}
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	p.note(func() { e.Forwarded++ })
	res, err := p.transport.RoundTrip(out)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	back, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return nil
	}
	p.note(func() { e.Status = res.StatusCode })
	return response(r, res.StatusCode, res.Header, back)
}

func header(m map[string]string) http.Header {
	h := http.Header{}
	for k, v := range m {
		h.Set(k, v)
	}
	return h
}

// response is a whole answer as bytes.
func response(r *http.Request, status int, h http.Header, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	h = h.Clone()
	if h == nil {
		h = http.Header{}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Transfer-Encoding"} {
		h.Del(name)
	}
	if r.Method != http.MethodHead && status != http.StatusNoContent && status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	_ = h.Write(&b) // a buffer takes everything
	b.WriteString("\r\n")
	if r.Method != http.MethodHead {
		b.Write(body)
	}
	return b.Bytes()
}

// reset makes the peer see a TCP reset. The owner closes the connection again, which does no harm.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
