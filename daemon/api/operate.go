package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/sdk/client"
)

// HoldList is the answer of /v1/holds.
type HoldList struct {
	Holds []client.Hold `json:"holds"`
}

// HoldRequest raises a hold.
type HoldRequest struct {
	Scope   string `json:"scope"`
	Because string `json:"because"`
}

// Released says how many held effects may go on.
type Released struct {
	Released int `json:"released"`
}

func (a *api) holds(w http.ResponseWriter, r *http.Request) {
	hs, err := a.svc.Holds(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, HoldList{Holds: each(hs, hold)})
}

func (a *api) hold(w http.ResponseWriter, r *http.Request) {
	var in HoldRequest
	body, err := readBody(w, r, 64<<10)
	if err == nil {
		err = strict(body, &in)
	}
	if err == nil {
		err = holdFaults(in)
	}
	if err == nil {
		err = a.svc.Hold(r.Context(), in.Scope, by(r, in.Because))
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusCreated, in)
}

func holdFaults(in HoldRequest) error {
	var faults []string
	kind, rest, _ := strings.Cut(in.Scope, ":")
	dest, part, slash := strings.Cut(rest, "/")
	ok := in.Scope == "all"
	switch kind {
	case "key", "run", "destination":
		ok = rest != ""
	case "target", "account":
		ok = slash && dest != "" && part != ""
	}
	if !ok {
		faults = append(faults, fmt.Sprintf("scope: %q is none; use key:K, run:R, target:DEST/T, account:DEST/A, destination:D or all", in.Scope))
	}
	if strings.TrimSpace(in.Because) == "" {
		faults = append(faults, "because: say why; it goes into the audit chain")
	}
	if len(faults) > 0 {
		return &daemon.InvalidError{Faults: faults}
	}
	return nil
}

func (a *api) release(w http.ResponseWriter, r *http.Request) {
	n, err := a.svc.Release(r.Context(), r.PathValue("scope"), by(r, r.URL.Query().Get("because")))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, Released{Released: n})
}

// DestinationList is the answer of /v1/destinations.
type DestinationList struct {
	Destinations []client.Destination `json:"destinations"`
}

func (a *api) destinations(w http.ResponseWriter, r *http.Request) {
	ds, err := a.svc.Destinations(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, DestinationList{Destinations: each(ds, destination)})
}

func (a *api) destination(w http.ResponseWriter, r *http.Request) {
	d, err := a.svc.Destination(r.Context(), r.PathValue("name"))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, destination(d))
}

// pause returns the handler of pause (true) or resume (false).
func (a *api) pause(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		because, err := a.because(w, r)
		if err == nil {
			err = a.svc.PauseDestination(r.Context(), r.PathValue("name"), on, by(r, because))
		}
		if err != nil {
			a.fail(w, r, err)
			return
		}
		a.destination(w, r)
	}
}

// ScheduleList is the answer of /v1/schedules.
type ScheduleList struct {
	Schedules []client.Schedule `json:"schedules"`
}

func (a *api) schedules(w http.ResponseWriter, r *http.Request) {
	ss, err := a.svc.Schedules(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, ScheduleList{Schedules: each(ss, schedule)})
}

// sweep runs a schedule and streams its reports; the last one has done set.
func (a *api) sweep(w http.ResponseWriter, r *http.Request) {
	var mu sync.Mutex // guards w and begun: progress may come from another goroutine than the end
	begun := false
	rc := http.NewResponseController(w)
	send := func(rep daemon.SweepReport) {
		mu.Lock()
		defer mu.Unlock()
		if !begun {
			begun = true
			w.Header().Set("Content-Type", ndjson)
		}
		data, err := json.Marshal(sweep(rep))
		if err == nil {
			_, _ = w.Write(append(data, '\n')) // a client that has gone ends the request's context
			_ = rc.Flush()
		}
	}
	ctx, cancel := waiting(r)
	defer cancel()
	last, err := a.svc.Sweep(ctx, r.PathValue("name"), func(rep daemon.SweepReport) {
		if !rep.Done { // the end is written once, below
			send(rep)
		}
	})
	mu.Lock()
	first := !begun
	mu.Unlock()
	if err != nil && first {
		a.fail(w, r, err)
		return
	}
	if err != nil && last.Error == "" {
		last.Error = err.Error()
	}
	last.Done = true
	send(last)
}

func (a *api) status(w http.ResponseWriter, r *http.Request) {
	s, err := a.svc.Status(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, status(s))
}

func (a *api) drain(w http.ResponseWriter, r *http.Request) {
	because, err := a.because(w, r)
	if err == nil {
		err = a.svc.Drain(r.Context(), by(r, because))
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.status(w, r)
}

func (a *api) verify(w http.ResponseWriter, r *http.Request) {
	rep, err := a.svc.Verify(r.Context(), r.URL.Query().Get("expect_head"))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, verify(rep))
}

// BackupFile names the file of a backup.
type BackupFile struct {
	File string `json:"file"`
}

func (a *api) backup(w http.ResponseWriter, r *http.Request) {
	var in BackupFile
	body, err := readBody(w, r, 64<<10)
	if err == nil {
		err = strict(body, &in)
	}
	if err == nil && !filepath.IsAbs(in.File) {
		err = &daemon.InvalidError{Faults: []string{"file: an absolute path is expected; the daemon has its own working directory"}}
	}
	if err == nil {
		err = a.svc.Backup(r.Context(), filepath.Clean(in.File))
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusCreated, in)
}

func (a *api) checkJournal(w http.ResponseWriter, r *http.Request) {
	rep, err := a.svc.CheckJournal(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, verify(rep))
}

func (a *api) prune(w http.ResponseWriter, r *http.Request) {
	rep, err := a.svc.Prune(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, client.PruneReport{Effects: rep.Effects, Payloads: rep.Payloads})
}

// RestoreConfirmation is a person's word that ends the hold of a restore.
type RestoreConfirmation struct {
	OldDaemonDeadAt time.Time `json:"old_daemon_dead_at"`
	Because         string    `json:"because"`
}

func (a *api) confirmRestore(w http.ResponseWriter, r *http.Request) {
	var in RestoreConfirmation
	body, err := readBody(w, r, 64<<10)
	if err == nil {
		err = strict(body, &in)
	}
	if err == nil {
		err = a.svc.ConfirmRestore(r.Context(), in.OldDaemonDeadAt, by(r, in.Because))
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.status(w, r)
}

func (a *api) reload(w http.ResponseWriter, r *http.Request) {
	if a.opts.Reload == nil {
		a.fail(w, r, daemon.ErrNotBuilt)
		return
	}
	rep, err := a.opts.Reload(r.Context(), by(r, "reload"))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, rep)
}

func (a *api) stats(w http.ResponseWriter, r *http.Request) {
	s, err := a.svc.Stats(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, s)
}

func (a *api) healthz(w http.ResponseWriter, r *http.Request) {
	a.probe(w, r, a.svc.Healthy(r.Context()))
}

func (a *api) readyz(w http.ResponseWriter, r *http.Request) { a.probe(w, r, a.svc.Ready(r.Context())) }

func (a *api) probe(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		writeProblem(w, r, problem(http.StatusServiceUnavailable, client.CodeNotReady, "Not ready", err.Error()))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

func (a *api) metrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if a.opts.Metrics == nil {
		return
	}
	if err := a.opts.Metrics(w); err != nil {
		a.log.Warn("metrics were not written", "err", err)
	}
}
