package sqlite

import (
	"encoding/hex"
	"strings"
	"time"
)

// micros is a time as it is stored: microseconds UTC; 0 = the zero time.
type micros int64

func us(t time.Time) micros {
	if t.IsZero() {
		return 0
	}
	return micros(t.UnixMicro())
}

func (m micros) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(m)).UTC()
}

// null is the column's value: NULL for the zero time.
func (m micros) null() any {
	if m == 0 {
		return nil
	}
	return int64(m)
}

// offset is a time in microseconds from another that the row has anyway: one
// more than the distance for later ones, so that 0 stays the zero time.
type offset int64

func (m micros) from(base micros) offset {
	switch d := offset(m - base); {
	case m == 0:
		return 0
	case d >= 0:
		return d + 1
	default:
		return d
	}
}

func (o offset) after(base micros) micros {
	switch {
	case o == 0:
		return 0
	case o > 0:
		return base + micros(o) - 1
	}
	return base + micros(o)
}

func nullStr(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// The tags of a packed digest.
const (
	tagText byte = iota // any other text
	tagSHA              // "sha256:" and 64 hex digits
	tagHex              // 64 hex digits
)

// pack stores a digest in 33 bytes; any other text as it is.
func pack(s string) []byte {
	h, tag := s, tagHex
	if rest, ok := strings.CutPrefix(s, "sha256:"); ok {
		h, tag = rest, tagSHA
	}
	if len(h) == 64 {
		var out [33]byte
		if _, err := hex.Decode(out[1:], []byte(h)); err == nil && hex.EncodeToString(out[1:]) == h {
			out[0] = tag
			return out[:]
		}
	}
	return append([]byte{tagText}, s...)
}

// unpack is the inverse of pack.
func unpack(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	switch b[0] {
	case tagSHA:
		return "sha256:" + hex.EncodeToString(b[1:])
	case tagHex:
		return hex.EncodeToString(b[1:])
	}
	return string(b[1:])
}
