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

const eventColumns = `seq, at, kind, transition, key, run, attempt, from_phase, to_phase, actor, actor_kind, origin, because,
 evidence, policy_sha256, hash, back`

func entryFrom(r row) (x journal.Entry, hash [32]byte) {
	x = journal.Entry{
		Seq: r.int(0), At: micros(r.int(1)).time(), Kind: r.str(2), Transition: int(r.int(3)), Key: r.str(4), Run: r.str(5),
		Attempt: r.str(6), From: journal.Phase(r.str(7)), To: journal.Phase(r.str(8)), Actor: r.str(9),
		ActorKind: journal.ActorKind(r.str(10)), Origin: r.str(11), Because: r.str(12), Evidence: unpack(r.blob(13)),
		PolicySHA256: unpack(r.blob(14)),
	}
	copy(hash[:], r.blob(15))
	x.Hash = hex.EncodeToString(hash[:])
	return x, hash
}

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

// append adds lines to the chain and moves the head. back gives, by key, the
// newest line about it. The rows are written at the end of the batch, several to
// a statement: one insert a line was a fifth of a commit's statements.
func (tx *Tx) append(entries []journal.Entry, back map[string]int64) {
	for i := range entries {
		x := &entries[i]
		seq := tx.db.head.seq + 1
		hash := tx.db.chain.next(x, seq, tx.db.head.hash)
		tx.lines = append(tx.lines, line{x: x, seq: seq, back: back[x.Key], hash: hash})
		if x.Key != "" {
			back[x.Key] = seq
		}
		tx.db.head = head{seq, hash}
	}
}

// line is a row of the chain that its batch has yet to write.
type line struct {
	x         *journal.Entry
	seq, back int64
	hash      [32]byte
}

// lineGroup is how many lines one statement writes.
const lineGroup = 16

const (
	insertLines = `INSERT INTO event (seq, at, kind, transition, key, run, attempt, from_phase, to_phase, actor,
 actor_kind, origin, because, evidence, policy_sha256, back, hash) VALUES `
	lineValues = "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
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
			l := &lines[i]
			x := l.x
			db.lineArgs = append(db.lineArgs, l.seq, us(x.At), x.Kind, x.Transition, x.Key, x.Run, x.Attempt, string(x.From), string(x.To), x.Actor,
				string(x.ActorKind), x.Origin, x.Because, pack(x.Evidence), pack(x.PolicySHA256), l.back, l.hash[:])
		}
		if _, err := db.w.exec(query, db.lineArgs...); err != nil {
			return fmt.Errorf("write the chain: %w", err)
		}
		lines = lines[n:]
	}
	return nil
}

// insertGroup writes lineGroup lines.
var insertGroup = insertLines + strings.Repeat(lineValues+",", lineGroup-1) + lineValues
