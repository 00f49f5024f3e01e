package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/settled-dev/settled/journal"
)

// MaxEvidence is how many bytes of a body are kept. Of a longer one the
// beginning is kept, with the size and digest of the whole.
const MaxEvidence = 64 << 10

// EvidenceDigest names a piece of evidence: SHA-256 over time, source, kind,
// summary, attempt and the whole body, each with its length before it.
func EvidenceDigest(ev journal.Evidence) string {
	h := sha256.New()
	h.Write([]byte("settled.evidence.v1"))
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	part(binary.BigEndian.AppendUint64(nil, uint64(us(ev.At))))
	for _, s := range []string{string(ev.Source), ev.Kind, ev.Summary, ev.Attempt} {
		part([]byte(s))
	}
	part(ev.Body)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// PutEvidence stores a piece of evidence about an effect and returns its
// digest, which is computed here whatever ev.Digest says. The same evidence
// twice is stored once. A key without an effect is [ErrNotFound].
func (tx *Tx) PutEvidence(key string, ev journal.Evidence) (string, error) {
	r, err := tx.load(key)
	if err != nil {
		return "", err
	}
	ev.At = stored(ev.At)
	digest := EvidenceDigest(ev)
	packed := pack(digest)
	n, known, err := tx.db.evidenceOf(r.e.ID, packed)
	if err != nil || known {
		return digest, tx.seen(err)
	}
	if err := tx.begin(); err != nil {
		return "", err
	}
	body, size, whole := ev.Body, len(ev.Body), []byte(nil)
	if size > MaxEvidence {
		sum := sha256.Sum256(body)
		body, whole = body[:MaxEvidence], sum[:]
	}
	_, err = tx.db.w.exec(`INSERT INTO evidence (id, effect, n, digest, at, source, kind, summary, attempt, body, body_sha256, body_bytes)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`, r.e.ID*perEffect+n+1, r.e.ID, n+1, packed, us(ev.At), string(ev.Source), ev.Kind, ev.Summary,
		ev.Attempt, body, whole, size)
	if err != nil {
		return "", tx.seen(err)
	}
	return digest, nil
}

// evidenceOf returns the number of pieces that an effect has, and whether one of them has this digest.
func (db *DB) evidenceOf(id int64, digest []byte) (n int64, known bool, err error) {
	err = db.w.each(context.Background(), "SELECT n, digest FROM evidence WHERE id BETWEEN ? AND ? ORDER BY id",
		[]any{id * perEffect, id*perEffect + perEffect - 1}, func(r row) error {
			n = r.int(0)
			known = known || bytes.Equal(r.blob(1), digest)
			return nil
		})
	return n, known, err
}

// Evidence returns everything that was stored about an effect, oldest first.
func (db *DB) Evidence(ctx context.Context, key string) (out []journal.Evidence, err error) {
	err = db.read(ctx, func(c *conn) error {
		id, err := c.oneInt(ctx, "SELECT id FROM effect WHERE key=?", key)
		if err != nil {
			return err
		}
		return c.each(ctx, "SELECT digest, at, source, kind, summary, attempt, body FROM evidence WHERE id BETWEEN ? AND ? ORDER BY id",
			[]any{id * perEffect, id*perEffect + perEffect - 1}, func(r row) error {
				out = append(out, journal.Evidence{
					Digest: unpack(r.blob(0)), At: micros(r.int(1)).time(), Source: journal.EvidenceSource(r.str(2)),
					Kind: r.str(3), Summary: r.str(4), Attempt: r.str(5), Body: r.blob(6),
				})
				return nil
			})
	})
	return out, err
}
