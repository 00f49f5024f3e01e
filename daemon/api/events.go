package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/settled-dev/settled/journal"
)

// eventPage is how many entries a stream holds in memory.
const eventPage = 500

// events streams the audit chain: server-sent events, which always follow, or
// NDJSON, which ends at the newest entry unless ?follow=true.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	from := q.Get("after")
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		from = id // the browser knows better than the address it began with
	}
	after, err := number(from, 0, 0, 1<<62, "after")
	if err != nil {
		a.fail(w, r, err)
		return
	}
	lines := strings.Contains(r.Header.Get("Accept"), ndjson) || q.Get("format") == "ndjson"
	s := &stream{a: a, w: w, rc: http.NewResponseController(w), filter: q.Get("q"), after: after, sse: !lines, follow: !lines || q.Get("follow") == "true"}
	ctx, cancel := waiting(r)
	defer cancel()
	if err := s.run(ctx); err != nil && !s.begun {
		a.fail(w, r, err)
	} else if err != nil && ctx.Err() == nil {
		a.log.Warn("an event stream broke", "err", err)
	}
}

// stream is one client's view of the chain.
type stream struct {
	a      *api
	w      io.Writer
	rc     *http.ResponseController
	filter string
	after  int64 // everything up to here was sent or filtered out
	sse    bool
	follow bool
	begun  bool
}

func (s *stream) run(ctx context.Context) error {
	for {
		more, err := s.page(ctx)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		if !s.follow {
			return nil
		}
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
}

// page sends the next entries. The head is taken first: when the page is not
// full, everything up to it was seen, whether the filter let it through or not.
func (s *stream) page(ctx context.Context) (more bool, err error) {
	head, err := s.head(ctx)
	if err != nil {
		return false, err
	}
	entries, err := s.a.svc.Events(ctx, s.after, s.filter, eventPage)
	if err != nil {
		return false, err
	}
	if err := s.begin(); err != nil {
		return false, err
	}
	for _, x := range entries {
		if err := s.send(x); err != nil {
			return false, err
		}
		s.after = x.Seq
	}
	if len(entries) == eventPage {
		return true, nil
	}
	s.after = max(s.after, head)
	return false, s.rc.Flush()
}

func (s *stream) head(ctx context.Context) (int64, error) {
	st, err := s.a.svc.Status(ctx)
	if err != nil {
		return 0, err
	}
	seq, _, _ := strings.Cut(st.Head, ":")
	n, _ := strconv.ParseInt(seq, 10, 64) // an empty chain has no head
	return n, nil
}

func (s *stream) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	w := s.w.(http.ResponseWriter)
	w.Header().Set("Content-Type", ndjson)
	if s.sse {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		_, err := io.WriteString(w, "retry: 2000\n\n")
		return err
	}
	return nil
}

func (s *stream) send(x journal.Entry) error {
	data, err := json.Marshal(event(x))
	if err != nil {
		return fmt.Errorf("event %d: %w", x.Seq, err)
	}
	if s.sse {
		_, err = fmt.Fprintf(s.w, "id: %d\nevent: %s\ndata: %s\n\n", x.Seq, x.Kind, data)
	} else {
		_, err = fmt.Fprintf(s.w, "%s\n", data)
	}
	return err
}

// wait returns when the chain has grown; an idle stream gets a comment now and
// then, so that both ends notice when the other has gone.
func (s *stream) wait(ctx context.Context) error {
	for {
		beat, cancel := context.WithTimeout(ctx, s.a.opts.Heartbeat)
		err := s.a.svc.WaitEvents(beat, s.after)
		idle := err != nil && beat.Err() != nil && ctx.Err() == nil
		cancel()
		if !idle {
			return err
		}
		if s.sse {
			if _, err := io.WriteString(s.w, ": still here "+time.Now().UTC().Format(time.TimeOnly)+"\n\n"); err != nil {
				return err
			}
		}
		if err := s.rc.Flush(); err != nil {
			return err
		}
	}
}
