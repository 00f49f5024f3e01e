package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// Trigger cuts a TCP connection when certain bytes pass.
type Trigger struct {
	Bytes      []byte // seen in one direction, also across packets
	FromServer bool   // in what the destination says; else in what the caller says
	Deliver    bool   // the bytes still reach the other side, then the connection is cut
	Hook       func() // at the moment, before the cut
}

// Relay passes TCP connections on and cuts them at bytes. Each trigger fires once.
type Relay struct {
	target   string
	listener net.Listener
	done     context.Context
	stop     context.CancelFunc
	work     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]struct{}
	triggers []*Trigger
	fired    int
}

// StartRelay relays to target, host:port.
func StartRelay(target string) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	r := &Relay{target: target, listener: l, conns: map[net.Conn]struct{}{}}
	r.done, r.stop = context.WithCancel(context.Background())
	r.work.Go(r.accept)
	return r, nil
}

// Addr is host:port of the relay.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// On adds a trigger.
func (r *Relay) On(t Trigger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.triggers = append(r.triggers, &t)
}

// Fired counts the triggers that fired.
func (r *Relay) Fired() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fired
}

// Close cuts every connection and waits until nothing of the relay runs.
func (r *Relay) Close() error {
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.stop()
	err := r.listener.Close()
	r.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (r *Relay) hold(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = c.Close()
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *Relay) accept() {
	for {
		caller, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || !r.hold(caller) {
			continue
		}
		r.work.Go(func() { r.relay(caller) })
	}
}

func (r *Relay) relay(caller net.Conn) {
	defer r.drop(caller)
	var d net.Dialer
	server, err := d.DialContext(r.done, "tcp", r.target)
	if err != nil || !r.hold(server) {
		return
	}
	defer r.drop(server)
	var both sync.WaitGroup
	both.Go(func() { r.copy(server, caller, false) })
	both.Go(func() { r.copy(caller, server, true) })
	both.Wait()
}

func (r *Relay) drop(c net.Conn) {
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
	_ = c.Close()
}

// copy passes bytes on and ends both directions with the first that ends.
func (r *Relay) copy(to, from net.Conn, fromServer bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	var tail []byte
	for {
		n, err := from.Read(buf)
		seen := append(tail, buf[:n]...)
		if t := r.match(seen, fromServer); t != nil {
			if t.Deliver {
				_, _ = to.Write(buf[:n])
			}
			if t.Hook != nil {
				t.Hook()
			}
			if t.Deliver { // an orderly end, so that what was delivered is not overtaken
				return
			}
			reset(to)
			reset(from)
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		tail = append([]byte(nil), seen[max(0, len(seen)-4096):]...)
	}
}

func (r *Relay) match(seen []byte, fromServer bool) *Trigger {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, t := range r.triggers {
		if t.FromServer == fromServer && bytes.Contains(seen, t.Bytes) {
			r.triggers = append(r.triggers[:i:i], r.triggers[i+1:]...)
			r.fired++
			return t
		}
	}
	return nil
}
