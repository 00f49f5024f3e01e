package http

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	nethttp "net/http"

	"github.com/settled-dev/settled/sdk"
)

// Bounds of one listing; past them it counts as truncated.
const (
	maxPages = 200
	maxItems = 20000
)

// unbounded is the beginning of a scan that no time limits: a lookup by key
// covers whatever the destination ever held.
func unbounded() time.Time { return time.Unix(1, 0).UTC() }

// item is one object of a listing, with the scope of the page that held it.
type item struct {
	value any
	page  int
	scope scope
}

// listing is what a read went through.
type listing struct {
	begun    time.Time // before the first request
	items    []item
	pages    int
	coverage sdk.Coverage
	why      string // coverage is not complete
	filter   []byte // identifies what was asked
	evidence sdk.Evidence
}

func (r *read) viewName(op *operation) string {
	if r.terms.View != "" {
		return r.terms.View
	}
	return op.name
}

// list reads every page. Each must be 2xx and give a list; the first fault fails
// the whole, because half a listing proves nothing.
func (s *state) list(ctx context.Context, r *read, sc scope) (*listing, error) {
	req, err := s.render(ctx, r.request, sc)
	if err != nil {
		return nil, err
	}
	freshly(req)
	l := &listing{begun: time.Now(), coverage: sdk.CoverageComplete}
	sum := sha256.Sum256([]byte(req.Method + " " + pathOf(req.URL) + "\n" + r.items.source + "\n" + string(req.Body)))
	l.filter = sum[:]
	visited := map[string]bool{}
	first := req
	for {
		visited[req.URL] = true
		a, next, err := s.page(ctx, r, req, sc, l)
		l.evidence = s.evidence("http.read", first, a, l.note())
		if err != nil {
			return l, fmt.Errorf("page %d: %w", l.pages+1, err)
		}
		l.pages++
		switch {
		case next == "":
			l.evidence = s.evidence("http.read", first, a, l.note())
			return l, nil
		case visited[next]:
			l.truncate("the pages run in a circle")
		case l.pages >= maxPages || len(l.items) >= maxItems:
			l.truncate(fmt.Sprintf("stopped after %d pages and %d objects", l.pages, len(l.items)))
		default:
			req.URL = next
			continue
		}
		l.evidence = s.evidence("http.read", first, a, l.note())
		return l, nil
	}
}

func (l *listing) truncate(why string) { l.coverage, l.why = sdk.CoverageTruncated, why }

func (l *listing) note() string {
	return strings.TrimSpace(fmt.Sprintf("%d objects in %d pages %s", len(l.items), l.pages, l.why))
}

// page reads one page into l and gives the URL of the next, or "".
func (s *state) page(ctx context.Context, r *read, req sdk.HTTPRequest, sc scope, l *listing) (*answer, string, error) {
	a, err := s.fetch(ctx, req)
	if err != nil {
		return nil, "", err
	}
	sc = sc.with("$response", a.value)
	if r.none != nil {
		none, err := r.none.runBool(ctx, nil, sc)
		if err != nil || none {
			return a, "", err
		}
	}
	if err := a.readable(); err != nil {
		return a, "", err
	}
	if why := a.secondHand(); why != "" {
		l.truncate(why)
	}
	values, err := r.items.runList(ctx, nil, sc)
	if err != nil {
		return a, "", fmt.Errorf("items: %w", err)
	}
	for _, v := range values {
		l.items = append(l.items, item{value: v, page: l.pages, scope: sc})
	}
	next, err := s.nextPage(ctx, r, req, a, sc, l)
	if err != nil || next != "" || r.complete == nil {
		return a, next, err
	}
	complete, err := r.complete.runBool(ctx, nil, sc)
	if err != nil {
		return a, "", fmt.Errorf("complete: %w", err)
	}
	if !complete {
		l.truncate("the destination does not call it complete")
	}
	return a, "", nil
}

func (s *state) nextPage(ctx context.Context, r *read, req sdk.HTTPRequest, a *answer, sc scope, l *listing) (string, error) {
	if r.next == nil {
		if hasNextLink(a.Header.Values("Link")) {
			l.truncate("the answer links to a next page, but no `next` is configured")
		}
		return "", nil
	}
	last := func() (string, error) {
		if hasNextLink(a.Header.Values("Link")) {
			l.truncate("the answer links to a next page that `next` does not see")
		}
		return "", nil
	}
	value, err := r.next.run(ctx, nil, sc)
	if err != nil {
		return "", fmt.Errorf("next: `%s`: %w", r.next.source, err)
	}
	if value == nil {
		return last()
	}
	reference, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("next: `%s` gives no text", r.next.source)
	}
	if reference == "" {
		return last()
	}
	from, err := url.Parse(req.URL)
	if err != nil {
		return "", err
	}
	u, err := s.resolve(reference, from)
	if err != nil {
		return "", fmt.Errorf("next: %w", err)
	}
	return u.String(), nil
}

// secondHand says why an answer is not, or not all of, what the destination
// itself says now; "" when nothing tells so. What it shows exists, what it lacks
// proves nothing.
func (a *answer) secondHand() string {
	age, err := strconv.ParseFloat(strings.TrimSpace(a.Header.Get("Age")), 64)
	switch {
	case a.Status == nethttp.StatusPartialContent:
		return "the answer is a part (206)"
	case a.Status == nethttp.StatusNonAuthoritativeInfo:
		return "somebody on the way changed the answer (203)"
	case err == nil && age > 0:
		return fmt.Sprintf("the answer comes from a cache and is %v s old", age)
	}
	return ""
}

func hasNextLink(links []string) bool {
	relation := regexp.MustCompile(`(?i);\s*rel\s*=\s*"?([^";,]*\s)?next(\s[^";,]*)?"?\s*(;|,|$)`)
	for _, link := range links {
		if relation.MatchString(link) {
			return true
		}
	}
	return false
}
