package desk

import (
	"encoding/json"
	"net/http"
	"time"
)

// controlFaults is Inject and InjectRead for another process:
// {"ref":"…","faults":["lost-answer"],"on":"create"|"read"}.
func (d *Desk) controlFaults(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Ref    string  `json:"ref"`
		On     string  `json:"on"`
		Faults []Fault `json:"faults"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	switch in.On {
	case "", "create":
		d.Inject(in.Ref, in.Faults...)
	case "read":
		d.InjectRead(in.Ref, in.Faults...)
	default:
		refuse(w, http.StatusBadRequest, `"on" must be create or read`)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// controlMode is SetMode for another process: the fields of Mode, and "for", a
// duration after which the desk is up again. A refusing desk cannot be told
// anything, so "refuse" needs it. The change happens after the answer left.
func (d *Desk) controlMode(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Mode
		For string `json:"for"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if in.Outage != Refusing {
		if err := d.SetMode(in.Mode); err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	wait, err := time.ParseDuration(in.For)
	if err != nil || wait <= 0 {
		refuse(w, http.StatusBadRequest, `"refuse" needs "for", such as "2s"`)
		return
	}
	d.work.Go(func() { d.refuseFor(in.Mode, wait) })
	w.WriteHeader(http.StatusNoContent)
}

// refuseFor ends the outage by itself. A port that was taken meanwhile is asked for again.
func (d *Desk) refuseFor(m Mode, wait time.Duration) {
	steps := []time.Duration{20 * time.Millisecond, wait, time.Second, time.Second, time.Second}
	for i, step := range steps {
		select {
		case <-time.After(step):
		case <-d.done.Done():
			return
		}
		if i > 0 {
			m.Outage = Up
		}
		if err := d.SetMode(m); err == nil && i > 0 {
			return
		}
	}
}
