package sql

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"github.com/settled-dev/settled/sdk"
)

// programTimeout bounds one evaluation: a program that loops must not hold an
// effect hostage.
const programTimeout = 2 * time.Second

// value says where a parameter comes from: a JSON pointer into the payload
// ("/amount/cents") or a jq program over $payload, $effect and $row.
type value struct {
	source  string
	pointer []string // nil for a program
	code    *gojq.Code
}

// variables of a program; $row is null wherever no object was read.
func variables() []string { return []string{"$effect", "$payload", "$row"} }

func parseValue(source string) (*value, error) {
	if strings.HasPrefix(source, "/") {
		unescape := strings.NewReplacer("~1", "/", "~0", "~")
		v := &value{source: source}
		for _, token := range strings.Split(source[1:], "/") {
			v.pointer = append(v.pointer, unescape.Replace(token))
		}
		return v, nil
	}
	query, err := gojq.Parse(source)
	if err != nil {
		return nil, err
	}
	code, err := gojq.Compile(query, gojq.WithVariables(variables()))
	if err != nil {
		return nil, err
	}
	return &value{source: source, code: code}, nil
}

// scope holds what values are made of.
type scope struct{ effect, payload, row any }

// eval gives one JSON value. A pointer to nothing is an error: a misspelt one
// must not become NULL.
func (v *value) eval(ctx context.Context, s scope) (any, error) {
	if v.code == nil {
		return follow(s.payload, v)
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	iter := v.code.RunWithContext(ctx, s.payload, s.effect, s.payload, s.row)
	result, ok := iter.Next()
	if !ok {
		return nil, nil
	}
	if err, failed := result.(error); failed {
		return nil, fmt.Errorf("`%s`: %w", v.source, err)
	}
	if _, more := iter.Next(); more {
		return nil, fmt.Errorf("`%s` gives more than one value", v.source)
	}
	return result, nil
}

func follow(at any, v *value) (any, error) {
	for _, token := range v.pointer {
		ok := false
		switch node := at.(type) {
		case map[string]any:
			at, ok = node[token]
		case []any:
			i, err := strconv.Atoi(token)
			if ok = err == nil && i >= 0 && i < len(node); ok {
				at = node[i]
			}
		}
		if !ok {
			return nil, fmt.Errorf("the payload has nothing at %s", v.source)
		}
	}
	return at, nil
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

// digestOf is how the row holds the payload's digest.
func digestOf(o sdk.Operation) string { return "sha256:" + hex.EncodeToString(o.PayloadSHA256) }

// scopeOf is what values see of an operation.
func (s *state) scopeOf(o sdk.Operation, action string) (scope, error) {
	sc := scope{effect: map[string]any{
		"key": o.Key, "id": o.ID, "operation": action, "destination": s.destination, "account": o.Account,
		"digest": digestOf(o), "attempt_id": o.AttemptID, "actor": o.Actor, "object_id": nil,
	}}
	if o.Target != nil && o.Target.ID != "" {
		sc.effect.(map[string]any)["object_id"] = o.Target.ID
	}
	if len(o.Payload) > 0 {
		payload, err := parseJSON(o.Payload)
		if err != nil {
			return sc, fmt.Errorf("the payload is not JSON: %w", err)
		}
		sc.payload = payload
	}
	return sc, nil
}

// number is a JSON number as its digits, so that none is lost before the driver.
type number string

// plain is a JSON value as nil, bool, string or number.
func plain(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, string:
		return v, nil
	case json.Number:
		return number(v), nil
	case int:
		return number(strconv.Itoa(v)), nil
	case *big.Int:
		return number(v.String()), nil
	case float64:
		return number(strconv.FormatFloat(v, 'g', -1, 64)), nil
	}
	text, err := gojq.Marshal(v)
	if err != nil {
		return nil, err
	}
	return string(text), nil // a list or table, as JSON text
}

// asText is a scalar as text, or "" for null.
func asText(v any) (string, error) {
	p, err := plain(v)
	if err != nil {
		return "", err
	}
	switch p := p.(type) {
	case nil:
		return "", nil
	case bool:
		return strconv.FormatBool(p), nil
	case number:
		return string(p), nil
	}
	return p.(string), nil
}
