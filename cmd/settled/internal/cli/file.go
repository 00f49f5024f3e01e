package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk/client"
)

// The size of one batch request: many lines make the daemon's commits large,
// the bound keeps both ends small.
const (
	chunkLines = 5000
	chunkBytes = 8 << 20
	maxLine    = 4 << 20
)

// batchRun is one `submit --file`: lines go out in chunks, answers come back in order.
type batchRun struct {
	a     *App
	c     *client.Client
	f     submitFlags
	chunk bytes.Buffer
	lines int // in the chunk
	first int // number of the chunk's first line, less one

	recorded, same, conflicts, refused int
	total                              int64 // bytes of the file; 0 = not known
	read                               int64
	shown                              time.Time
}

func (a *App) submitFile(ctx context.Context, f submitFlags, args []string) error {
	if len(args) > 0 || f.key != "" || f.payload != "" || len(f.set) > 0 {
		return usagef("settled submit --file "+quote(f.file), "with --file everything stands in its lines")
	}
	if f.wait != "" {
		return usagef("settled list phase:unknown", "--wait and --file do not go together; look at the list afterwards")
	}
	c, err := a.daemon()
	if err != nil {
		return err
	}
	b := &batchRun{a: a, c: c, f: f}
	var in io.Reader = a.Stdin
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return usage(err, "settled submit --file FILE.jsonl")
		}
		defer func() { _ = file.Close() }() // only read
		if fi, err := file.Stat(); err == nil {
			b.total = fi.Size()
		}
		in = file
	}
	err = b.run(ctx, in)
	b.progress(true)
	if err != nil {
		return b.broke(err)
	}
	return b.end()
}

func (b *batchRun) run(ctx context.Context, in io.Reader) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := b.line(r)
		b.chunk.Write(bytes.TrimRight(line, "\r\n"))
		if len(line) > 0 {
			b.chunk.WriteByte('\n')
			b.lines++
			b.read += int64(len(line))
		}
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return fmt.Errorf("read %s: %w", b.f.file, err)
		}
		if b.lines >= chunkLines || b.chunk.Len() >= chunkBytes || (ended && b.lines > 0) {
			if err := b.send(ctx); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
	}
}

// line reads a line. Of one that is far too long only as much is kept as makes the daemon refuse it.
func (b *batchRun) line(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line) < maxLine {
			line = append(line, part...)
		} else if err == nil {
			line = append(line, '\n')
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func (b *batchRun) send(ctx context.Context) error {
	_, err := b.c.SubmitLines(ctx, b.chunk.Bytes(), b.f.dryRun, func(l client.LineResult) error {
		l.Line += b.first
		return b.answer(l)
	})
	b.first += b.lines
	b.chunk.Reset()
	b.lines = 0
	return err
}

func (b *batchRun) answer(l client.LineResult) error {
	switch {
	case l.Error != nil && l.Error.Code == client.CodeKeyConflict:
		b.conflicts++
	case l.Error != nil || l.SubmitResult == nil:
		b.refused++
	case l.Created:
		b.recorded++
	default:
		b.same++
	}
	b.progress(false)
	switch {
	case b.a.flags.json:
		return b.a.object(l)
	case b.a.flags.plain && l.Error != nil:
		b.a.printf("%d\t%s\terror\t%s\t%s\n", l.Line, l.Key, l.Error.Code, clean(l.Error.Detail))
	case b.a.flags.plain:
		b.a.printf("%d\t%s\t%t\t%s\t%d\n", l.Line, l.Key, l.Created, l.Phase, l.Seq)
	case l.Error != nil:
		b.a.printf("line %d%s: %s: %s\n", l.Line, before(" ", clean(l.Key)), l.Error.Code, clean(l.Error.Detail))
	}
	return nil
}

// before is s behind a separator, or nothing.
func before(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

// progress draws a bar on a terminal, ten times a second at most.
func (b *batchRun) progress(last bool) {
	now := b.a.Now()
	if !b.a.terminal(b.a.Stderr) || (!last && now.Sub(b.shown) < 100*time.Millisecond) {
		return
	}
	b.shown = now
	n := b.recorded + b.same + b.conflicts + b.refused
	bar := ""
	if b.total > 0 {
		full := int(30 * min(b.read, b.total) / b.total)
		bar = "[" + strings.Repeat("#", full) + strings.Repeat("-", 30-full) + "] "
	}
	fmt.Fprintf(b.a.Stderr, "\r\x1b[K%s%d lines answered", bar, n)
	if last {
		fmt.Fprintln(b.a.Stderr)
	}
}

func (b *batchRun) summary() string {
	verb := "recorded"
	if b.f.dryRun {
		verb = "would be recorded"
	}
	return fmt.Sprintf("%d %s, %d existed already, %d conflicts, %d refused", b.recorded, verb, b.same, b.conflicts, b.refused)
}

// broke says where the answers ended. What was sent after that may be recorded.
func (b *batchRun) broke(err error) error {
	x, ok := asExit(err, reading).(*exit)
	var lost *client.LostError
	if !ok || !errors.As(err, &lost) {
		return err
	}
	x.code = exitError
	x.err = fmt.Errorf("%w (answered so far: %s)", err, b.summary())
	x.next = "settled submit --file " + quote(b.f.file) + "   (what is recorded already stays as it is)"
	return x
}

func (b *batchRun) end() error {
	if !b.a.flags.json && !b.a.flags.plain {
		b.a.printf("%s\n", b.summary())
	}
	switch {
	case b.refused > 0:
		return &exit{exitError, fmt.Errorf("%d line(s) were refused", b.refused+b.conflicts), "the same file again once they are mended: the others are recorded once"}
	case b.conflicts > 0:
		return &exit{exitConflict, fmt.Errorf("%d key(s) are bound to other requests", b.conflicts), "settled show KEY   (a new intent needs a new version of the key)"}
	}
	return nil
}
