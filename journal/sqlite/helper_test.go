package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/settled-dev/settled/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testKey = bytes.Repeat([]byte{7}, 32)

func epochStart() time.Time { return time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC) }

func testOptions(tb testing.TB) Options {
	tb.Helper()
	dir := tb.TempDir()
	return Options{
		Path: filepath.Join(dir, "state", "journal.db"), GenerationPath: filepath.Join(dir, "other", "marker"),
		ChainKey: testKey, BootID: "boot-1", Version: "test",
	}
}

func openAt(tb testing.TB, opts Options) *DB {
	tb.Helper()
	db, err := Open(context.Background(), opts)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return db
}

func openTest(tb testing.TB) *DB {
	tb.Helper()
	return openAt(tb, testOptions(tb))
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func dur(d time.Duration) *time.Duration { return &d }

// testPolicy is what configuration would say: proof by the destination's own word.
func testPolicy() journal.Policy {
	return journal.Policy{
		SHA256: "aa11", Contract: "cc22", Owner: "ops", AuthorityOwner: "ops", Severity: journal.SeverityNormal,
		Proof: journal.ProofAck, Timeout: 10 * time.Second, RecordReserve: time.Second, MaxAge: 30 * time.Second,
		Retry: journal.Retry{
			Attempts: 3, Elapsed: 90 * time.Second, BackoffInitial: time.Second, BackoffMax: 30 * time.Second, Factor: 2,
			AfterAbsence: 15 * time.Minute,
		},
		Grace: journal.Grace{
			MaxProcessing: dur(time.Minute), Lag: dur(2 * time.Second), Skew: 5 * time.Second, Safety: 10 * time.Second,
			Linger: 5 * time.Second, AbsenceValid: 10 * time.Minute,
			Reads: []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute},
		},
		ReconcileBudget: 24 * time.Hour, AckDeadline: time.Hour, VerifyDeadline: 10 * time.Minute, Settle: journal.SettleRead,
		Contain: map[journal.Finding]journal.ScopeKind{journal.FindingUnknown: journal.ScopeTarget},
		HasRead: true, Consistency: journal.ConsistencyBounded, ProvesAbsence: true, KeyedLookup: true,
		Reversibility: journal.ReversibleOp,
	}
}

func testEnv(now time.Time) journal.Env {
	return journal.Env{
		Now: now, Jitter: 0.5, Policy: testPolicy(),
		By: journal.By{Actor: "settled", Kind: journal.System, Origin: "engine"},
	}
}

func testIntent(key string, now time.Time) journal.Intent {
	payload := []byte(`{"subject":"printer on fire","body":"` + key + `"}`)
	digest, err := journal.PayloadDigest(payload, "")
	if err != nil {
		panic(err)
	}
	return journal.Intent{
		Key: key, Destination: "desk", Account: "acme", Operation: "create", Actor: "uid:1000", Payload: payload,
		ContentType: "application/json", PayloadDigest: digest,
		Fingerprint: journal.Fingerprint("desk", "acme", "create", "uid:1000", digest),
		Context:     map[string]string{"trace": "t-1"}, SubmittedAt: now, Deadline: now.Add(24 * time.Hour),
	}
}

func grant(now time.Time) journal.Authorize {
	return journal.Authorize{Authority: journal.Authority{
		Ref: "policy:aa11", GrantedAt: now, ExpiresAt: now.Add(24 * time.Hour), PolicySHA256: "aa11", ContractSHA256: "cc22",
	}}
}

func sendOf(e journal.Effect, epoch int64, id string) journal.Send {
	return journal.Send{
		Ask: journal.Ask{
			Seq: e.Seq, Fingerprint: e.Fingerprint, Epoch: epoch, CurrentEpoch: epoch, SlotHeld: true, TokenHeld: true,
			RetryToken: true, Contract: "cc22",
		},
		Attempt: journal.Attempt{
			ID: id, Epoch: epoch, PID: 4242, ProcessStart: "17", BootID: "boot-1",
			Adapter: journal.AdapterRef{Name: "http", Version: "1", SHA256: "dd33"}, Key: e.Key, Marker: e.Key, Account: e.Account,
		},
		Target: "queue-1",
	}
}

// submitAuthorized records an intent and its authority in one operation.
func submitAuthorized(tx *Tx, key string, now time.Time) (journal.Effect, error) {
	e, created, err := tx.Submit(testIntent(key, now), testEnv(now), false)
	if err != nil || !created {
		return e, err
	}
	return tx.Apply(e, grant(now), testEnv(now))
}

// submitSent is the fused path: intent, authority and the `sent` row in one operation.
func submitSent(tx *Tx, key string, now time.Time) (journal.Effect, error) {
	e, err := submitAuthorized(tx, key, now)
	if err != nil {
		return e, err
	}
	return tx.Apply(e, sendOf(e, tx.Epoch(), "att-"+key), testEnv(now))
}

func committed(key string, now time.Time) journal.Answer {
	return journal.Answer{Attempt: "att-" + key, Class: journal.AnswerCommitted, At: now, ObjectID: "T-" + key, ObjectType: "ticket"}
}

func answer(tx *Tx, key string, now time.Time) (journal.Effect, error) {
	e, err := tx.Effect(key)
	if err != nil {
		return e, err
	}
	return tx.Apply(e, committed(key, now), testEnv(now))
}

// write runs fn and returns the effect that it made.
func write(tb testing.TB, db *DB, fn func(*Tx) (journal.Effect, error)) journal.Effect {
	tb.Helper()
	var out journal.Effect
	must(tb, db.Write(context.Background(), func(tx *Tx) (err error) {
		out, err = fn(tx)
		return err
	}))
	return out
}

func fill(tb testing.TB, db *DB, n int, now time.Time) {
	tb.Helper()
	for i := range n {
		key := fmt.Sprintf("fill:%06d:v1", i)
		write(tb, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, key, now) })
		write(tb, db, func(tx *Tx) (journal.Effect, error) { return answer(tx, key, now) })
	}
}

// onCommitter runs fn where the writing connection and the committer's memory may be looked at.
func onCommitter(tb testing.TB, db *DB, fn func()) {
	tb.Helper()
	must(tb, db.Write(context.Background(), func(*Tx) error { fn(); return nil }))
}

// pageCount is the size of the file in pages.
func pageCount(tb testing.TB, db *DB) (n int64) {
	tb.Helper()
	var err error
	onCommitter(tb, db, func() { n, err = db.w.oneInt(context.Background(), "PRAGMA page_count") })
	must(tb, err)
	return n
}
