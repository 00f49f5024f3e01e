package mail

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	netmail "net/mail"
	"net/textproto"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settled-dev/settled/sdk"
)

// digestHeader carries the digest of the payload.
const digestHeader = "X-Settled-Digest"

// limits of a message.
const (
	maxRecipients = 100
	maxSubject    = 500
	maxHeader     = 900 // bytes of one value, so that no line gets too long
)

// content is the payload of an operation.
type content struct {
	From    string            `json:"from"`
	To      []string          `json:"to"`
	Cc      []string          `json:"cc"`
	Subject *string           `json:"subject"`
	Text    *string           `json:"text"`
	HTML    *string           `json:"html"`
	Headers map[string]string `json:"headers"`
}

// message is what is sent, the same for every attempt but for its date.
type message struct {
	id         string // with its angle brackets
	digest     string
	from       *netmail.Address
	to, cc     []*netmail.Address
	subject    string
	text, html *string
	headers    map[string]string
}

// messageID is the same for every attempt, and another for every other key or payload.
func messageID(o sdk.Operation, domain string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%d:%s:", len(o.Key), o.Key)
	sum.Write(o.PayloadSHA256)
	return "<settled." + hex.EncodeToString(sum.Sum(nil)[:20]) + "@" + domain + ">"
}

func digestOf(o sdk.Operation) string { return "sha256:" + hex.EncodeToString(o.PayloadSHA256) }

// compose reads the payload. An error means that it would fail again.
func (cfg *configuration) compose(o sdk.Operation) (*message, error) {
	var c content
	d := json.NewDecoder(bytes.NewReader(o.Payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("the payload is no mail: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("the payload has data after the mail")
	}
	m := &message{id: messageID(o, cfg.domain), digest: digestOf(o), from: cfg.from, text: c.Text, html: c.HTML, headers: c.Headers}
	var err error
	if c.From != "" {
		if m.from, err = netmail.ParseAddress(c.From); err != nil {
			return nil, fmt.Errorf("/from: %w", err)
		}
	}
	if m.to, err = addresses("to", c.To); err != nil {
		return nil, err
	}
	if m.cc, err = addresses("cc", c.Cc); err != nil {
		return nil, err
	}
	switch {
	case m.from == nil:
		return nil, errors.New("/from: neither the payload nor the configuration names a sender")
	case len(m.to) == 0:
		return nil, errors.New("/to: names nobody")
	case len(m.to)+len(m.cc) > maxRecipients:
		return nil, fmt.Errorf("/to: more than %d recipients", maxRecipients)
	case c.Subject == nil || utf8.RuneCountInString(*c.Subject) > maxSubject || hasControl(*c.Subject):
		return nil, fmt.Errorf("/subject: must be one line of at most %d characters", maxSubject)
	case c.Text == nil && c.HTML == nil:
		return nil, errors.New("/text: neither text nor html")
	}
	m.subject = *c.Subject
	return m, checkHeaders(c.Headers)
}

func addresses(field string, list []string) ([]*netmail.Address, error) {
	var all []*netmail.Address
	seen := map[string]bool{}
	for i, text := range list {
		a, err := netmail.ParseAddress(text)
		if err != nil || hasControl(text) {
			return nil, fmt.Errorf("/%s/%d: is no mail address", field, i)
		}
		if seen[a.Address] {
			return nil, fmt.Errorf("/%s/%d: is named twice", field, i)
		}
		seen[a.Address] = true
		all = append(all, a)
	}
	return all, nil
}

// checkHeaders refuses what the adapter itself sets and what would break a line.
func checkHeaders(headers map[string]string) error {
	own := []string{"From", "To", "Cc", "Bcc", "Sender", "Return-Path", "Subject", "Date", "Message-Id", "Mime-Version", "Received", "Dkim-Signature"}
	for name, value := range headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		plain := name != "" && len(name) < 70 && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' })
		switch {
		case !plain:
			return fmt.Errorf("/headers: %q is no name of a header", name)
		case slices.Contains(own, canonical), hasAnyPrefix(canonical, "Content-", "Resent-", "X-Settled-"):
			return fmt.Errorf("/headers/%s: is set by the adapter", name)
		case hasControl(value), len(value) > maxHeader:
			return fmt.Errorf("/headers/%s: must be one line of at most %d bytes", name, maxHeader)
		}
	}
	return nil
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

func hasControl(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// recipients are all addresses, each once.
func (m *message) recipients() []string {
	var list []string
	for _, a := range slices.Concat(m.to, m.cc) {
		if !slices.Contains(list, a.Address) {
			list = append(list, a.Address)
		}
	}
	return list
}

// bytes is the message as RFC 5322 has it, with CRLF and ASCII only.
func (m *message) bytes(at time.Time) ([]byte, error) {
	var b bytes.Buffer
	field := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	field("Date", at.Format(time.RFC1123Z))
	field("From", m.from.String())
	field("To", listed(m.to))
	if len(m.cc) > 0 {
		field("Cc", listed(m.cc))
	}
	field("Message-ID", m.id)
	field("Subject", encoded(m.subject))
	field(digestHeader, m.digest)
	names := make([]string, 0, len(m.headers))
	for name := range m.headers {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		field(name, encoded(m.headers[name]))
	}
	field("MIME-Version", "1.0")
	if err := m.body(&b, field); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (m *message) body(b *bytes.Buffer, field func(name, value string)) error {
	part := func(kind, text string) error {
		field("Content-Type", kind+"; charset=utf-8")
		field("Content-Transfer-Encoding", "quoted-printable")
		b.WriteString("\r\n")
		w := quotedprintable.NewWriter(b)
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		b.WriteString("\r\n")
		return nil
	}
	switch {
	case m.html == nil:
		return part("text/plain", *m.text)
	case m.text == nil:
		return part("text/html", *m.html)
	}
	// "=_" stands in no quoted-printable text.
	boundary := "=_" + m.id[len("<settled."):strings.IndexByte(m.id, '@')]
	field("Content-Type", `multipart/alternative; boundary="`+boundary+`"`)
	b.WriteString("\r\n--" + boundary + "\r\n")
	if err := part("text/plain", *m.text); err != nil {
		return err
	}
	b.WriteString("--" + boundary + "\r\n")
	if err := part("text/html", *m.html); err != nil {
		return err
	}
	b.WriteString("--" + boundary + "--\r\n")
	return nil
}

func listed(list []*netmail.Address) string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = folded(a.String())
	}
	return strings.Join(texts, ",\r\n ")
}

// encoded makes a value ASCII; long ones go over several lines.
func encoded(value string) string {
	return folded(mime.QEncoding.Encode("utf-8", value))
}

func folded(value string) string { return strings.ReplaceAll(value, "?= =?", "?=\r\n =?") }
