package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settled-dev/settled/sdk/wire"
)

// Bounds of what one adapter may put into our log.
const (
	maxLine        = 16 << 10 // bytes; the rest of a longer line is dropped
	maxTail        = 20       // lines kept for an error at start
	maxAttrs       = 16
	maxAttr        = 1 << 10
	linesPerSecond = 500
)

// lineLog turns what an adapter prints into log records. It never fails, never
// panics and never makes the adapter wait for more than the log itself.
type lineLog struct {
	log    *slog.Logger
	redact *wire.Redactor

	mu      sync.Mutex // guards all below; held while a record is written
	tail    []string
	panics  bool // inside a Go stack trace
	second  int64
	lines   int
	dropped int
}

func newLineLog(log *slog.Logger, r *wire.Redactor) *lineLog { return &lineLog{log: log, redact: r} }

// copyLines logs r line by line until its end.
func (l *lineLog) copyLines(r io.Reader, stream string) {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := readLine(in)
		if len(line) > 0 {
			l.line(line, stream)
		}
		if err != nil {
			l.flush()
			return
		}
	}
}

// readLine reads one line of at most maxLine bytes and skips the rest of it.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return trimEOL(line), err
	}
	kept := slices.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = in.ReadSlice('\n')
	}
	return kept, err
}

func trimEOL(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}

func (l *lineLog) line(raw []byte, stream string) {
	text := l.redact.String(strings.ToValidUTF8(string(raw), "\uFFFD"))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, cut(text, 300))
	if len(l.tail) > maxTail {
		l.tail = slices.Delete(l.tail, 0, len(l.tail)-maxTail)
	}
	if now := time.Now().Unix(); now != l.second {
		l.report()
		l.second, l.lines = now, 0
	}
	if l.lines++; l.lines > linesPerSecond {
		l.dropped++
		return
	}
	rec := parseLine(text)
	switch {
	case rec.structured:
		l.panics = false
	case strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: "):
		l.panics = true
	}
	if l.panics {
		rec.level = slog.LevelError
	}
	l.log.LogAttrs(context.Background(), rec.level, rec.message, append(rec.attrs, slog.String("stream", stream))...)
}

// report says how many lines were dropped; the caller holds mu.
func (l *lineLog) report() {
	if l.dropped > 0 {
		l.log.Warn("the adapter logs faster than the limit; lines were dropped", "lines", l.dropped, "limit_per_second", linesPerSecond)
		l.dropped = 0
	}
}

func (l *lineLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report()
}

// last returns the last lines, oldest first.
func (l *lineLog) last() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.tail)
}

// Write takes a stream in pieces, for go-plugin's copies of late standard output.
// It never reports an error: that would end the stream.
type lineWriter struct {
	log    *lineLog
	stream string
	mu     sync.Mutex
	rest   []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range p {
		switch {
		case b == '\n':
			w.log.line(trimEOL(w.rest), w.stream)
			w.rest = w.rest[:0]
		case len(w.rest) < maxLine:
			w.rest = append(w.rest, b)
		}
	}
	return len(p), nil
}

// record is one parsed line.
type record struct {
	level      slog.Level
	message    string
	attrs      []slog.Attr
	structured bool // JSON, not plain text
}

// parseLine knows JSON of slog, zap and hclog, and plain lines that begin with
// their level. Anything else is a message of level INFO as it stands.
func parseLine(text string) record {
	if strings.HasPrefix(text, "{") {
		var m map[string]any
		if json.Unmarshal([]byte(text), &m) == nil {
			return fromJSON(text, m)
		}
	}
	for _, l := range []struct {
		mark  string
		level slog.Level
	}{
		{"TRACE", slog.LevelDebug},
		{"DEBUG", slog.LevelDebug},
		{"INFO", slog.LevelInfo},
		{"WARNING", slog.LevelWarn},
		{"WARN", slog.LevelWarn},
		{"ERROR", slog.LevelError},
	} {
		for _, form := range []string{"[" + l.mark + "]", l.mark + ":", l.mark + " "} {
			if rest, ok := strings.CutPrefix(text, form); ok {
				return record{level: l.level, message: strings.TrimSpace(rest)}
			}
		}
	}
	return record{level: slog.LevelInfo, message: text}
}

func fromJSON(text string, m map[string]any) record {
	r := record{level: slog.LevelInfo, message: text, structured: true}
	if msg, ok := pick(m, "msg", "@message", "message"); ok {
		r.message = msg
	} else {
		return r // somebody else's JSON, as it stands
	}
	if s, ok := pick(m, "level", "@level"); ok {
		r.level = levelOf(s)
	}
	for _, k := range []string{"time", "@timestamp", "ts"} {
		delete(m, k)
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys[:min(len(keys), maxAttrs)] {
		r.attrs = append(r.attrs, slog.String("adapter."+cut(strings.TrimPrefix(k, "@"), 64), cut(plain(m[k]), maxAttr)))
	}
	return r
}

// pick takes the first of the names that holds a text, and removes it.
func pick(m map[string]any, names ...string) (string, bool) {
	for _, n := range names {
		if s, ok := m[n].(string); ok {
			delete(m, n)
			return s, true
		}
	}
	return "", false
}

func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

func levelOf(s string) slog.Level {
	var l slog.Level
	if l.UnmarshalText([]byte(s)) == nil { // also ERROR+2
		return l
	}
	switch strings.ToLower(s) {
	case "trace":
		return slog.LevelDebug
	case "warning":
		return slog.LevelWarn
	case "fatal", "panic", "dpanic", "critical":
		return slog.LevelError
	}
	return slog.LevelInfo
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
