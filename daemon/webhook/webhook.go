// Package webhook checks messages that a destination sends of itself and reads
// from them what they say of an effect. It holds no state and does no I/O.
//
// What is guaranteed, in order: a message is believed only if its signature was
// made over exactly these bytes with the shared secret, and, where the scheme
// signs a time, if that time lies inside the replay window. Only then is the
// body parsed. The id that a repeated delivery is recognised by is always a part
// of what was signed. A crash leaves nothing behind.
package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/itchyny/gojq"
)

// MaxBody is the longest message in bytes.
const MaxBody = 256 << 10

// DefaultTolerance is how old, or how far ahead, a signed time may be.
const DefaultTolerance = 5 * time.Minute

// programTimeout bounds one evaluation.
const programTimeout = time.Second

// Errors that callers tell apart. Both mean that nothing was believed.
var (
	// ErrSignature: not signed with the secret, or altered.
	ErrSignature = errors.New("the signature does not fit")
	// ErrReplay: signed, but outside of the replay window.
	ErrReplay = errors.New("the signed time is outside of the replay window")
	// ErrMessage: signed, but not what the configuration expects.
	ErrMessage = errors.New("the message cannot be understood")
)

// Config is the table `webhook` of an operation. The programs are jq; `.` is the
// body, $headers holds the headers by lower-case name.
type Config struct {
	Scheme     string `json:"scheme"`     // standard | stripe | github
	Credential string `json:"credential"` // names the shared secret
	Tolerance  string `json:"tolerance"`  // replay window, "5m"
	EventID    string `json:"event_id"`   // default: what the scheme signs
	Key        string `json:"key"`        // the effect's key; null = not about an effect
	ObjectID   string `json:"object_id"`
	Verdict    string `json:"verdict"` // "happened", "ended" (no effect), else nothing
	MayResend  string `json:"may_resend"`
}

// Verdict is what a message says of an effect.
type Verdict string

// The verdicts. Everything else says nothing.
const (
	Nothing  Verdict = ""
	Happened Verdict = "happened"
	Ended    Verdict = "ended" // the operation ran and ended without effect
)

// Message is a checked message.
type Message struct {
	EventID   string
	Key       string // "" = about no effect
	ObjectID  string
	Verdict   Verdict
	MayResend bool
}

// Hook checks and reads the messages of one operation. It is safe for use by many goroutines.
type Hook struct {
	conf      Config
	tolerance time.Duration
	programs  map[string]*gojq.Code
}

// New compiles a configuration; its error lists what is wrong with it.
func New(c Config) (*Hook, error) {
	h := &Hook{conf: c, tolerance: DefaultTolerance, programs: map[string]*gojq.Code{}}
	var faults []error
	if c.Scheme != Standard && c.Scheme != Stripe && c.Scheme != GitHub {
		faults = append(faults, fmt.Errorf("scheme must be %q, %q or %q", Standard, Stripe, GitHub))
	}
	if c.Credential == "" {
		faults = append(faults, errors.New("credential is required"))
	}
	if c.Tolerance != "" {
		d, err := time.ParseDuration(c.Tolerance)
		if err != nil || d <= 0 || d > time.Hour {
			faults = append(faults, errors.New("tolerance must be above 0 and at most 1h"))
		}
		h.tolerance = d
	}
	for name, text := range map[string]string{
		"event_id": c.EventID, "key": c.Key, "object_id": c.ObjectID, "verdict": c.Verdict, "may_resend": c.MayResend,
	} {
		if text == "" {
			if name == "key" || name == "verdict" {
				faults = append(faults, fmt.Errorf("%s is required", name))
			}
			continue
		}
		code, err := compile(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
		h.programs[name] = code
	}
	return h, errors.Join(faults...)
}

func compile(text string) (*gojq.Code, error) {
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, err
	}
	return gojq.Compile(query, gojq.WithVariables([]string{"$headers"}))
}

// Credential names the shared secret.
func (h *Hook) Credential() string { return h.conf.Credential }

// Read checks a message and says what it means. headers have lower-case names.
func (h *Hook) Read(secret string, headers map[string]string, body []byte, now time.Time) (Message, error) {
	id, err := verify(h.conf.Scheme, secret, headers, body, now, h.tolerance)
	if err != nil {
		return Message{}, err
	}
	var in any
	if err := json.Unmarshal(body, &in); err != nil {
		return Message{}, fmt.Errorf("%w: the body is not JSON", ErrMessage)
	}
	m := Message{EventID: id}
	given := make(map[string]any, len(headers))
	for k, v := range headers {
		given[k] = v
	}
	for name, into := range map[string]*string{"event_id": &m.EventID, "key": &m.Key, "object_id": &m.ObjectID, "verdict": (*string)(&m.Verdict)} {
		if err := h.text(name, in, given, into); err != nil {
			return Message{}, err
		}
	}
	again, err := h.run("may_resend", in, given)
	if err != nil {
		return Message{}, err
	}
	m.MayResend = again == true
	if m.EventID == "" { // the digest of what was signed stands in
		sum := sha256.Sum256(body)
		m.EventID = "sha256:" + hex.EncodeToString(sum[:])
	}
	if m.Verdict != Happened && m.Verdict != Ended {
		m.Verdict = Nothing
	}
	return m, nil
}

// text runs a program that gives a text or a number; without a program into stays as it is.
func (h *Hook) text(name string, in any, headers map[string]any, into *string) error {
	if h.programs[name] == nil {
		return nil
	}
	v, err := h.run(name, in, headers)
	switch x := v.(type) {
	case nil:
		*into = ""
	case string:
		*into = x
	case float64, int:
		b, _ := json.Marshal(x) // a number always encodes
		*into = string(b)
	default:
		return fmt.Errorf("%w: %s gives neither a text nor a number", ErrMessage, name)
	}
	return err
}

func (h *Hook) run(name string, in any, headers map[string]any) (any, error) {
	code := h.programs[name]
	if code == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), programTimeout)
	defer cancel()
	v, ok := code.RunWithContext(ctx, in, headers).Next()
	if !ok {
		return nil, nil
	}
	if err, bad := v.(error); bad {
		return nil, fmt.Errorf("%w: %s: %w", ErrMessage, name, err)
	}
	return v, nil
}
