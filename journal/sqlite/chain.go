package sqlite

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"

	"github.com/settled-dev/settled/journal"
)

// head is the newest line of the chain. The hash of an empty chain is 32 zero bytes.
type head struct {
	seq  int64
	hash [32]byte
}

func (h head) String() string { return FormatHead(h.seq, hex.EncodeToString(h.hash[:])) }

// FormatHead spells a head as SEQ:HASH.
func FormatHead(seq int64, hash string) string { return strconv.FormatInt(seq, 10) + ":" + hash }

// ParseHead reads SEQ:HASH.
func ParseHead(s string) (seq int64, hash string, err error) {
	a, b, ok := strings.Cut(s, ":")
	seq, err = strconv.ParseInt(a, 10, 64)
	if raw, herr := hex.DecodeString(b); !ok || err != nil || seq < 0 || herr != nil || len(raw) != 32 {
		return 0, "", fmt.Errorf("head %q is not SEQ:HASH, such as 42:9f86…", s)
	}
	return seq, b, nil
}

// chain computes the hashes of the audit chain:
// HMAC-SHA256(key, "settled.event.v1" and every field with its length before it, the last being the hash before).
type chain struct {
	mac hash.Hash
	buf []byte
}

func newChain(key []byte) *chain { return &chain{mac: hmac.New(sha256.New, key)} }

func (c *chain) part(s string) {
	c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(len(s)))
	c.buf = append(c.buf, s...)
}

func (c *chain) number(n int64) {
	c.buf = binary.BigEndian.AppendUint64(c.buf, 8)
	c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(n))
}

// next returns the hash of the line x that follows prev.
func (c *chain) next(x *journal.Entry, seq int64, prev [32]byte) (out [32]byte) {
	c.buf = append(c.buf[:0], "settled.event.v1"...)
	c.number(seq)
	c.number(int64(us(x.At)))
	c.part(x.Kind)
	c.number(int64(x.Transition))
	for _, s := range [...]string{
		x.Key, x.Run, x.Attempt, string(x.From), string(x.To), x.Actor, string(x.ActorKind), x.Origin,
		x.Because, x.Evidence, x.PolicySHA256,
	} {
		c.part(s)
	}
	c.buf = binary.BigEndian.AppendUint64(c.buf, 32)
	c.buf = append(c.buf, prev[:]...)
	c.mac.Reset()
	c.mac.Write(c.buf)
	c.mac.Sum(out[:0])
	return out
}

// numbered lists the phases by the number that stands for them in a line. New is 0. Never reorder.
func numbered() []journal.Phase { return append([]journal.Phase{journal.New}, journal.Phases()...) }

// moveCode packs a transition, or nil when there is none.
func moveCode(x *journal.Entry) any {
	if x.Transition == 0 && x.From == "" && x.To == "" {
		return nil
	}
	return int64(x.Transition)*10_000 + phaseNumber(x.From)*100 + phaseNumber(x.To)
}

func phaseNumber(p journal.Phase) int64 { return int64(max(0, slices.Index(numbered(), p))) }

func phaseAt(n int64) journal.Phase {
	if all := numbered(); n < int64(len(all)) {
		return all[n]
	}
	return journal.Phase(fmt.Sprintf("phase %d", n))
}

// who joins what rarely changes from line to line: actor, kind of actor and origin.
func who(x *journal.Entry) string {
	if x.Actor == "" && x.ActorKind == "" && x.Origin == "" {
		return ""
	}
	return join(x.Actor, string(x.ActorKind), x.Origin)
}

const keyOfEvent = `coalesce(event.key, (SELECT key FROM effect WHERE id = event.effect), (SELECT key FROM key_ledger WHERE id = event.effect))`

const eventColumns = "seq, at, " + keyOfEvent + ", move, kind, run, attempt, who, because, evidence, policy, back, hash"

// entryFrom reads the columns of eventColumns.
func entryFrom(c *conn, r row) (x journal.Entry, back int64, hash [32]byte, err error) {
	code := r.int(3)
	x = journal.Entry{
		Seq: r.int(0), At: micros(r.int(1)).time(), Key: r.str(2), Transition: int(code / 10_000), From: phaseAt(code / 100 % 100),
		To: phaseAt(code % 100), Kind: r.str(4), Run: r.str(5), Attempt: r.str(6), Evidence: unpack(r.blob(9)),
	}
	if x.Kind == "" {
		x.Kind = kindTransition
	}
	var by string
	for _, t := range []struct {
		column int
		into   *string
	}{{7, &by}, {8, &x.Because}, {10, &x.PolicySHA256}} {
		if *t.into, err = c.word(r[t.column]); err != nil {
			return x, 0, hash, err
		}
	}
	parts := split(by, 3)
	x.Actor, x.ActorKind, x.Origin = parts[0], journal.ActorKind(parts[1]), parts[2]
	copy(hash[:], r.blob(12))
	x.Hash = hex.EncodeToString(hash[:])
	return x, r.int(11), hash, nil
}

const kindTransition = "transition"

// readHead returns the newest line, or the newest seal when everything is pruned.
func readHead(ctx context.Context, c *conn) (h head, err error) {
	r, err := c.one(ctx, "SELECT seq, hash FROM event ORDER BY seq DESC LIMIT 1")
	if errors.Is(err, ErrNotFound) {
		r, err = c.one(ctx, "SELECT last_seq, hash FROM audit_seal ORDER BY last_seq DESC LIMIT 1")
	}
	if errors.Is(err, ErrNotFound) {
		return head{}, nil
	}
	if err != nil {
		return head{}, err
	}
	h.seq = r.int(0)
	copy(h.hash[:], r.blob(1))
	return h, nil
}

// about is what a line says of the effect that it is about.
type about struct {
	id   int64 // 0 = the journal has no such effect
	last int64 // newest line about it
}

// append adds lines to the chain and moves the head. of gives, by key, the
// effect and the newest line about it. The rows are written at the end of the
// batch, several to a statement: one insert a line was a fifth of a commit's statements.
func (tx *Tx) append(entries []journal.Entry, of map[string]about) {
	for i := range entries {
		x := &entries[i]
		seq := tx.db.head.seq + 1
		hash := tx.db.chain.next(x, seq, tx.db.head.hash)
		a := of[x.Key]
		tx.lines = append(tx.lines, line{x: x, seq: seq, about: a, hash: hash})
		if x.Key != "" {
			of[x.Key] = about{a.id, seq}
		}
		tx.db.head = head{seq, hash}
	}
}

// line is a row of the chain that its batch has yet to write.
type line struct {
	x     *journal.Entry
	seq   int64
	about about // as it was before
	hash  [32]byte
}

// lineGroup is how many lines one statement writes.
const lineGroup = 16

const (
	insertLines = `INSERT INTO event (seq, at, effect, key, move, kind, run, attempt, who, because, evidence, policy, back, hash) VALUES `
	lineValues  = "(?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)

// writeLines writes the batch's lines, in their order.
func (db *DB) writeLines(lines []line) error {
	for len(lines) > 0 {
		n, query := 1, insertLines+lineValues
		if len(lines) >= lineGroup {
			n, query = lineGroup, insertGroup
		}
		db.lineArgs = db.lineArgs[:0]
		for i := range lines[:n] {
			if err := db.lineArg(&lines[i]); err != nil {
				return err
			}
		}
		if _, err := db.w.exec(query, db.lineArgs...); err != nil {
			return fmt.Errorf("write the chain: %w", err)
		}
		lines = lines[n:]
	}
	return nil
}

// lineArg adds the values of one line.
func (db *DB) lineArg(l *line) error {
	x := l.x
	by, err := db.term(who(x))
	if err != nil {
		return err
	}
	policy, err := db.term(x.PolicySHA256)
	if err != nil {
		return err
	}
	because := word{s: x.Because}
	if strings.HasPrefix(x.Because, "policy:") { // one for each policy, not for each effect
		if because, err = db.term(x.Because); err != nil {
			return err
		}
	}
	var effect, key, kind, evidence any
	if l.about.id != 0 {
		effect = l.about.id
	} else {
		key = nullStr(x.Key)
	}
	if x.Kind != kindTransition {
		kind = x.Kind
	}
	if x.Evidence != "" {
		evidence = pack(x.Evidence)
	}
	db.lineArgs = append(db.lineArgs, l.seq, us(x.At), effect, key, moveCode(x), kind, nullStr(x.Run), nullStr(x.Attempt),
		by.column(), because.column(), evidence, policy.column(), micros(l.about.last).null(), l.hash[:])
	return nil
}

// insertGroup writes lineGroup lines.
var insertGroup = insertLines + strings.Repeat(lineValues+",", lineGroup-1) + lineValues
