package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/api"
	"github.com/settled-dev/settled/daemon/api/apitest"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (*apitest.Fake, *client.Client) {
	f := apitest.New()
	c := client.New(apitest.Start(t, f, api.Options{}))
	t.Cleanup(c.Close)
	return f, c
}

func intent(key, operation string) client.SubmitRequest {
	return client.SubmitRequest{Destination: "desk", Operation: operation, Key: key, Payload: []byte(`{"a": 1, "h":"<&>"}`)}
}

// which runs Match and says which case it was.
func which(r client.Result) (name string, seen any) {
	r.Match(
		func(d client.Done) { name, seen = "done", d },
		func(n client.NotDone) { name, seen = "not done", n },
		func(u client.Unknown) { name, seen = "unknown", u },
	)
	return name, seen
}

func TestDoAnswersEveryEndWithOneOfThreeCases(t *testing.T) {
	f, c := start(t)
	for operation, want := range map[string]string{
		"done": "done", "refused": "not done", "asks": "unknown", "compensated": "unknown", "abandoned": "unknown",
	} {
		got, seen := which(c.Do(t.Context(), intent("k:"+operation, operation)))
		if got != want {
			t.Errorf("%s: %s %+v, want %s", operation, got, seen, want)
		}
	}
	if got, _ := which(c.Do(t.Context(), intent("k:done", "refused"))); got != "not done" {
		t.Errorf("a key bound to another request: %s", got)
	}
	f.Fail("Submit", &daemon.InvalidError{Faults: []string{"x"}})
	if got, _ := which(c.Do(t.Context(), intent("k:new", "done"))); got != "not done" {
		t.Errorf("a refused submit: %s", got)
	}
	f.Fail("Submit", daemon.ErrSubmissionUnknown)
	if got, _ := which(c.Do(t.Context(), intent("k:new", "done"))); got != "unknown" {
		t.Errorf("a commit of unknown outcome: %s", got)
	}
}

func TestAWaitThatEndsEarlyIsUnknownEvenBeforeTheSend(t *testing.T) {
	_, c := start(t)
	for _, operation := range []string{"create", "lost"} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		got, seen := which(c.Do(ctx, intent("k:"+operation, operation)))
		cancel()
		u, _ := seen.(client.Unknown)
		if got != "unknown" || u.Effect.Key == "" || !errors.Is(u.Err, context.DeadlineExceeded) {
			t.Errorf("%s: %s %+v", operation, got, seen)
		}
	}
}

func TestNoDaemonIsNotDoneAndALostAnswerIsUnknown(t *testing.T) {
	nobody := client.New(filepath.Join(t.TempDir(), "none"))
	defer nobody.Close()
	got, seen := which(nobody.Do(t.Context(), intent("k:1", "done")))
	var gone *client.UnreachableError
	if n, _ := seen.(client.NotDone); got != "not done" || !errors.As(n.Err, &gone) {
		t.Errorf("no daemon: %s %+v", got, seen)
	}
	c := client.New(deaf(t))
	defer c.Close()
	if got, seen := which(c.Do(t.Context(), intent("k:1", "done"))); got != "unknown" {
		t.Errorf("an answer that never came: %s %+v", got, seen)
	}
	var lost *client.LostError
	if _, err := c.Submit(t.Context(), intent("k:1", "done")); !errors.As(err, &lost) {
		t.Errorf("a submit without an answer: %v", err)
	}
}

// deaf reads a request and hangs up.
func deaf(t *testing.T) string {
	dir, err := os.MkdirTemp("", "settled")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	return l.Addr().String()
}

func TestMatchAsksForAllThree(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Match took a nil case")
		}
	}()
	client.ResultOf(client.Effect{Phase: "succeeded"}, nil).Match(func(client.Done) {}, nil, func(client.Unknown) {})
}

func TestTheZeroResultIsUnknown(t *testing.T) {
	if got, _ := which(client.Result{}); got != "unknown" {
		t.Error(got)
	}
}

func TestThePayloadArrivesByteForByte(t *testing.T) {
	f, c := start(t)
	if _, err := c.Submit(t.Context(), intent("k:1", "create")); err != nil {
		t.Fatal(err)
	}
	if got := string(f.LastSubmit.Payload); got != `{"a": 1, "h":"<&>"}` {
		t.Errorf("payload arrives as %s", got)
	}
}

func TestRoundTrips(t *testing.T) {
	f, c := start(t)
	ctx := t.Context()
	for i, p := range []journal.Phase{journal.Unknown, journal.NeedsHuman, journal.Succeeded} {
		f.Put(apitest.Effect("k:"+string(rune('a'+i)), p))
	}
	page, err := c.List(ctx, "", "", 2)
	if err != nil || len(page.Effects) != 2 || page.Next != "k:b" || page.Effects[0].Attempts != nil {
		t.Errorf("list: %+v %v", page, err)
	}
	if page, err = c.List(ctx, "", page.Next, 2); err != nil || len(page.Effects) != 1 || page.Next != "" {
		t.Errorf("second page: %+v %v", page, err)
	}
	e, err := c.Effect(ctx, "k:a", client.WithPayload())
	if err != nil || len(e.Attempts) != 1 || len(e.Reconciliations) != 1 || e.Unknown.ProvesCommit == nil || string(e.Payload) != `{"subject":"printer on fire"}` {
		t.Errorf("effect: %+v %v", e, err)
	}
	var p *client.Problem
	if _, err := c.Decide(ctx, "k:b", client.Decision{Decision: "read", Because: "x"}, 3); !errors.As(err, &p) || p.Code != client.CodeStale || p.Seq != 7 {
		t.Errorf("stale decision: %v", err)
	}
	if e, err := c.Decide(ctx, "k:b", client.Decision{Decision: "assign", To: "lead", Because: "x"}, 7); err != nil || e.Review.Owner != "lead" {
		t.Errorf("decision: %v", err)
	}
	if rs, err := c.Reviews(ctx, ""); err != nil || len(rs) != 1 || rs[0].Seq != 8 || len(rs[0].Candidates) != 2 {
		t.Errorf("reviews: %+v %v", rs, err)
	}
	if err := c.Hold(ctx, "target:desk/a b/c", "x"); err != nil {
		t.Error(err)
	}
	if hs, err := c.Holds(ctx); err != nil || len(hs) != 1 || hs[0].Scope != "target:desk/a b/c" || hs[0].RaisedBy != nil {
		t.Errorf("holds: %+v %v", hs, err)
	}
	if n, err := c.Release(ctx, "target:desk/a b/c"); err != nil || n != 2 {
		t.Errorf("release: %d %v", n, err)
	}
	if s, err := c.Status(ctx); err != nil || s.Phases["unknown"] != 1 || len(s.Phases) != 15 || s.Reviews.Open != 1 {
		t.Errorf("status: %+v %v", s, err)
	}
	if d, err := c.Destination(ctx, "desk"); err != nil || len(d.Operations) != 1 {
		t.Errorf("destination: %+v %v", d, err)
	}
	if err := errors.Join(c.Pause(ctx, "desk", "x"), c.Resume(ctx, "desk", "x"), c.Backup(ctx, "/tmp/b.db"), c.Drain(ctx, "x")); err != nil {
		t.Error(err)
	}
	if err := c.Backup(ctx, "relative.db"); !errors.As(err, &p) || p.Code != client.CodeInvalid {
		t.Errorf("relative backup: %v", err)
	}
	steps := 0
	if r, err := c.Sweep(ctx, "desk-sweep", func(client.SweepReport) { steps++ }); err != nil || !r.Done || steps != 2 {
		t.Errorf("sweep: %+v %v", r, err)
	}
}

func TestFollowedEventsEndWithTheContext(t *testing.T) {
	f, c := start(t)
	f.Put(apitest.Effect("k:1", journal.Unknown))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seqs []int64
	err := c.Events(ctx, 0, "", true, func(e client.Event) error {
		seqs = append(seqs, e.Seq)
		if e.Seq == 1 {
			f.Put(apitest.Effect("k:2", journal.Unknown))
		} else {
			cancel()
		}
		return nil
	})
	if err != nil || len(seqs) != 2 {
		t.Errorf("%v %v", seqs, err)
	}
}
