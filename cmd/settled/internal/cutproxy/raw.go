package cutproxy

import (
	"io"
	"net"
	"sync"
)

// serveRaw acts once, on the first bytes of the caller, and then copies both ways.
func (p *Proxy) serveRaw(client net.Conn) {
	server, err := p.dial()
	if err != nil {
		reset(client)
		return
	}
	defer p.drop(server)
	r := &rawSession{proxy: p, client: client, server: server}
	var both sync.WaitGroup
	both.Go(func() { r.up() })
	both.Go(func() { r.down() })
	both.Wait()
}

// rawSession is one connection through the proxy in raw mode.
type rawSession struct {
	proxy          *Proxy
	client, server net.Conn

	mu    sync.Mutex
	event *entry // nil until the first bytes of the caller go to the server
}

// up carries the caller's bytes.
func (r *rawSession) up() {
	buf := make([]byte, 32<<10)
	n, err := r.client.Read(buf)
	if err != nil {
		closeWrite(r.server)
		return
	}
	e := r.proxy.open(r.proxy.choose(Request{}))
	switch e.Action.Kind {
	case BeforeForward:
		r.cut()
		return
	case LateForward:
		reset(r.client)
		if r.proxy.wait(e.Action.Delay) {
			r.forward(buf[:n], e)
		}
		closeWrite(r.server)
		return
	case DelayRequest:
		if !r.proxy.wait(e.Action.Delay) {
			return
		}
	}
	r.mu.Lock()
	r.event = e
	r.mu.Unlock()
	if r.forward(buf[:n], e) {
		_, _ = io.Copy(r.server, r.client)
	}
	closeWrite(r.server)
}

func (r *rawSession) forward(data []byte, e *entry) bool {
	if _, err := r.server.Write(data); err != nil {
		return false
	}
	r.proxy.forwarded(e, 0)
	return true
}

// down carries the server's bytes until the action wants otherwise.
func (r *rawSession) down() {
	buf := make([]byte, 32<<10)
	first := true
	for {
		n, err := r.server.Read(buf)
		r.mu.Lock()
		e := r.event
		r.mu.Unlock()
		if n > 0 && e != nil && first {
			first = false
			switch e.Action.Kind {
			case AfterForward:
				r.cut()
				return
			case MidAnswer:
				cutAnswer(r.client, buf[:n])
				r.cut()
				return
			case DelayAnswer:
				if !r.proxy.wait(e.Action.Delay) {
					return
				}
			}
		}
		if n > 0 {
			if _, werr := r.client.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			closeWrite(r.client)
			return
		}
	}
}

func (r *rawSession) cut() {
	reset(r.client)
	reset(r.server)
}

// closeWrite passes the end of one direction on.
func closeWrite(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}
