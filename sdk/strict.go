package sdk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxDepth bounds how deep a document may nest.
const maxDepth = 100

// strictly checks a document against the shape of v's type and decodes it.
// It returns every fault it finds, each with its JSON pointer; without a fault
// v holds the document. Unknown, missing and repeated properties, numbers that
// do not fit, invalid UTF-8 and lone surrogates are faults.
func strictly(raw []byte, s *shape, v any) []Diagnostic {
	c := &checker{}
	doc, ok := c.parse(raw)
	if !ok {
		return c.faults
	}
	c.check(doc, s, "")
	if len(c.faults) > 0 {
		return c.faults
	}
	if err := json.Unmarshal(raw, v); err != nil {
		c.fault("", "cannot be read: %v", err)
	}
	return c.faults
}

// object keeps what a map would lose.
type object map[string]any

type checker struct {
	faults []Diagnostic
	d      *json.Decoder
}

func (c *checker) fault(pointer, format string, args ...any) {
	if len(c.faults) < 50 {
		c.faults = append(c.faults, Diagnostic{Pointer: pointer, Summary: fmt.Sprintf(format, args...)})
	}
}

func (c *checker) parse(raw []byte) (any, bool) {
	switch {
	case !utf8.Valid(raw):
		c.fault("", "is not valid UTF-8")
		return nil, false
	case LoneSurrogate(raw):
		c.fault("", "has half of a surrogate pair, which is no text")
		return nil, false
	}
	c.d = json.NewDecoder(bytes.NewReader(raw))
	c.d.UseNumber()
	doc, err := c.value("", 0)
	if err == nil {
		if _, end := c.d.Token(); end != io.EOF {
			err = fmt.Errorf("has data after its end")
		}
	}
	if err != nil {
		c.fault("", "is not JSON: %v", err)
		return nil, false
	}
	return doc, true
}

func (c *checker) value(pointer string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nests deeper than %d", maxDepth)
	}
	token, err := c.d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		out := object{}
		for c.d.More() {
			key, err := c.d.Token()
			if err != nil {
				return nil, err
			}
			name, _ := key.(string) // the decoder takes nothing else here
			at := pointer + "/" + escape(name)
			if _, twice := out[name]; twice {
				c.fault(at, "is there twice")
			}
			if out[name], err = c.value(at, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = c.d.Token()
		return out, err
	case json.Delim('['):
		out := []any{}
		for c.d.More() {
			v, err := c.value(pointer+"/"+strconv.Itoa(len(out)), depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err = c.d.Token()
		return out, err
	}
	return token, nil
}

func (c *checker) check(v any, s *shape, at string) {
	if v == nil {
		if !s.nullable && s.kind != "any" {
			c.fault(at, "must not be null")
		}
		return
	}
	switch s.kind {
	case "object":
		c.object(v, s, at)
	case "map":
		if m, ok := v.(object); c.is(ok, at, "an object") {
			c.length(len(m), s, at, "entries")
			for _, name := range sorted(m) {
				c.check(m[name], s.elem, at+"/"+escape(name))
			}
		}
	case "array":
		if list, ok := v.([]any); c.is(ok, at, "a list") {
			c.length(len(list), s, at, "items")
			for i, e := range list {
				c.check(e, s.elem, at+"/"+strconv.Itoa(i))
			}
		}
	case "string":
		c.text(v, s, at)
	case "boolean":
		_, ok := v.(bool)
		c.is(ok, at, "true or false")
	case "integer", "number":
		c.number(v, s, at)
	}
}

func (c *checker) is(ok bool, at, what string) bool {
	if !ok {
		c.fault(at, "must be %s", what)
	}
	return ok
}

func (c *checker) object(v any, s *shape, at string) {
	m, ok := v.(object)
	if !c.is(ok, at, "an object") {
		return
	}
	known := map[string]bool{}
	for _, f := range s.fields {
		known[f.name] = true
		inner, there := m[f.name]
		switch {
		case f.secret: // looked at where the credentials are
		case there:
			c.check(inner, f.shape, at+"/"+escape(f.name))
		case f.required:
			c.fault(at+"/"+escape(f.name), "is required")
		}
	}
	for _, name := range sorted(m) {
		if !known[name] {
			c.fault(at+"/"+escape(name), "is not known; there are: %s", strings.Join(names(s), ", "))
		}
	}
}

func (c *checker) length(n int, s *shape, at, what string) {
	if s.min != nil && float64(n) < *s.min {
		c.fault(at, "must have at least %v %s", *s.min, what)
	}
	if s.max != nil && float64(n) > *s.max {
		c.fault(at, "must have at most %v %s", *s.max, what)
	}
}

func (c *checker) text(v any, s *shape, at string) {
	text, ok := v.(string)
	if !c.is(ok, at, "text") {
		return
	}
	c.length(utf8.RuneCountInString(text), s, at, "characters")
	c.oneOf(text, s, at)
	if s.format == "date-time" {
		if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
			c.fault(at, "must be a time such as 2026-11-30T12:00:00Z")
		}
	}
}

func (c *checker) oneOf(text string, s *shape, at string) {
	if len(s.enum) > 0 && !slices.Contains(s.enum, text) {
		c.fault(at, "must be one of: %s", strings.Join(s.enum, ", "))
	}
}

func (c *checker) number(v any, s *shape, at string) {
	n, ok := v.(json.Number)
	if !c.is(ok, at, "a number") {
		return
	}
	if s.kind == "integer" {
		var err error
		if s.bits < 0 {
			_, err = strconv.ParseUint(n.String(), 10, -s.bits)
		} else {
			_, err = strconv.ParseInt(n.String(), 10, s.bits)
		}
		if err != nil {
			c.fault(at, "must be a whole number of %d bits", max(s.bits, -s.bits))
			return
		}
	}
	f, err := n.Float64()
	if err != nil || math.IsInf(f, 0) {
		c.fault(at, "is too large a number")
		return
	}
	if s.min != nil && f < *s.min {
		c.fault(at, "must be at least %v", *s.min)
	}
	if s.max != nil && f > *s.max {
		c.fault(at, "must be at most %v", *s.max)
	}
	c.oneOf(n.String(), s, at)
}

func sorted[M ~map[string]any](m M) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func names(s *shape) []string {
	var out []string
	for _, f := range s.fields {
		out = append(out, f.name)
	}
	return out
}

func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// LoneSurrogate reports whether a JSON document has an escape of \uD800 to
// \uDFFF outside of a pair. It is no text, and encoding/json replaces it in
// silence, so that what is sent is not what was asked for.
func LoneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 >= len(raw) {
			continue
		}
		if raw[i+1] != 'u' {
			i++ // the escaped character, perhaps a backslash
			continue
		}
		high, ok := hex4(raw, i+2)
		if !ok || high < 0xD800 || high > 0xDFFF {
			continue
		}
		if high >= 0xDC00 || i+7 >= len(raw) || raw[i+6] != '\\' || raw[i+7] != 'u' {
			return true
		}
		low, ok := hex4(raw, i+8)
		if !ok || low < 0xDC00 || low > 0xDFFF {
			return true
		}
		i += 11
	}
	return false
}

func hex4(raw []byte, at int) (uint64, bool) {
	if at+4 > len(raw) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(raw[at:at+4]), 16, 16)
	return n, err == nil
}

// fillSecrets takes the secrets of a configuration out of the credentials. It
// returns the document without them, so that none of it is mistaken for a value.
func fillSecrets(raw []byte, s *shape, v reflect.Value, credentials map[string]string) ([]byte, []Diagnostic) {
	c := &checker{}
	doc, ok := c.parse(raw)
	m, isObject := doc.(object)
	if !ok || !isObject || s.kind != "object" {
		return raw, nil // strictly says what is wrong with it
	}
	c.secrets(m, s, v, credentials, "")
	rest, err := json.Marshal(m)
	if err != nil {
		c.fault("", "cannot be read: %v", err)
	}
	return rest, c.faults
}

func (c *checker) secrets(m object, s *shape, v reflect.Value, credentials map[string]string, at string) {
	for _, f := range s.fields {
		pointer := at + "/" + escape(f.name)
		if f.secret {
			c.secret(m, f, v.FieldByIndex(f.index), credentials, pointer)
			continue
		}
		if inner, ok := m[f.name].(object); ok && f.kind == "object" && f.holdsSecret() {
			c.secrets(inner, f.shape, allocate(v.FieldByIndex(f.index)), credentials, pointer)
		}
	}
}

func (c *checker) secret(m object, f shapeField, v reflect.Value, credentials map[string]string, pointer string) {
	name, value := strings.ReplaceAll(pointer[1:], "/", "."), ""
	said, there := m[f.name]
	delete(m, f.name)
	found := false
	if there {
		name, _ = said.(string)
		if value, found = credentials[name]; !found {
			// What stands there may be the secret itself: it is not repeated.
			c.fault(pointer, "names no credential of this destination; a secret never stands in the configuration, only the name of a credential")
			return
		}
	} else if value, found = credentials[name]; !found {
		if value, found = credentials[pointer]; !found {
			if f.required {
				c.fault(pointer, "needs a credential: store one named %q and list it in the destination's credentials", name)
			}
			return
		}
	}
	allocate(v).Set(reflect.ValueOf(Secret{strings.TrimRight(value, "\r\n")}))
}

func allocate(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Elem()
}
