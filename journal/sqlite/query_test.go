package sqlite

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/journal"
)

func plan(t *testing.T, db *DB, query string, vals ...any) string {
	t.Helper()
	var lines []string
	must(t, db.read(context.Background(), func(c *conn) error {
		return c.each(context.Background(), "EXPLAIN QUERY PLAN "+query, vals, func(r row) error {
			lines = append(lines, r.str(3))
			return nil
		})
	}))
	return strings.Join(lines, "; ")
}

func TestDueWorkAndRecoveryReadAnIndexAndNothingElse(t *testing.T) {
	db := openTest(t)
	for query, index := range map[string]string{
		sqlDue:     "USING INDEX effect_due (destination=? AND due_kind=? AND due_at>? AND due_at<?)",
		sqlNextDue: "USING COVERING INDEX effect_due (destination=? AND due_kind=? AND due_at>?)",
		"SELECT doubt_at, key FROM effect WHERE doubt_at IS NOT NULL ORDER BY doubt_at LIMIT 1":                    "USING INDEX effect_doubt",
		"SELECT a.id FROM attempt AS a INDEXED BY attempt_open WHERE a.slot IS NOT NULL ORDER BY a.effect, a.slot": "USING COVERING INDEX attempt_open",
	} {
		vals := make([]any, strings.Count(query, "?"))
		for i := range vals {
			vals[i] = 1
		}
		got := plan(t, db, query, vals...)
		if !strings.Contains(got, index) || strings.Contains(got, "TEMP B-TREE") {
			t.Errorf("%s\n  plan: %s", query, got)
		}
	}
}

func TestDueReturnsTheMostOverdueFirstAndNextDueWhatComesAfter(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	for i := range 5 {
		write(t, db, func(tx *Tx) (journal.Effect, error) {
			return submitAuthorized(tx, fmt.Sprintf("k:%d:v1", i), now.Add(time.Duration(5-i)*time.Minute))
		})
	}
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "sent:1:v1", now) })
	at := now.Add(3 * time.Minute)
	rows, err := db.Due(ctx, "desk", []journal.DueKind{journal.DueDispatch}, at, 10)
	must(t, err)
	var keys []string
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	if want := []string{"k:4:v1", "k:3:v1", "k:2:v1"}; !slices.Equal(keys, want) {
		t.Errorf("due: %v, want %v", keys, want)
	}
	next, err := db.NextDue(ctx, "desk", []journal.DueKind{journal.DueDispatch}, at)
	must(t, err)
	if want := now.Add(4 * time.Minute); !next.Equal(want) {
		t.Errorf("next due %v, want %v", next, want)
	}
	any, err := db.NextDue(ctx, "", nil, now)
	must(t, err)
	call := now.Add(testPolicy().Timeout + testPolicy().Grace.Linger + testPolicy().RecordReserve)
	if !any.Equal(call) {
		t.Errorf("next due of everything %v, want the open call's %v", any, call)
	}
	if rows, err := db.Due(ctx, "other", nil, at.Add(time.Hour), 10); err != nil || len(rows) != 0 {
		t.Errorf("another destination: %v %v", rows, err)
	}
	if n := db.Queued("desk"); n != 5 {
		t.Errorf("queued: %d", n)
	}
}

func TestListPagesByFilterNewestFirst(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	fill(t, db, 7, now)
	for i := range 3 {
		write(t, db, func(tx *Tx) (journal.Effect, error) {
			return submitAuthorized(tx, fmt.Sprintf("wait:%d:v1", i), now.Add(time.Minute))
		})
	}
	lost := write(t, db, func(tx *Tx) (journal.Effect, error) {
		e, err := submitSent(tx, "lost:1:v1", now)
		if err != nil {
			return e, err
		}
		return tx.Apply(e, journal.Lost{Attempt: "att-lost:1:v1", DeadAt: now.Add(time.Second), Cause: "crash"}, testEnv(now.Add(time.Second)))
	})
	all, err := everything(ctx, db)
	must(t, err)
	for _, c := range []struct {
		filter string
		want   int
	}{
		{"", 11},
		{"phase:succeeded", 7},
		{"phase:authorized", 3},
		{"phase:unknown", 1},
		{"phase:unknown,succeeded", 8},
		{"standing:in_flight", 1},
		{"standing:committed,not_started", 10},
		{"key:fill:*", 7},
		{"key:*:v1", 11},
		{"key:wait:1:v1", 1},
		{"key:fill:000003:v1 phase:authorized", 0},
		{"destination:desk operation:create account:acme actor:uid:1000", 11},
		{"destination:other", 0},
		{"owner:ops finding:unknown", 1},
		{"older:90s", 8},
		{"run:none", 0},
	} {
		f, err := journal.ParseFilter(c.filter, now.Add(2*time.Minute))
		must(t, err)
		var got []string
		cursor, pages := "", 0
		for {
			page, next, err := db.List(ctx, f, cursor, 2)
			must(t, err)
			for _, e := range page {
				got = append(got, e.Key)
			}
			if pages++; next == "" || pages > 20 {
				break
			}
			cursor = next
		}
		var want []string
		for _, e := range all {
			if f.Match(e) {
				want = append(want, e.Key)
			}
		}
		if !slices.Equal(got, want) || len(got) != c.want {
			t.Errorf("%q lists %v, want %d: %v", c.filter, got, c.want, want)
		}
	}
	oldest, key, err := db.OldestUnknown(ctx)
	must(t, err)
	if key != lost.Key || !oldest.Equal(lost.Doubt.Since) {
		t.Errorf("oldest unknown %s since %v", key, oldest)
	}
	if _, _, err := db.List(ctx, journal.Filter{Kinds: []string{"hold"}}, "", 1); err == nil {
		t.Error("a filter on lines was taken for effects")
	}
	if _, _, err := db.List(ctx, journal.Filter{}, "x", 1); err == nil {
		t.Error("a cursor that is none was taken")
	}
}

// everything reads all effects one by one, newest first.
func everything(ctx context.Context, db *DB) (out []journal.Effect, err error) {
	var keys []string
	err = db.read(ctx, func(c *conn) error {
		return c.each(ctx, "SELECT key FROM effect ORDER BY id DESC", nil, func(r row) error {
			keys = append(keys, r.str(0))
			return nil
		})
	})
	for _, k := range keys {
		e, eerr := db.Effect(ctx, k)
		err = errors.Join(err, eerr)
		out = append(out, e)
	}
	return out, err
}

func TestEventsPageCarryTheHashBefore(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	fill(t, db, 3, now)
	f, err := journal.ParseFilter("key:fill:000001:v1", now)
	must(t, err)
	lines, err := db.Events(ctx, 0, f, 3)
	must(t, err)
	rest, err := db.Events(ctx, lines[2].Seq, f, 100)
	must(t, err)
	of, err := db.EventsOf(ctx, "fill:000001:v1", 0)
	must(t, err)
	if got := append(lines, rest...); !reflect.DeepEqual(got, of) || len(got) != 5 {
		t.Errorf("pages %+v\nlinks %+v", got, of)
	}
	all, err := db.Events(ctx, 0, journal.Filter{}, 100)
	must(t, err)
	for i, x := range all {
		prev := strings.Repeat("0", 64)
		if i > 0 {
			prev = all[i-1].Hash
		}
		if x.PrevHash != prev || x.Seq != int64(i+1) {
			t.Errorf("line %d: prev_hash %s, want %s", x.Seq, x.PrevHash, prev)
		}
	}
	last, err := db.Events(ctx, all[len(all)-2].Seq, journal.Filter{}, 1)
	must(t, err)
	if last[0] != all[len(all)-1] {
		t.Errorf("a page that begins in the middle: %+v", last)
	}
	for filter, want := range map[string]int{"phase:succeeded": 3, "kind:transition": 15, "destination:desk": 15, "destination:x": 0, "actor:settled": 15} {
		f, err := journal.ParseFilter(filter, now)
		must(t, err)
		if got, err := db.Events(ctx, 0, f, 100); err != nil || len(got) != want {
			t.Errorf("%s: %d lines, want %d (%v)", filter, len(got), want, err)
		}
	}
}

func TestALedgerOutlivesWhatIsPruned(t *testing.T) {
	opts := testOptions(t)
	db := openAt(t, opts)
	ctx, now := context.Background(), epochStart()
	fill(t, db, 3, now)
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitAuthorized(tx, "open:1:v1", now) })
	report, err := db.Prune(ctx, now.Add(time.Hour), now.Add(time.Hour))
	must(t, err)
	if report.Effects != 3 {
		t.Fatalf("pruned: %+v", report)
	}
	again := func(db *DB, key string, change func(*journal.Intent)) error {
		return db.Write(ctx, func(tx *Tx) error {
			in := testIntent(key, now)
			change(&in)
			_, _, err := tx.Submit(in, testEnv(now), false)
			return err
		})
	}
	same := func(*journal.Intent) {}
	other := func(in *journal.Intent) { in.Fingerprint = "sha256:other" }
	check := func(db *DB, key string) {
		t.Helper()
		var pruned *PrunedError
		if err := again(db, key, same); !errors.Is(err, ErrPruned) || !errors.As(err, &pruned) || pruned.ObjectID != "T-"+key {
			t.Errorf("%s again: %v", key, err)
		}
		var conflict *journal.ConflictError
		if err := again(db, key, other); !errors.As(err, &conflict) {
			t.Errorf("%s for something else: %v", key, err)
		}
	}
	check(db, "fill:000000:v1")
	counts, err := db.Counts(ctx)
	must(t, err)
	if counts.Total(journal.Succeeded) != 0 || counts.Total(journal.Authorized) != 1 {
		t.Errorf("counts: %+v", counts)
	}
	verifies(t, db)
	fresh := write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "hand:1:v1", now) })
	write(t, db, func(tx *Tx) (journal.Effect, error) { return answer(tx, "hand:1:v1", now) })
	must(t, db.Close())
	must(t, byHand(t, opts.Path, "DELETE FROM effect WHERE key='hand:1:v1'"))
	db = openAt(t, opts)
	check(db, "hand:1:v1")
	check(db, "fill:000002:v1")
	next := write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "next:1:v1", now) })
	if next.ID < fresh.ID {
		t.Errorf("row %d after %d", next.ID, fresh.ID)
	}
	verifies(t, db)
}

func TestPayloadsAndBodiesGoBeforeTheEffects(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitAuthorized(tx, "open:1:v1", now) })
	fill(t, db, 2, now)
	var digest string
	must(t, db.Write(ctx, func(tx *Tx) (err error) {
		digest, err = tx.PutEvidence("fill:000001:v1", journal.Evidence{At: now, Source: journal.FromAdapter, Kind: "answer", Body: []byte("201")})
		return err
	}))
	report, err := db.Prune(ctx, now, now.Add(time.Hour))
	must(t, err)
	if report.Effects != 0 || report.Payloads != 2 {
		t.Errorf("pruned: %+v", report)
	}
	e, err := db.Effect(ctx, "fill:000001:v1")
	must(t, err)
	if e.Payload != nil || e.PayloadDigest == "" {
		t.Errorf("payload %q digest %q", e.Payload, e.PayloadDigest)
	}
	ev, err := db.Evidence(ctx, e.Key)
	must(t, err)
	if len(ev) != 1 || ev[0].Digest != digest || ev[0].Body != nil {
		t.Errorf("evidence: %+v", ev)
	}
	if e, err := db.Effect(ctx, "open:1:v1"); err != nil || e.Payload == nil {
		t.Errorf("the open effect lost its payload: %v", err)
	}
	if report, err := db.Prune(ctx, now, now.Add(time.Hour)); err != nil || report.Payloads != 0 {
		t.Errorf("a second prune: %+v %v", report, err)
	}
}

func TestAReleaseWakesWhatWasHeld(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	by := journal.By{Actor: "uid:0", Kind: journal.Human, Origin: "cli", Because: "index rebuild"}
	must(t, db.Write(ctx, func(tx *Tx) error { return tx.PutHold(journal.Hold{Scope: "destination:desk"}, by) }))
	const n = 600 // more than one slice
	for i := range n / 100 {
		must(t, db.Write(ctx, func(tx *Tx) error {
			for j := range 100 {
				e, err := submitAuthorized(tx, fmt.Sprintf("k:%d:v1", i*100+j), now)
				if err != nil {
					return err
				}
				if tx.HoldFor(e) != "destination:desk" {
					return errors.New("the hold does not cover " + e.Key)
				}
				if _, err := tx.Apply(e, journal.Defer{Until: e.Deadline, Held: true}, testEnv(now)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	soon := time.Now().Add(time.Minute)
	held := func() int {
		rows, err := db.Due(ctx, "desk", []journal.DueKind{journal.DueHeld}, soon, 2*n)
		must(t, err)
		return len(rows)
	}
	deadline := now.Add(24 * time.Hour)
	if soon.Before(deadline) && held() != 0 {
		t.Fatal("held effects are due already")
	}
	var woken int
	must(t, db.Write(ctx, func(tx *Tx) (err error) {
		woken, err = tx.ReleaseHold("destination:desk", by)
		return err
	}))
	if woken != wakeSlice {
		t.Errorf("woken at once: %d", woken)
	}
	waitFor(t, func() bool { return held() == n })
	if hs, _ := db.Holds(ctx); len(hs) != 0 {
		t.Errorf("holds: %v", hs)
	}
	err := db.Write(ctx, func(tx *Tx) error { _, err := tx.ReleaseHold("all", by); return err })
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("releasing what is not held: %v", err)
	}
	lines, err := db.Events(ctx, 0, journal.Filter{Kinds: []string{"hold", "release"}}, 10)
	must(t, err)
	if len(lines) != 2 || !strings.Contains(lines[0].Because, "index rebuild") {
		t.Errorf("lines: %+v", lines)
	}
}

func TestHoldsThatFindingsRaiseCoverOthersOfTheTargetAndSurviveARestart(t *testing.T) {
	opts := testOptions(t)
	db := openAt(t, opts)
	ctx, now := context.Background(), epochStart()
	write(t, db, func(tx *Tx) (journal.Effect, error) {
		e, err := submitSent(tx, "lost:1:v1", now)
		if err != nil {
			return e, err
		}
		return tx.Apply(e, journal.Lost{Attempt: "att-lost:1:v1", DeadAt: now, Cause: "crash"}, testEnv(now))
	})
	must(t, db.Close())
	db = openAt(t, opts)
	must(t, db.Write(ctx, func(tx *Tx) error {
		lost, err := tx.Effect("lost:1:v1")
		if err != nil {
			return err
		}
		if got := tx.HoldFor(lost); got != "" {
			t.Errorf("it holds itself: %s", got)
		}
		other, err := submitAuthorized(tx, "other:1:v1", now)
		if err != nil {
			return err
		}
		other.Target = "queue-1"
		if got := tx.HoldFor(other); got != "target:desk/queue-1" {
			t.Errorf("the other effect of the target is held by %q", got)
		}
		return nil
	}))
}

func TestAWatchTellsTheNewestLineAndNeverBlocksTheCommitter(t *testing.T) {
	db := openTest(t)
	ctx := context.Background()
	w, idle := db.Watch(), db.Watch()
	defer idle.Close()
	for i := range 5 {
		must(t, db.Write(ctx, func(tx *Tx) error { return tx.Note(journal.Entry{Kind: fmt.Sprint(i)}) }))
	}
	waitFor(t, func() bool {
		select {
		case seq := <-w.C:
			return seq == 5
		default:
			return false
		}
	})
	w.Close()
	if _, ok := <-w.C; ok {
		t.Error("a closed watch still tells")
	}
	must(t, db.Close())
	for range idle.C { // ends, because Close closed it
	}
}

func TestOneRunOfAScheduleAtATime(t *testing.T) {
	opts := testOptions(t)
	db := openAt(t, opts)
	ctx, now := context.Background(), epochStart()
	open := func(db *DB) (id int64, err error) {
		err = db.Write(ctx, func(tx *Tx) (err error) {
			id, err = tx.OpenSweep("desk-sweep", now, now)
			return err
		})
		return id, err
	}
	id, err := open(db)
	must(t, err)
	if _, err := open(db); !errors.Is(err, ErrSweepRunning) {
		t.Errorf("a second run: %v", err)
	}
	must(t, db.Write(ctx, func(tx *Tx) error { return tx.CloseSweep(id, now.Add(time.Minute), "asked 3") }))
	_, err = open(db)
	must(t, err)
	must(t, db.Write(ctx, func(tx *Tx) error {
		return tx.PutSchedule(ScheduleState{Name: "desk-sweep", LastNominal: now, LastOK: now, LastResult: "asked 3", Missed: 2})
	}))
	must(t, db.Close())
	db = openAt(t, opts)
	if _, err := open(db); err != nil {
		t.Errorf("a restart must end what was running: %v", err)
	}
	runs, err := db.Sweeps(ctx, "desk-sweep", 0)
	must(t, err)
	if len(runs) != 3 || runs[1].Result != "interrupted" || runs[2].Result != "asked 3" {
		t.Errorf("runs: %+v", runs)
	}
	s, err := db.Schedule(ctx, "desk-sweep")
	must(t, err)
	if s.Missed != 2 || !s.LastOK.Equal(now) {
		t.Errorf("schedule: %+v", s)
	}
}

func TestEvidenceIsStoredOnceAndNamedByWhatItSays(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	ev := journal.Evidence{At: now, Source: journal.FromRead, Kind: "read", Summary: "none seen", Body: make([]byte, MaxEvidence+10)}
	digests := map[string]bool{}
	must(t, db.Write(ctx, func(tx *Tx) error {
		if _, err := submitAuthorized(tx, "k:1:v1", now); err != nil {
			return err
		}
		for range 2 {
			d, err := tx.PutEvidence("k:1:v1", ev)
			if err != nil {
				return err
			}
			digests[d] = true
		}
		later := ev
		later.Summary = "one seen"
		d, err := tx.PutEvidence("k:1:v1", later)
		digests[d] = true
		return err
	}))
	got, err := db.Evidence(ctx, "k:1:v1")
	must(t, err)
	if len(got) != 2 || len(digests) != 2 || len(got[0].Body) != MaxEvidence || !digests[got[0].Digest] {
		t.Errorf("%d pieces, %d digests", len(got), len(digests))
	}
	err = db.Write(ctx, func(tx *Tx) error { _, err := tx.PutEvidence("none:1:v1", ev); return err })
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("evidence about nothing: %v", err)
	}
}

func TestABackupIsOneVerifiedFile(t *testing.T) {
	opts := testOptions(t)
	db := openAt(t, opts)
	ctx, now := context.Background(), epochStart()
	fill(t, db, 5, now)
	file := t.TempDir() + "/copy.db"
	must(t, db.Backup(ctx, file))
	if err := db.Backup(ctx, file); err == nil {
		t.Error("a backup replaced another")
	}
	ro, err := OpenReadOnly(ctx, Options{Path: file, GenerationPath: opts.GenerationPath, ChainKey: opts.ChainKey})
	must(t, err)
	defer func() { must(t, ro.Close()) }()
	if r, err := ro.Verify(ctx, ""); err != nil || r.Err() != nil || r.Effects != 5 {
		t.Errorf("verify: %+v %v", r, err)
	}
	if err := ro.Write(ctx, func(*Tx) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("a write to a journal opened for reading: %v", err)
	}
	beside, err := OpenReadOnly(ctx, opts) // while the daemon runs
	must(t, err)
	if e, err := beside.Effect(ctx, "fill:000001:v1"); err != nil || e.Phase != journal.Succeeded {
		t.Errorf("beside the daemon: %v %v", e.Phase, err)
	}
	if r, err := beside.Check(ctx); err != nil || r.Err() != nil {
		t.Errorf("check: %+v %v", r, err)
	}
	must(t, beside.Close())
	rows := 0
	must(t, db.SQL(ctx, "SELECT key, phase FROM effects", func(cols []string, vals []any) error {
		rows++
		return nil
	}))
	if rows != 5 {
		t.Errorf("the shell saw %d rows", rows)
	}
	if err := db.SQL(ctx, "DELETE FROM effect", func([]string, []any) error { return nil }); err == nil {
		t.Error("the shell can write")
	}
}
