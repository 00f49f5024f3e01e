package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
)

// Words that many rows share, such as the digest of a policy or the process of
// an adapter, are stored once, in the table term. It only grows, by one row for
// each new policy or process.
const (
	minTerm  = 12      // shorter words are stored as they are
	maxTerms = 1 << 16 // then new words are stored as they are; a bound on memory, not on words
)

// word is a text as it is stored: the number of a term, or itself.
type word struct {
	id int64 // 0 = s stands for itself
	s  string
}

func (w word) column() any {
	if w.id != 0 {
		return w.id
	}
	return nullStr(w.s)
}

// IsZero lets JSON leave out what is empty.
func (w word) IsZero() bool { return w.id == 0 && w.s == "" }

// MarshalJSON writes a number or a string.
func (w word) MarshalJSON() ([]byte, error) {
	if w.id != 0 {
		return strconv.AppendInt(nil, w.id, 10), nil
	}
	return json.Marshal(w.s)
}

// UnmarshalJSON reads a number or a string.
func (w *word) UnmarshalJSON(b []byte) (err error) {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &w.s)
	}
	w.id, err = strconv.ParseInt(string(b), 10, 64)
	return err
}

// term returns how to store a text that many rows share, and remembers a new
// one. Only the committer calls it.
func (db *DB) term(s string) (word, error) {
	if len(s) < minTerm {
		return word{s: s}, nil
	}
	if id, ok := db.terms[s]; ok {
		return word{id: id}, nil
	}
	if len(db.terms) >= maxTerms {
		return word{s: s}, nil
	}
	id := int64(len(db.terms)) + 1
	if _, err := db.w.exec("INSERT INTO term (id, value) VALUES (?,?)", id, s); err != nil {
		return word{}, fmt.Errorf("remember a term: %w", err)
	}
	db.terms[s], db.w.words[id] = id, s
	return word{id: id}, nil
}

// term is [DB.term] inside an operation: a new term is undone with it.
func (tx *Tx) term(s string) (word, error) {
	before := len(tx.db.terms)
	w, err := tx.db.term(s)
	tx.terms = tx.terms || len(tx.db.terms) != before
	return w, err
}

// reloadTerms forgets terms that were undone.
func (db *DB) reloadTerms(ctx context.Context) error {
	db.terms, db.w.words = map[string]int64{}, map[int64]string{}
	return db.w.each(ctx, "SELECT id, value FROM term", nil, func(r row) error {
		db.terms[r.str(1)], db.w.words[r.int(0)] = r.int(0), r.str(1)
		return nil
	})
}

// word reads a column or a JSON value that a term may stand for.
func (c *conn) word(v any) (string, error) {
	switch x := v.(type) {
	case nil:
		return "", nil
	case string:
		return x, nil
	case int64:
		return c.text(word{id: x})
	}
	return "", fmt.Errorf("%w: a word is stored as %T", ErrCorrupt, v)
}

// text spells a word. Terms never change, so each connection asks once.
func (c *conn) text(w word) (string, error) {
	if w.id == 0 {
		return w.s, nil
	}
	if s, ok := c.words[w.id]; ok {
		return s, nil
	}
	s, err := c.oneStr(context.Background(), "SELECT value FROM term WHERE id=?", w.id)
	if err != nil {
		return "", fmt.Errorf("term %d: %w: %w", w.id, ErrCorrupt, err)
	}
	c.words[w.id] = s
	return s, nil
}
