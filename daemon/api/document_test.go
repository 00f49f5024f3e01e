package api

import (
	"testing"
	"unicode/utf8"
)

func TestADocumentIsAlwaysText(t *testing.T) {
	doc, ok := document([]byte("{\"id\":\"\xff\"}"))
	if ok || !utf8.Valid(doc) {
		t.Errorf("%q, %t", doc, ok)
	}
}
