package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// template is a string with `${ … }` interpolation: static text is plain, and
// between the braces stands a jq program.
type template struct {
	source string
	parts  []part
}

// part is static text, or a program when program is set.
type part struct {
	text    string
	program *program
}

// errUnterminated is a string that opens an interpolation and never closes it.
var errUnterminated = errors.New("`${` without its closing brace")

// splitTemplate cuts a string into static text (even positions) and the sources
// of programs (odd positions).
func splitTemplate(s string) ([]string, error) {
	var pieces []string
	for {
		at := strings.Index(s, "${")
		if at < 0 {
			return append(pieces, s), nil
		}
		end := endOfProgram(s[at+2:])
		if end < 0 {
			return nil, errUnterminated
		}
		pieces = append(pieces, s[:at], s[at+2:at+2+end])
		s = s[at+2+end+1:]
	}
}

// endOfProgram finds the brace that closes an interpolation. Braces of jq
// objects nest; those in jq strings do not count, but a string may itself
// contain \( … ) with further strings; # starts a comment.
func endOfProgram(s string) int {
	// Each open bracket: '{' or '(' in code, '"' for a string, 'i' for \( in a string.
	var open []byte
	top := func() byte {
		if len(open) == 0 {
			return 0
		}
		return open[len(open)-1]
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if top() == '"' {
			switch {
			case c == '\\' && i+1 < len(s):
				i++
				if s[i] == '(' {
					open = append(open, 'i')
				}
			case c == '"':
				open = open[:len(open)-1]
			}
			continue
		}
		switch c {
		case '"', '{', '(':
			open = append(open, c)
		case '#':
			nl := strings.IndexByte(s[i:], '\n')
			if nl < 0 {
				return -1
			}
			i += nl
		case ')':
			if top() == '(' || top() == 'i' {
				open = open[:len(open)-1]
			}
		case '}':
			if len(open) == 0 {
				return i
			}
			if top() == '{' {
				open = open[:len(open)-1]
			}
		}
	}
	return -1
}

// compileTemplate parses s and compiles its programs with the given variables.
func compileTemplate(s string, vars []string) (*template, error) {
	pieces, err := splitTemplate(s)
	if err != nil {
		return nil, err
	}
	t := &template{source: s}
	for i, piece := range pieces {
		if i%2 == 0 {
			if piece != "" {
				t.parts = append(t.parts, part{text: piece})
			}
			continue
		}
		p, err := compileProgram(piece, vars)
		if err != nil {
			return nil, fmt.Errorf("in `${%s}`: %w", piece, err)
		}
		t.parts = append(t.parts, part{program: p})
	}
	return t, nil
}

// render evaluates the template. A value that is null, empty or no scalar is an
// error: a request with a hole where an identity belongs is another request.
func (t *template) render(ctx context.Context, s scope) (string, error) {
	var out strings.Builder
	for _, p := range t.parts {
		if p.program == nil {
			out.WriteString(p.text)
			continue
		}
		value, err := p.program.run(ctx, nil, s)
		if err != nil {
			return "", fmt.Errorf("`${%s}`: %w", p.program.source, err)
		}
		text, err := scalar(value)
		if err != nil {
			return "", fmt.Errorf("`${%s}` gives %w", p.program.source, err)
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

// scalar writes a string, number or boolean as text.
func scalar(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", errors.New("null")
	case string:
		if v == "" {
			return "", errors.New("an empty string")
		}
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case json.Number:
		return v.String(), nil
	case *big.Int:
		return v.String(), nil
	case float64:
		text, err := json.Marshal(v)
		if err != nil {
			return "", errors.New("a number that cannot be written")
		}
		return string(text), nil
	}
	return "", errors.New("a value that is neither text, number nor boolean")
}
