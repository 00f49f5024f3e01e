package http

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// identify finds which objects of a listing are the effect's.
func (s *state) identify(ctx context.Context, op *operation, r sdk.ReadRequest, l *listing, result *sdk.ReadResponse) ([]sdk.Match, error) {
	var matches []sdk.Match
	var err error
	switch op.read.identify {
	case bySnapshot:
		matches, err = s.identifyNew(ctx, op, r, l, result)
	case byNatural:
		matches, err = s.identifyAll(ctx, op.read, l, result)
	default:
		matches, err = s.identifyMarked(ctx, op.read, r, l, result)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range matches {
		if m.Agreement == sdk.AgreementNotCompared {
			result.Evidence[0].Fields["content"] = "content not compared"
		}
	}
	return matches, nil
}

// identifyMarked compares the marker of every object byte for byte: a server
// that drops an unknown filter returns the objects of others too.
func (s *state) identifyMarked(ctx context.Context, rd *read, r sdk.ReadRequest, l *listing, result *sdk.ReadResponse) ([]sdk.Match, error) {
	var c collector
	for _, it := range l.items {
		value, err := rd.marker.run(ctx, it.value, it.scope)
		if err != nil {
			return nil, fmt.Errorf("marker: `%s`: %w", rd.marker.source, err)
		}
		marker, isText := value.(string)
		if isText && marker == r.Operation.Key {
			m, err := s.match(ctx, rd, it, sdk.StrengthMarker)
			if err != nil {
				return nil, err
			}
			c.add(m, it.page, result)
			continue
		}
		near, err := s.near(ctx, rd, r, it, value)
		if err != nil {
			return nil, err
		}
		if near != nil && len(result.View.Near) < maxNear {
			result.View.Near = append(result.View.Near, *near)
		}
	}
	return c.matches, nil
}

// maxNear bounds the look-alikes that are reported; one is enough to forbid absence.
const maxNear = 10

// near tells a look-alike: an object whose marker the destination lost or
// rewrote. An object with another marker is another's, however alike.
func (s *state) near(ctx context.Context, rd *read, r sdk.ReadRequest, it item, marker any) (*sdk.Match, error) {
	text, isText := marker.(string)
	// What is no text is not another's marker either: ours, put into a list or object.
	lost := !isText || strings.TrimSpace(text) == ""
	rewritten := isText && !lost && strings.EqualFold(strings.TrimSpace(text), r.Operation.Key)
	if !lost && !rewritten {
		return nil, nil
	}
	if lost {
		// Who drops the marker may drop the digest too, so either likeness will do.
		alike, err := s.resembles(ctx, rd, it)
		if err != nil || !alike {
			return nil, err
		}
	}
	m, err := s.match(ctx, rd, it, sdk.StrengthSimilar)
	if err != nil {
		return nil, err
	}
	if !m.CreatedAt.IsZero() && !r.DispatchedFrom.IsZero() && m.CreatedAt.Before(r.DispatchedFrom.Add(-nearSkew)) {
		return nil, nil
	}
	m.Differences = append(m.Differences, "/marker")
	return &m, nil
}

// resembles reports whether digest or match says that the content is ours.
func (s *state) resembles(ctx context.Context, rd *read, it item) (bool, error) {
	effect, _ := it.scope["$effect"].(map[string]any)
	if rd.digest != nil {
		value, err := rd.digest.run(ctx, it.value, it.scope)
		if err != nil {
			return false, fmt.Errorf("digest: `%s`: %w", rd.digest.source, err)
		}
		if text, ok := value.(string); ok && text == effect["digest"] {
			return true, nil
		}
	}
	if rd.match == nil {
		return false, nil
	}
	same, err := rd.match.runBool(ctx, it.value, it.scope)
	if err != nil {
		return false, fmt.Errorf("match: %w", err)
	}
	return same, nil
}

// identifyAll takes every object: the path itself names the identity.
func (s *state) identifyAll(ctx context.Context, rd *read, l *listing, result *sdk.ReadResponse) ([]sdk.Match, error) {
	var c collector
	for _, it := range l.items {
		m, err := s.match(ctx, rd, it, sdk.StrengthNaturalID)
		if err != nil {
			return nil, err
		}
		if rd.marker != nil {
			value, err := rd.marker.run(ctx, it.value, it.scope)
			if err != nil {
				return nil, fmt.Errorf("marker: `%s`: %w", rd.marker.source, err)
			}
			effect, _ := it.scope["$effect"].(map[string]any)
			if text, ok := value.(string); !ok || text != effect["key"] {
				m.Agreement, m.Differences = sdk.AgreementDiffers, append(m.Differences, "/marker")
			}
		}
		c.add(m, it.page, result)
	}
	return c.matches, nil
}

// identifyNew takes the one object that was not there before the write. It
// counts only when the very same listing was taken then.
func (s *state) identifyNew(ctx context.Context, op *operation, r sdk.ReadRequest, l *listing, result *sdk.ReadResponse) ([]sdk.Match, error) {
	base, err := parseBaseline(r.Baseline)
	if err != nil {
		return nil, err
	}
	switch {
	case !base.HasIDs:
		return nil, errors.New("no listing from before the write is stored")
	case base.View != result.View.ID || base.Filter != hexDigest(l.filter) || base.Principal != s.principal:
		return nil, errors.New("the listing from before the write is of another view, filter or principal and cannot be compared")
	}
	known := map[string]bool{}
	for _, id := range base.IDs {
		known[id] = true
	}
	var c collector
	for _, it := range l.items {
		m, err := s.match(ctx, op.read, it, sdk.StrengthSnapshotDiff)
		if err != nil {
			return nil, err
		}
		if m.Object.ID == "" {
			return nil, errors.New("an object without id")
		}
		if !known[m.Object.ID] {
			c.add(m, it.page, result)
		}
	}
	if len(c.matches) > 1 || result.Coverage != sdk.CoverageComplete {
		for i := range c.matches {
			c.matches[i].Strength = sdk.StrengthSimilar
		}
	}
	return c.matches, nil
}

// collector gathers matches and notices when pages shifted under the listing.
type collector struct {
	matches []sdk.Match
	pages   []int
}

func (c *collector) add(m sdk.Match, page int, result *sdk.ReadResponse) {
	at := slices.IndexFunc(c.matches, func(have sdk.Match) bool { return m.Object.ID != "" && have.Object.ID == m.Object.ID })
	if at >= 0 && c.pages[at] != page {
		// The same object on two pages: they shifted, and another may have been skipped.
		if result.Coverage == sdk.CoverageComplete {
			result.Coverage = sdk.CoverageTruncated
		}
		return
	}
	c.matches, c.pages = append(c.matches, m), append(c.pages, page)
}

// match describes one object. Any program that errs fails the read.
func (s *state) match(ctx context.Context, rd *read, it item, strength sdk.MatchStrength) (sdk.Match, error) {
	m := sdk.Match{Strength: strength, Agreement: sdk.AgreementNotCompared, Observed: s.document(it.value, sdk.MaxObserved)}
	for name, field := range map[string]struct {
		program *program
		to      *string
	}{
		"object_id": {rd.objectID, &m.Object.ID}, "state": {rd.state, &m.Object.State}, "account": {rd.account, &m.Account},
	} {
		if field.program == nil {
			continue
		}
		text, err := field.program.runText(ctx, it.value, it.scope)
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		*field.to = text
	}
	if rd.objectID != nil && m.Object.ID == "" {
		return m, fmt.Errorf("object_id: `%s` gives nothing for an object", rd.objectID.source)
	}
	if rd.createdAt != nil {
		at, err := rd.createdAt.runTime(ctx, it.value, it.scope)
		if err != nil {
			return m, fmt.Errorf("created_at: %w", err)
		}
		m.CreatedAt = at
	}
	return m, s.compare(ctx, rd, it, &m)
}

// compare sets whether the content is ours. A digest that is configured but
// missing differs; so does an account.
func (s *state) compare(ctx context.Context, rd *read, it item, m *sdk.Match) error {
	effect, _ := it.scope["$effect"].(map[string]any)
	if rd.digest != nil {
		m.Agreement = sdk.AgreementSame
		value, err := rd.digest.run(ctx, it.value, it.scope)
		if err != nil {
			return fmt.Errorf("digest: `%s`: %w", rd.digest.source, err)
		}
		if text, ok := value.(string); !ok || text != effect["digest"] {
			m.Agreement, m.Differences = sdk.AgreementDiffers, append(m.Differences, "/digest")
		}
	}
	mismatch := false
	if rd.match != nil {
		same, err := rd.match.runBool(ctx, it.value, it.scope)
		if err != nil {
			return fmt.Errorf("match: %w", err)
		}
		mismatch = !same
		if m.Agreement == sdk.AgreementNotCompared {
			m.Agreement = sdk.AgreementSame
		}
	}
	var missing []string
	if rd.partial != nil {
		list, err := rd.partial.runList(ctx, it.value, it.scope)
		if err != nil {
			return fmt.Errorf("partial: %w", err)
		}
		for _, v := range list {
			text, err := scalar(v)
			if err != nil {
				text = string(s.document(v, 256))
			}
			missing = append(missing, s.text(text, 256))
		}
	}
	switch {
	case m.Agreement == sdk.AgreementDiffers:
	case len(missing) > 0:
		// What is missing explains why match does not hold.
		m.Agreement, m.Differences = sdk.AgreementPartial, missing
	case mismatch:
		m.Agreement, m.Differences = sdk.AgreementDiffers, append(m.Differences, "/match")
	}
	if rd.account != nil && m.Account == "" {
		m.Agreement, m.Differences = sdk.AgreementDiffers, append(m.Differences, "/account")
	}
	return nil
}

func filterOf(t *test) []byte {
	sum := sha256.Sum256([]byte(t.method + " " + t.path.source + "\n" + t.when.source))
	return sum[:]
}

// nearSkew is how much older than the first send a look-alike may be.
const nearSkew = 5 * time.Second
