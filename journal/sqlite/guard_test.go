package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settled-dev/settled/journal"
)

func TestEveryConnectionSyncsFullyAndReadersCannotWrite(t *testing.T) {
	db := openTest(t)
	conns := map[string]*conn{"writer": db.w}
	for i := range db.opts.Readers {
		conns[fmt.Sprintf("reader %d", i)] = <-db.readers
	}
	defer func() {
		for name, c := range conns {
			if name != "writer" {
				db.readers <- c
			}
		}
	}()
	onCommitter(t, db, func() { checkConnections(t, conns) })
}

func checkConnections(t *testing.T, conns map[string]*conn) {
	ctx := context.Background()
	for name, c := range conns {
		for pragma, want := range map[string]int64{"synchronous": 2, "mmap_size": 0, "trusted_schema": 0, "foreign_keys": 1, "cell_size_check": 1} {
			if got, err := c.oneInt(ctx, "PRAGMA "+pragma); err != nil || got != want {
				t.Errorf("%s: %s is %d (%v), want %d", name, pragma, got, err, want)
			}
		}
		if mode, err := c.oneStr(ctx, "PRAGMA journal_mode"); err != nil || mode != "wal" {
			t.Errorf("%s: journal_mode is %q (%v)", name, mode, err)
		}
		if name == "writer" {
			continue
		}
		if _, err := c.exec("INSERT INTO setting (name, value) VALUES ('x','y')"); err == nil {
			t.Errorf("%s can write", name)
		}
	}
}

func TestSelfCheckRefusesAConnectionThatDoesNotSyncFully(t *testing.T) {
	db := openTest(t)
	want := map[string]string{"synchronous": "2", "recursive_triggers": "1", "foreign_keys": "1"}
	for _, pragma := range []string{"synchronous=NORMAL", "recursive_triggers=OFF", "foreign_keys=OFF"} {
		w, err := dialWriter(db.opts.Path)
		must(t, err)
		must(t, checkPragmas(context.Background(), w, "writer", want))
		must(t, w.script("PRAGMA "+pragma))
		err = (&DB{w: w, opts: Options{}}).selfCheck(context.Background())
		must(t, w.close())
		if !errors.Is(err, ErrConfig) || ExitCode(err) != 78 {
			t.Errorf("%s: %v", pragma, err)
		}
	}
}

func TestASecondDaemonIsLockedOut(t *testing.T) {
	opts := testOptions(t)
	db := openAt(t, opts)
	second, err := Open(context.Background(), opts)
	if !errors.Is(err, ErrLocked) || ExitCode(err) != 75 {
		t.Fatalf("second open: %v %v", second, err)
	}
	if !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("the error does not name the holder: %v", err)
	}
	must(t, db.Close())
	third := openAt(t, opts)
	if third.Epoch() != db.Epoch()+1 {
		t.Errorf("epoch %d after %d", third.Epoch(), db.Epoch())
	}
}

func TestTheLibsqlite3TagDoesNotBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the package")
	}
	out, err := exec.Command("go", "vet", "-tags", "libsqlite3", ".").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the_libsqlite3_build_tag_is_refused") {
		t.Errorf("go vet -tags libsqlite3: %v\n%s", err, out)
	}
}

func TestANewerOrForeignFileIsRefused(t *testing.T) {
	opts := testOptions(t)
	db := openAt(t, opts)
	must(t, db.Write(context.Background(), func(tx *Tx) error {
		if err := tx.begin(); err != nil {
			return err
		}
		_, err := tx.db.w.exec("UPDATE migration SET sha256='edited'")
		return err
	}))
	must(t, db.Close())
	if _, err := Open(context.Background(), opts); !errors.Is(err, ErrConfig) {
		t.Errorf("an edited migration: %v", err)
	}
	other := testOptions(t)
	must(t, os.MkdirAll(filepath.Dir(other.Path), 0o750))
	c, err := dialWriter(other.Path)
	must(t, err)
	must(t, c.script("CREATE TABLE mine (x); PRAGMA user_version=1"))
	must(t, c.close())
	if _, err := Open(context.Background(), other); !errors.Is(err, ErrConfig) {
		t.Errorf("a foreign database: %v", err)
	}
	newer := testOptions(t)
	db = openAt(t, newer)
	must(t, db.Write(context.Background(), func(tx *Tx) error { return tx.PutSetting("x", "y") }))
	must(t, db.Close())
	c, err = dialWriter(newer.Path)
	must(t, err)
	must(t, c.script("PRAGMA user_version=99"))
	must(t, c.close())
	if _, err := Open(context.Background(), newer); !errors.Is(err, ErrConfig) || ExitCode(err) != 78 {
		t.Errorf("a newer schema: %v", err)
	}
}

func TestFilesAreNotForEverybody(t *testing.T) {
	opts := testOptions(t)
	opts.ChainKey = nil
	openAt(t, opts)
	for path, want := range map[string]os.FileMode{
		opts.Path: 0o640, opts.Path + "-wal": 0o640, keyPath(opts.GenerationPath): 0o600, filepath.Dir(opts.Path): 0o750,
	} {
		st, err := os.Stat(path)
		must(t, err)
		if got := st.Mode().Perm(); got&^want != 0 {
			t.Errorf("%s has mode %o, want at most %o", path, got, want)
		}
	}
}

// byHand runs SQL the way a person with a shell would: outside of every guard of this package.
func byHand(t *testing.T, path string, stmts ...string) error {
	t.Helper()
	c, err := dial(dsn(path, "mode=rw&_busy_timeout=5000"))
	must(t, err)
	defer func() { must(t, c.close()) }()
	for _, s := range stmts {
		if _, err := c.exec(s); err != nil {
			return err
		}
	}
	return nil
}

func TestTheDatabaseItselfRefusesWhatMustNeverHappen(t *testing.T) {
	opts := testOptions(t)
	db := openAt(t, opts)
	now := epochStart()
	fill(t, db, 2, now)
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "open:1:v1", now) })
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitAuthorized(tx, "auth:1:v1", now) })
	must(t, db.Write(context.Background(), func(tx *Tx) error {
		_, err := tx.PutEvidence("open:1:v1", journal.Evidence{At: now, Source: journal.FromPerson, Kind: "note", Summary: "seen"})
		return err
	}))
	must(t, db.Close())
	for what, sql := range map[string]string{
		"an illegal move":                  "UPDATE effect SET phase='dispatching' WHERE key='fill:000000:v1'",
		"a move from a finished effect":    "UPDATE effect SET phase='authorized', settled_at=NULL WHERE key='fill:000000:v1'",
		"an unknown phase":                 "UPDATE effect SET phase='done' WHERE key='auth:1:v1'",
		"an unknown finding":               "UPDATE effect SET finding='fine' WHERE key='auth:1:v1'",
		"a second sent attempt":            "INSERT INTO attempt SELECT id+1, effect, n+1, 'x', state, epoch, sent_at, closed_at, slot, via, body, baseline FROM attempt WHERE state='sent'",
		"a sent attempt outside the index": "INSERT INTO attempt SELECT id+1, effect, n+1, 'x', state, epoch, sent_at, closed_at, NULL, via, body, baseline FROM attempt WHERE state='sent'",
		"another fingerprint":              "UPDATE effect SET fingerprint=x'00' WHERE key='auth:1:v1'",
		"another payload":                  "UPDATE intent SET payload=x'00'",
		"a second effect of a key":         "INSERT INTO effect SELECT id+100, key, fingerprint, destination, account, operation, 'prepared', finding, seq, owner, due_at, due_kind, submitted_at, NULL, NULL, NULL, NULL, last_event, state FROM effect WHERE key='auth:1:v1'",
		"an effect born authorized":        "INSERT INTO effect SELECT id+100, key||'x', fingerprint, destination, account, operation, phase, finding, seq, owner, due_at, due_kind, submitted_at, NULL, NULL, NULL, NULL, last_event, state FROM effect WHERE key='auth:1:v1'",
		"an edited line":                   "UPDATE event SET because='nothing' WHERE seq=1",
		"a deleted line":                   "DELETE FROM event WHERE seq=(SELECT max(seq) FROM event)",
		"a replaced line":                  "INSERT OR REPLACE INTO event SELECT * FROM event WHERE seq=1",
		"a line out of turn":               "INSERT INTO event SELECT seq+100, at, effect, key, move, kind, run, attempt, who, because, evidence, policy, back, hash FROM event WHERE seq=1",
		"a deleted open effect":            "DELETE FROM effect WHERE key='open:1:v1'",
		"edited evidence":                  "UPDATE evidence SET summary='unseen'",
		"a settled time without an end":    "UPDATE effect SET settled_at=1 WHERE key='auth:1:v1'",
	} {
		if err := byHand(t, opts.Path, sql); !conflictOf(err) {
			t.Errorf("%s was not refused: %v", what, err)
		}
	}
}

func TestTamperingIsFound(t *testing.T) {
	drop := "DROP TRIGGER event_upd; DROP TRIGGER event_del; DROP TRIGGER event_ins; DROP TRIGGER effect_key; DROP TRIGGER intent_upd; DROP TRIGGER effect_phase"
	for name, sql := range map[string]string{
		"edited line":      "UPDATE event SET because='nothing to see' WHERE seq=3",
		"edited time":      "UPDATE event SET at=at+1 WHERE seq=2",
		"deleted line":     "DELETE FROM event WHERE seq=4",
		"reordered lines":  "UPDATE event SET seq=-1 WHERE seq=3; UPDATE event SET seq=3 WHERE seq=4; UPDATE event SET seq=4 WHERE seq=-1",
		"cut and appended": "DELETE FROM event WHERE seq=(SELECT max(seq) FROM event)",
		"moved effect":     "UPDATE effect SET phase='succeeded', due_at=NULL, due_kind=NULL, settled_at=1 WHERE key='auth:1:v1'",
		"other payload":    "UPDATE intent SET payload=CAST('{\"amount\":1000000}' AS BLOB) WHERE effect=(SELECT id FROM effect WHERE key='auth:1:v1')",
		"lost effect":      "DROP TRIGGER effect_gone; DROP TRIGGER effect_keep; DELETE FROM effect WHERE key='fill:000001:v1'; UPDATE counter SET value=value-1 WHERE name='succeeded'",
		"counter":          "UPDATE counter SET value=value+1 WHERE name='succeeded'",
		"lost attempt":     "DELETE FROM attempt WHERE state='sent'",
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions(t)
			db := openAt(t, opts)
			now := epochStart()
			write(t, db, func(tx *Tx) (journal.Effect, error) { return submitAuthorized(tx, "auth:1:v1", now) })
			write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "open:1:v1", now) })
			fill(t, db, 3, now)
			if r, err := db.Verify(context.Background(), ""); err != nil || r.Err() != nil || r.Checked == 0 || r.Effects != 5 {
				t.Fatalf("an honest journal: %+v %v", r, err)
			}
			must(t, db.Close())
			for _, s := range append(strings.Split(drop, "; "), strings.Split(sql, "; ")...) {
				must(t, byHand(t, opts.Path, s))
			}
			ro, err := OpenReadOnly(context.Background(), opts)
			must(t, err)
			defer func() { must(t, ro.Close()) }()
			r, err := ro.Verify(context.Background(), "")
			var tampered *TamperError
			if err != nil || !errors.As(r.Err(), &tampered) {
				t.Errorf("not found: %+v %v", r, err)
			}
		})
	}
}

func TestACutEndIsFoundOnlyWithTheExpectedHead(t *testing.T) {
	opts := testOptions(t)
	db := openAt(t, opts)
	ctx := context.Background()
	must(t, db.Write(ctx, func(tx *Tx) error { return tx.Note(journal.Entry{Kind: "one"}) }))
	must(t, db.Write(ctx, func(tx *Tx) error { return tx.Note(journal.Entry{Kind: "two"}) }))
	seq, hash := db.Head()
	if r, err := db.Verify(ctx, FormatHead(seq, hash)); err != nil || r.Err() != nil {
		t.Fatalf("honest: %+v %v", r, err)
	}
	if r, err := db.Verify(ctx, FormatHead(seq, strings.Repeat("ab", 32))); err != nil || r.Err() == nil {
		t.Errorf("another hash: %+v %v", r, err)
	}
	if _, err := db.Verify(ctx, "nonsense"); !errors.Is(err, ErrCouldNotVerify) {
		t.Errorf("a head that is none: %v", err)
	}
	must(t, db.Close())
	must(t, byHand(t, opts.Path, "DROP TRIGGER event_del", "DELETE FROM event WHERE seq=2"))
	ro, err := OpenReadOnly(ctx, opts)
	must(t, err)
	defer func() { must(t, ro.Close()) }()
	if r, err := ro.Verify(ctx, ""); err != nil || r.Err() != nil {
		t.Errorf("a cut end is invisible without the head: %+v %v", r, err)
	}
	if r, err := ro.Verify(ctx, FormatHead(seq, hash)); err != nil || r.Err() == nil {
		t.Errorf("a cut end: %+v %v", r, err)
	}
	wrong := opts
	wrong.ChainKey = []byte(strings.Repeat("other key", 4))
	must(t, ro.Close())
	ro2, err := OpenReadOnly(ctx, wrong)
	must(t, err)
	defer func() { must(t, ro2.Close()) }()
	if _, err := ro2.Verify(ctx, ""); !errors.Is(err, ErrCouldNotVerify) {
		t.Errorf("the wrong key: %v", err)
	}
	if _, err := Open(ctx, wrong); err == nil {
		t.Error("a daemon with the wrong key started")
	}
}
