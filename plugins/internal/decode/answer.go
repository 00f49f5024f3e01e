package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Unambiguous reports what makes a JSON answer mean two things: an object that
// gives a name twice. Readers differ in which of the two they take, so nothing
// may be concluded from either. Anything but whole JSON is an error as well.
func Unambiguous(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var open []map[string]bool // of the objects and lists around the token; nil = a list
	name := false              // the next token of the innermost object is a name
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && len(open) > 0:
			return io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		inner := len(open) - 1
		switch token {
		case json.Delim('{'):
			open, name = append(open, map[string]bool{}), true
			continue
		case json.Delim('['):
			open, name = append(open, nil), false
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:inner]
			inner--
		default:
			if text, ok := token.(string); ok && name {
				if open[inner][text] {
					return fmt.Errorf("the name %q is there twice in one object", text)
				}
				open[inner][text], name = true, false
				continue
			}
		}
		name = inner >= 0 && open[inner] != nil
	}
}

// Spelt reports a name of a JSON object that differs from a known one in case
// alone: encoding/json takes the one for the other.
func Spelt(raw []byte, known ...string) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return err
	}
	for name := range object {
		for _, right := range known {
			if name != right && strings.EqualFold(name, right) {
				return fmt.Errorf("%q must be written %q", name, right)
			}
		}
	}
	return nil
}
