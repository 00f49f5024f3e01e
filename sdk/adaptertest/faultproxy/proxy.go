package faultproxy

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Kind is what happens to one request.
type Kind string

// The kinds. "Lost" means that the caller's connection is reset.
const (
	Pass        Kind = ""
	ResetEarly  Kind = "reset-early"  // lost before the request is complete; never forwarded
	LoseRequest Kind = "lose-request" // complete, lost, never forwarded
	LoseAnswer  Kind = "lose-answer"  // forwarded and answered; the answer is lost
	Truncate    Kind = "truncate"     // forwarded; half of the answer, then lost
	Replace     Kind = "replace"      // forwarded; the caller gets another answer
	Answer      Kind = "answer"       // never forwarded; the caller gets an answer
	Hang        Kind = "hang"         // forwarded; the caller gets nothing until it leaves
	Hold        Kind = "hold"         // forwarded when Release is called, also if the caller has left
	Double      Kind = "double"       // forwarded twice; the second answer counts
)

// Fault is one fault to come.
type Fault struct {
	Kind   Kind
	Match  func(Request) bool // nil = any write
	Times  int                // 0 = once; negative = until Clear
	Status int                // of Replace and Answer
	Header map[string]string
	Body   string
	// Hook runs at the moment of the fault, before the caller can notice
	// anything: the place to kill an adapter at exactly this point.
	Hook func()
}

// Request is what a fault may choose by.
type Request struct {
	Number     int // of all requests, from 1
	Connection int // of all connections, from 1
	Method     string
	Path       string // with the query
	Key        string // of the Idempotency-Key header
	Write      bool   // any method but GET, HEAD and OPTIONS
}

// Entry is what became of one request.
type Entry struct {
	Request
	At         time.Time
	Fault      Kind
	Complete   bool   // the whole request was received
	SHA256     string // of its body
	Body       []byte
	Forwarded  int  // how often the destination got it
	Status     int  // what the destination answered; 0 = nothing yet
	Answered   bool // the caller got a whole answer
	CallerGone bool // the caller closed its connection while it hung
}

// Config says what stands behind the proxy.
type Config struct {
	Target string         // base URL of the destination; empty = as a forward proxy only
	Roots  *x509.CertPool // trusted for destinations with TLS; nil = the system's
}

// Proxy is a running proxy.
type Proxy struct {
	target    *url.URL
	listener  net.Listener
	transport *http.Transport
	authority *authority
	done      context.Context
	stop      context.CancelFunc
	work      sync.WaitGroup

	mu          sync.Mutex // guards everything below
	changed     chan struct{}
	closed      bool
	conns       map[net.Conn]struct{}
	faults      []*Fault
	ledger      []*Entry
	connections int
	held        chan struct{} // closed by Release
}

// Start listens on a loopback port.
func Start(c Config) (*Proxy, error) {
	p := &Proxy{conns: map[net.Conn]struct{}{}, changed: make(chan struct{}), held: make(chan struct{})}
	if c.Target != "" {
		u, err := url.Parse(c.Target)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("faultproxy: the target %q is no http or https URL", c.Target)
		}
		p.target = u
	}
	var err error
	if p.authority, err = newAuthority(); err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	p.transport = &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, Protocols: &http1,
		TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12},
	}
	p.done, p.stop = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p, nil
}

// URL is the proxy in place of the destination, without a trailing slash.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// CAPEM is the certificate of the authority that signs for TLS inside a tunnel.
func (p *Proxy) CAPEM() []byte { return p.authority.pem }

// Inject queues faults. Each request meets the first that matches it.
func (p *Proxy) Inject(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range faults {
		if f.Times == 0 {
			f.Times = 1
		}
		p.faults = append(p.faults, &f)
	}
}

// Clear forgets the faults that have not come yet.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}

// Release forwards everything that is held.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.held)
	p.held = make(chan struct{})
}

// Ledger is a copy of what happened, oldest first.
func (p *Proxy) Ledger() []Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Entry, len(p.ledger))
	for i, e := range p.ledger {
		out[i] = *e
	}
	return out
}

// Await waits until the ledger from entry number `from` on satisfies ok; false = the context ended first.
func (p *Proxy) Await(ctx context.Context, from int, ok func([]Entry) bool) bool {
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		if ok(p.Ledger()[from:]) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
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
	p.transport.CloseIdleConnections()
	return err
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.mu.Lock()
		if p.closed {
			_ = conn.Close()
			p.mu.Unlock()
			continue
		}
		p.conns[conn] = struct{}{}
		p.connections++
		number := p.connections
		p.mu.Unlock()
		p.work.Go(func() {
			defer p.drop(conn)
			p.serve(conn, conn, number, "")
		})
	}
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

// open numbers a request, writes it into the ledger and picks its fault.
func (p *Proxy) open(r *http.Request, connection int) (*Entry, Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	write := r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
	e := &Entry{At: time.Now(), Request: Request{
		Number: len(p.ledger) + 1, Connection: connection, Method: r.Method, Path: r.URL.RequestURI(),
		Key: r.Header.Get("Idempotency-Key"), Write: write,
	}}
	p.ledger = append(p.ledger, e)
	for i, f := range p.faults {
		if f.Match == nil && !write || f.Match != nil && !f.Match(e.Request) {
			continue
		}
		if f.Times--; f.Times == 0 {
			p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
		}
		e.Fault = f.Kind
		return e, *f
	}
	return e, Fault{}
}

// note changes an entry and wakes those who await it.
func (p *Proxy) note(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
