package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/settled-dev/settled/daemon"
)

// The limits of what a client may send, in bytes.
const (
	// MaxPayload is the largest payload of one effect.
	MaxPayload = 1 << 20
	// maxEnvelope is everything around the payload; a payload may double by escaping.
	maxEnvelope = 2*MaxPayload + 64<<10
	// maxBatch is one batch request.
	maxBatch = 64 << 20
)

// readBody reads a body of at most limit bytes.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return nil, &tooLargeError{what: "the body", limit: big.Limit}
	}
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	return data, nil
}

type tooLargeError struct {
	what  string
	limit int64
}

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("%s has more than %d bytes", e.what, e.limit)
}

// strict decodes one JSON object into the struct that v points to and names
// every fault: members it does not know, members given twice, wrong types,
// anything after the object. Names are compared exactly.
func strict(data []byte, v any) error {
	members, faults, err := members(data)
	if err != nil {
		return &daemon.InvalidError{Faults: []string{err.Error()}}
	}
	fields := fieldsOf(v)
	for _, m := range members {
		f, ok := fields[m.name]
		if !ok {
			faults = append(faults, unknownMember(m.name, fields))
			continue
		}
		if err := json.Unmarshal(m.value, f); err != nil {
			faults = append(faults, fmt.Sprintf("%s: %s", m.name, plain(err)))
		}
	}
	if len(faults) > 0 {
		return &daemon.InvalidError{Faults: faults}
	}
	return nil
}

type member struct {
	name  string
	value json.RawMessage
}

// members splits an object. The error is for text that is no JSON object at all.
func members(data []byte) (out []member, faults []string, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil, errors.New("the body is empty; a JSON object is expected")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		if err != nil {
			return nil, nil, notJSON(err, d)
		}
		return nil, nil, errors.New("a JSON object is expected")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, nil, notJSON(err, d)
		}
		m := member{name: t.(string)} // the decoder gives nothing else in this place
		if err := d.Decode(&m.value); err != nil {
			return nil, nil, notJSON(err, d)
		}
		if seen[m.name] {
			faults = append(faults, fmt.Sprintf("member %q is given twice", m.name))
			continue
		}
		seen[m.name] = true
		out = append(out, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, notJSON(err, d)
	}
	if _, err := d.Token(); err != io.EOF {
		faults = append(faults, "there is more after the JSON object")
	}
	return out, faults, nil
}

func notJSON(err error, d *json.Decoder) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("not JSON: it ends too early")
	}
	return fmt.Errorf("not JSON: %s at byte %d", plain(err), d.InputOffset())
}

// plain takes Go's own words out of a JSON error.
func plain(err error) string {
	var ute *json.UnmarshalTypeError
	if errors.As(err, &ute) {
		return fmt.Sprintf("a JSON %s does not fit here (%s is expected)", ute.Value, kindWord(ute.Type))
	}
	var pe *time.ParseError
	if errors.As(err, &pe) {
		return "a time such as 2026-12-01T08:00:00Z is expected"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func kindWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Slice:
		return "a list"
	}
	return "a number"
}

// fieldsOf returns a pointer to each field by its JSON name.
func fieldsOf(v any) map[string]any {
	s := reflect.ValueOf(v).Elem()
	out := map[string]any{}
	for i := range s.NumField() {
		name, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("json"), ",")
		out[name] = s.Field(i).Addr().Interface()
	}
	return out
}

func unknownMember(name string, fields map[string]any) string {
	msg := fmt.Sprintf("unknown member %q", name)
	flat := strings.NewReplacer("-", "", "_", "")
	for known := range fields {
		if flat.Replace(strings.ToLower(name)) == flat.Replace(known) {
			return msg + fmt.Sprintf("; did you mean %q?", known)
		}
	}
	return msg
}
