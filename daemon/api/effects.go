package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk/client"
)

const (
	maxWait  = 5 * time.Minute
	pageSize = 100
	maxPage  = 1000
)

func (a *api) submit(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r, maxEnvelope)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	req, err := submitRequest(body, by(r, "").Actor)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	req.DryRun = r.URL.Query().Get("dry_run") == "true"
	res, err := a.svc.Submit(r.Context(), req, by(r, ""))
	if err != nil {
		a.failOn(w, r, req.Key, err)
		return
	}
	if wait, ok := prefersWait(r.Header); ok && !req.DryRun {
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait.Seconds())))
		res.Effect = a.untilResting(r, res.Effect, wait)
	}
	v := submitted(req.Key, res)
	v.DryRun = req.DryRun
	w.Header().Set("ETag", etag(v.Seq))
	code := http.StatusOK
	if res.Created && !req.DryRun {
		code = http.StatusCreated
		w.Header().Set("Location", "/v1/effects/"+url.PathEscape(req.Key))
	}
	writeJSON(w, code, v)
}

// submitRequest reads one intent strictly. Its payload is kept byte for byte.
func submitRequest(body []byte, actor string) (daemon.SubmitRequest, error) {
	var in client.SubmitRequest
	if err := strict(body, &in); err != nil {
		return daemon.SubmitRequest{Key: in.Key}, err
	}
	req := daemon.SubmitRequest{
		Destination: in.Destination, Operation: in.Operation, Key: in.Key, ContentType: in.ContentType, Actor: in.Actor,
		NotBefore: value(in.NotBefore), NotAfter: value(in.NotAfter), Approval: in.Approval, Context: in.Context, Supersedes: in.Supersedes,
	}
	if req.Actor == "" {
		req.Actor = actor
	}
	var err error
	if req.Payload, err = payloadOf(in); err != nil {
		return req, err
	}
	if len(req.Payload) > MaxPayload {
		return req, &tooLargeError{what: "the payload", limit: MaxPayload}
	}
	return req, nil
}

// payloadOf takes the payload out of its envelope: JSON as it stands, other
// content as text or base64.
func payloadOf(in client.SubmitRequest) ([]byte, error) {
	switch {
	case in.PayloadBase64 != nil && in.Payload != nil:
		return nil, &daemon.InvalidError{Faults: []string{"payload and payload_base64 are both given"}}
	case in.PayloadBase64 != nil:
		return in.PayloadBase64, nil
	case in.Payload == nil || isJSON(in.ContentType):
		return in.Payload, nil
	}
	var s *string
	if err := unmarshal(in.Payload, &s); err != nil || s == nil {
		return nil, &daemon.InvalidError{Faults: []string{fmt.Sprintf("payload: content type %q needs a JSON string (or payload_base64)", in.ContentType)}}
	}
	return []byte(*s), nil
}

func isJSON(contentType string) bool {
	t, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	t = strings.TrimSpace(t)
	return t == "" || t == "application/json" || strings.HasSuffix(t, "+json")
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := number(q.Get("limit"), pageSize, 1, maxPage, "limit")
	if err != nil {
		a.fail(w, r, err)
		return
	}
	effects, cursor, err := a.svc.List(r.Context(), q.Get("q"), q.Get("cursor"), int(limit))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, client.Page{Effects: each(effects, list), Next: cursor})
}

func (a *api) effect(w http.ResponseWriter, r *http.Request) {
	key, q := r.PathValue("key"), r.URL.Query()
	if q.Has("after") {
		if err := a.longPoll(r, key, q); err != nil {
			a.failOn(w, r, key, err)
			return
		}
	}
	d, err := a.svc.Effect(r.Context(), key)
	if err != nil {
		a.failOn(w, r, key, err)
		return
	}
	v := show(d)
	if q.Get("include") == "payload" {
		v.ContentType = d.Effect.ContentType
		v.Payload, _ = document(d.Effect.Payload)
	}
	w.Header().Set("ETag", etag(v.Seq))
	writeJSON(w, http.StatusOK, v)
}

// longPoll waits until the effect is newer than ?after, as long as ?wait says.
// That nothing changed is no error.
func (a *api) longPoll(r *http.Request, key string, q url.Values) error {
	after, err := strconv.ParseInt(q.Get("after"), 10, 64)
	if err != nil {
		return &daemon.InvalidError{Faults: []string{"after: a sequence number is expected"}}
	}
	wait, err := duration(q.Get("wait"))
	if err != nil {
		return &daemon.InvalidError{Faults: []string{"wait: a duration such as 30s is expected"}}
	}
	ctx, cancel := waiting(r)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, min(wait, maxWait))
	defer stop()
	if _, err := a.svc.WaitChange(ctx, key, after); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// untilResting follows an effect until it is closed or a person has it, or the wait is over.
func (a *api) untilResting(r *http.Request, e journal.Effect, wait time.Duration) journal.Effect {
	ctx, cancel := waiting(r)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, wait)
	defer stop()
	for !list(e).Resting() {
		newer, err := a.svc.WaitChange(ctx, e.Key, e.Seq)
		if err != nil || newer.Seq <= e.Seq {
			return e // the submit stands; the client learns the rest by asking
		}
		e = newer
	}
	return e
}

func (a *api) cancel(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	because, err := a.because(w, r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	e, err := a.svc.Cancel(r.Context(), key, by(r, because))
	if err != nil {
		a.failOn(w, r, key, err)
		return
	}
	writeEffect(w, e)
}

func writeEffect(w http.ResponseWriter, e journal.Effect) {
	v := list(e)
	v.Attempts = each(e.Attempts, attempt)
	w.Header().Set("ETag", etag(v.Seq))
	writeJSON(w, http.StatusOK, v)
}

// Reason is the body of what only needs a reason.
type Reason struct {
	Because string `json:"because"`
}

// because reads the reason that every act of a person carries into the audit chain.
func (a *api) because(w http.ResponseWriter, r *http.Request) (string, error) {
	var in Reason
	body, err := readBody(w, r, 64<<10)
	if err == nil {
		err = strict(body, &in)
	}
	if err == nil && strings.TrimSpace(in.Because) == "" {
		err = &daemon.InvalidError{Faults: []string{"because: say why; it goes into the audit chain"}}
	}
	return in.Because, err
}

// prefersWait reads "Prefer: wait=30" (seconds), capped.
func prefersWait(h http.Header) (time.Duration, bool) {
	for _, line := range h.Values("Prefer") {
		for part := range strings.SplitSeq(line, ",") {
			name, val, _ := strings.Cut(strings.TrimSpace(part), "=")
			if s, err := strconv.Atoi(strings.Trim(val, `"`)); strings.EqualFold(name, "wait") && err == nil && s >= 0 {
				return min(time.Duration(min(s, int(maxWait.Seconds())))*time.Second, maxWait), true
			}
		}
	}
	return 0, false
}

// duration reads "30s" or plain seconds; empty is zero.
func duration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	if n, err := strconv.Atoi(s); err == nil {
		s = strconv.Itoa(n) + "s"
	}
	d, err := time.ParseDuration(s)
	return max(d, 0), err
}

func number(s string, otherwise, lo, hi int64, name string) (int64, error) {
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < lo || n > hi {
		return 0, &daemon.InvalidError{Faults: []string{fmt.Sprintf("%s: a number from %d to %d is expected", name, lo, hi)}}
	}
	return n, nil
}

func value(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
