package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"
)

// defaultLate is when a late commit without a delay of its own happens.
const defaultLate = 500 * time.Millisecond

// refused answers the faults that happen instead of a commit.
func (d *Desk) refused(w http.ResponseWriter, r *http.Request, fault Fault) bool {
	switch fault.Kind {
	case LostRequest:
		reset(w)
	case Busy:
		busy(w, fault.Delay)
	case Invalid:
		refuse(w, http.StatusUnprocessableEntity, "queue is archived")
	case Unauthorized:
		refuse(w, http.StatusUnauthorized, "the token has expired")
	case Forbidden:
		refuse(w, http.StatusForbidden, "this token may not create tickets in the queue")
	case Hang:
		d.hang(w, r, fault.Delay)
	default:
		return false
	}
	return true
}

// finish answers a request whose ticket exists.
func (d *Desk) finish(w http.ResponseWriter, r *http.Request, t Ticket, fault Fault) {
	w.Header().Set("X-Request-Id", "req-"+t.ID)
	w.Header().Set("Location", "/tickets/"+t.ID)
	d.send(w, r, http.StatusCreated, t, fault)
}

// answerRead answers a list; a fault of a read changes the answer only.
func (d *Desk) answerRead(w http.ResponseWriter, r *http.Request, p page, fault Fault) {
	switch fault.Kind {
	case Hang:
		d.hang(w, r, fault.Delay)
	case Busy:
		busy(w, fault.Delay)
	default:
		d.send(w, r, http.StatusOK, p, fault)
	}
}

// send gives the good answer, or what its fault makes of it.
func (d *Desk) send(w http.ResponseWriter, r *http.Request, status int, body any, fault Fault) {
	switch fault.Kind {
	case LostAnswer:
		reset(w)
	case Error500:
		refuse(w, http.StatusInternalServerError, "an after-save hook failed")
	case Error502:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = fmt.Fprint(w, "<html><body><h1>502 Bad Gateway</h1></body></html>")
	case Truncated:
		truncate(w, status, body)
	case Garbled:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, `{"id":"T-`+"\x00\x1f"+`<!-- cache miss -->`)
	case HangCommit:
		d.hang(w, r, fault.Delay)
	default:
		answer(w, status, body)
	}
}

func busy(w http.ResponseWriter, wait time.Duration) {
	seconds := max(1, int(math.Ceil(wait.Seconds())))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	refuse(w, http.StatusTooManyRequests, "too many requests")
}

// hang keeps the caller waiting until it leaves, the time is over (504) or the desk closes.
func (d *Desk) hang(w http.ResponseWriter, r *http.Request, limit time.Duration) {
	ctx := r.Context()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	select {
	case <-ctx.Done():
		if r.Context().Err() == nil {
			refuse(w, http.StatusGatewayTimeout, "the backend did not answer")
		}
	case <-d.done.Done():
		reset(w)
	}
}

// commitLate commits when the delay is over, unless the desk closes before.
func (d *Desk) commitLate(req *request, key string, fault Fault) {
	delay := fault.Delay
	if delay <= 0 {
		delay = defaultLate
	}
	over := make(chan struct{})
	d.mu.Lock()
	d.late[over] = struct{}{}
	d.mu.Unlock()
	d.work.Go(func() {
		defer func() {
			d.mu.Lock()
			delete(d.late, over)
			d.mu.Unlock()
			close(over)
		}()
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			// Nobody is left to be told of a failure; the ledger shows that nothing was committed.
			_, _ = d.commit(req, key, fault)
		case <-d.done.Done():
		}
	})
}

// reset ends the connection with a TCP reset, without a byte of an answer.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the server then cuts the connection itself
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// truncate promises the whole body and ends in its middle.
func truncate(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	conn, buf, hijackErr := http.NewResponseController(w).Hijack()
	if err != nil || hijackErr != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = fmt.Fprintf(buf, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		status, http.StatusText(status), len(data), data[:len(data)/2])
	_ = buf.Flush()
	_ = conn.Close()
}
