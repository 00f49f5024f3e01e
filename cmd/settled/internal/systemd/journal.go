package systemd

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// JournalSocket is where journald takes structured entries.
const JournalSocket = "/run/systemd/journal/socket"

// maxField bounds one field: an entry must fit into one datagram.
const maxField = 16 << 10

// UnderJournal reports whether standard error is a stream to journald, so that
// the same lines may go there with their fields.
func UnderJournal(getenv func(string) string) bool {
	var dev, inode uint64
	if _, err := fmt.Sscanf(getenv("JOURNAL_STREAM"), "%d:%d", &dev, &inode); err != nil {
		return false
	}
	var st syscall.Stat_t
	return syscall.Fstat(int(os.Stderr.Fd()), &st) == nil && st.Dev == dev && st.Ino == inode
}

// journalHandler writes entries in journald's own protocol. Every attribute
// becomes a field SETTLED_NAME, so that `journalctl SETTLED_KEY=…` finds it, and
// stands in the message too, so that plain journalctl shows it.
type journalHandler struct {
	conn   *journalConn
	level  slog.Level
	attrs  []slog.Attr // names are complete
	prefix string      // of open groups
}

// journalConn is shared by all handlers made from one.
type journalConn struct {
	mu        sync.Mutex // one entry at a time
	conn      *net.UnixConn
	otherwise slog.Handler
}

// NewJournalHandler returns a handler that writes to journald at socket. Entries
// that cannot be delivered go to otherwise.
func NewJournalHandler(socket string, level slog.Level, otherwise slog.Handler) (slog.Handler, error) {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("reach journald: %w", err)
	}
	return &journalHandler{conn: &journalConn{conn: c, otherwise: otherwise}, level: level}, nil
}

func (h *journalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *journalHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.prefix = h.prefix + name + "_"
	return &c
}

func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		c.attrs = flatten(c.attrs, h.prefix, a)
	}
	return &c
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := append([]slog.Attr(nil), h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		attrs = flatten(attrs, h.prefix, a)
		return true
	})
	if h.conn.write(entry(r, attrs)) {
		return nil
	}
	return h.conn.otherwise.WithAttrs(h.attrs).Handle(ctx, r)
}

// write delivers one entry and reports whether it did.
func (c *journalConn) write(data []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	_, err := c.conn.Write(data)
	return err == nil
}

// flatten resolves an attribute and gives it its full name.
func flatten(into []slog.Attr, prefix string, a slog.Attr) []slog.Attr {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "_"
		}
		for _, inner := range v.Group() {
			into = flatten(into, prefix, inner)
		}
		return into
	}
	if a.Key == "" {
		return into
	}
	return append(into, slog.Attr{Key: prefix + a.Key, Value: v})
}

// entry is one record in journald's protocol: NAME, newline, length, value, newline.
func entry(r slog.Record, attrs []slog.Attr) []byte {
	var b bytes.Buffer
	message := r.Message
	for _, a := range attrs {
		message += " " + a.Key + "=" + spelled(a.Value.String())
	}
	field(&b, "MESSAGE", message)
	field(&b, "PRIORITY", priority(r.Level))
	field(&b, "SYSLOG_IDENTIFIER", "settled")
	seen := map[string]bool{}
	for i := len(attrs) - 1; i >= 0; i-- { // the last of a name wins
		if name := fieldName(attrs[i].Key); !seen[name] {
			seen[name] = true
			field(&b, name, attrs[i].Value.String())
		}
	}
	return b.Bytes()
}

func field(b *bytes.Buffer, name, value string) {
	if len(value) > maxField {
		value = value[:maxField] + "…"
	}
	b.WriteString(name + "\n")
	_ = binary.Write(b, binary.LittleEndian, uint64(len(value))) // a buffer takes everything
	b.WriteString(value + "\n")
}

// fieldName is SETTLED_ and the name in upper case, with what journald refuses as _.
func fieldName(key string) string {
	return "SETTLED_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}

func spelled(v string) string {
	if v == "" || strings.ContainsAny(v, " \t\n\"=") {
		return strconv.Quote(v)
	}
	return v
}

// priority is the level in the numbers of syslog.
func priority(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "3"
	case l >= slog.LevelWarn:
		return "4"
	case l >= slog.LevelInfo:
		return "6"
	}
	return "7"
}
