package cutproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	patience  = 30 * time.Second // how long a server may take to answer
	maxEvents = 1 << 16          // kept in the log; the counters go on
)

// Config is what a proxy needs.
type Config struct {
	Listen string // default 127.0.0.1:0
	Target string // host:port
	Raw    bool   // any TCP protocol; else HTTP/1.1
	Plan   Plan
}

// Event is what happened to one request.
type Event struct {
	At        time.Time
	Request   Request
	Action    Action
	Forwarded bool // the whole request was handed to the server
	Status    int  // of the server's HTTP answer; 0 = none seen
	Answered  bool // the caller got the whole answer; HTTP only
}

// Counts sums up the events.
type Counts struct {
	Connections, Requests, Forwarded, Answered int
	By                                         map[Kind]int
}

// Proxy is a running proxy.
type Proxy struct {
	cfg      Config
	listener net.Listener
	done     context.Context
	stop     context.CancelFunc
	work     sync.WaitGroup

	mu     sync.Mutex // guards everything below
	plan   Plan
	closed bool
	conns  map[net.Conn]struct{}
	times  map[string]int
	counts Counts
	events []Event
}

// Start listens and proxies until Close.
func Start(cfg Config) (*Proxy, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("cutproxy: %w", err)
	}
	p := &Proxy{
		cfg: cfg, listener: l, plan: cfg.Plan,
		conns: map[net.Conn]struct{}{}, times: map[string]int{}, counts: Counts{By: map[Kind]int{}},
	}
	p.done, p.stop = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p, nil
}

// Addr is host:port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL is the proxy as an HTTP base, without a trailing slash.
func (p *Proxy) URL() string { return "http://" + p.Addr() }

// SetPlan replaces the plan for requests that come from now on.
func (p *Proxy) SetPlan(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

// Counts gives a copy of the counters.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counts
	c.By = map[Kind]int{}
	for k, n := range p.counts.By {
		c.By[k] = n
	}
	return c
}

// Events gives a copy of the log, oldest first; at most 65536 are kept.
func (p *Proxy) Events() []Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Event(nil), p.events...)
}

// Close cuts every connection and waits until nothing of the proxy runs.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	for c := range p.conns {
		_ = c.Close() // its owner sees the error
	}
	p.mu.Unlock()
	p.stop()
	err := p.listener.Close()
	p.work.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || !p.hold(conn) {
			continue
		}
		p.mu.Lock()
		p.counts.Connections++
		p.mu.Unlock()
		p.work.Go(func() {
			defer p.drop(conn)
			if p.cfg.Raw {
				p.serveRaw(conn)
				return
			}
			p.serveHTTP(conn)
		})
	}
}

// hold takes a connection into Close's care; false means that it is closed already.
func (p *Proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

func (p *Proxy) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(p.done, patience)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", p.cfg.Target)
	if err != nil {
		return nil, err
	}
	if !p.hold(c) {
		return nil, net.ErrClosed
	}
	return c, nil
}

// choose numbers the request and asks the plan.
func (p *Proxy) choose(r Request) (Request, Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Requests++
	id := r.Method + " " + r.Path + " " + r.Key
	p.times[id]++
	r.Number, r.Time = p.counts.Requests, p.times[id]
	var a Action
	if p.plan != nil {
		a = p.plan(r)
	}
	p.counts.By[a.Kind]++
	return r, a
}

// entry is an event with its place in the log; -1 = the log is full.
type entry struct {
	Event
	at int
}

// open logs an event. In HTTP mode whatever the caller of the proxy can see comes after the
// event that tells of it, so a test that has its answer finds it counted.
func (p *Proxy) open(r Request, a Action) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &entry{Event: Event{At: time.Now(), Request: r, Action: a}, at: -1}
	if len(p.events) < maxEvents {
		e.at = len(p.events)
		p.events = append(p.events, e.Event)
	}
	return e
}

// forwarded notes that the server has the whole request, and what it answered.
func (p *Proxy) forwarded(e *entry, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Forwarded, e.Status = true, status
	p.counts.Forwarded++
	p.keep(e)
}

// answered notes that the caller gets the answer, or (n = -1) did not get it after all.
func (p *Proxy) answered(e *entry, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Answered = n > 0
	p.counts.Answered += n
	p.keep(e)
}

// keep is called with the lock held.
func (p *Proxy) keep(e *entry) {
	if e.at >= 0 {
		p.events[e.at] = e.Event
	}
}

// wait sleeps, and says whether the proxy is still open.
func (p *Proxy) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.done.Done():
		return false
	}
}

// reset makes the peer see a TCP reset. The owner closes the connection again, which does no harm.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
