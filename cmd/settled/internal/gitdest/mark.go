package gitdest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// maxName bounds a ref's last part, which is a file name in the repository.
const maxName = 200

// KeyRef is the ref of a key. Everything but letters, digits and "_-=+" is
// escaped as %XX, so that no key breaks a rule of ref names or is a directory
// of another; a long one is replaced by its digest, marked with %h.
func KeyRef(key string) string {
	var b strings.Builder
	for _, c := range []byte(key) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("_-=+", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() > maxName {
		sum := sha256.Sum256([]byte(key))
		return keyRefs + "%h" + hex.EncodeToString(sum[:])
	}
	return keyRefs + b.String()
}

// keyOf reverses KeyRef where it can; a digest stays as it is.
func keyOf(ref string) string {
	name := strings.TrimPrefix(ref, keyRefs)
	if key, err := url.PathUnescape(name); err == nil {
		return key
	}
	return name
}

// mark is what the end of a tag object's message says.
type mark struct {
	key, digest, attempt, tag string
	at                        time.Time
}

// message is the tag object's message: notes for people, then the mark. The
// mark is the last paragraph, so notes cannot pretend to be one.
func (m mark) message(notes string) string {
	return fmt.Sprintf("%s\n\n%s\n\nSettled-Key: %s\nSettled-Digest: %s\nSettled-Attempt: %s\nSettled-Tag: %s\nSettled-At: %s\n",
		m.tag, notes, m.key, m.digest, m.attempt, m.tag, m.at.UTC().Format(time.RFC3339Nano))
}

// parseMark reads the last paragraph of a message; an object without a mark gives the zero mark.
func parseMark(message string) mark {
	text := strings.TrimRight(message, "\n")
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		text = text[i+2:]
	}
	var m mark
	for l := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(l, "\n"), ": ")
		switch name {
		case "Settled-Key":
			m.key = value
		case "Settled-Digest":
			m.digest = value
		case "Settled-Attempt":
			m.attempt = value
		case "Settled-Tag":
			m.tag = value
		case "Settled-At":
			m.at, _ = time.Parse(time.RFC3339Nano, value) // a garbled time is the zero time: no time
		}
	}
	return m
}
