package sdk

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// shape is a Go type as JSON: what its schema is made from, and what a document
// is checked against.
type shape struct {
	kind     string // object, map, array, string, integer, number, boolean, any
	bits     int    // of an integer; negative = unsigned
	doc      string
	format   string
	enum     []string
	min, max *float64 // of the value, the length or the number of items
	fields   []shapeField
	elem     *shape
	secret   bool
	nullable bool
}

type shapeField struct {
	name     string
	index    []int
	required bool
	*shape
}

// JSONSchema is the JSON Schema (2020-12) of a Go type, from its json tags and
//
//	doc:"…"          what people read
//	min:"1" max:"9"  of a number, of the length of a text, of the items of a list
//	enum:"a,b"       the values that are allowed
//
// A field is required unless it is a pointer or has omitempty or omitzero;
// properties that the type does not have are refused. Types that JSON cannot
// carry (channels, functions, time.Duration, recursion) are errors.
func JSONSchema[T any]() ([]byte, error) {
	s, err := shapeOf(reflect.TypeFor[T](), nil)
	if err != nil {
		return nil, err
	}
	return s.document()
}

func (s *shape) document() ([]byte, error) {
	m := s.schema()
	m["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	return json.Marshal(m)
}

func (s *shape) schema() map[string]any {
	m := map[string]any{}
	if s.kind != "any" {
		m["type"] = s.kind
	}
	low, high := "minimum", "maximum"
	switch s.kind {
	case "object":
		properties, required := map[string]any{}, []string{}
		for _, f := range s.fields {
			properties[f.name] = f.schema()
			if f.required {
				required = append(required, f.name)
			}
		}
		m["properties"], m["additionalProperties"] = properties, false
		if len(required) > 0 {
			m["required"] = required
		}
	case "map":
		m["type"], m["additionalProperties"] = "object", s.elem.schema()
		low, high = "minProperties", "maxProperties"
	case "array":
		m["items"] = s.elem.schema()
		low, high = "minItems", "maxItems"
	case "string":
		low, high = "minLength", "maxLength"
	}
	s.decorate(m, low, high)
	return m
}

func (s *shape) decorate(m map[string]any, low, high string) {
	if s.doc != "" {
		m["description"] = s.doc
	}
	if s.format != "" {
		m["format"] = s.format
	}
	if s.secret {
		m["writeOnly"] = true
	}
	if len(s.enum) > 0 {
		m["enum"] = s.enumValues()
	}
	if s.min != nil {
		m[low] = *s.min
	} else if s.kind == "integer" && s.bits < 0 {
		m[low] = 0
	}
	if s.max != nil {
		m[high] = *s.max
	}
	if s.nullable && s.kind != "any" {
		m["type"] = []any{m["type"], "null"}
		if enum, ok := m["enum"].([]any); ok {
			m["enum"] = append(enum, nil)
		}
	}
}

func (s *shape) enumValues() []any {
	var out []any
	for _, text := range s.enum {
		if s.kind == "string" {
			out = append(out, text)
		} else {
			out = append(out, json.Number(text))
		}
	}
	return out
}

// shapeOf follows a type. above are the struct types around it.
func shapeOf(t reflect.Type, above []reflect.Type) (*shape, error) {
	if t == nil {
		return &shape{kind: "any"}, nil
	}
	if s, ok := knownShape(t); ok {
		return s, nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		s, err := shapeOf(t.Elem(), above)
		if err == nil {
			s.nullable = true
		}
		return s, err
	case reflect.Bool:
		return &shape{kind: "boolean"}, nil
	case reflect.String:
		return &shape{kind: "string"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &shape{kind: "integer", bits: t.Bits()}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &shape{kind: "integer", bits: -t.Bits()}, nil
	case reflect.Float32, reflect.Float64:
		return &shape{kind: "number"}, nil
	case reflect.Interface:
		return &shape{kind: "any"}, nil
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 && t.Kind() == reflect.Slice {
			return &shape{kind: "string", format: "base64"}, nil
		}
		return containerShape("array", t, above)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("%s: the keys of a map must be text", t)
		}
		return containerShape("map", t, above)
	case reflect.Struct:
		return structShape(t, above)
	}
	return nil, fmt.Errorf("%s cannot be written as JSON", t)
}

func knownShape(t reflect.Type) (*shape, bool) {
	switch t {
	case reflect.TypeFor[Secret]():
		return &shape{kind: "string", secret: true}, true
	case reflect.TypeFor[time.Time]():
		return &shape{kind: "string", format: "date-time"}, true
	case reflect.TypeFor[json.RawMessage]():
		return &shape{kind: "any"}, true
	case reflect.TypeFor[json.Number]():
		return &shape{kind: "number"}, true
	}
	pointer := reflect.PointerTo(t)
	switch {
	case t == reflect.TypeFor[time.Duration](), t.Kind() == reflect.Pointer:
		return nil, false
	case pointer.Implements(reflect.TypeFor[json.Unmarshaler]()):
		return &shape{kind: "any"}, true
	case pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return &shape{kind: "string"}, true
	}
	return nil, false
}

func containerShape(kind string, t reflect.Type, above []reflect.Type) (*shape, error) {
	elem, err := shapeOf(t.Elem(), above)
	if err != nil {
		return nil, err
	}
	if elem.holdsSecret() {
		return nil, fmt.Errorf("%s: a secret must be a field of its own, not in a list or a map", t)
	}
	return &shape{kind: kind, elem: elem}, nil
}

func (s *shape) holdsSecret() bool {
	if s.secret {
		return true
	}
	for _, f := range s.fields {
		if f.holdsSecret() {
			return true
		}
	}
	return s.elem != nil && s.elem.holdsSecret()
}

func structShape(t reflect.Type, above []reflect.Type) (*shape, error) {
	for _, u := range above {
		if u == t {
			return nil, fmt.Errorf("%s contains itself; a schema must end", t)
		}
	}
	above = append(above[:len(above):len(above)], t)
	s := &shape{kind: "object"}
	for i := range t.NumField() {
		if err := s.addField(t.Field(i), above); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *shape) addField(f reflect.StructField, above []reflect.Type) error {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" && options == "" || !f.IsExported() && !f.Anonymous {
		return nil
	}
	inner, err := fieldShape(f, above)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	if f.Anonymous && name == "" && inner.kind == "object" {
		if f.Type.Kind() == reflect.Pointer {
			return fmt.Errorf("%s: embed the struct itself, not a pointer", f.Name)
		}
		for _, g := range inner.fields {
			g.index = append([]int{f.Index[0]}, g.index...)
			s.fields = append(s.fields, g)
		}
		return nil
	}
	if name == "" {
		name = f.Name
	}
	optional := f.Type.Kind() == reflect.Pointer || strings.Contains(","+options+",", ",omitempty,") || strings.Contains(","+options+",", ",omitzero,")
	s.fields = append(s.fields, shapeField{name: name, index: []int{f.Index[0]}, required: !optional, shape: inner})
	return nil
}

func fieldShape(f reflect.StructField, above []reflect.Type) (*shape, error) {
	if f.Type == reflect.TypeFor[time.Duration]() {
		return nil, errors.New("a time.Duration is a bare number in JSON; use seconds, or a text type of your own")
	}
	s, err := shapeOf(f.Type, above)
	if err != nil {
		return nil, err
	}
	s.doc = f.Tag.Get("doc")
	if s.min, err = bound(f, "min"); err != nil {
		return nil, err
	}
	if s.max, err = bound(f, "max"); err != nil {
		return nil, err
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		if s.kind != "string" && s.kind != "integer" && s.kind != "number" {
			return nil, fmt.Errorf("enum does not go with %s", s.kind)
		}
		s.enum = strings.Split(enum, ",")
	}
	return s, nil
}

func bound(f reflect.StructField, tag string) (*float64, error) {
	text := f.Tag.Get(tag)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return nil, fmt.Errorf("the tag %s:%q is not a number", tag, text)
	}
	return &n, nil
}
