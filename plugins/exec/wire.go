package exec

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// call is what a command reads on standard input.
type call struct {
	Method    string            `json:"method"`
	Operation *callOperation    `json:"operation,omitempty"`
	Config    any               `json:"config"`
	Secrets   map[string]string `json:"secrets"`
	Deadline  string            `json:"deadline,omitempty"`
	Snapshot  json.RawMessage   `json:"snapshot"`
	Since     string            `json:"since,omitempty"`
	Handle    string            `json:"handle,omitempty"`
}

type callOperation struct {
	Key         string          `json:"key"`
	ID          string          `json:"id"`
	AttemptID   string          `json:"attempt_id"`
	Operation   string          `json:"operation"`
	Account     string          `json:"account"`
	Destination string          `json:"destination"`
	Digest      string          `json:"digest"`
	Payload     json.RawMessage `json:"payload"`
	ObjectID    *string         `json:"object_id"`
}

func digest(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// payloadJSON is the payload as a JSON value; any other text as a JSON string.
func payloadJSON(o sdk.Operation) (json.RawMessage, error) {
	if len(o.Payload) == 0 {
		return json.RawMessage("null"), nil
	}
	media, _, _ := mime.ParseMediaType(o.ContentType)
	if o.ContentType == "" || media == "application/json" || strings.HasSuffix(media, "+json") {
		if !json.Valid(o.Payload) {
			return nil, errors.New("the payload is not JSON")
		}
		return json.RawMessage(o.Payload), nil
	}
	if !utf8.Valid(o.Payload) {
		return nil, errors.New("the payload is neither JSON nor UTF-8 text")
	}
	return json.Marshal(string(o.Payload))
}

// written is the answer of dispatch and undo.
type written struct {
	Outcome           string         `json:"outcome"`
	Reason            string         `json:"reason"` // of rejected and not_executed; see reasons
	ObjectID          text           `json:"object_id"`
	ProviderRequestID text           `json:"provider_request_id"`
	RetryAfter        delay          `json:"retry_after"`
	Message           string         `json:"message"`
	Evidence          map[string]any `json:"evidence"`
}

// reading is the answer of read. Pointers tell "not said" from "said no".
type reading struct {
	Items         *[]readItem    `json:"items"`
	Complete      bool           `json:"complete"`
	Visible       *bool          `json:"visible"`
	AsOf          moment         `json:"as_of"`
	ScannedFrom   moment         `json:"scanned_from"`
	Postcondition string         `json:"postcondition"`
	Message       string         `json:"message"`
	Evidence      map[string]any `json:"evidence"`
}

type readItem struct {
	ObjectID  text            `json:"object_id"`
	Key       *string         `json:"key"`
	Digest    json.RawMessage `json:"digest"` // absent = not compared, null = differs
	Account   text            `json:"account"`
	CreatedAt moment          `json:"created_at"`
	State     text            `json:"state"`
	Missing   []string        `json:"missing"`
	raw       json.RawMessage
}

func (i *readItem) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		if err := decode.Spelt(b, "object_id", "key", "digest", "account", "created_at", "state", "missing"); err != nil {
			return err
		}
	}
	type plain readItem
	if err := json.Unmarshal(b, (*plain)(i)); err != nil {
		return err
	}
	i.raw = bytes.Clone(b)
	return nil
}

// names are the fields of an answer, as they must be written.
func (*written) names() []string {
	return []string{"outcome", "reason", "object_id", "provider_request_id", "retry_after", "message", "evidence"}
}

func (*reading) names() []string {
	return []string{"items", "complete", "visible", "as_of", "scanned_from", "postcondition", "message", "evidence"}
}

// answered reports whether out is exactly one JSON object, and reads it into v.
// isJSON without err is an answer; isJSON with err is JSON that is no answer.
func answered(out []byte, v any) (isJSON bool, err error) {
	d := json.NewDecoder(bytes.NewReader(out))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return false, nil
	}
	if _, err := d.Token(); err != io.EOF {
		return false, nil
	}
	if len(raw) == 0 || raw[0] != '{' {
		return true, errors.New("the answer is JSON but no object")
	}
	raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	err = decode.Unambiguous(raw)
	if named, ok := v.(interface{ names() []string }); ok && err == nil {
		err = decode.Spelt(raw, named.names()...)
	}
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		return true, fmt.Errorf("the answer has another form: %w", err)
	}
	return true, nil
}

// text is a JSON string or number as text; null is empty.
type text string

// UnmarshalJSON accepts what scripts print for an id.
func (t *text) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = text(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return errors.New("must be text or a number")
	}
	*t = text(n.String())
	return nil
}

// delay is seconds as a number, or a duration such as "30s".
type delay time.Duration

// UnmarshalJSON reads a delay; negative ones count as none.
func (d *delay) UnmarshalJSON(b []byte) error {
	var s text
	if err := s.UnmarshalJSON(b); err != nil || s == "" {
		return err
	}
	if seconds, err := strconv.ParseFloat(string(s), 64); err == nil && !math.IsNaN(seconds) {
		*d = delay(min(max(seconds, 0), sdk.MaxRetryAfter.Seconds()) * float64(time.Second))
		return nil
	}
	parsed, err := decode.ParseDuration(string(s))
	*d = delay(min(parsed, sdk.MaxRetryAfter))
	return err
}

// moment is RFC 3339 or Unix seconds; null and "" are no time.
type moment struct{ time.Time }

// UnmarshalJSON reads a moment.
func (m *moment) UnmarshalJSON(b []byte) error {
	var s text
	if err := s.UnmarshalJSON(b); err != nil || s == "" {
		return err
	}
	if at, err := time.Parse(time.RFC3339Nano, string(s)); err == nil {
		m.Time = at.UTC()
		return nil
	}
	seconds, err := strconv.ParseFloat(string(s), 64)
	if err != nil || !(seconds > -1e11 && seconds < 1e11) {
		return fmt.Errorf("%q is neither RFC 3339 nor Unix seconds", string(s))
	}
	whole := math.Floor(seconds)
	m.Time = time.Unix(int64(whole), int64((seconds-whole)*1e9)).UTC()
	return nil
}
