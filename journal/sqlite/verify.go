package sqlite

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/settled-dev/settled/journal"
)

// maxProblems bounds a report; more are only counted.
const maxProblems = 100

// verifyPage is how many lines are read under one read transaction, so that
// verification never holds the write-ahead log for long.
const verifyPage = 5000

// Report is what a verification found. An empty list of problems means that the
// chain is whole up to Head, as far as the key's holder can be trusted: whoever
// has the key can write another chain, and a chain cut at its end verifies
// unless an expected head is given.
type Report struct {
	Checked  int64    // lines of the chain
	Effects  int64    // effects compared with it
	Head     string   // SEQ:HASH of the newest line looked at
	Sealed   int64    // lines that were archived before; not looked at
	Problems []string // in words for a person; at most 100
	More     int64    // problems that are not listed
}

// TamperError says that the journal is not what was written. Exit 8.
type TamperError struct{ Problems []string }

func (e *TamperError) Error() string {
	return fmt.Sprintf("the journal was changed outside settled: %s; compare with a backup before anything else", strings.Join(e.Problems, "; "))
}

// Err is a *[TamperError] when something was found.
func (r Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return &TamperError{r.Problems}
}

func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) >= maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// Verify recomputes the audit chain and compares it with the effects: every
// hash, no gap, only moves that the model lists, each from where the last one
// ended, and counters, open attempts and reviews that agree. expectHead is ""
// or SEQ:HASH as it was noted elsewhere: without it, lines cut off at the end
// are not noticed. What it finds is in the report ([Report.Err]); its error
// wraps [ErrCouldNotVerify] and says nothing about the journal.
func (db *DB) Verify(ctx context.Context, expectHead string) (r Report, err error) {
	err = db.read(ctx, func(c *conn) error {
		r, err = verify(ctx, c, db.key, expectHead)
		return err
	})
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrCouldNotVerify, err)
	}
	return r, err
}

// verifier is one verification.
type verifier struct {
	c     *conn
	r     Report
	chain *chain
	seed  maphash.Seed
	last  map[uint64]lastLine // by key: what the chain says of each effect
	legal map[journal.Transition]bool
	head  head
	far   int64 // newest line that an effect points to
}

type lastLine struct {
	seq   int64
	phase journal.Phase
}

func verify(ctx context.Context, c *conn, key []byte, expectHead string) (Report, error) {
	v := verifier{c: c, chain: newChain(key), seed: maphash.MakeSeed(), last: map[uint64]lastLine{}, legal: map[journal.Transition]bool{}}
	for _, t := range journal.Transitions() {
		v.legal[t] = true
	}
	if err := v.checkKey(ctx, key); err != nil {
		return v.r, err
	}
	var wantSeq int64
	var wantHash string
	if expectHead != "" {
		var err error
		if wantSeq, wantHash, err = ParseHead(expectHead); err != nil {
			return v.r, err
		}
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return v.lines(ctx, wantSeq, wantHash) },
		v.effects, v.ledger, v.counters, v.invariants,
	} {
		if err := step(ctx); err != nil {
			return v.r, err
		}
	}
	return v.r, nil
}

func (v *verifier) checkKey(ctx context.Context, key []byte) error {
	id, err := v.c.oneStr(ctx, "SELECT value FROM setting WHERE name='chain_key_id'")
	if err == nil && id != keyID(key) {
		err = fmt.Errorf("the chain was written with key %s, the one given is %s", id, keyID(key))
	}
	return err
}

// lines walks the chain from the newest seal to the head that stood at the start.
func (v *verifier) lines(ctx context.Context, wantSeq int64, wantHash string) error {
	end, err := readHead(ctx, v.c)
	if err != nil {
		return err
	}
	prev := head{}
	seal, err := v.c.one(ctx, "SELECT last_seq, hash FROM audit_seal ORDER BY last_seq DESC LIMIT 1")
	switch {
	case err == nil:
		prev.seq = seal.int(0)
		copy(prev.hash[:], seal.blob(1))
		v.r.Sealed = prev.seq
	case !errors.Is(err, ErrNotFound):
		return err
	}
	seen := func(h head) {
		if h.seq == wantSeq && wantHash != "" && hex.EncodeToString(h.hash[:]) != wantHash {
			v.r.problem("line %d has another hash than the expected head", h.seq)
		}
	}
	seen(prev)
	for prev.seq < end.seq {
		at := prev.seq
		if prev, err = v.page(ctx, prev, end.seq, seen); err != nil {
			return err
		}
		if prev.seq == at {
			v.r.problem("lines %d to %d are missing", at+1, end.seq)
			break
		}
	}
	if wantSeq > end.seq {
		v.r.problem("the chain ends at line %d, the expected head is %d: its end was cut off", end.seq, wantSeq)
	}
	v.head, v.r.Head = prev, prev.String()
	return nil
}

func (v *verifier) page(ctx context.Context, prev head, end int64, seen func(head)) (head, error) {
	err := v.c.each(ctx, "SELECT "+eventColumns+" FROM event WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
		[]any{prev.seq, end, verifyPage}, func(r row) error {
			x, back, hash, err := entryFrom(v.c, r)
			if err != nil {
				v.r.problem("line %d: %v", r.int(0), err)
			}
			if x.Seq != prev.seq+1 {
				v.r.problem("lines %d to %d are missing", prev.seq+1, x.Seq-1)
			} else if v.chain.next(&x, x.Seq, prev.hash) != hash {
				v.r.problem("line %d was changed, or one before it", x.Seq)
			}
			v.move(&x, back)
			prev = head{x.Seq, hash}
			v.r.Checked++
			seen(prev)
			return nil
		})
	return prev, err
}

// move checks one line against what the chain said of its key before.
func (v *verifier) move(x *journal.Entry, back int64) {
	if x.Key == "" {
		return
	}
	k := maphash.String(v.seed, x.Key)
	was, known := v.last[k]
	if pruned := x.Transition == 0 && back == 0; known && back != was.seq && !pruned {
		v.r.problem("line %d links to %d, the line before it about %s is %d", x.Seq, back, x.Key, was.seq)
	}
	if x.Transition == 0 {
		v.last[k] = lastLine{x.Seq, was.phase}
		return
	}
	if !v.legal[journal.Transition{Number: x.Transition, From: x.From, To: x.To}] {
		v.r.problem("line %d: transition %d from %q to %q is not in the model", x.Seq, x.Transition, x.From, x.To)
	}
	if known && was.phase != "" && was.phase != x.From {
		v.r.problem("line %d moves %s from %s, it was %s", x.Seq, x.Key, x.From, was.phase)
	}
	v.last[k] = lastLine{x.Seq, x.To}
}

// effects compares every effect with the newest line about it.
func (v *verifier) effects(ctx context.Context) error {
	id := int64(0)
	for {
		n := 0
		err := v.c.each(ctx, `SELECT e.id, e.key, e.phase, e.last_event, e.settled_at, i.effect, i.body, i.payload, i.digest FROM effect AS e
			LEFT JOIN intent AS i ON i.effect = e.id WHERE e.id > ? ORDER BY e.id LIMIT ?`, []any{id, verifyPage}, func(r row) error {
			id = r.int(0)
			n++
			v.effect(r)
			return nil
		})
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	end, err := readHead(ctx, v.c) // again: effects may have moved while we looked
	if err == nil && v.far > end.seq {
		v.r.problem("an effect points to line %d, the chain ends at %d", v.far, end.seq)
	}
	return err
}

func (v *verifier) effect(r row) {
	key, phase, last := r.str(1), journal.Phase(r.str(2)), r.int(3)
	v.r.Effects++
	v.far = max(v.far, last)
	if r[5] == nil {
		v.r.problem("%s has no intent", key)
	} else if why := v.changedPayload(r); why != "" {
		v.r.problem("%s: %s", key, why)
	}
	k := maphash.String(v.seed, key)
	line, known := v.last[k]
	delete(v.last, k)
	switch {
	case last > v.head.seq: // it moved while we looked
	case !known && last > v.r.Sealed:
		v.r.problem("%s is in no line of the chain", key)
	case !known:
	case line.seq != last:
		v.r.problem("%s points to line %d, the newest about it is %d", key, last, line.seq)
	case line.phase != "" && line.phase != phase:
		v.r.problem("%s is %s, the chain says %s", key, phase, line.phase)
	}
}

// changedPayload compares what may still be sent with its digest.
func (v *verifier) changedPayload(r row) string {
	payload, ok := r[7].([]byte)
	if r[4] != nil || !ok {
		return ""
	}
	in, err := decodeIntent(r.str(6))
	if err != nil {
		return err.Error()
	}
	want := unpack(r.blob(8))
	if want == "" {
		return ""
	}
	contentType, err := v.c.text(in.ContentType)
	if err != nil {
		return err.Error()
	}
	if digest, err := journal.PayloadDigest(payload, contentType); err != nil || digest != want {
		return "its payload is not the one that was submitted"
	}
	return ""
}

// ledger accounts for the effects that are gone. What is left has vanished.
func (v *verifier) ledger(ctx context.Context) error {
	err := v.c.each(ctx, "SELECT key FROM key_ledger", nil, func(r row) error {
		delete(v.last, maphash.String(v.seed, r.str(0)))
		return nil
	})
	gone := 0
	for _, l := range v.last {
		if l.phase != "" {
			gone++
		}
	}
	if gone > 0 {
		v.r.problem("%d effects that the chain knows are gone, and the key ledger does not know them", gone)
	}
	return err
}

// counters compares the maintained counters with a count, in one snapshot.
func (v *verifier) counters(ctx context.Context) (err error) {
	if _, err := v.c.exec("BEGIN"); err != nil {
		return err
	}
	defer func() {
		if _, cerr := v.c.exec("COMMIT"); err == nil {
			err = cerr
		}
	}()
	have := map[counterKey]int64{}
	for _, q := range []string{
		"SELECT destination, phase, count(*) FROM effect GROUP BY destination, phase",
		"SELECT destination, 'review', count(*) FROM review GROUP BY destination",
		"SELECT destination, 'review_overdue', sum(overdue) FROM review GROUP BY destination",
	} {
		if err := v.c.each(ctx, q, nil, func(r row) error {
			have[counterKey{r.str(0), r.str(1)}] = r.int(2)
			return nil
		}); err != nil {
			return err
		}
	}
	err = v.c.each(ctx, "SELECT destination, name, value FROM counter", nil, func(r row) error {
		k := counterKey{r.str(0), r.str(1)}
		if have[k] != r.int(2) {
			v.r.problem("counter %s/%s is %d, there are %d", k.destination, k.name, r.int(2), have[k])
		}
		delete(have, k)
		return nil
	})
	for k, n := range have {
		if n > 0 {
			v.r.problem("%d effects of %s are %s and not counted", n, k.destination, k.name)
		}
	}
	return err
}

// invariants asks what must hold of any journal and can be asked cheaply.
func (v *verifier) invariants(ctx context.Context) error {
	for _, q := range [][2]string{
		{"is dispatching without a sent attempt (I2)", `SELECT key FROM effect AS e WHERE phase='dispatching'
			AND NOT EXISTS (SELECT 1 FROM attempt WHERE effect = e.id AND slot = 0) LIMIT 10`},
		{"has a sent attempt but is not being sent (I9)", `SELECT e.key FROM attempt AS a JOIN effect AS e ON e.id = a.effect
			WHERE a.slot = 0 AND e.phase NOT IN ('dispatching','reconciling','unknown') LIMIT 10`},
		{"has nothing due and no review (I8)", `SELECT key FROM effect AS e WHERE settled_at IS NULL AND due_at IS NULL
			AND phase NOT IN ('repairing') AND NOT EXISTS (SELECT 1 FROM review WHERE effect = e.id) LIMIT 10`},
		{"needs a person but has no open review (I8)", `SELECT key FROM effect AS e WHERE phase='needs_human'
			AND NOT EXISTS (SELECT 1 FROM review WHERE effect = e.id) LIMIT 10`},
		{"has an attempt without an effect", `SELECT attempt_id FROM attempt AS a WHERE slot IS NOT NULL
			AND NOT EXISTS (SELECT 1 FROM effect WHERE id = a.effect) LIMIT 10`},
	} {
		if err := v.c.each(ctx, q[1], nil, func(r row) error {
			v.r.problem("%s %s", r.str(0), q[0])
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
