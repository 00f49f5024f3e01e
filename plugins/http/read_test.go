package http

import (
	"fmt"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// ticket is one of ours, changed by more.
func ticket(id, ref string, more map[string]any) map[string]any {
	t := map[string]any{
		"id": id, "external_ref": ref, "digest": digestOf(payload), "subject": "Printer on fire", "body": "Please come",
		"status": "open", "project": "acme", "created_at": time.Now().UTC().Format(time.RFC3339),
	}
	for k, v := range more {
		t[k] = v
	}
	return t
}

func finding(r sdk.ReadResponse) string {
	names := map[sdk.Agreement]string{sdk.AgreementSame: "same", sdk.AgreementDiffers: "differs", sdk.AgreementNotCompared: "not compared", sdk.AgreementPartial: "partial"}
	switch f := r.Finding.(type) {
	case *sdk.Found:
		all := []string{}
		for _, m := range f.Matches {
			all = append(all, m.Object.ID+" "+names[m.Agreement])
		}
		return strings.Join(all, ", ")
	case *sdk.NoneSeen:
		return "none"
	case *sdk.Pending:
		return "pending"
	case *sdk.Failed:
		return "failed"
	}
	return "indeterminate"
}

func TestWhatAReadFinds(t *testing.T) {
	list := func(more ...map[string]any) []map[string]any { return more }
	const key = "k:1"
	cases := []struct {
		name    string
		tickets []map[string]any
		edits   map[string]any
		want    string
	}{
		{"ours", list(ticket("1", key, nil)), nil, "1 same"},
		{"another content", list(ticket("1", key, map[string]any{"digest": "sha256:00"})), nil, "1 differs"},
		{"a digest that is lost", list(ticket("1", key, map[string]any{"digest": nil})), nil, "1 differs"},
		{"a digest that is no text", list(ticket("1", key, map[string]any{"digest": 5})), nil, "1 differs"},
		{"not whole", list(ticket("1", key, map[string]any{"body": nil})), nil, "1 partial"},
		{"not whole and another's", list(ticket("1", key, map[string]any{"body": nil, "digest": "x"})), nil, "1 differs"},
		{"no account", list(ticket("1", key, map[string]any{"project": nil})), nil, "1 differs"},
		{"not compared", list(ticket("1", key, nil)), map[string]any{"create.read.digest": nil}, "1 not compared"},
		{"match holds", list(ticket("1", key, nil)), map[string]any{"create.read.digest": nil, "create.read.match": ".subject == $payload.subject"}, "1 same"},
		{"match does not hold", list(ticket("1", key, map[string]any{"subject": "x"})), map[string]any{"create.read.digest": nil, "create.read.match": ".subject == $payload.subject"}, "1 differs"},
		{"what is missing explains match", list(ticket("1", key, map[string]any{"body": nil})), map[string]any{"create.read.digest": nil, "create.read.match": ".body == $payload.body"}, "1 partial"},
		{"two", list(ticket("1", key, nil), ticket("2", key, nil)), nil, "1 same, 2 same"},
		{"nothing", nil, nil, "none"},
		{"the filter is ignored", list(ticket("1", "k:2", nil), ticket("2", "K:1", nil), ticket("3", "k:1 ", nil), ticket("4", "k:10", nil)), map[string]any{"create.read.path": "/tickets"}, "none"},
		{"three pages", list(ticket("1", key, nil), ticket("2", key, nil), ticket("3", key, nil), ticket("4", key, nil), ticket("5", key, nil)), nil, "1 same, 2 same, 3 same, 4 same, 5 same"},
		{"Unix seconds", list(ticket("1", key, map[string]any{"created_at": 1790000000.5})), nil, "1 same"},
		{"a time that is none", list(ticket("1", key, map[string]any{"created_at": "yesterday"})), nil, "indeterminate"},
		{"no time", list(ticket("1", key, map[string]any{"created_at": nil})), nil, "indeterminate"},
		{"no id", list(ticket("1", key, map[string]any{"id": nil})), nil, "indeterminate"},
		{"items is no list", nil, map[string]any{"create.read.items": "$response.body"}, "indeterminate"},
		{"items is null", nil, map[string]any{"create.read.items": "$response.body.itemz"}, "indeterminate"},
		{"items errs", nil, map[string]any{"create.read.items": "$response.status.x"}, "indeterminate"},
		{"marker errs", list(ticket("1", key, nil)), map[string]any{"create.read.marker": ".id.x"}, "indeterminate"},
		{"partial is no list", list(ticket("1", key, nil)), map[string]any{"create.read.partial": "5"}, "indeterminate"},
		{"state errs", list(ticket("1", key, nil)), map[string]any{"create.read.state": ".id.x"}, "indeterminate"},
		{"guard errs", nil, map[string]any{"create.read.guard": map[string]any{"path": "/me", "when": "$response.status.x"}}, "indeterminate"},
		{"complete errs", nil, map[string]any{"create.read.complete": "$response.status.x"}, "indeterminate"},
		{"next leaves the origin", nil, map[string]any{"create.read.next": `"http://127.0.0.1:1/x"`}, "indeterminate"},
		{"next leaves the origin by slashes", nil, map[string]any{"create.read.next": `"//evil.example/x"`}, "indeterminate"},
		{"next is no text", nil, map[string]any{"create.read.next": "5"}, "indeterminate"},
		{"the path has a hole", nil, map[string]any{"create.read.path": "/tickets/${$effect.object_id}"}, "indeterminate"},
		{"404 without none", nil, map[string]any{"create.read.path": "/tickets/77", "create.read.items": "[$response.body]"}, "indeterminate"},
		{"404 that means none", nil, map[string]any{"create.read.path": "/tickets/77", "create.read.items": "[$response.body]", "create.read.none": "$response.status == 404", "create.read.next": nil, "create.read.complete": nil}, "none"},
		{"natural", list(ticket("77", "", nil)), map[string]any{"create.read.path": "/tickets/77", "create.read.items": "[$response.body]", "create.read.identify": "natural", "create.read.marker": nil, "create.read.next": nil, "create.read.complete": nil}, "77 same"},
		{"natural, another's", list(ticket("77", "", map[string]any{"digest": "x"})), map[string]any{"create.read.path": "/tickets/77", "create.read.items": "[$response.body]", "create.read.identify": "natural", "create.read.marker": nil, "create.read.next": nil, "create.read.complete": nil}, "77 differs"},
		{"natural, another's marker", list(ticket("77", "k:2", nil)), map[string]any{"create.read.path": "/tickets/77", "create.read.items": "[$response.body]", "create.read.identify": "natural", "create.read.next": nil, "create.read.complete": nil}, "77 differs"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.tickets = c.tickets
			r := readBack(t, open(t, d.URL, c.edits), sdk.ReadRequest{Operation: operation1(key)})
			if got := finding(r); got != c.want {
				t.Fatalf("got %q, want %q: %+v", got, c.want, r.Finding)
			}
			if d.writes() != 0 {
				t.Fatal("a read wrote")
			}
		})
	}
}

func TestOnlyAWholeListingIsARead(t *testing.T) {
	sound := `{"items":[],"next":null,"complete":true}`
	cases := []struct {
		status            int
		contentType, body string
		want              string
	}{
		{200, "application/json", sound, "none"},
		{200, "text/plain", sound, "none"},
		{200, "application/json", sound[:20], "indeterminate"},
		{200, "text/html", "<p>Please log in", "indeterminate"},
		{200, "application/json", "", "indeterminate"},
		{204, "", "", "indeterminate"},
		{301, "application/json", sound, "indeterminate"},
		{401, "application/json", sound, "indeterminate"},
		{404, "application/json", sound, "indeterminate"},
		{429, "application/json", sound, "indeterminate"},
		{500, "application/json", sound, "indeterminate"},
	}
	for _, c := range cases {
		d := newDesk(t)
		d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
			if r.URL.Path != "/tickets" {
				return false
			}
			w.Header().Set("Content-Type", c.contentType)
			w.Header().Set("Retry-After", "9")
			w.WriteHeader(c.status)
			_, _ = fmt.Fprint(w, c.body)
			return true
		})
		r := readBack(t, open(t, d.URL, nil), sdk.ReadRequest{Operation: operation1("k:1")})
		if got := finding(r); got != c.want {
			t.Errorf("%d %q: got %q, want %q", c.status, c.body, got, c.want)
		}
		if f, ok := r.Finding.(*sdk.Indeterminate); ok && c.status == 429 && f.RetryAfter != 9*time.Second {
			t.Errorf("Retry-After of a read is lost: %+v", f)
		}
	}
}

func TestAnEmptyListProvesVisibilityOnlyByTheGuard(t *testing.T) {
	d := newDesk(t)
	with := open(t, d.URL, nil)
	r := readBack(t, with, sdk.ReadRequest{Operation: operation1("k:1")})
	if !r.View.VisibilityProven || !strings.HasPrefix(r.View.How, "guard") || r.View.ScannedFrom.IsZero() || r.View.ScannedTo.IsZero() || r.View.Principal == "" || len(r.View.FilterSHA256) == 0 {
		t.Errorf("view %+v", r.View)
	}
	d.sees = false
	r = readBack(t, with, sdk.ReadRequest{Operation: operation1("k:1")})
	if finding(r) != "none" || r.View.VisibilityProven || r.Coverage != sdk.CoveragePermissionLimited {
		t.Errorf("a guard that fails: %s %+v", finding(r), r.View)
	}
	for name, hook := range map[string]int{"broken": 503, "refusing": 403} {
		d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
			if r.URL.Path == "/me" {
				w.WriteHeader(hook)
			}
			return r.URL.Path == "/me"
		})
		r = readBack(t, with, sdk.ReadRequest{Operation: operation1("k:1")})
		if r.View != nil && r.View.VisibilityProven {
			t.Errorf("a %s guard proves visibility", name)
		}
	}
	d.setHook(nil)
	r = readBack(t, open(t, d.URL, map[string]any{"create.read.guard": nil}), sdk.ReadRequest{Operation: operation1("k:1")})
	if !r.View.VisibilityProven || r.View.How != "assumed" {
		t.Errorf("the operator's word: %+v", r.View)
	}
	r = readBack(t, open(t, d.URL, map[string]any{"create.read.guard": nil, "create.read.proves_absence": nil}), sdk.ReadRequest{Operation: operation1("k:1")})
	if r.View.VisibilityProven {
		t.Errorf("nobody's word: %+v", r.View)
	}
}

func TestAListingThatIsNotCompleteSaysSo(t *testing.T) {
	page := func(next any, complete bool) map[string]any {
		return map[string]any{"items": []any{}, "next": next, "complete": complete}
	}
	cases := map[string]struct {
		edits map[string]any
		serve func(w nethttp.ResponseWriter, r *nethttp.Request, n int)
		want  sdk.Coverage
	}{
		"whole":        {nil, func(w nethttp.ResponseWriter, _ *nethttp.Request, _ int) { reply(w, 200, page(nil, true)) }, sdk.CoverageComplete},
		"not complete": {nil, func(w nethttp.ResponseWriter, _ *nethttp.Request, _ int) { reply(w, 200, page(nil, false)) }, sdk.CoverageTruncated},
		"itself next": {nil, func(w nethttp.ResponseWriter, r *nethttp.Request, _ int) {
			reply(w, 200, page(r.URL.RequestURI(), true))
		}, sdk.CoverageTruncated},
		"a circle of two": {nil, func(w nethttp.ResponseWriter, _ *nethttp.Request, n int) {
			reply(w, 200, page(fmt.Sprintf("/tickets?page=%d", n%2), true))
		}, sdk.CoverageTruncated},
		"without end": {nil, func(w nethttp.ResponseWriter, _ *nethttp.Request, n int) {
			reply(w, 200, page(fmt.Sprintf("/tickets?page=%d", n), true))
		}, sdk.CoverageTruncated},
		"a link nobody follows": {map[string]any{"create.read.next": nil}, func(w nethttp.ResponseWriter, _ *nethttp.Request, _ int) {
			w.Header().Set("Link", `</tickets?page=1>; rel="first", </tickets?page=2>; rel="next"`)
			reply(w, 200, page(nil, true))
		}, sdk.CoverageTruncated},
		"a link to elsewhere": {map[string]any{"create.read.next": nil}, func(w nethttp.ResponseWriter, _ *nethttp.Request, _ int) {
			w.Header().Set("Link", `</tickets?page=1>; rel="prev"; title="rel=next"`)
			reply(w, 200, page(nil, true))
		}, sdk.CoverageComplete},
		"pages that shift": {nil, func(w nethttp.ResponseWriter, r *nethttp.Request, n int) {
			p := page(nil, true)
			p["items"] = []any{ticket("1", "k:1", nil)}
			if n == 1 {
				p["next"] = "/tickets?page=2"
			}
			reply(w, 200, p)
		}, sdk.CoverageTruncated},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			n := 0
			d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
				if r.URL.Path != "/tickets" {
					return false
				}
				n++
				c.serve(w, r, n)
				return true
			})
			r := readBack(t, open(t, d.URL, c.edits), sdk.ReadRequest{Operation: operation1("k:1")})
			if r.Coverage != c.want || n > maxPages {
				t.Fatalf("%s, coverage %d after %d pages, want %d", finding(r), r.Coverage, n, c.want)
			}
			if most := 3; n > most && name != "without end" {
				t.Fatalf("%d pages were read, at most %d expected", n, most)
			}
			if f, ok := r.Finding.(*sdk.Found); ok && len(f.Matches) != 1 {
				t.Fatalf("one object on two pages counts %d times", len(f.Matches))
			}
		})
	}
}

func TestALaterPageThatFailsFailsTheRead(t *testing.T) {
	d := newDesk(t)
	for i := range 3 {
		d.tickets = append(d.tickets, ticket(fmt.Sprint(i), "k:1", nil))
	}
	d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
		if r.URL.Query().Get("from") == "" {
			return false
		}
		w.WriteHeader(500)
		return true
	})
	if got := finding(readBack(t, open(t, d.URL, nil), sdk.ReadRequest{Operation: operation1("k:1")})); got != "indeterminate" {
		t.Fatal(got)
	}
}

func TestALookAlikeThatLostItsMarkerIsNear(t *testing.T) {
	now := time.Now()
	old := now.Add(-time.Hour).UTC().Format(time.RFC3339)
	cases := map[string]struct {
		ticket map[string]any
		near   int
	}{
		"marker lost, same content":    {ticket("1", "", nil), 1},
		"marker null, same content":    {ticket("1", "", map[string]any{"external_ref": nil}), 1},
		"marker in other letters":      {ticket("1", "K:1", map[string]any{"digest": "x"}), 1},
		"marker with a blank":          {ticket("1", " k:1", nil), 1},
		"another's marker":             {ticket("1", "k:2", nil), 0},
		"marker lost, another content": {ticket("1", "", map[string]any{"digest": "x", "subject": "y"}), 0},
		"marker and digest lost":       {ticket("1", "", map[string]any{"digest": nil}), 1},
		"marker lost, but old":         {ticket("1", "", map[string]any{"created_at": old}), 0},
	}
	for name, c := range cases {
		d := newDesk(t)
		d.tickets = []map[string]any{c.ticket}
		r := readBack(t, open(t, d.URL, map[string]any{"create.read.path": "/tickets", "create.read.match": ".subject == $payload.subject"}), sdk.ReadRequest{Operation: operation1("k:1"), DispatchedFrom: now, DispatchedTo: now})
		if finding(r) != "none" || len(r.View.Near) != c.near {
			t.Errorf("%s: %s, %d near, want %d", name, finding(r), len(r.View.Near), c.near)
		}
	}
}

func TestConsistencySaysHowFarAReadIsBelieved(t *testing.T) {
	d := newDesk(t)
	for consistency, want := range map[any]sdk.Authority{"strong": sdk.Authoritative, "bounded": sdk.Eventual, "eventual": sdk.Eventual, nil: sdk.Advisory} {
		edits := map[string]any{"create.read.consistency": consistency}
		if consistency != "bounded" {
			edits["create.read.lag"] = nil
		}
		a := open(t, d.URL, edits)
		r := readBack(t, a, sdk.ReadRequest{Operation: operation1("k:1")})
		description, err := a.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		spec := description.Actions[0].Read
		if r.Authority != want || spec.Authority != want || (spec.MaxLag != nil) != (consistency == "bounded") {
			t.Errorf("%v: authority %d and %d, lag %v", consistency, r.Authority, spec.Authority, spec.MaxLag)
		}
	}
}

func TestASnapshotTellsTheOneNewObject(t *testing.T) {
	edits := map[string]any{
		"create.read.identify": "snapshot", "create.read.marker": nil, "create.read.path": "/tickets", "create.read.digest": nil,
		"create.read.match": ".subject == $payload.subject",
	}
	d := newDesk(t)
	d.tickets = []map[string]any{ticket("a", "", nil), ticket("b", "", nil), ticket("c", "", nil)}
	a := open(t, d.URL, edits)
	p, err := a.Prepare(t.Context(), operation1("k:1"))
	if err != nil || p.Ready == nil || p.Ready.View == nil || len(p.Ready.Baseline) == 0 {
		t.Fatalf("%+v %v", p, err)
	}
	ask := func(a sdk.Adapter, baseline []byte) sdk.ReadResponse {
		return readBack(t, a, sdk.ReadRequest{Operation: operation1("k:1"), Baseline: baseline})
	}
	if got := finding(ask(a, p.Ready.Baseline)); got != "none" {
		t.Fatalf("before the write: %s", got)
	}
	d.tickets = append(d.tickets, ticket("d", "", nil))
	if r := ask(a, p.Ready.Baseline); finding(r) != "d same" || found(t, r)[0].Strength != sdk.StrengthSnapshotDiff {
		t.Fatalf("the new one: %s", finding(r))
	}
	if got := finding(ask(a, nil)); got != "indeterminate" {
		t.Errorf("without baseline: %s", got)
	}
	edits["create.read.view"] = "another"
	if got := finding(ask(open(t, d.URL, edits), p.Ready.Baseline)); got != "indeterminate" {
		t.Errorf("another view: %s", got)
	}
	edits["create.read.view"], edits["create.read.path"] = "by_ref", "/tickets?x=1"
	if got := finding(ask(open(t, d.URL, edits), p.Ready.Baseline)); got != "indeterminate" {
		t.Errorf("another filter: %s", got)
	}
	other := strings.Replace(string(p.Ready.Baseline), ` as desk_token (`, ` as desk_token (0`, 1)
	if got := finding(ask(a, []byte(other))); got != "indeterminate" || other == string(p.Ready.Baseline) {
		t.Errorf("another principal: %s", got)
	}
	d.tickets = append(d.tickets, ticket("e", "", nil))
	for _, m := range found(t, ask(a, p.Ready.Baseline)) {
		if m.Strength != sdk.StrengthSimilar {
			t.Errorf("two new objects: %+v", m)
		}
	}
}

func TestAPostconditionIsReadForTheObjectFound(t *testing.T) {
	d := newDesk(t)
	d.tickets = []map[string]any{ticket("1", "k:1", nil)}
	a := open(t, d.URL, map[string]any{"create.postcondition": map[string]any{"path": "/tickets/${$effect.object_id}", "when": `$response.body.status == "open"`}})
	ask := func() sdk.ReadResponse { return readBack(t, a, sdk.ReadRequest{Operation: operation1("k:1")}) }
	if r := ask(); r.Postcondition.State != sdk.PostconditionHolds || r.Postcondition.Seen == "" {
		t.Errorf("%+v", r.Postcondition)
	}
	d.tickets[0]["status"] = "closed"
	if r := ask(); r.Postcondition.State != sdk.PostconditionFails {
		t.Errorf("%+v", r.Postcondition)
	}
	for _, status := range []int{401, 403, 429, 500} {
		d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
			if r.URL.Path == "/tickets/1" {
				w.WriteHeader(status)
			}
			return r.URL.Path == "/tickets/1"
		})
		if r := ask(); finding(r) != "indeterminate" {
			t.Errorf("%d says that the postcondition fails: %s %+v", status, finding(r), r.Postcondition)
		}
	}
}

func TestAPathBelowThePrefixOfBaseURL(t *testing.T) {
	d := newDesk(t)
	for i := range 5 {
		d.tickets = append(d.tickets, ticket(fmt.Sprint(i), "k:1", nil))
	}
	prefixed := nethttp.NewServeMux()
	prefixed.Handle("/api/", nethttp.StripPrefix("/api", d.Config.Handler))
	front := newDesk(t)
	front.Config.Handler = prefixed
	r := readBack(t, open(t, front.URL+"/api/", nil), sdk.ReadRequest{Operation: operation1("k:1")})
	if got := finding(r); strings.Count(got, "same") != 5 {
		t.Fatalf("next below a prefix: %s %+v", got, r.Finding)
	}
}
