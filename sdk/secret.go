package sdk

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Secret is a credential in a configuration type. It prints as "[redacted]" in
// fmt (with every verb), in JSON, as text and in slog; only [Secret.Reveal]
// gives the value. In the schema it is a string that is "writeOnly".
//
// A secret never stands in a configuration. The operator stores it as a
// credential and lists the credential's name for the destination. A field
// `json:"token"` takes the credential that the configuration names
// (token = "acme_token") or, when the configuration says nothing, the
// credential called "token" (nested: "auth.token").
type Secret struct{ value string }

// NewSecret holds a value, for tests and for adapters that fetch tokens.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value. Hand it to the wire and to nothing else.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether no secret was given.
func (s Secret) IsZero() bool { return s.value == "" }

// String never returns the value.
func (Secret) String() string { return redacted }

// Format never prints the value, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON never writes the value.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText never writes the value.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalJSON refuses: secrets do not come with the configuration.
func (*Secret) UnmarshalJSON([]byte) error {
	return errors.New("a secret is taken from the credentials, never from JSON")
}

// LogValue never logs the value.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
