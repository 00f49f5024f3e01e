package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk/client"
)

// problemOf maps an error of the service to the answer. It is the one place
// where codes and statuses are chosen. Internal errors keep their words for the
// log: the second result says whether the error must be logged.
func problemOf(err error) (p client.Problem, internal bool) {
	var (
		conflict *journal.ConflictError
		illegal  *journal.IllegalError
		key      *journal.KeyError
		payload  *journal.PayloadError
		invalid  *daemon.InvalidError
		busy     *daemon.BusyError
		large    *tooLargeError
	)
	switch {
	case errors.As(err, &conflict):
		p = problem(http.StatusConflict, client.CodeKeyConflict, "The key is bound to another request", conflict.Error())
		p.Key, p.BoundFingerprint, p.GivenFingerprint = conflict.Key, conflict.Bound, conflict.Given
	case errors.As(err, &illegal):
		p = problem(http.StatusConflict, client.CodePhaseRefused, "Not possible in this phase", refusal(illegal))
		p.Phase = string(illegal.Phase)
	case errors.As(err, &invalid):
		p = problem(http.StatusUnprocessableEntity, client.CodeInvalid, "Invalid", "")
		p.Faults = invalid.Faults
	case errors.As(err, &key), errors.As(err, &payload):
		p = problem(http.StatusUnprocessableEntity, client.CodeInvalid, "Invalid", "")
		p.Faults = []string{err.Error()}
	case errors.As(err, &busy):
		p = busyProblem(busy)
	case errors.As(err, &large):
		p = problem(http.StatusRequestEntityTooLarge, client.CodeTooLarge, "Too large", err.Error())
	default:
		return problemOfSentinel(err)
	}
	return p, false
}

func problemOfSentinel(err error) (p client.Problem, internal bool) {
	for _, s := range []struct {
		is     error
		status int
		code   string
		title  string
	}{
		{daemon.ErrNotFound, http.StatusNotFound, client.CodeNotFound, "Not found"},
		{daemon.ErrStale, http.StatusPreconditionFailed, client.CodeStale, "The effect changed meanwhile"},
		{daemon.ErrJournalFull, http.StatusInsufficientStorage, client.CodeJournalFull, "Journal full"},
		{daemon.ErrSubmissionUnknown, http.StatusServiceUnavailable, client.CodeSubmissionUnknown, "May be recorded"},
		{daemon.ErrDraining, http.StatusServiceUnavailable, client.CodeDraining, "The daemon is stopping"},
		{daemon.ErrNotBuilt, http.StatusNotImplemented, client.CodeNotBuilt, "Not built yet"},
		{daemon.ErrForbidden, http.StatusForbidden, client.CodeForbidden, "Not permitted"},
		{daemon.ErrHookRefused, http.StatusUnauthorized, client.CodeUnauthenticated, "Not believed"},
		{errUnidentified, http.StatusUnauthorized, client.CodeUnauthenticated, "Who calls is not known"},
	} {
		if errors.Is(err, s.is) {
			p = problem(s.status, s.code, s.title, err.Error())
			if s.code == client.CodeDraining {
				p.RetryAfterSeconds = 5
			}
			return p, false
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return problem(http.StatusServiceUnavailable, client.CodeInternal, "The request was ended", err.Error()), false
	}
	return problem(http.StatusInternalServerError, client.CodeInternal, "Internal error", "the daemon's log says more"), true
}

// refusal says it as a person would: the phase, and why that does not allow it.
func refusal(x *journal.IllegalError) string {
	s := fmt.Sprintf("not possible while the effect is %s", x.Phase)
	if x.Why != "" {
		s += ": " + x.Why
	}
	return s
}

func busyProblem(b *daemon.BusyError) client.Problem {
	status, code, title := http.StatusTooManyRequests, client.CodeBusy, "Too much at once"
	if b.Outage {
		status, code, title = http.StatusServiceUnavailable, client.CodeOutage, "The destination is down"
	}
	p := problem(status, code, title, b.Error())
	p.RetryAfterSeconds = max(1, int(math.Ceil(b.RetryAfter.Seconds())))
	return p
}

func problem(status int, code, title, detail string) client.Problem {
	return client.Problem{Type: "urn:settled:problem:" + code, Title: title, Status: status, Detail: detail, Code: code}
}

// fail answers with the problem that err amounts to.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, internal := problemOf(err)
	if internal {
		a.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	writeProblem(w, r, p)
}

// failOn is fail for an effect: a refusal by its phase or sequence says what the effect is now.
func (a *api) failOn(w http.ResponseWriter, r *http.Request, key string, err error) {
	p, internal := problemOf(err)
	if internal {
		a.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "key", key, "err", err)
	}
	if p.Code == client.CodePhaseRefused || p.Code == client.CodeStale {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if d, err := a.svc.Effect(ctx, key); err == nil {
			v := show(d)
			p.Key, p.Phase, p.Seq, p.Words, p.MayHaveBeenSent = key, v.Phase, v.Seq, v.Words, v.MayHaveBeenSent()
		} else { // unknown is the safe answer to "may it have been sent?"
			p.Key, p.MayHaveBeenSent = key, true
		}
	}
	writeProblem(w, r, p)
}

func writeProblem(w http.ResponseWriter, r *http.Request, p client.Problem) {
	p.Instance = r.URL.EscapedPath()
	if p.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfterSeconds))
	}
	if p.Seq > 0 {
		w.Header().Set("ETag", etag(p.Seq))
	}
	writeAs(w, "application/problem+json", p.Status, p)
}

func writeJSON(w http.ResponseWriter, status int, v any) { writeAs(w, "application/json", status, v) }

func writeAs(w http.ResponseWriter, contentType string, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // our own types always marshal; anything else is a fault of ours
		http.Error(w, fmt.Sprintf("encode the answer: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // the client has gone: nobody is left to tell
}

func etag(seq int64) string { return `"` + strconv.FormatInt(seq, 10) + `"` }
