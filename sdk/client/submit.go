package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// SubmitRequest is one intent: the POST body and the JSONL line. Payload is
// JSON; a payload of another content type is a JSON string holding the text, or
// PayloadBase64 when it is not text.
type SubmitRequest struct {
	Destination   string            `json:"destination"`
	Operation     string            `json:"operation"`
	Key           string            `json:"key"`
	Payload       json.RawMessage   `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
	ContentType   string            `json:"content_type,omitempty"`
	Actor         string            `json:"actor,omitempty"` // default: who calls
	NotBefore     *time.Time        `json:"not_before,omitempty"`
	NotAfter      *time.Time        `json:"not_after,omitempty"`
	Approval      string            `json:"approval,omitempty"`
	Context       map[string]string `json:"context,omitempty"` // kept as evidence, at most 4 KiB, no secrets
	Supersedes    string            `json:"supersedes,omitempty"`
}

// body is the request as JSON with the payload byte for byte as it was given;
// the encoder would compact it.
func (r SubmitRequest) body() (json.RawMessage, error) {
	payload := r.Payload
	if payload != nil && !json.Valid(payload) {
		return nil, fmt.Errorf("the payload is not JSON (%w)", errNotSent)
	}
	r.Payload = nil
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w (%w)", err, errNotSent)
	}
	if payload != nil {
		data = append(data[:len(data)-1], `,"payload":`...) // an object with members: destination is always there
		data = append(append(data, payload...), '}')
	}
	return data, nil
}

// SubmitResult says what a submit did. Created is false when the same effect existed already.
type SubmitResult struct {
	Key      string `json:"key"`
	Created  bool   `json:"created"`
	Phase    string `json:"phase"`
	Standing string `json:"standing"`
	Seq      int64  `json:"seq"`
	DryRun   bool   `json:"dry_run,omitempty"` // nothing was recorded
}

// LineResult answers one line of a batch, in the order of the lines: either
// the result or the error is set.
type LineResult struct {
	Line int    `json:"line"` // counted from 1
	Key  string `json:"key"`
	*SubmitResult
	Error *LineError `json:"error,omitempty"`
}

// LineError says why a line was not recorded. Code is a problem's code.
type LineError struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// lineWire is how a line travels; the result's fields stand beside the line number.
type lineWire struct {
	Line     int        `json:"line"`
	Key      string     `json:"key"`
	Created  *bool      `json:"created,omitempty"`
	Phase    string     `json:"phase,omitempty"`
	Standing string     `json:"standing,omitempty"`
	Seq      *int64     `json:"seq,omitempty"`
	DryRun   bool       `json:"dry_run,omitempty"`
	Error    *LineError `json:"error,omitempty"`
}

// MarshalJSON writes the answer as one flat object.
func (l LineResult) MarshalJSON() ([]byte, error) {
	w := lineWire{Line: l.Line, Key: l.Key, Error: l.Error}
	if r := l.SubmitResult; r != nil {
		w.Created, w.Phase, w.Standing, w.Seq, w.DryRun = &r.Created, r.Phase, r.Standing, &r.Seq, r.DryRun
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads the flat object.
func (l *LineResult) UnmarshalJSON(data []byte) error {
	var w lineWire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*l = LineResult{Line: w.Line, Key: w.Key, Error: w.Error}
	if w.Error == nil && w.Created != nil && w.Seq != nil {
		l.SubmitResult = &SubmitResult{Key: w.Key, Created: *w.Created, Phase: w.Phase, Standing: w.Standing, Seq: *w.Seq, DryRun: w.DryRun}
	}
	return nil
}

// Submit records one effect and returns once it is on disk. Errors: [*Problem]
// (the daemon refused, or says that it may be recorded), [*UnreachableError]
// (nothing was sent), [*LostError] (it may be recorded: submit again with the
// same key).
func (c *Client) Submit(ctx context.Context, req SubmitRequest) (SubmitResult, error) {
	return c.submit(ctx, req, nil)
}

// DryRun checks an effect as [Client.Submit] would, and records nothing.
func (c *Client) DryRun(ctx context.Context, req SubmitRequest) (SubmitResult, error) {
	return c.submit(ctx, req, url.Values{"dry_run": {"true"}})
}

func (c *Client) submit(ctx context.Context, req SubmitRequest, q url.Values) (SubmitResult, error) {
	var r SubmitResult
	body, err := req.body()
	if err == nil {
		err = c.call(ctx, http.MethodPost, "/v1/effects", q, nil, body, &r)
	}
	return r, err
}

// SubmitLines sends JSONL lines in one request and calls each for every answer,
// in the order of the lines. It returns how many lines were answered; when that
// is fewer than were sent, the rest may be recorded: send them again.
func (c *Client) SubmitLines(ctx context.Context, lines []byte, dryRun bool, each func(LineResult) error) (int, error) {
	q := url.Values{}
	if dryRun {
		q.Set("dry_run", "true")
	}
	res, err := c.send(ctx, http.MethodPost, "/v1/effects:batch", q, http.Header{"Content-Type": {ndjson}}, bytes.NewReader(lines))
	if err != nil {
		return 0, err
	}
	defer drain(res.Body)
	n := 0
	err = eachLine(res.Body, func(line []byte) error {
		var l LineResult
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("answer %d: %w", n+1, err)
		}
		n++
		return each(l)
	})
	return n, err
}

const ndjson = "application/x-ndjson"

// maxLine bounds one line of an answer.
const maxLine = 8 << 20

// eachLine calls fn for each line of a streamed answer.
func eachLine(r io.Reader, fn func([]byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	for s.Scan() {
		if len(s.Bytes()) == 0 {
			continue
		}
		if err := fn(s.Bytes()); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return &LostError{Err: err}
	}
	return nil
}
