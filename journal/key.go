package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
)

// MaxKey is the longest key, in bytes.
const MaxKey = 255

// KeyRules are the operator's patterns beside the built-in rules. Allow
// overrules the refusals of personal data; Deny adds refusals.
type KeyRules struct{ Allow, Deny []*regexp.Regexp }

// KeyError says why a key is refused and what to do instead. It does not repeat the key's offending part.
type KeyError struct{ Why string }

func (e *KeyError) Error() string { return "key refused: " + e.Why }

// CheckKey applies the key rules: alphabet, length and no personal data. A key
// is shown in logs, file names and other systems for years.
func CheckKey(key string, rules KeyRules) error {
	switch {
	case key == "":
		return &KeyError{"it is empty; use entity:id:operation:v1"}
	case len(key) > MaxKey:
		return &KeyError{fmt.Sprintf("it has %d bytes, the limit is %d", len(key), MaxKey)}
	}
	for _, re := range rules.Deny {
		if re.MatchString(key) {
			return &KeyError{"it matches the deny pattern " + strconv.Quote(re.String())}
		}
	}
	allowed := false
	for _, re := range rules.Allow {
		allowed = allowed || re.MatchString(key)
	}
	if !allowed {
		if why := personal(key); why != "" {
			return &KeyError{why}
		}
	}
	for i := 0; i < len(key); i++ {
		if !keyByte(key[i]) {
			return &KeyError{fmt.Sprintf("byte %d is not allowed; a key is made of A-Z a-z 0-9 . _ ~ / + = - and \":\"", i+1)}
		}
	}
	for _, part := range strings.Split(key, ":") {
		if part == "" {
			return &KeyError{"it has an empty part; parts joined by \":\" must not be empty"}
		}
	}
	return nil
}

func keyByte(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("._~/+=-:", c) >= 0
}

// personal names the personal data that the key seems to carry, or "".
func personal(key string) string {
	if strings.ContainsAny(key, " \t\r\n\v\f") || strings.ContainsRune(key, '\u00a0') {
		return "it contains white space"
	}
	if i := strings.IndexByte(key, '@'); i > 0 && i < len(key)-1 {
		return "it looks like an e-mail address; use an opaque id of the person instead"
	}
	if phone(key) {
		return "it looks like a phone number; use an opaque id of the person instead"
	}
	if card(key) {
		return "it looks like a payment card number; use the payment's own id instead"
	}
	return ""
}

// phone finds "+" followed by 8 to 15 digits and no further digit.
func phone(key string) bool {
	for i := 0; i < len(key); i++ {
		if key[i] != '+' {
			continue
		}
		n := digits(key[i+1:])
		if n >= 8 && n <= 15 {
			return true
		}
	}
	return false
}

// card finds a run of 13 to 19 digits, hyphens between groups ignored, that passes the Luhn check.
func card(key string) bool {
	for i := 0; i < len(key); i++ {
		if key[i] < '0' || key[i] > '9' || (i > 0 && key[i-1] >= '0' && key[i-1] <= '9') {
			continue
		}
		var run []byte
		for j := i; j < len(key); j++ {
			if c := key[j]; c >= '0' && c <= '9' {
				run = append(run, c)
			} else if c != '-' || j+1 >= len(key) || key[j+1] < '0' || key[j+1] > '9' {
				break
			}
		}
		if len(run) >= 13 && len(run) <= 19 && luhn(run) {
			return true
		}
	}
	return false
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func luhn(d []byte) bool {
	sum := 0
	for i := range d {
		v := int(d[len(d)-1-i] - '0')
		if i%2 == 1 {
			if v *= 2; v > 9 {
				v -= 9
			}
		}
		sum += v
	}
	return sum%10 == 0
}

// PayloadError says why a payload is refused, with its place.
type PayloadError struct{ Why string }

func (e *PayloadError) Error() string { return "payload refused: " + e.Why }

// PayloadDigest is the SHA-256 of the canonical payload: RFC 8785 for JSON, the
// bytes with their content type for anything else. A number that does not
// survive canonicalisation unchanged is refused: send it as a string.
func PayloadDigest(payload []byte, contentType string) (string, error) {
	h := sha256.New()
	if !isJSON(contentType) {
		fmt.Fprintf(h, "%d:%s,", len(contentType), contentType)
		h.Write(payload)
		return digestOf(h.Sum(nil)), nil
	}
	if err := checkJSON(payload); err != nil {
		return "", err
	}
	wrapped, scalar := wrapScalar(payload)
	canonical, err := jcs.Transform(wrapped)
	if err != nil {
		return "", &PayloadError{Why: err.Error()}
	}
	if scalar {
		canonical = bytes.TrimSuffix(bytes.TrimPrefix(canonical, []byte("[")), []byte("]"))
	}
	h.Write(canonical)
	return digestOf(h.Sum(nil)), nil
}

func digestOf(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

func isJSON(contentType string) bool {
	t, _, _ := strings.Cut(contentType, ";")
	t = strings.ToLower(strings.TrimSpace(t))
	return t == "" || t == "application/json" || strings.HasSuffix(t, "+json")
}

// wrapScalar lets a bare string or number be canonicalised: the library takes objects and arrays.
func wrapScalar(p []byte) (wrapped []byte, scalar bool) {
	t := bytes.TrimSpace(p)
	if len(t) > 0 && (t[0] == '{' || t[0] == '[') {
		return p, false
	}
	return append(append([]byte("["), t...), ']'), true
}

// checkJSON walks the payload once: one value, no duplicate member, every
// number exact in a 64-bit float, every string valid Unicode.
func checkJSON(payload []byte) error {
	if len(bytes.TrimSpace(payload)) == 0 {
		return &PayloadError{"it is empty; an empty JSON payload is {}"}
	}
	if !json.Valid(payload) {
		var v any
		err := json.Unmarshal(payload, &v)
		var syn *json.SyntaxError
		if errors.As(err, &syn) {
			return &PayloadError{fmt.Sprintf("not JSON: %v at byte %d", err, syn.Offset)}
		}
		return &PayloadError{"not JSON"}
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if err := walkJSON(d, "", 0); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return &PayloadError{"more than one JSON value"}
	}
	return nil
}

// Bounds of what a payload may make the core do, whatever its size.
const (
	maxDepth  = 256 // of nested arrays and objects
	maxNumber = 800 // bytes of one number as written; a float in full needs fewer
)

func walkJSON(d *json.Decoder, at string, depth int) error {
	if depth > maxDepth {
		return &PayloadError{fmt.Sprintf("it nests deeper than %d", maxDepth)}
	}
	t, err := d.Token()
	if err != nil {
		return &PayloadError{err.Error()}
	}
	switch v := t.(type) {
	case json.Number:
		return checkNumber(string(v), at)
	case json.Delim:
		if v == '{' {
			return walkObject(d, at, depth)
		}
		for i := 0; d.More(); i++ {
			if err := walkJSON(d, at+"/"+strconv.Itoa(i), depth+1); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	if err != nil {
		return &PayloadError{err.Error()}
	}
	return nil
}

func walkObject(d *json.Decoder, at string, depth int) error {
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return &PayloadError{err.Error()}
		}
		name, _ := t.(string)
		where := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		if seen[name] {
			return &PayloadError{"member " + where + " appears twice"}
		}
		seen[name] = true
		if err := walkJSON(d, where, depth+1); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return &PayloadError{err.Error()}
	}
	return nil
}

// checkNumber refuses a number whose canonical form is another number. Decimal
// fractions are compared as written: 0.1 survives, 9007199254740993 does not.
func checkNumber(lit, at string) error {
	if len(lit) > maxNumber {
		return &PayloadError{fmt.Sprintf("number at %s has %d digits; send it as a string", orElse(at, "/"), len(lit))}
	}
	f, err := strconv.ParseFloat(lit, 64)
	if err != nil {
		return &PayloadError{fmt.Sprintf("number at %s is out of range; send it as a string", orElse(at, "/"))}
	}
	short := strconv.FormatFloat(f, 'g', -1, 64)
	want, ok1 := new(big.Rat).SetString(boundExp(lit))
	got, ok2 := new(big.Rat).SetString(short)
	if !ok1 || !ok2 || want.Cmp(got) != 0 {
		return &PayloadError{fmt.Sprintf("number at %s does not survive as a 64-bit float; send it as a string", orElse(at, "/"))}
	}
	return nil
}

// boundExp keeps a hostile exponent ("1e999999999") from being expanded: such a
// number is either zero or out of range as a float, and refused as inexact.
func boundExp(lit string) string {
	i := strings.IndexAny(lit, "eE")
	if i < 0 {
		return lit
	}
	if n, err := strconv.Atoi(lit[i+1:]); err != nil || n > 400 || n < -400 {
		return "not a number"
	}
	return lit
}

// Fingerprint binds a key to what it means: SHA-256 over destination, account,
// operation, actor and the payload's digest, each with its length before it.
func Fingerprint(destination, account, operation, actor, payloadDigest string) string {
	h := sha256.New()
	h.Write([]byte("settled.fingerprint.v1"))
	for _, part := range []string{destination, account, operation, actor, payloadDigest} {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return digestOf(h.Sum(nil))
}

// ConflictError says that a key is bound to another fingerprint. It carries
// both fingerprints and neither payload.
type ConflictError struct{ Key, Bound, Given string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("key %s is bound to another request (bound %s, given %s); a new intent needs a new version of the key", e.Key, e.Bound, e.Given)
}
