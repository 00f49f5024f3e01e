package main

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/api"
	"github.com/settled-dev/settled/journal"
)

// withDebug adds /debug to the API's handler: profiles of this process and what
// is in flight. A profile shows memory, so only root and the daemon's own user
// get it, by the kernel's word of who is at the other end.
func withDebug(next http.Handler, d *daemon.Daemon) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/inflight", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(d.Busy()) // a client that has gone needs no answer
	})
	top := http.NewServeMux()
	top.Handle("/", next)
	top.Handle("/debug/", ownersOnly(mux, api.ByPeer, os.Geteuid()))
	return top
}

// ownersOnly lets root and uid through.
func ownersOnly(next http.Handler, who func(*http.Request) (journal.By, error), uid int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, err := who(r)
		if err != nil || (by.Actor != "uid:0" && by.Actor != "uid:"+strconv.Itoa(uid)) {
			http.Error(w, "only root and the daemon's own user may look here; type: sudo curl --unix-socket …", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
