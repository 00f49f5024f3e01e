package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func start(t *testing.T, cfg Config) *Desk {
	t.Helper()
	d, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// reply is what a caller gets: an error, or a status with a body.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error
}

func call(t *testing.T, method, url, body string, headers ...string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return callIn(ctx, t, method, url, body, headers...)
}

func callIn(ctx context.Context, t *testing.T, method, url, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil // the client must not send again by itself
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	data, err := io.ReadAll(res.Body)
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	return reply{status: res.StatusCode, header: res.Header, body: data, err: err}
}

const (
	ref  = "ticket:SUP-4182:create:v1"
	good = `{"external_ref":"` + ref + `","digest":"sha256:aa","queue":"network","subject":"Uplink flaps","body":"since noon","priority":2}`
)

func create(t *testing.T, d *Desk, headers ...string) reply {
	t.Helper()
	return call(t, "POST", d.URL()+"/tickets", good, headers...)
}

func listed(t *testing.T, d *Desk, query string) page {
	t.Helper()
	r := call(t, "GET", d.URL()+"/tickets?"+query, "")
	var p page
	if err := json.Unmarshal(r.body, &p); err != nil || r.status != 200 {
		t.Fatalf("list %s: %d %s %v", query, r.status, r.body, errors.Join(err, r.err))
	}
	return p
}

func TestATicketIsCreatedFoundAndDeletedOnce(t *testing.T) {
	d := start(t, Config{})
	r := create(t, d)
	var made Ticket
	if err := json.Unmarshal(r.body, &made); err != nil || r.status != 201 {
		t.Fatalf("create: %d %s", r.status, r.body)
	}
	p := listed(t, d, "external_ref="+ref)
	if len(p.Items) != 1 || !p.Complete || p.Next != nil || p.Items[0].ID != made.ID {
		t.Fatalf("list: %+v", p)
	}
	got := p.Items[0]
	if got.Digest != "sha256:aa" || got.Queue != "network" || *got.Body != "since noon" || got.Project != "acme" || got.CreatedAt.IsZero() {
		t.Fatalf("stored otherwise than sent: %+v", got)
	}
	at := d.URL() + "/tickets/" + made.ID
	for i, want := range []int{204, 404} {
		if r := call(t, "DELETE", at, ""); r.status != want {
			t.Fatalf("delete %d: %d, want %d", i+1, r.status, want)
		}
	}
	if r := call(t, "GET", at, ""); r.status != 404 {
		t.Fatalf("deleted ticket answers %d", r.status)
	}
	e := d.Ledger().Of(ref)
	if len(e.Requests) != 1 || len(e.Commits) != 1 || len(e.Removals) != 1 {
		t.Fatalf("ledger: %+v", e)
	}
}

func TestEveryFaultCommitsExactlyWhatItSays(t *testing.T) {
	cases := []struct {
		fault   string
		status  int // 0 = no usable answer
		commits int
	}{
		{"none", 201, 1},
		{"lost-answer", 0, 1},
		{"lost-request", 0, 0},
		{"error-500", 500, 1},
		{"error-502", 502, 1},
		{"truncated", 0, 1},
		{"garbled", 201, 1},
		{"drop-ref", 201, 1},
		{"drop-body", 201, 1},
		{"twice", 201, 2},
		{"read-lag:1m", 201, 1},
		{"busy:3s", 429, 0},
		{"invalid", 422, 0},
		{"unauthorized", 401, 0},
		{"forbidden", 403, 0},
		{"hang:10ms", 504, 0},
		{"hang-commit:10ms", 504, 1},
	}
	for _, c := range cases {
		t.Run(c.fault, func(t *testing.T) {
			d := start(t, Config{})
			r := create(t, d, faultHeader, c.fault)
			switch {
			case c.status == 0 && r.err == nil:
				t.Errorf("answered %d %q, want no usable answer", r.status, r.body)
			case c.status != 0 && (r.err != nil || r.status != c.status):
				t.Errorf("answered %d (%v), want %d", r.status, r.err, c.status)
			}
			if strings.HasPrefix(c.fault, "lost") && !errors.Is(r.err, syscall.ECONNRESET) {
				t.Errorf("the connection ended with %v, want a reset", r.err)
			}
			e := d.Ledger().Of(ref)
			if len(e.Requests) != 1 || len(e.Commits) != c.commits {
				t.Errorf("requests %d commits %d, want 1 and %d", len(e.Requests), len(e.Commits), c.commits)
			}
			if len(e.Requests) == 1 && e.Requests[0].Fault.Kind != parsed(t, c.fault).Kind {
				t.Errorf("ledger names the fault %s", e.Requests[0].Fault)
			}
		})
	}
}

func parsed(t *testing.T, text string) Fault {
	t.Helper()
	f, err := ParseFault(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestWhatAFaultyAnswerLooksLike(t *testing.T) {
	d := start(t, Config{})
	if r := create(t, d, faultHeader, "drop-ref"); bytes.Contains(r.body, []byte("external_ref")) {
		t.Errorf("drop-ref answered %s", r.body)
	}
	if got := listed(t, d, "external_ref="+ref).Items; len(got) != 0 {
		t.Errorf("the dropped reference is found: %+v", got)
	}
	if r := create(t, d, faultHeader, "drop-body"); !bytes.Contains(r.body, []byte(`"body":null`)) {
		t.Errorf("drop-body answered %s", r.body)
	}
	if r := create(t, d, faultHeader, "garbled"); json.Valid(r.body) {
		t.Errorf("garbled answered valid JSON %s", r.body)
	}
	if r := create(t, d, faultHeader, "busy:3s"); r.header.Get("Retry-After") != "3" {
		t.Errorf("busy says Retry-After %q", r.header.Get("Retry-After"))
	}
	if r := create(t, d, faultHeader, "nonsense"); r.status != 400 {
		t.Errorf("an unknown fault answers %d", r.status)
	}
}

func TestALateCommitHappensAfterTheConnectionDied(t *testing.T) {
	d := start(t, Config{})
	began := time.Now()
	if r := create(t, d, faultHeader, "late-commit:300ms"); r.err == nil {
		t.Fatalf("answered %d", r.status)
	}
	if got := d.Ledger().Of(ref); len(got.Commits) != 0 && time.Since(began) < 300*time.Millisecond {
		t.Fatalf("committed at once: %+v", got)
	}
	if err := d.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := d.Ledger().Of(ref)
	if len(e.Commits) != 1 || e.Commits[0].At.Sub(began) < 300*time.Millisecond {
		t.Fatalf("after draining: %+v", e)
	}
}

func TestALateCommitLosesAgainstATakenReference(t *testing.T) {
	d := start(t, Config{Mode: Mode{Unique: true}})
	create(t, d, faultHeader, "late-commit:200ms")
	if r := create(t, d); r.status != 201 {
		t.Fatalf("second request: %d %s", r.status, r.body)
	}
	if err := d.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := create(t, d); r.status != 409 {
		t.Fatalf("third request: %d", r.status)
	}
	if e := d.Ledger().Of(ref); len(e.Commits) != 1 || len(e.Requests) != 3 {
		t.Fatalf("ledger: %+v", e)
	}
}

func TestTheSameKeyTwiceIsADuplicateUnlessDedupeWasAskedFor(t *testing.T) {
	for _, window := range []time.Duration{0, time.Hour} {
		d := start(t, Config{DedupeWindow: window})
		first := create(t, d, "Idempotency-Key", ref)
		second := create(t, d, "Idempotency-Key", ref)
		want := 2
		if window > 0 {
			want = 1
			if !bytes.Equal(first.body, second.body) {
				t.Errorf("replayed otherwise: %s, %s", first.body, second.body)
			}
		}
		l := d.Ledger()
		if got := len(l.Of(ref).Commits); got != want {
			t.Errorf("window %v: %d commits, want %d", window, got, want)
		}
		if got := len(l.Duplicates()); got != want-1 {
			t.Errorf("window %v: %d duplicates", window, got)
		}
	}
}

func TestTheListLagsBehindTheCommit(t *testing.T) {
	d := start(t, Config{Lag: 200 * time.Millisecond})
	create(t, d)
	made := d.Ledger().Of(ref).Commits[0]
	if p := listed(t, d, "external_ref="+ref); len(p.Items) != 0 && time.Since(made.At) < 200*time.Millisecond {
		t.Fatal("seen before the lag was over")
	}
	if r := call(t, "GET", d.URL()+"/tickets/"+made.ID, ""); r.status != 200 {
		t.Fatalf("the primary does not know it: %d", r.status)
	}
	for len(listed(t, d, "external_ref="+ref).Items) == 0 {
		if time.Since(made.At) > 5*time.Second {
			t.Fatal("never seen")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if seen := time.Since(made.At); seen < 200*time.Millisecond {
		t.Fatalf("seen after %v", seen)
	}
	honest, lying := d.lag(Fault{Kind: ReadLag}), d.lag(Fault{Kind: LyingLag})
	if honest != 200*time.Millisecond || lying <= honest {
		t.Fatalf("lag %v, lying lag %v", honest, lying)
	}
}

func TestPagesCoverEveryTicketOnce(t *testing.T) {
	d := start(t, Config{})
	for range 5 {
		create(t, d)
	}
	call(t, "POST", d.URL()+"/tickets", `{"external_ref":"ticket:SUP-9:create:v1","subject":"other"}`)
	seen := map[string]int{}
	query, pages := "external_ref="+ref+"&limit=2", 0
	for query != "" && pages < 10 {
		p := listed(t, d, query)
		for _, item := range p.Items {
			seen[item.ID]++
		}
		query, pages = "", pages+1
		if p.Next != nil {
			query = strings.TrimPrefix(*p.Next, "/tickets?")
		}
	}
	if len(seen) != 5 || pages != 3 {
		t.Fatalf("%d pages, seen %v", pages, seen)
	}
}

func TestALostViewIsAnEmptyListThatOnlyTheGuardGivesAway(t *testing.T) {
	d := start(t, Config{})
	create(t, d)
	if err := d.SetMode(Mode{Hidden: true}); err != nil {
		t.Fatal(err)
	}
	if p := listed(t, d, "external_ref="+ref); len(p.Items) != 0 || !p.Complete {
		t.Fatalf("hidden list: %+v", p)
	}
	if r := call(t, "GET", d.URL()+"/me", ""); !bytes.Contains(r.body, []byte(`"can_see_all":false`)) {
		t.Fatalf("guard: %s", r.body)
	}
	if err := d.SetMode(Mode{Incomplete: true}); err != nil {
		t.Fatal(err)
	}
	if p := listed(t, d, "external_ref="+ref); len(p.Items) != 1 || p.Complete {
		t.Fatalf("incomplete list: %+v", p)
	}
	if r := call(t, "GET", d.URL()+"/me", ""); !bytes.Contains(r.body, []byte(`"can_see_all":true`)) {
		t.Fatalf("guard: %s", r.body)
	}
}

func TestAnOutageRefusesAndEndsOnTheSameAddress(t *testing.T) {
	d := start(t, Config{})
	url := d.URL()
	if err := d.SetMode(Mode{Outage: Unavailable}); err != nil {
		t.Fatal(err)
	}
	if r := create(t, d); r.status != 503 {
		t.Fatalf("unavailable: %d %v", r.status, r.err)
	}
	if err := d.SetMode(Mode{Outage: Refusing}); err != nil {
		t.Fatal(err)
	}
	if r := create(t, d); r.err == nil {
		t.Fatalf("refusing: answered %d", r.status)
	}
	if err := d.SetMode(Mode{}); err != nil {
		t.Fatal(err)
	}
	if r := create(t, d); r.status != 201 || d.URL() != url {
		t.Fatalf("after the outage: %d %v at %s, was %s", r.status, r.err, d.URL(), url)
	}
	if e := d.Ledger().Of(ref); len(e.Requests) != 1 {
		t.Fatalf("an outage counted requests: %+v", e)
	}
}

func TestFaultsOfReadsLeaveTheTicketsAlone(t *testing.T) {
	d := start(t, Config{})
	create(t, d)
	d.InjectRead(ref, parsed(t, "error-500"), parsed(t, "lost-answer"), parsed(t, "truncated"), parsed(t, "garbled"), parsed(t, "busy"))
	url := d.URL() + "/tickets?external_ref=" + ref
	for i, want := range []int{500, 0, 0, 200, 429} {
		r := call(t, "GET", url, "")
		if want == 0 && r.err == nil || want != 0 && r.status != want || r.status == 200 && json.Valid(r.body) {
			t.Fatalf("read %d: %d %q %v, want %d", i, r.status, r.body, r.err, want)
		}
	}
	if p := listed(t, d, "external_ref="+ref); len(p.Items) != 1 {
		t.Fatalf("afterwards: %+v", p)
	}
}

func TestTokensSeparateWritingFromRepairing(t *testing.T) {
	d := start(t, Config{Token: "write", RepairToken: "repair"})
	if r := create(t, d); r.status != 401 {
		t.Fatalf("without a token: %d", r.status)
	}
	if r := create(t, d, "Authorization", "Bearer write"); r.status != 201 {
		t.Fatalf("with the token: %d", r.status)
	}
	at := d.URL() + "/tickets/" + d.Tickets()[0].ID
	if r := call(t, "DELETE", at, "", "Authorization", "Bearer write"); r.status != 403 {
		t.Fatalf("delete with the ordinary token: %d", r.status)
	}
	if r := call(t, "DELETE", at, "", "Authorization", "Bearer repair"); r.status != 204 {
		t.Fatalf("delete with the repair token: %d", r.status)
	}
}

func TestAHangingRequestEndsWithItsCallerAndWithTheDesk(t *testing.T) {
	d := start(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r := callIn(ctx, t, "POST", d.URL()+"/tickets", good, faultHeader, "hang"); !errors.Is(r.err, context.DeadlineExceeded) {
		t.Fatalf("answered %d %v", r.status, r.err)
	}
	over := make(chan reply, 1)
	go func() { over <- create(t, d, faultHeader, "hang-commit") }()
	for len(d.Ledger().Of(ref).Commits) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if r := <-over; r.err == nil {
		t.Fatalf("answered %d after the close", r.status)
	}
}

func TestInjectedFaultsAreUsedUpInOrderBeforeThePlan(t *testing.T) {
	plan, err := ParsePlan(1, "invalid=1,times=9")
	if err != nil {
		t.Fatal(err)
	}
	d := start(t, Config{Plan: plan})
	body := `{"ref":"` + ref + `","faults":["forbidden","busy:2s"]}`
	if r := call(t, "POST", d.URL()+"/_faults", body); r.status != 204 {
		t.Fatalf("control: %d %s", r.status, r.body)
	}
	for i, want := range []int{403, 429, 422} {
		if r := create(t, d); r.status != want {
			t.Fatalf("request %d: %d, want %d", i+1, r.status, want)
		}
	}
	field := strings.Replace(good, `"queue"`, `"desk_fault":"lost-request","queue"`, 1)
	if r := call(t, "POST", d.URL()+"/tickets", field); r.err == nil {
		t.Fatalf("the field was ignored: %d", r.status)
	}
	if got := len(d.Tickets()); got != 0 {
		t.Fatalf("%d tickets", got)
	}
}

func TestAnotherProcessReadsTheLedgerAndStartsAnOutage(t *testing.T) {
	d := start(t, Config{})
	create(t, d, faultHeader, "lost-answer")
	var ledger Ledger
	if r := call(t, "GET", d.URL()+"/_ledger", ""); json.Unmarshal(r.body, &ledger) != nil {
		t.Fatalf("ledger: %s", r.body)
	}
	if e := ledger.Of(ref); len(e.Commits) != 1 || e.Requests[0].Fault.Kind != LostAnswer {
		t.Fatalf("ledger: %+v", ledger)
	}
	if r := call(t, "POST", d.URL()+"/_mode", `{"outage":"refuse"}`); r.status != 400 {
		t.Fatalf("an outage without an end: %d", r.status)
	}
	if r := call(t, "POST", d.URL()+"/_mode", `{"outage":"refuse","for":"150ms"}`); r.status != 204 {
		t.Fatalf("outage: %d %s", r.status, r.body)
	}
	refused, limit := false, time.Now().Add(5*time.Second)
	for time.Now().Before(limit) {
		r := call(t, "GET", d.URL()+"/me", "")
		refused = refused || r.err != nil
		if refused && r.status == 200 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("refused %v, and not up again", refused)
}
