package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/sdk/client"
)

// batchWindow is how many lines of one batch are submitted at once. The journal
// commits what waits together, so a wide window is what makes a batch fast.
const batchWindow = 256

const ndjson = "application/x-ndjson"

// batch takes JSONL and answers each line in the order of the lines. A bad line
// is answered and the rest is taken. Lines of one key are submitted in order.
func (a *api) batch(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // answers may begin before the last line came; where that is not possible they wait
	w.Header().Set("Content-Type", ndjson)
	b := &batch{a: a, r: r, order: make(chan chan client.LineResult, batchWindow), busy: map[string]chan struct{}{}}
	var writer sync.WaitGroup
	writer.Go(func() { b.write(w, rc) })
	b.read(http.MaxBytesReader(w, r.Body, maxBatch))
	close(b.order)
	writer.Wait()
}

// batch is one request of many lines. busy belongs to the reading goroutine.
type batch struct {
	a     *api
	r     *http.Request
	order chan chan client.LineResult // answers to come, in the order of the lines
	busy  map[string]chan struct{}    // by key: closed when the newest submit of that key has returned
}

func (b *batch) read(body io.Reader) {
	lines := bufio.NewReaderSize(body, 64<<10)
	for n := 1; b.r.Context().Err() == nil; n++ {
		line, tooLong, err := readLine(lines, maxEnvelope)
		switch {
		case tooLong:
			b.answer(n, "", &tooLargeError{what: "the line", limit: maxEnvelope})
		case len(bytes.TrimSpace(line)) > 0:
			b.take(n, line)
		}
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			b.answer(n+1, "", &tooLargeError{what: "the batch", limit: maxBatch})
		}
		if err != nil {
			return
		}
	}
}

// take starts the submit of one line.
func (b *batch) take(n int, line []byte) {
	actor := by(b.r, "")
	req, err := submitRequest(line, actor.Actor)
	if err != nil {
		b.answer(n, req.Key, err)
		return
	}
	req.DryRun = b.r.URL.Query().Get("dry_run") == "true"
	before := []chan struct{}{b.busy[req.Key], b.busy[req.Supersedes]}
	done := make(chan struct{})
	b.forget()
	b.busy[req.Key] = done
	slot := make(chan client.LineResult, 1)
	b.order <- slot // bounds how many run
	go func() {     // ends with its submit; write waits for its answer
		defer close(done)
		for _, earlier := range before {
			if earlier != nil {
				<-earlier
			}
		}
		slot <- b.submit(n, req)
	}()
}

func (b *batch) submit(n int, req daemon.SubmitRequest) (l client.LineResult) {
	defer func() {
		if v := recover(); v != nil {
			b.a.log.Error("a submit panicked", "key", req.Key, "panic", v)
			l = b.refused(n, req.Key, errors.New("panic"))
		}
	}()
	res, err := b.a.svc.Submit(b.r.Context(), req, by(b.r, ""))
	if err != nil {
		return b.refused(n, req.Key, err)
	}
	v := submitted(req.Key, res)
	v.DryRun = req.DryRun
	return client.LineResult{Line: n, Key: req.Key, SubmitResult: &v}
}

// forget drops keys whose submits have returned, so that a long batch stays small.
func (b *batch) forget() {
	if len(b.busy) < 4*batchWindow {
		return
	}
	for key, done := range b.busy {
		select {
		case <-done:
			delete(b.busy, key)
		default:
		}
	}
}

func (b *batch) answer(n int, key string, err error) {
	slot := make(chan client.LineResult, 1)
	slot <- b.refused(n, key, err)
	b.order <- slot
}

func (b *batch) refused(n int, key string, err error) client.LineResult {
	p, internal := problemOf(err)
	if internal {
		b.a.log.Error("submit failed", "key", key, "line", n, "err", err)
	}
	return client.LineResult{Line: n, Key: key, Error: &client.LineError{Code: p.Code, Detail: p.Error()}}
}

// write sends the answers in order and flushes whenever none is ready. It reads
// every answer even after the client has gone, so that no submit is left behind.
func (b *batch) write(w io.Writer, rc *http.ResponseController) {
	buf := bufio.NewWriterSize(w, 32<<10)
	enc := json.NewEncoder(buf)
	var broken error
	for slot := range b.order {
		var l client.LineResult
		select {
		case l = <-slot:
		default:
			if broken == nil {
				broken = errors.Join(buf.Flush(), rc.Flush())
			}
			l = <-slot
		}
		if broken == nil {
			broken = enc.Encode(l)
		}
		if broken == nil && len(b.order) == 0 { // the next line may be long in coming
			broken = errors.Join(buf.Flush(), rc.Flush())
		}
	}
	if broken == nil {
		_ = buf.Flush()
	}
}

// readLine returns the next line without its end. A line above limit is read to
// its end and dropped.
func readLine(r *bufio.Reader, limit int) (line []byte, tooLong bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if !tooLong {
			line = append(line, part...)
		}
		if len(line) > limit {
			line, tooLong = nil, true
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), tooLong, err
		}
	}
}
