package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk/client"
)

// Options are what the API needs besides the service. The zero value works.
type Options struct {
	// Log gets internal errors and panics; nil: they are dropped.
	Log *slog.Logger
	// Version is shown in the OpenAPI document.
	Version string
	// Metrics writes the Prometheus text of /metrics; nil: the page is empty.
	Metrics func(io.Writer) error
	// Reload reads the configuration again; nil: 501. Faults are a *daemon.InvalidError.
	Reload func(context.Context, journal.By) (client.ReloadReport, error)
	// Identify says who sends a request; nil: [ByPeer].
	Identify func(*http.Request) (journal.By, error)
	// Heartbeat is how often an idle event stream gets a comment; 0: 15 s.
	Heartbeat time.Duration
}

type api struct {
	svc  Service
	opts Options
	log  *slog.Logger
	mux  *http.ServeMux
}

// New returns the handler of every route. It starts nothing.
func New(svc Service, opts Options) http.Handler {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Identify == nil {
		opts.Identify = ByPeer
	}
	if opts.Heartbeat <= 0 {
		opts.Heartbeat = 15 * time.Second
	}
	a := &api{svc: svc, opts: opts, log: opts.Log, mux: http.NewServeMux()}
	for _, rt := range a.routes() {
		h := rt.handle
		if rt.role != open {
			h = a.identified(h)
		}
		a.mux.HandleFunc(rt.method+" "+rt.path, h)
	}
	a.mux.HandleFunc("/", a.nothingHere)
	return a.contained(http.NewCrossOriginProtection().Handler(a.mux))
}

// contained keeps a panic inside its request.
func (a *api) contained(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			a.log.Error("a handler panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			writeProblem(w, r, problem(http.StatusInternalServerError, client.CodeInternal, "Internal error", "the daemon's log says more"))
		}()
		next.ServeHTTP(w, r)
	})
}

// nothingHere answers what no route takes: 405 when another method would do, else 404.
func (a *api) nothingHere(w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = m
		if _, pattern := a.mux.Handler(probe); pattern != "/" && pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) > 0 {
		w.Header().Set("Allow", strings.Join(allow, ", "))
		writeProblem(w, r, problem(http.StatusMethodNotAllowed, client.CodeMethod, "Method not allowed", "allowed here: "+strings.Join(allow, ", ")))
		return
	}
	writeProblem(w, r, problem(http.StatusNotFound, client.CodeNotFound, "Not found", "no such route; /openapi.json lists them"))
}

// NewServer wraps a handler in a server that knows its peers and bounds how
// long a client may take to say what it wants.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Handler: h, ConnContext: ConnContext, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// Serve answers on the listener until ctx ends, then stops taking connections,
// ends streams and long polls, waits up to grace for the other requests and
// returns once all have ended or were cut off. It closes the listener.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger, grace time.Duration) error {
	streams, endStreams := context.WithCancel(context.Background())
	defer endStreams()
	srv := NewServer(h, log)
	srv.BaseContext = func(net.Listener) context.Context { return context.WithValue(context.Background(), stopKey{}, streams) }
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve the API: %w", err)
	case <-ctx.Done():
	}
	endStreams()
	shut, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := srv.Shutdown(shut)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop the API: %w", err), srv.Close())
	}
	<-served
	return err
}

type stopKey struct{}

// waiting derives a context for what may wait long: it also ends when the
// server stops, while requests that write go on.
func waiting(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	stop, ok := r.Context().Value(stopKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	undo := context.AfterFunc(stop, cancel)
	return ctx, func() { undo(); cancel() }
}
