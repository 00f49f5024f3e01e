package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk/client"
)

func (a *api) openapi(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, document31(a.routes(), a.opts.Version))
}

type object = map[string]any

// document31 derives the OpenAPI 3.1 document from the route table and the Go types.
func document31(routes []route, version string) object {
	if version == "" {
		version = "dev"
	}
	s := schemas{}
	paths := map[string]object{}
	for _, rt := range routes {
		if paths[rt.path] == nil {
			paths[rt.path] = object{}
		}
		paths[rt.path][strings.ToLower(rt.method)] = s.operation(rt)
	}
	s.ref(reflect.TypeFor[client.Problem]())
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "settled", "version": version, "license": object{"name": "see the repository"}},
		"paths":   paths, "components": object{"schemas": s},
	}
}

// schemas collects the types that were met, by name.
type schemas map[string]object

func (s schemas) operation(rt route) object {
	var params []object
	for part := range strings.SplitSeq(rt.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			params = append(params, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	for _, q := range rt.query {
		params = append(params, object{"name": q[0], "in": "query", "description": q[1], "schema": object{"type": "string"}})
	}
	responses := object{strconv.Itoa(rt.status): s.content("", rt.answer, rt.answerType)}
	if rt.id == "submit" {
		responses["200"] = responses["201"]
	}
	for _, code := range rt.problems {
		responses[strconv.Itoa(code)] = s.content(http.StatusText(code), client.Problem{}, "application/problem+json")
	}
	op := object{"operationId": rt.id, "summary": rt.words, "responses": responses}
	if rt.role != open {
		op["x-role"] = string(rt.role)
	}
	if len(params) > 0 {
		op["parameters"] = params
	}
	if rt.body != nil {
		body := s.content("", rt.body, rt.bodyType)
		op["requestBody"] = object{"required": true, "content": body["content"]}
	}
	return op
}

func (s schemas) content(words string, v any, mime string) object {
	if mime == "" {
		mime = "application/json"
	}
	if words == "" {
		words = "done"
	}
	schema := object{"type": "string"}
	if v != nil {
		schema = s.of(reflect.TypeOf(v))
	}
	return object{"description": words, "content": object{mime: object{"schema": schema}}}
}

// of is the schema of a Go type; a named struct is a reference.
func (s schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return object{} // anything
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return object{"anyOf": []object{s.of(t.Elem()), {"type": "null"}}}
	case reflect.Struct:
		return s.ref(t)
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	}
	return object{"type": "integer"}
}

func (s schemas) ref(t reflect.Type) object {
	ref := object{"$ref": "#/components/schemas/" + t.Name()}
	if s[t.Name()] != nil {
		return ref
	}
	props := object{}
	required := []string{}
	s[t.Name()] = object{"type": "object", "properties": props} // before the fields: types may be recursive
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous { // its members stand beside ours
			for j := range f.Type.Elem().NumField() {
				s.property(props, f.Type.Elem().Field(j))
			}
			continue
		}
		if s.property(props, f) {
			required = append(required, strings.Split(f.Tag.Get("json"), ",")[0])
		}
	}
	if len(required) > 0 {
		s[t.Name()]["required"] = required
	}
	return ref
}

// property adds a field and reports whether it is always there.
func (s schemas) property(props object, f reflect.StructField) bool {
	name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" || name == "-" {
		return false
	}
	props[name] = s.of(f.Type)
	return !strings.Contains(opts, "omit")
}
