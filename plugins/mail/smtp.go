package mail

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// reply is one whole answer of an SMTP server.
type reply struct {
	code  int
	lines []string // without code
}

func (r reply) text() string { return fmt.Sprintf("%d %s", r.code, strings.Join(r.lines, " ")) }
func (r reply) ok() bool     { return r.code >= 200 && r.code < 300 }

// errBroken is an answer that is none.
var errBroken = errors.New("not an SMTP reply")

// maxReply bounds an answer, in lines and in bytes of a line.
const (
	maxReplyLines = 100
	maxReplyLine  = 4096
)

// wire is one SMTP connection. It differs from net/smtp in that it knows what it
// has written, and takes a reply only when every line of it is whole.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	ext  map[string]string // what EHLO offered
}

// dial connects and protects as configured; nothing of a message is sent.
func dial(ctx context.Context, s server, roots *tls.Config) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	if s.security == securityTLS {
		return handshake(ctx, conn, s, roots)
	}
	return conn, nil
}

func handshake(ctx context.Context, conn net.Conn, s server, roots *tls.Config) (net.Conn, error) {
	cfg := roots.Clone()
	cfg.ServerName = s.host
	protected := tls.Client(conn, cfg)
	if err := protected.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS: %w", err), conn.Close())
	}
	return protected, nil
}

func newWire(conn net.Conn) *wire {
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, maxReplyLine)}
}

// read takes one whole reply. A line that does not end is no line.
func (w *wire) read() (reply, error) {
	var r reply
	for range maxReplyLines {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			if len(line) > 0 && (errors.Is(err, io.EOF) || errors.Is(err, bufio.ErrBufferFull)) {
				err = fmt.Errorf("%w: the line %q does not end", errBroken, shorten(string(line)))
			}
			return r, err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if len(text) < 3 || !digits(text[:3]) || (len(text) > 3 && text[3] != ' ' && text[3] != '-') {
			return r, fmt.Errorf("%w: %q", errBroken, shorten(text))
		}
		code := int(text[0]-'0')*100 + int(text[1]-'0')*10 + int(text[2]-'0')
		if r.code != 0 && code != r.code || code < 200 || code > 599 {
			return r, fmt.Errorf("%w: code %d", errBroken, code)
		}
		r.code = code
		if len(text) > 4 {
			r.lines = append(r.lines, strings.ToValidUTF8(text[4:], "?"))
		} else {
			r.lines = append(r.lines, "")
		}
		if len(text) == 3 || text[3] == ' ' {
			return r, nil
		}
	}
	return r, fmt.Errorf("%w: more than %d lines", errBroken, maxReplyLines)
}

func digits(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

func shorten(s string) string { return s[:min(len(s), 80)] }

// ask writes one command and reads its reply.
func (w *wire) ask(command string) (reply, error) {
	if _, err := io.WriteString(w.conn, command+"\r\n"); err != nil {
		return reply{}, err
	}
	return w.read()
}

// hello says EHLO and notes what is offered.
func (w *wire) hello(name string) (reply, error) {
	r, err := w.ask("EHLO " + name)
	if err != nil || !r.ok() {
		return r, err
	}
	w.ext = map[string]string{}
	for _, line := range r.lines[1:] {
		keyword, args, _ := strings.Cut(line, " ")
		w.ext[strings.ToUpper(keyword)] = args
	}
	return r, nil
}

// startTLS protects the connection. What came in before the handshake was not
// protected and must not be taken for something that was.
func (w *wire) startTLS(ctx context.Context, s server, roots *tls.Config) error {
	if w.in.Buffered() > 0 {
		return errors.New("the server sent data before the TLS handshake")
	}
	conn, err := handshake(ctx, w.conn, s, roots)
	if err != nil {
		return err
	}
	w.conn, w.in = conn, bufio.NewReaderSize(conn, maxReplyLine)
	return nil
}

// login uses PLAIN, or LOGIN where the server offers nothing better.
func (w *wire) login(user, password string) (reply, error) {
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	offered := strings.Fields(strings.ToUpper(w.ext["AUTH"]))
	for _, mechanism := range offered {
		if mechanism == "PLAIN" {
			return w.ask("AUTH PLAIN " + encode("\x00"+user+"\x00"+password))
		}
	}
	r, err := w.ask("AUTH LOGIN")
	for _, answer := range []string{user, password} {
		if err != nil || r.code != 334 {
			return r, err
		}
		r, err = w.ask(encode(answer))
	}
	return r, err
}

// content writes the message without the line that hands it over.
func (w *wire) content(message []byte) error {
	var b bytes.Buffer
	for line := range bytes.Lines(message) {
		if line[0] == '.' {
			b.WriteByte('.')
		}
		b.Write(line)
	}
	_, err := w.conn.Write(b.Bytes())
	return err
}
