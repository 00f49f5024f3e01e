package sdk

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"sort"
	"strings"
)

// redacted stands where a secret was.
const redacted = "[redacted]"

// minSecret is the shortest value that is redacted: shorter ones would match
// everywhere and hide nothing.
const minSecret = 4

// Redactor removes known secret values from text before it becomes evidence, a
// message or a log line. It finds each value raw, JSON-escaped, URL-encoded, and
// inside base64 at any alignment (as in "Basic " + base64(user:secret)). A nil
// Redactor changes nothing. It is safe for concurrent use.
type Redactor struct{ forms []string }

// NewRedactor knows the values of secrets; names are not secret.
func NewRedactor(secrets map[string]string) *Redactor {
	seen := map[string]bool{}
	for _, value := range secrets {
		for _, candidate := range []string{value, strings.TrimSpace(value)} {
			if len(candidate) < minSecret {
				continue
			}
			for _, form := range secretForms(candidate) {
				if len(form) >= minSecret {
					seen[form] = true
				}
			}
		}
	}
	r := &Redactor{}
	for form := range seen {
		r.forms = append(r.forms, form)
	}
	// The longest first, so that no tail of a longer form is left over.
	sort.Slice(r.forms, func(i, j int) bool {
		if len(r.forms[i]) != len(r.forms[j]) {
			return len(r.forms[i]) > len(r.forms[j])
		}
		return r.forms[i] < r.forms[j]
	})
	return r
}

func secretForms(value string) []string {
	forms := []string{value, url.QueryEscape(value), url.PathEscape(value)}
	forms = append(forms, jqURI(value))
	if quoted, err := json.Marshal(value); err == nil {
		forms = append(forms, string(quoted[1:len(quoted)-1]))
	}
	var plain bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(value) == nil {
		forms = append(forms, strings.Trim(strings.TrimSpace(plain.String()), `"`))
	}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		forms = append(forms, encoding.EncodeToString([]byte(value)))
		forms = append(forms, alignedForms(encoding, value)...)
	}
	return forms
}

// alignedForms are the characters of value's base64 that do not depend on what
// stands before and after it.
func alignedForms(encoding *base64.Encoding, value string) []string {
	var forms []string
	for offset := range 3 {
		padded := append(make([]byte, offset), value...)
		text := encoding.EncodeToString(padded)
		first := (offset*8 + 5) / 6 // first character made of value alone
		last := len(padded) * 8 / 6 // characters made of whole input
		if form := text[first:last]; len(form) >= minSecret+2 {
			forms = append(forms, form)
		}
	}
	return forms
}

// jqURI percent-encodes everything but the unreserved characters, as @uri does.
func jqURI(value string) string {
	return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
}

// String returns s without secrets.
func (r *Redactor) String(s string) string {
	if r == nil {
		return s
	}
	for _, form := range r.forms {
		s = strings.ReplaceAll(s, form, redacted)
	}
	return s
}

// Bytes returns b without secrets. It may return b itself.
func (r *Redactor) Bytes(b []byte) []byte {
	if r == nil {
		return b
	}
	for _, form := range r.forms {
		if bytes.Contains(b, []byte(form)) {
			b = bytes.ReplaceAll(b, []byte(form), []byte(redacted))
		}
	}
	return b
}
