package http

import (
	"crypto/sha256"
	"strconv"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"github.com/settled-dev/settled/sdk"
)

// excerpt is how much of a refusing body is kept, in bytes.
const excerpt = 512

// evidence says what was asked and answered: small, and without secrets.
func (s *state) evidence(kind string, req sdk.HTTPRequest, a *answer, note string) sdk.Evidence {
	e := sdk.Evidence{At: time.Now().UTC(), Kind: kind, Fields: map[string]string{}}
	if req.URL != "" {
		e.Fields["request"] = s.text(req.Method+" "+req.URL, 1024)
	}
	e.Summary = s.text(strings.TrimSpace(req.Method+" "+pathOf(req.URL)), 200)
	if a != nil {
		e.At = a.At.UTC()
		e.Summary += " → " + strconv.Itoa(a.Status)
		e.Fields["status"] = strconv.Itoa(a.Status)
		sum := sha256.Sum256(a.Body)
		e.BodySHA256 = sum[:]
		if !a.ok() && len(a.Body) > 0 {
			e.Fields["body"] = s.text(string(a.Body), excerpt)
		}
	}
	if note != "" {
		e.Fields["note"] = s.text(note, 512)
	}
	return e
}

func pathOf(raw string) string {
	_, rest, found := strings.Cut(raw, "://")
	if !found {
		return raw
	}
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		return rest[slash:]
	}
	return "/"
}

// text redacts first and cuts afterwards, so that no half of a secret is left.
func (s *state) text(text string, limit int) string {
	text = strings.ToValidUTF8(s.redact.String(text), "\uFFFD")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// document is a JSON value without secrets, within limit bytes; a longer one is
// replaced by its digest, because half a document is none.
func (s *state) document(v any, limit int) []byte {
	raw, err := gojq.Marshal(v)
	if err != nil {
		return nil
	}
	raw = s.redact.Bytes(raw)
	if len(raw) <= limit {
		return raw
	}
	sum := sha256.Sum256(raw)
	raw, err = gojq.Marshal(map[string]any{"omitted_bytes": len(raw), "sha256": hexDigest(sum[:])})
	if err != nil {
		return nil
	}
	return raw
}
