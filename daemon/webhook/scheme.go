package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// The schemes, all HMAC-SHA256 with one shared secret.
const (
	// Standard is Standard Webhooks: webhook-id, webhook-timestamp and
	// webhook-signature ("v1,BASE64", several for a key that rolls over), over
	// ID.TIME.BODY. The secret is base64, with or without "whsec_".
	Standard = "standard"
	// Stripe is stripe-signature: "t=TIME,v1=HEX", over TIME.BODY.
	Stripe = "stripe"
	// GitHub is x-hub-signature-256: "sha256=HEX" over the body. No time is
	// signed: what keeps a replay out is the event id alone.
	GitHub = "github"
)

// maxSignatures bounds how many signatures of one message are tried.
const maxSignatures = 8

// verify checks the signature and returns the event id that it covers, if any.
func verify(scheme, secret string, headers map[string]string, body []byte, now time.Time, tolerance time.Duration) (id string, err error) {
	if secret == "" {
		return "", ErrSignature
	}
	switch scheme {
	case Standard:
		return verifyStandard(secret, headers, body, now, tolerance)
	case Stripe:
		return "", verifyStripe(secret, headers["stripe-signature"], body, now, tolerance)
	case GitHub:
		given, ok := strings.CutPrefix(headers["x-hub-signature-256"], "sha256=")
		if sum, err := hex.DecodeString(given); !ok || err != nil || !hmac.Equal(sum, sign([]byte(secret), body)) {
			return "", ErrSignature
		}
		return "", nil
	}
	return "", ErrSignature
}

func verifyStandard(secret string, headers map[string]string, body []byte, now time.Time, tolerance time.Duration) (string, error) {
	id, at := headers["webhook-id"], headers["webhook-timestamp"]
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 || id == "" {
		return "", ErrSignature
	}
	want := sign(key, []byte(id+"."+at+"."), body)
	for i, s := range strings.Fields(headers["webhook-signature"]) {
		given, ok := strings.CutPrefix(s, "v1,")
		sum, err := base64.StdEncoding.DecodeString(given)
		if i < maxSignatures && ok && err == nil && hmac.Equal(sum, want) {
			return id, inWindow(at, now, tolerance)
		}
	}
	return "", ErrSignature
}

func verifyStripe(secret, header string, body []byte, now time.Time, tolerance time.Duration) error {
	at := ""
	var given []string
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case name == "t" && at == "":
			at = value
		case name == "v1" && len(given) < maxSignatures:
			given = append(given, value)
		}
	}
	want := sign([]byte(secret), []byte(at+"."), body)
	for _, g := range given {
		if sum, err := hex.DecodeString(g); err == nil && hmac.Equal(sum, want) {
			return inWindow(at, now, tolerance)
		}
	}
	return ErrSignature
}

func inWindow(unix string, now time.Time, tolerance time.Duration) error {
	n, err := strconv.ParseInt(unix, 10, 64)
	if err != nil {
		return ErrReplay
	}
	if d := now.Sub(time.Unix(n, 0)); d > tolerance || d < -tolerance {
		return ErrReplay
	}
	return nil
}

func sign(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}
