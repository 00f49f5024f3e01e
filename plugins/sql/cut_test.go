package sql_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// cut is what the wire does when the caller sends a packet that holds word.
type cut int

const (
	pass         cut = iota
	beforeServer     // both ends are reset, the server never gets it
	afterAnswer      // the server gets it and answers; the caller is reset instead
	late             // the caller is reset; the server gets it when the wire is released
)

// wire is a TCP proxy that cuts once.
type wire struct {
	listener net.Listener
	server   string
	wait     sync.WaitGroup

	mu      sync.Mutex
	mode    cut
	word    []byte
	release chan struct{}
	seen    int // packets that held word
	conns   []net.Conn
}

func newWire(t *testing.T, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, server: server, release: make(chan struct{})}
	w.wait.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		w.let()
		w.wait.Wait()
	})
	return w
}

func (w *wire) addr() string { return w.listener.Addr().String() }

// next arms the wire for one packet.
func (w *wire) next(mode cut, word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mode, w.word, w.release = mode, []byte(word), make(chan struct{})
}

// let releases what is late.
func (w *wire) let() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.release:
	default:
		close(w.release)
	}
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.server)
		if err != nil {
			reset(client)
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, client, server)
		w.mu.Unlock()
		lost := make(chan struct{})
		w.wait.Go(func() { w.up(client, server, lost) })
		w.wait.Go(func() { w.down(client, server, lost) })
	}
}

// take says what to do with a packet, and disarms the wire.
func (w *wire) take(packet []byte) (cut, chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mode == pass || !bytes.Contains(packet, w.word) {
		return pass, nil
	}
	w.seen++
	mode := w.mode
	w.mode = pass
	return mode, w.release
}

func (w *wire) up(client, server net.Conn, lost chan struct{}) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			_ = server.Close()
			return
		}
		mode, release := w.take(buf[:n])
		switch mode {
		case beforeServer:
			reset(client)
			reset(server)
			return
		case afterAnswer:
			close(lost)
		case late:
			close(lost)
			reset(client)
			<-release
			_, _ = server.Write(buf[:n])
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			reset(client)
			return
		}
		if mode == afterAnswer {
			return // down resets the caller when the answer is here
		}
	}
}

func (w *wire) down(client, server net.Conn, lost chan struct{}) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			_ = client.Close()
			return
		}
		select {
		case <-lost:
			reset(client)
			_ = server.Close()
			return
		default:
		}
		if _, err := client.Write(buf[:n]); err != nil {
			_ = server.Close()
			return
		}
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
