package http

import (
	nethttp "net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// answering makes every listing of the desk answer with one body.
func answering(t *testing.T, status int, header map[string]string, body string) sdk.ReadResponse {
	t.Helper()
	d := newDesk(t)
	var asked atomic.Value
	d.setHook(func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/tickets") {
			return false
		}
		asked.Store(r.Header.Get("Cache-Control"))
		w.Header().Set("Content-Type", "application/json")
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
		return true
	})
	a := open(t, d.URL, nil)
	r := readBack(t, a, sdk.ReadRequest{Purpose: sdk.PurposeResolve, Operation: operation1("k:1"), DispatchedFrom: time.Now()})
	if asked.Load() != "no-cache" {
		t.Errorf("the read asked caches with %q", asked.Load())
	}
	return r
}

const nothing = `{"items":[],"next":null,"complete":true}`

func TestAnEmptyListAtSecondHandIsNotComplete(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header map[string]string
		want   sdk.Coverage
	}{
		"first hand":      {200, nil, sdk.CoverageComplete},
		"passed on fresh": {200, map[string]string{"Age": "0"}, sdk.CoverageComplete},
		"from a cache":    {200, map[string]string{"Age": "30"}, sdk.CoverageTruncated},
		"a part":          {206, nil, sdk.CoverageTruncated},
		"changed":         {203, nil, sdk.CoverageTruncated},
		"a page unseen":   {200, map[string]string{"Link": `</tickets?page=2>; rel="next"`}, sdk.CoverageTruncated},
	} {
		if r := answering(t, c.status, c.header, nothing); finding(r) != "none" || r.Coverage != c.want {
			t.Errorf("%s: %s, coverage %v", name, finding(r), r.Coverage)
		}
	}
}

func TestAListThatSaysOneThingTwiceIsNoReading(t *testing.T) {
	for _, body := range []string{
		`{"items":[{"external_ref":"k:1"}],"items":[],"next":null,"complete":true}`,
		`{"items":[],"next":"/tickets?page=2","next":null,"complete":true}`,
		`{"items":[],"next":null,"complete":false,"complete":true}`,
	} {
		if r := answering(t, 200, nil, body); finding(r) != "indeterminate" {
			t.Errorf("%s: %s", body, finding(r))
		}
	}
}

func TestAMarkerThatIsNoTextMayBeOurs(t *testing.T) {
	for _, marker := range []any{[]string{"k:1"}, map[string]any{"v": "k:1"}, 1, true} {
		d := newDesk(t)
		d.tickets = append(d.tickets, ticket("1", "k:1", map[string]any{"external_ref": marker}))
		a := open(t, d.URL, map[string]any{"create.read.path": "/tickets"})
		r := readBack(t, a, sdk.ReadRequest{Purpose: sdk.PurposeResolve, Operation: operation1("k:1"), DispatchedFrom: time.Now()})
		if finding(r) != "none" || len(r.View.Near) != 1 {
			t.Errorf("%v: %s with %d look-alikes", marker, finding(r), len(r.View.Near))
		}
	}
}
