package journal

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Filter selects effects. Terms of different fields must all hold; values of
// one field are alternatives.
type Filter struct {
	Phases       []Phase
	Findings     []Finding
	Standings    []Standing
	Destinations []string
	Operations   []string
	Accounts     []string
	Owners       []string
	Keys         []string // patterns, * stands for anything
	Runs         []string
	Actors       []string  // of an effect: who submitted it; of a line of the chain: who acted
	Kinds        []string  // of a line of the chain only
	Before       time.Time // submitted before; zero = any
}

// FilterError names the term that is wrong, where it begins (in bytes, from 1) and what may have been meant.
type FilterError struct {
	At      int
	Term    string
	Why     string
	Suggest string
}

func (e *FilterError) Error() string {
	s := fmt.Sprintf("filter, at %d: %q: %s", e.At, e.Term, e.Why)
	if e.Suggest != "" {
		s += "; did you mean " + e.Suggest + "?"
	}
	return s
}

// ParseFilter reads terms of the form field:value separated by white space,
// such as "phase:unknown,needs_human destination:desk owner:x older:5m key:ticket:*".
// Fields are phase, finding, standing, destination, operation, account, owner,
// key, run, actor, kind (of lines of the audit chain) and older, which counts back from now. An empty filter selects everything.
func ParseFilter(s string, now time.Time) (Filter, error) {
	var f Filter
	for at := 0; at < len(s); {
		if s[at] == ' ' || s[at] == '\t' || s[at] == '\n' {
			at++
			continue
		}
		end := at + strings.IndexAny(s[at:]+" ", " \t\n")
		if err := f.add(s[at:end], at+1, now); err != nil {
			return Filter{}, err
		}
		at = end
	}
	return f, nil
}

func (f *Filter) add(term string, at int, now time.Time) error {
	field, value, ok := strings.Cut(term, ":")
	if !ok {
		return &FilterError{at, term, "a term is field:value", nearest(term+":", filterFields())}
	}
	if value == "" {
		return &FilterError{at, term, "no value after the colon", ""}
	}
	for _, v := range strings.Split(value, ",") {
		if v == "" {
			return &FilterError{at, term, "an empty alternative", ""}
		}
		if err := f.set(field, v, now); err != nil {
			err.At, err.Term = at, term
			return err
		}
	}
	return nil
}

func (f *Filter) set(field, v string, now time.Time) *FilterError {
	switch field {
	case "phase":
		return oneOf(&f.Phases, Phase(v), "phase", Phases())
	case "finding":
		return oneOf(&f.Findings, Finding(v), "finding", findings())
	case "standing":
		return oneOf(&f.Standings, Standing(v), "standing", []Standing{NotStarted, InFlight, Committed, Contradicted})
	case "destination":
		f.Destinations = append(f.Destinations, v)
	case "operation":
		f.Operations = append(f.Operations, v)
	case "account":
		f.Accounts = append(f.Accounts, v)
	case "owner":
		f.Owners = append(f.Owners, v)
	case "key":
		f.Keys = append(f.Keys, v)
	case "run":
		f.Runs = append(f.Runs, v)
	case "actor":
		f.Actors = append(f.Actors, v)
	case "kind":
		f.Kinds = append(f.Kinds, v)
	case "older":
		d, err := ParseAge(v)
		if err != nil {
			return &FilterError{Why: err.Error()}
		}
		f.Before = now.Add(-d)
	default:
		if s := nearest(field+":", filterFields()); s != "" {
			return &FilterError{Why: "no such field", Suggest: s}
		}
		return &FilterError{Why: "no such field", Suggest: "key:" + field + ":" + v}
	}
	return nil
}

func oneOf[T ~string](list *[]T, v T, what string, all []T) *FilterError {
	if !slices.Contains(all, v) {
		words := make([]string, len(all))
		for i, w := range all {
			words[i] = string(w)
		}
		near := nearest(string(v), words)
		if near != "" {
			near = what + ":" + near
		}
		return &FilterError{Why: "no such " + what + ", there are " + strings.Join(words, " "), Suggest: near}
	}
	*list = append(*list, v)
	return nil
}

func filterFields() []string {
	return []string{
		"phase:", "finding:", "standing:", "destination:", "operation:", "account:", "owner:", "key:", "run:", "actor:",
		"kind:", "older:",
	}
}

func findings() []Finding {
	return []Finding{
		FindingNone, FindingNotSent, FindingRejected, FindingAccepted, FindingMatches, FindingPartial, FindingDuplicate,
		FindingConflicts, FindingPostconditionFailed, FindingAbsent, FindingUnknown,
	}
}

// ParseAge reads a duration as time.ParseDuration does, and also whole days: "36h", "5m", "30d".
func ParseAge(s string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		d, err := time.ParseDuration(n + "h")
		if err == nil && d >= 0 && d < 1<<62/24 {
			return d * 24, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not an age, such as 90s, 5m, 36h or 30d", s)
	}
	return d, nil
}

// nearest returns the word that needs the fewest edits, when those are few.
func nearest(s string, words []string) string {
	best, least := "", 1+len(s)/3
	for _, w := range words {
		if d := distance(s, w); d < least || (d == least && best == "") {
			best, least = w, d
		}
	}
	return best
}

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

// Match reports whether the filter selects the effect.
func (f Filter) Match(e Effect) bool {
	return in(f.Phases, e.Phase) && in(f.Findings, e.Finding) && in(f.Standings, e.Standing()) &&
		in(f.Destinations, e.Destination) && in(f.Operations, e.Operation) && in(f.Accounts, e.Account) &&
		in(f.Owners, e.Owner) && in(f.Runs, e.Run) && in(f.Actors, e.Actor) && f.MatchKey(e.Key) &&
		(f.Before.IsZero() || e.SubmittedAt.Before(f.Before))
}

func in[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

// MatchKey reports whether one of the key patterns matches.
func (f Filter) MatchKey(key string) bool {
	if len(f.Keys) == 0 {
		return true
	}
	for _, p := range f.Keys {
		if glob(p, key) {
			return true
		}
	}
	return false
}

// glob matches a pattern in which * stands for anything, in time linear in both for one star.
func glob(p, s string) bool {
	parts := strings.Split(p, "*")
	if len(parts) == 1 {
		return p == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, m := range parts[1 : len(parts)-1] {
		i := strings.Index(s, m)
		if i < 0 {
			return false
		}
		s = s[i+len(m):]
	}
	return len(s) >= len(last) && strings.HasSuffix(s, last)
}
