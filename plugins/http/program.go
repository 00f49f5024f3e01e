package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/itchyny/gojq"
)

// programTimeout bounds one evaluation: a program that loops must not hold an
// outcome hostage.
const programTimeout = 2 * time.Second

// program is a compiled jq program. It sees no environment, files or modules.
type program struct {
	source string
	vars   []string
	code   *gojq.Code
}

// scope holds the values of the variables, by name with "$".
type scope map[string]any

// with returns a copy that also holds name.
func (s scope) with(name string, value any) scope {
	c := make(scope, len(s)+1)
	for k, v := range s {
		c[k] = v
	}
	c[name] = value
	return c
}

// variables before and after a call.
func varsBefore() []string { return []string{"$effect", "$payload", "$secret", "$snapshot"} }
func varsAfter() []string  { return append(varsBefore(), "$response") }

func compileProgram(source string, vars []string) (*program, error) {
	query, err := gojq.Parse(source)
	if err != nil {
		return nil, err
	}
	code, err := gojq.Compile(query, gojq.WithVariables(vars))
	if err != nil {
		return nil, err
	}
	return &program{source: source, vars: vars, code: code}, nil
}

// run gives the program's one value; no output is null, more than one is an error.
func (p *program) run(ctx context.Context, input any, s scope) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	values := make([]any, len(p.vars))
	for i, name := range p.vars {
		values[i] = s[name]
	}
	iter := p.code.RunWithContext(ctx, input, values...)
	value, ok := iter.Next()
	if !ok {
		return nil, nil
	}
	if err, failed := value.(error); failed {
		var halt *gojq.HaltError
		if errors.As(err, &halt) && halt.Value() == nil {
			return nil, nil
		}
		return nil, err
	}
	if second, more := iter.Next(); more {
		if err, failed := second.(error); failed {
			return nil, err
		}
		return nil, errors.New("gives more than one value; wrap it in [ ] or use first(…)")
	}
	return value, nil
}

// runBool is run for tests: only true holds; null is false; anything else is an error.
func (p *program) runBool(ctx context.Context, input any, s scope) (bool, error) {
	value, err := p.run(ctx, input, s)
	if err != nil {
		return false, fmt.Errorf("`%s`: %w", p.source, err)
	}
	switch v := value.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	}
	return false, fmt.Errorf("`%s` gives neither true nor false", p.source)
}

// runText is run for identities: a scalar as text, or "" for null and empty.
func (p *program) runText(ctx context.Context, input any, s scope) (string, error) {
	value, err := p.run(ctx, input, s)
	if err != nil {
		return "", fmt.Errorf("`%s`: %w", p.source, err)
	}
	if value == nil || value == "" {
		return "", nil
	}
	text, err := scalar(value)
	if err != nil {
		return "", fmt.Errorf("`%s` gives %w", p.source, err)
	}
	return text, nil
}

// runTime is run for moments: RFC 3339 or Unix seconds.
func (p *program) runTime(ctx context.Context, input any, s scope) (time.Time, error) {
	text, err := p.runText(ctx, input, s)
	if err != nil {
		return time.Time{}, err
	}
	if text == "" {
		return time.Time{}, fmt.Errorf("`%s` gives no time", p.source)
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at.UTC(), nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds > -1e11 && seconds < 1e11) {
		return time.Time{}, fmt.Errorf("`%s` gives %q: neither RFC 3339 nor Unix seconds", p.source, text)
	}
	whole := int64(seconds)
	return time.Unix(whole, int64((seconds-float64(whole))*1e9)).UTC(), nil
}

// runList is run for programs that must give a list.
func (p *program) runList(ctx context.Context, input any, s scope) ([]any, error) {
	value, err := p.run(ctx, input, s)
	if err != nil {
		return nil, fmt.Errorf("`%s`: %w", p.source, err)
	}
	list, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("`%s` gives no list", p.source)
	}
	return list, nil
}

// parseJSON reads exactly one JSON value; numbers keep their digits.
func parseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("data after the JSON value")
	}
	return v, nil
}

// writeJSON is the body of a request: compact, no HTML escapes, keys sorted.
func writeJSON(v any) ([]byte, error) { return gojq.Marshal(v) }
