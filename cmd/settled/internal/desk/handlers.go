package desk

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxBody     = 4 << 20
	defaultPage = 50
	maxPage     = 200
	faultHeader = "X-Desk-Fault"
)

func (d *Desk) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tickets", d.create)
	mux.HandleFunc("GET /tickets", d.list)
	mux.HandleFunc("GET /tickets/{id}", d.get)
	mux.HandleFunc("DELETE /tickets/{id}", d.delete)
	mux.HandleFunc("GET /me", d.me)
	mux.HandleFunc("GET /_ledger", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, d.Ledger()) })
	mux.HandleFunc("POST /_faults", d.controlFaults)
	mux.HandleFunc("POST /_mode", d.controlMode)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.enter() {
			return
		}
		defer d.work.Done()
		if d.Mode().Outage == Unavailable && !strings.HasPrefix(r.URL.Path, "/_") {
			refuse(w, http.StatusServiceUnavailable, "the desk is being maintained")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A caller that is gone is no fault of ours, and there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]string{"error": message})
}

// allowed checks the bearer token and answers when it will not do.
func (d *Desk) allowed(w http.ResponseWriter, r *http.Request) bool {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	repair := d.cfg.RepairToken != "" && token == d.cfg.RepairToken
	switch {
	case d.cfg.Token != "" && token != d.cfg.Token && !repair:
		refuse(w, http.StatusUnauthorized, "a valid bearer token is required")
	case r.Method == http.MethodDelete && d.cfg.RepairToken != "" && !repair:
		refuse(w, http.StatusForbidden, "this token may not delete tickets")
	default:
		return true
	}
	return false
}

// create counts the request, lets its fault decide about the commit, and
// answers in the way its fault wants.
func (d *Desk) create(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "the body is longer than 4 MiB or was cut")
		return
	}
	var req request
	if err := json.Unmarshal(data, &req); err != nil {
		refuse(w, http.StatusBadRequest, "the body is no ticket: "+err.Error())
		return
	}
	if req.Queue == "" {
		req.Queue = "default"
	}
	named, err := headerFault(r, req.Fault)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	key := r.Header.Get("Idempotency-Key")
	fault, err := d.arrive(&req, named, key)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	if !d.allowed(w, r) || d.refused(w, r, fault) {
		return
	}
	if req.Subject == "" {
		refuse(w, http.StatusUnprocessableEntity, "subject must not be empty")
		return
	}
	if t, ok := d.replayed(key, &req); ok {
		w.Header().Set("Idempotency-Replayed", "true")
		d.finish(w, r, t, Fault{})
		return
	}
	d.perform(w, r, &req, key, fault)
}

// perform commits now or later and answers.
func (d *Desk) perform(w http.ResponseWriter, r *http.Request, req *request, key string, fault Fault) {
	if fault.Kind == LateCommit {
		d.commitLate(req, key, fault)
		reset(w)
		return
	}
	t, err := d.commit(req, key, fault)
	if err == nil && fault.Kind == Twice {
		_, err = d.commit(req, key, fault)
	}
	switch {
	case errors.Is(err, errTaken):
		refuse(w, http.StatusConflict, err.Error())
	case err != nil:
		refuse(w, http.StatusInternalServerError, err.Error())
	default:
		d.finish(w, r, t, fault)
	}
}

// headerFault is the fault that the request itself names; the header wins over the field.
func headerFault(r *http.Request, field *Fault) (*Fault, error) {
	text := r.Header.Get(faultHeader)
	if text == "" {
		return field, nil
	}
	f, err := ParseFault(text)
	return &f, err
}

type page struct {
	Items    []Ticket `json:"items"`
	Next     *string  `json:"next"`     // a path; null on the last page
	Complete bool     `json:"complete"` // the index behind the answer is whole; true on every page of it
}

func (d *Desk) list(w http.ResponseWriter, r *http.Request) {
	if !d.allowed(w, r) {
		return
	}
	query := r.URL.Query()
	ref, filtered := query.Get("external_ref"), query.Has("external_ref")
	limit, err1 := number(query.Get("limit"), defaultPage)
	from, err2 := number(query.Get("cursor"), 0)
	if err1 != nil || err2 != nil || limit < 1 || from < 0 {
		refuse(w, http.StatusBadRequest, "limit and cursor must be whole numbers, limit at least 1")
		return
	}
	fault, err := d.readFault(r, ref)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	items, next := d.find(ref, filtered, from, min(limit, maxPage))
	p := page{Items: items, Complete: !d.Mode().Incomplete}
	if next > 0 {
		query.Set("cursor", strconv.Itoa(next))
		path := "/tickets?" + query.Encode()
		p.Next = &path
	}
	d.answerRead(w, r, p, fault)
}

func number(text string, otherwise int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	return strconv.Atoi(text)
}

// find gives the visible tickets from a position of the table on, and the
// position to go on from; 0 when there are no more.
func (d *Desk) find(ref string, filtered bool, from, limit int) ([]Ticket, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	items := []Ticket{}
	if d.mode.Hidden {
		return items, 0
	}
	now := time.Now()
	for i := from; i < len(d.rows); i++ {
		r := d.rows[i]
		if r.deleted || r.VisibleAt.After(now) || filtered && r.Ticket.ExternalRef != ref {
			continue
		}
		if len(items) == limit {
			return items, i
		}
		items = append(items, r.Ticket)
	}
	return items, 0
}

func (d *Desk) readFault(r *http.Request, ref string) (Fault, error) {
	if named, err := headerFault(r, nil); err != nil || named != nil {
		return deref(named), err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	queue := d.reads[ref]
	if len(queue) == 0 {
		return Fault{}, nil
	}
	d.reads[ref] = queue[1:]
	return queue[0], nil
}

func deref(f *Fault) Fault {
	if f == nil {
		return Fault{}
	}
	return *f
}

func (d *Desk) get(w http.ResponseWriter, r *http.Request) {
	if !d.allowed(w, r) {
		return
	}
	d.mu.Lock()
	found := d.byID[r.PathValue("id")]
	seen := found != nil && !found.deleted && !d.mode.Hidden
	d.mu.Unlock()
	if !seen {
		refuse(w, http.StatusNotFound, "no such ticket")
		return
	}
	answer(w, http.StatusOK, found.Ticket) // a ticket never changes after its commit
}

func (d *Desk) delete(w http.ResponseWriter, r *http.Request) {
	if !d.allowed(w, r) {
		return
	}
	found, err := d.remove(r.PathValue("id"))
	switch {
	case err != nil:
		refuse(w, http.StatusInternalServerError, err.Error())
	case !found:
		refuse(w, http.StatusNotFound, "no such ticket")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// me lets a caller prove that an empty list means that there is nothing.
func (d *Desk) me(w http.ResponseWriter, r *http.Request) {
	if !d.allowed(w, r) {
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"login": "settled", "project": d.cfg.Project, "can_see_all": !d.Mode().Hidden,
	})
}
