package http

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	nethttp "net/http"

	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// scope makes the variables of an operation. objectID and handle may be empty.
func (s *state) scope(op sdk.Operation, action string, prior any, objectID, handle string) (scope, error) {
	payload, err := payloadValue(op)
	if err != nil {
		return nil, err
	}
	effect := map[string]any{
		"key": op.Key, "id": op.ID, "operation": action, "destination": s.destination,
		"account": op.Account, "digest": "sha256:" + hex.EncodeToString(op.PayloadSHA256),
		"attempt_id": op.AttemptID, "actor": op.Actor, "object_id": nil, "handle": nil,
	}
	if objectID != "" {
		effect["object_id"] = objectID
	}
	if handle != "" {
		effect["handle"] = handle
	}
	return scope{"$effect": effect, "$payload": payload, "$secret": s.secrets, "$snapshot": prior}, nil
}

// payloadValue is $payload: the JSON value, or the text of any other content type.
func payloadValue(op sdk.Operation) (any, error) {
	if len(op.Payload) == 0 {
		return nil, nil
	}
	if op.ContentType == "" || isJSON(op.ContentType) {
		v, err := parseJSON(op.Payload)
		if err != nil {
			return nil, fmt.Errorf("the payload is not JSON: %w", err)
		}
		if sdk.LoneSurrogate(op.Payload) { // it would be sent as U+FFFD, which is another payload
			return nil, errors.New("the payload has half of a surrogate pair, which is no text")
		}
		return v, nil
	}
	if !utf8.Valid(op.Payload) {
		return nil, errors.New("the payload is neither JSON nor UTF-8 text")
	}
	return string(op.Payload), nil
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// render evaluates every program of a request. It does no I/O: an error here is
// an error before the call.
func (s *state) render(ctx context.Context, r request, sc scope) (sdk.HTTPRequest, error) {
	out := sdk.HTTPRequest{Method: r.method, Header: nethttp.Header{}}
	path, err := r.path.render(ctx, sc)
	if err != nil {
		return out, fmt.Errorf("path: %w", err)
	}
	target, err := s.resolve(path, nil)
	if err != nil {
		return out, fmt.Errorf("path: %w", err)
	}
	out.URL = target.String()
	for _, h := range r.headers {
		value, err := h.value.render(ctx, sc)
		if err != nil {
			return out, fmt.Errorf("header %s: %w", h.name, err)
		}
		if strings.ContainsFunc(value, isControl) {
			return out, fmt.Errorf("header %s: holds a control character", h.name)
		}
		out.Header.Set(h.name, value)
	}
	if r.body == nil {
		return out, nil
	}
	value, err := r.body.run(ctx, nil, sc)
	if err != nil {
		return out, fmt.Errorf("body: %w", err)
	}
	contentType := out.Header.Get("Content-Type")
	if text, ok := value.(string); ok && contentType != "" && !isJSON(contentType) {
		out.Body = []byte(text)
		return out, nil
	}
	if out.Body, err = writeJSON(value); err != nil {
		return out, fmt.Errorf("body: %w", err)
	}
	if contentType == "" {
		out.Header.Set("Content-Type", "application/json")
	}
	return out, nil
}

// resolve makes the URL of a path: below base_url, or an absolute URL of the
// same origin. With from set, reference is what an answer named as its next page.
func (s *state) resolve(reference string, from *url.URL) (*url.URL, error) {
	if strings.ContainsFunc(reference, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return nil, errors.New("holds white space, a control character or a backslash")
	}
	if strings.Contains(reference, "#") {
		return nil, errors.New("holds \"#\", after which nothing would be sent; use @uri")
	}
	base := s.cfg.base
	u, err := url.Parse(reference)
	if err != nil {
		return nil, errors.New("is not a path or URL")
	}
	switch {
	case u.IsAbs() || u.Host != "" || strings.HasPrefix(reference, "//"):
		if u.Scheme != base.Scheme || !strings.EqualFold(u.Host, base.Host) || u.User != nil {
			return nil, fmt.Errorf("leaves %s://%s", base.Scheme, base.Host)
		}
	case strings.HasPrefix(reference, "/"):
		if from == nil || !strings.HasPrefix(u.Path, base.Path+"/") {
			u, err = url.Parse(base.String() + reference)
		} else {
			u = from.ResolveReference(u)
		}
	case from != nil:
		u = from.ResolveReference(u)
	default:
		return nil, errors.New("must begin with \"/\"")
	}
	if err != nil {
		return nil, errors.New("is not a path or URL")
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return nil, errors.New("holds a \".\" or \"..\" segment")
		}
	}
	return u, nil
}

// answer is one whole response, also as the value of $response.
type answer struct {
	*sdk.HTTPResponse
	value map[string]any
	bad   error // the body is not what it claims to be
}

func (a *answer) ok() bool { return a.Status >= 200 && a.Status <= 299 }

// newAnswer reads the body: JSON where it is JSON, else text.
func newAnswer(r *sdk.HTTPResponse) *answer {
	headers := map[string]any{}
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	a := &answer{HTTPResponse: r}
	body, err := bodyValue(r)
	if err != nil {
		a.bad = err
	}
	a.value = map[string]any{"status": r.Status, "headers": headers, "body": body}
	return a
}

func bodyValue(r *sdk.HTTPResponse) (any, error) {
	trimmed := bytes.TrimSpace(r.Body)
	text := strings.ToValidUTF8(string(r.Body), "\uFFFD")
	declared := isJSON(r.Header.Get("Content-Type"))
	if len(trimmed) == 0 {
		if declared && r.Status != nethttp.StatusNoContent && r.Undelimited {
			return nil, errors.New("the JSON body is missing")
		}
		return nil, nil
	}
	if declared || trimmed[0] == '{' || trimmed[0] == '[' {
		v, err := parseJSON(trimmed)
		ambiguous := error(nil)
		if err == nil {
			ambiguous = decode.Unambiguous(trimmed)
		}
		switch {
		case ambiguous != nil: // it is JSON, and says two things
			return text, fmt.Errorf("the body cannot be relied on: %w", ambiguous)
		case err == nil:
			return v, nil
		case declared:
			return text, fmt.Errorf("the body is not JSON: %w", err)
		}
	}
	if r.Undelimited {
		return text, errors.New("the body ends with the connection and may have been cut short")
	}
	return text, nil
}

// get performs a request without effect. An answer of any status counts; what it
// means is for the caller.
func (s *state) get(ctx context.Context, r request, sc scope) (*answer, sdk.HTTPRequest, error) {
	req, err := s.render(ctx, r, sc)
	if err != nil {
		return nil, req, err
	}
	freshly(req)
	a, err := s.fetch(ctx, req)
	return a, req, err
}

// freshly asks every cache on the way to pass the question on.
func freshly(r sdk.HTTPRequest) {
	if r.Header.Get("Cache-Control") == "" {
		r.Header.Set("Cache-Control", "no-cache")
	}
}

func (s *state) fetch(ctx context.Context, req sdk.HTTPRequest) (*answer, error) {
	resp, err := s.client.Read(ctx, req)
	if err != nil {
		return nil, err
	}
	return newAnswer(resp), nil
}

// readable says why an answer does not count as a read: only a 2xx with a sound body does.
func (a *answer) readable() error {
	if !a.ok() {
		return &statusError{status: a.Status, retryAfter: sdk.RetryAfter(a.Header, time.Now())}
	}
	return a.bad
}

// statusError is a read that was answered, but not with a reading.
type statusError struct {
	status     int
	retryAfter time.Duration
}

func (e *statusError) Error() string { return fmt.Sprintf("answered %d", e.status) }

// test performs t and reports whether it holds. An answer that says nothing of
// its subject (5xx, 429, a broken body) is an error, whatever the program makes of it.
func (s *state) test(ctx context.Context, t *test, sc scope) (bool, *answer, sdk.Evidence, error) {
	a, req, err := s.get(ctx, t.request, sc)
	if err != nil {
		return false, nil, s.evidence("http.test", req, nil, err.Error()), err
	}
	if err := a.readable(); err != nil && (isMomentary(err) || err == a.bad) {
		return false, a, s.evidence("http.test", req, a, err.Error()), err
	}
	holds, err := t.when.runBool(ctx, nil, sc.with("$response", a.value))
	note := fmt.Sprintf("`%s` is %t", t.when.source, holds)
	if err != nil {
		note = err.Error()
	}
	return holds, a, s.evidence("http.test", req, a, note), err
}
