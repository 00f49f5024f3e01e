// Package decode reads an adapter's configuration strictly: every key must be
// known, and every fault carries its JSON pointer and, for a misspelt key, what
// was probably meant. All faults of a configuration are collected, none hides another.
package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// Faults collects diagnostics.
type Faults struct{ List []sdk.Diagnostic }

// Errorf records an error at pointer.
func (f *Faults) Errorf(pointer, format string, args ...any) {
	f.Add(sdk.Diagnostic{Pointer: pointer, Summary: fmt.Sprintf(format, args...)})
}

// Warnf records a warning at pointer.
func (f *Faults) Warnf(pointer, format string, args ...any) {
	f.Add(sdk.Diagnostic{Warning: true, Pointer: pointer, Summary: fmt.Sprintf(format, args...)})
}

// Add records d unless the very same fault is known already.
func (f *Faults) Add(d sdk.Diagnostic) {
	if !slices.Contains(f.List, d) {
		f.List = append(f.List, d)
	}
}

// Failed reports whether any fault is an error.
func (f *Faults) Failed() bool {
	return slices.ContainsFunc(f.List, func(d sdk.Diagnostic) bool { return !d.Warning })
}

// Object is one JSON object being read. Its methods note which keys the reader
// knows; Done complains about the others. A nil Object reads as empty.
type Object struct {
	pointer string
	values  map[string]any
	known   []string
	faults  *Faults
}

// Parse reads a JSON object. Empty input is an empty object.
func Parse(config []byte, faults *Faults) *Object {
	o := &Object{faults: faults, values: map[string]any{}}
	if len(bytes.TrimSpace(config)) == 0 {
		return o
	}
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		faults.Errorf("", "not JSON: %v", err)
		return o
	}
	if _, err := d.Token(); err != io.EOF {
		faults.Errorf("", "data after the configuration object")
	}
	values, ok := value.(map[string]any)
	if !ok {
		faults.Errorf("", "must be an object, not %s", kind(value))
		return o
	}
	o.values = values
	return o
}

// Pointer is where the object stands, or where key stands in it.
func (o *Object) Pointer(key ...string) string {
	if o == nil {
		return ""
	}
	p := o.pointer
	for _, k := range key {
		p += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k)
	}
	return p
}

// Faults is where the object records its faults.
func (o *Object) Faults() *Faults { return o.faults }

// Has reports whether key is present.
func (o *Object) Has(key string) bool {
	if o == nil {
		return false
	}
	_, ok := o.values[key]
	return ok
}

// Keys are the keys present, sorted.
func (o *Object) Keys() []string {
	if o == nil {
		return nil
	}
	keys := make([]string, 0, len(o.values))
	for k := range o.values {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func get[T any](o *Object, key, want string) (value T, ok bool) {
	if o == nil {
		return value, false
	}
	o.known = append(o.known, key)
	raw, present := o.values[key]
	if !present {
		return value, false
	}
	value, ok = raw.(T)
	if !ok {
		o.faults.Errorf(o.Pointer(key), "must be %s, not %s", want, kind(raw))
	}
	return value, ok
}

// String reads an optional string; an empty one is a fault.
func (o *Object) String(key string) string {
	s, ok := get[string](o, key, "a string")
	if ok && strings.TrimSpace(s) == "" {
		o.faults.Errorf(o.Pointer(key), "must not be empty")
	}
	return s
}

// Bool reads an optional boolean.
func (o *Object) Bool(key string) bool {
	b, _ := get[bool](o, key, "true or false")
	return b
}

// Enum reads an optional string that must be one of allowed.
func (o *Object) Enum(key string, allowed ...string) string {
	s := o.String(key)
	if s != "" && !slices.Contains(allowed, s) {
		o.faults.Errorf(o.Pointer(key), "%q is not one of %s%s", s, strings.Join(allowed, ", "), Suggestion(s, allowed))
		return ""
	}
	return s
}

// Duration reads an optional duration such as "2s", "15m" or "30d"; nil when absent.
func (o *Object) Duration(key string) *time.Duration {
	s := o.String(key)
	if s == "" {
		return nil
	}
	d, err := ParseDuration(s)
	if err != nil {
		o.faults.Errorf(o.Pointer(key), "%v", err)
		return nil
	}
	return &d
}

// Int reads an optional whole number in [low, high].
func (o *Object) Int(key string, low, high int) int {
	n, ok := get[json.Number](o, key, "a whole number")
	if !ok {
		return 0
	}
	i, err := strconv.Atoi(n.String())
	if err != nil || i < low || i > high {
		o.faults.Errorf(o.Pointer(key), "must be a whole number from %d to %d", low, high)
		return 0
	}
	return i
}

// Ints reads an optional list of whole numbers in [low, high]; present tells an
// empty list from an absent one.
func (o *Object) Ints(key string, low, high int) (list []int, present bool) {
	raw, present := get[[]any](o, key, "a list of numbers")
	for i, v := range raw {
		n, _ := v.(json.Number)
		number, err := strconv.Atoi(n.String())
		if err != nil || number < low || number > high {
			o.faults.Errorf(o.Pointer(key, strconv.Itoa(i)), "must be a whole number from %d to %d", low, high)
			continue
		}
		list = append(list, number)
	}
	return list, present
}

// Strings reads an optional list of strings.
func (o *Object) Strings(key string) []string {
	raw, _ := get[[]any](o, key, "a list of strings")
	var list []string
	for i, v := range raw {
		s, ok := v.(string)
		if !ok {
			o.faults.Errorf(o.Pointer(key, strconv.Itoa(i)), "must be a string, not %s", kind(v))
			continue
		}
		list = append(list, s)
	}
	return list
}

// Object reads an optional object; nil when absent.
func (o *Object) Object(key string) *Object {
	values, ok := get[map[string]any](o, key, "a table")
	if !ok {
		return nil
	}
	return &Object{pointer: o.Pointer(key), values: values, faults: o.faults}
}

// Any reads an optional value of any kind.
func (o *Object) Any(key string) any {
	v, _ := get[any](o, key, "a value")
	return v
}

// StringMap reads an optional object whose values are all strings.
func (o *Object) StringMap(key string) map[string]string {
	table := o.Object(key)
	result := map[string]string{}
	for _, k := range table.Keys() {
		if s := table.String(k); s != "" {
			result[k] = s
		}
	}
	return result
}

// Values is the raw object.
func (o *Object) Values() map[string]any {
	if o == nil {
		return nil
	}
	return o.values
}

// Done records a fault for every key that nobody asked for.
func (o *Object) Done() {
	for _, key := range o.Keys() {
		if !slices.Contains(o.known, key) {
			o.faults.Errorf(o.Pointer(key), "unknown key %q%s", key, Suggestion(key, o.known))
		}
	}
}

// ParseDuration is time.ParseDuration with days ("30d") and no negative values.
func ParseDuration(s string) (time.Duration, error) {
	text, unit := s, time.Duration(0)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		text, unit = days, 24*time.Hour
	}
	if unit != 0 {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration such as \"2s\", \"15m\" or \"30d\"", s)
		}
		return time.Duration(n) * unit, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration such as \"2s\", \"15m\" or \"30d\"", s)
	}
	return d, nil
}

// Suggestion is `; did you mean "x"?` for the closest of known, or nothing.
func Suggestion(word string, known []string) string {
	best, bestDistance := "", len(word)/2+1
	for _, candidate := range known {
		if d := distance(word, candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance counts the edits between two short words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case []any:
		return "a list"
	}
	return "a table"
}
