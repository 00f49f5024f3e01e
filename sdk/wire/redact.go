package wire

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// minSecret is the shortest value that is blanked, in bytes: blanking shorter
// ones would destroy every text without hiding anything worth hiding.
const minSecret = 4

// Redacted stands where a secret stood.
const Redacted = "[redacted]"

// Redactor blanks known secret values wherever they occur: as they are, and in
// base64, URL and JSON encoding. The nil Redactor changes nothing.
type Redactor struct{ r *strings.Replacer }

// NewRedactor knows the values of secrets; values under four bytes are left alone.
func NewRedactor(secrets map[string]string) *Redactor {
	var forms []string
	for _, v := range secrets {
		if len(v) < minSecret {
			continue
		}
		b := []byte(v)
		forms = append(forms, v, base64.StdEncoding.EncodeToString(b), base64.RawStdEncoding.EncodeToString(b),
			base64.URLEncoding.EncodeToString(b), base64.RawURLEncoding.EncodeToString(b),
			url.QueryEscape(v), url.PathEscape(v))
		if j, err := json.Marshal(v); err == nil {
			forms = append(forms, string(j[1:len(j)-1]))
		}
		if t := strings.TrimSpace(v); len(t) >= minSecret { // a trailing newline of a credential file
			forms = append(forms, t)
		}
	}
	if len(forms) == 0 {
		return nil
	}
	// The longest first, because a Replacer takes the first that fits.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(forms))
	for _, f := range slices.Compact(forms) {
		pairs = append(pairs, f, Redacted)
	}
	return &Redactor{strings.NewReplacer(pairs...)}
}

// String returns s without the known secrets.
func (r *Redactor) String(s string) string {
	if r == nil || s == "" {
		return s
	}
	return r.r.Replace(s)
}

// Clean makes every text of m valid UTF-8, without which it could not be sent
// at all, and blanks known secrets in every text and byte field.
func (r *Redactor) Clean(m proto.Message) { r.clean(m.ProtoReflect()) }

func (r *Redactor) clean(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Kind() == protoreflect.StringKind {
				m.Set(fd, r.cleanMap(v.Map(), m.NewField(fd)))
			}
		case fd.IsList():
			r.cleanList(m, fd, v.List())
		case fd.Message() != nil:
			r.clean(v.Message())
		default:
			if c, changed := r.cleanValue(fd, v); changed {
				m.Set(fd, c)
			}
		}
		return true
	})
}

// cleanList replaces a list of texts instead of changing it: the author's slice may stand behind it.
func (r *Redactor) cleanList(m protoreflect.Message, fd protoreflect.FieldDescriptor, l protoreflect.List) {
	if fd.Message() != nil {
		for i := range l.Len() {
			r.clean(l.Get(i).Message())
		}
		return
	}
	if fd.Kind() != protoreflect.StringKind && fd.Kind() != protoreflect.BytesKind {
		return
	}
	fresh := m.NewField(fd)
	for i := range l.Len() {
		v, _ := r.cleanValue(fd, l.Get(i))
		fresh.List().Append(v)
	}
	m.Set(fd, fresh)
}

func (r *Redactor) cleanMap(in protoreflect.Map, fresh protoreflect.Value) protoreflect.Value {
	in.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		key := protoreflect.ValueOfString(r.String(strings.ToValidUTF8(k.String(), "\uFFFD"))).MapKey()
		fresh.Map().Set(key, protoreflect.ValueOfString(r.String(strings.ToValidUTF8(v.String(), "\uFFFD"))))
		return true
	})
	return fresh
}

func (r *Redactor) cleanValue(fd protoreflect.FieldDescriptor, v protoreflect.Value) (protoreflect.Value, bool) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		s := v.String()
		c := s
		if !utf8.ValidString(c) {
			c = strings.ToValidUTF8(c, "\uFFFD")
		}
		c = r.String(c)
		return protoreflect.ValueOfString(c), c != s
	case protoreflect.BytesKind:
		if r == nil {
			return v, false
		}
		s := string(v.Bytes())
		c := r.String(s)
		return protoreflect.ValueOfBytes([]byte(c)), c != s
	}
	return v, false
}
