package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/settled-dev/settled/journal"
)

// snapshot copies the journal's files as a crash at this instant would leave
// them. Another program copies: closing a descriptor of the live file in this
// process would drop SQLite's locks.
func snapshot(tb testing.TB, opts Options) Options {
	tb.Helper()
	out := opts
	dir := tb.TempDir()
	out.Path, out.GenerationPath = filepath.Join(dir, "state", "journal.db"), filepath.Join(dir, "other", "marker")
	out.Fault = nil
	must(tb, os.MkdirAll(filepath.Dir(out.Path), 0o750))
	must(tb, os.MkdirAll(filepath.Dir(out.GenerationPath), 0o750))
	for from, to := range map[string]string{
		opts.Path: out.Path, opts.Path + "-wal": out.Path + "-wal", opts.GenerationPath: out.GenerationPath,
	} {
		if b, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
			tb.Fatalf("cp: %v %s", err, b)
		}
	}
	return out
}

func TestACrashAtAnyPointLeavesABatchWholeOrNotAtAll(t *testing.T) {
	for point, durable := range map[string]bool{
		"batch": false, "op": false, "flush": false, "commit.before": false, "commit.after": true, "ack": true,
	} {
		t.Run(point, func(t *testing.T) {
			var armed atomic.Bool
			var after Options
			opts := testOptions(t)
			base := opts
			opts.Fault = func(at string) error {
				if at == point && armed.CompareAndSwap(true, false) {
					after = snapshot(t, base)
				}
				return nil
			}
			db := openAt(t, opts)
			now := epochStart()
			write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "before:1:v1", now) })
			armed.Store(true)
			write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "during:1:v1", now) })
			again := openAt(t, after)
			if !again.Unclean() {
				t.Error("the crash went unnoticed")
			}
			if again.Restored() {
				t.Error("a crash was taken for a restored backup")
			}
			open, err := again.OpenAttempts(context.Background())
			must(t, err)
			var keys []string
			for _, o := range open {
				keys = append(keys, o.Key)
			}
			want := "before:1:v1"
			if durable {
				want += " during:1:v1"
			}
			if got := strings.Join(keys, " "); got != want {
				t.Errorf("after the restart %q is open, want %q", got, want)
			}
			if r, err := again.Verify(context.Background(), ""); err != nil || r.Err() != nil {
				t.Errorf("verify: %+v %v", r, err)
			}
		})
	}
}

func TestNobodyIsAnsweredBeforeCommitHasReturned(t *testing.T) {
	var committed atomic.Int64
	opts := testOptions(t)
	opts.Fault = func(at string) error {
		if at == "commit.after" {
			committed.Add(1)
		}
		return nil
	}
	db := openAt(t, opts)
	ctx, now := context.Background(), epochStart()
	done := make(chan error, 40)
	for i := range 40 {
		go func() {
			before := committed.Load()
			err := db.Write(ctx, func(tx *Tx) error {
				_, err := submitSent(tx, fmt.Sprintf("k:%d:v1", i), now)
				return err
			})
			if err == nil && committed.Load() == before {
				err = errors.New("answered before any COMMIT returned")
			}
			if err == nil {
				_, err = db.Effect(ctx, fmt.Sprintf("k:%d:v1", i)) // another connection sees it: it was committed
			}
			done <- err
		}()
	}
	for range 40 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestAnErrorFromCommitLeavesTheOutcomeUnknownAndStopsTheJournal(t *testing.T) {
	for _, point := range []string{"commit.before", "commit.after"} {
		t.Run(point, func(t *testing.T) {
			var armed atomic.Bool
			opts := testOptions(t)
			opts.Fault = func(at string) error {
				if at == point && armed.Load() {
					return sqlite3.Error{Code: sqlite3.ErrIoErr, ExtendedCode: sqlite3.ErrIoErrFsync, SystemErrno: syscall.EIO}
				}
				return nil
			}
			db := openAt(t, opts)
			ctx, now := context.Background(), epochStart()
			armed.Store(true)
			err := db.Write(ctx, func(tx *Tx) error {
				_, err := submitSent(tx, "k:1:v1", now)
				return err
			})
			if !errors.Is(err, ErrCommitUnknown) || ExitCode(err) != 74 {
				t.Fatalf("error: %v", err)
			}
			select {
			case <-db.Fatal():
			default:
				t.Fatal("the journal goes on")
			}
			if !errors.Is(db.FatalErr(), ErrCommitUnknown) {
				t.Errorf("fatal: %v", db.FatalErr())
			}
			err = db.Write(ctx, func(tx *Tx) error { return tx.Note(journal.Entry{Kind: "x"}) })
			if !errors.Is(err, ErrStopped) || errors.Is(err, ErrFull) {
				t.Errorf("a later write: %v", err)
			}
			must(t, db.Close())
			opts.Fault = nil
			again := openAt(t, opts)
			if !again.Unclean() {
				t.Error("the failed stop was recorded as a clean one")
			}
			_, err = again.Effect(ctx, "k:1:v1")
			if there := err == nil; there != (point == "commit.after") {
				t.Errorf("after the restart: %v", err)
			}
		})
	}
}

func TestAFullDiskRecordsNothingAndTheNextWriteMaySucceed(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	fill(t, db, 3, now)
	headSeq, headHash := db.Head()
	pages := pageCount(t, db)
	limit := func(n int64) {
		must(t, db.Write(ctx, func(*Tx) error { return db.w.script(fmt.Sprintf("PRAGMA max_page_count=%d", n)) }))
	}
	limit(pages + 2)
	big := make([]byte, 64<<10)
	err := db.Write(ctx, func(tx *Tx) error {
		in := testIntent("big:1:v1", now)
		in.Payload = big
		_, _, err := tx.Submit(in, testEnv(now), false)
		return err
	})
	if !errors.Is(err, ErrFull) {
		t.Fatalf("error: %v", err)
	}
	if db.FatalErr() != nil {
		t.Fatalf("a full disk stopped the journal: %v", db.FatalErr())
	}
	if s, h := db.Head(); s != headSeq || h != headHash {
		t.Error("the head moved")
	}
	limit(1 << 30)
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "small:1:v1", now) })
	if _, err := db.Effect(ctx, "big:1:v1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the refused effect: %v", err)
	}
	if r, err := db.Verify(ctx, ""); err != nil || r.Err() != nil {
		t.Errorf("verify: %+v %v", r, err)
	}
}

func TestAFullDiskFailsTheWholeBatch(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	pages := pageCount(t, db)
	entered, gate, results := make(chan struct{}), make(chan struct{}), make(chan error, 3)
	go func() {
		results <- db.Write(ctx, func(*Tx) error {
			close(entered)
			<-gate
			return db.w.script(fmt.Sprintf("PRAGMA max_page_count=%d", pages+6))
		})
	}()
	<-entered
	for i, size := range []int{10, 256 << 10} {
		go func() {
			results <- db.Write(ctx, func(tx *Tx) error {
				in := testIntent(fmt.Sprintf("k:%d:v1", i), now)
				in.Payload = make([]byte, size)
				_, _, err := tx.Submit(in, testEnv(now), false)
				return err
			})
		}()
		waitFor(t, func() bool { return len(db.queue) == i+1 })
	}
	close(gate)
	full := 0
	for range 3 {
		if err := <-results; errors.Is(err, ErrFull) {
			full++
		} else if err != nil {
			t.Errorf("error: %v", err)
		}
	}
	if full != 2 {
		t.Errorf("%d of the two effects were refused; the one whose rows were rolled back with the other must be told", full)
	}
	for i := range 2 {
		if _, err := db.Effect(ctx, fmt.Sprintf("k:%d:v1", i)); !errors.Is(err, ErrNotFound) {
			t.Errorf("effect %d: %v", i, err)
		}
	}
}

func TestARestoredJournalIsNoticed(t *testing.T) {
	ctx, now := context.Background(), epochStart()
	for _, how := range []string{"files copied", "backup", "backup copied", "marker lost", "other marker"} {
		t.Run(how, func(t *testing.T) {
			opts := testOptions(t)
			db := openAt(t, opts)
			write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "k:1:v1", now) })
			old := snapshot(t, opts)
			backup := filepath.Join(t.TempDir(), "backup.db")
			must(t, db.Backup(ctx, backup))
			fill(t, db, 1, now)
			must(t, db.Close())
			switch how {
			case "files copied":
				must(t, exec.Command("cp", old.Path, opts.Path).Run())
				must(t, exec.Command("cp", old.Path+"-wal", opts.Path+"-wal").Run())
			case "backup":
				replaced, err := Restore(ctx, opts, backup)
				must(t, err)
				if _, err := os.Stat(replaced); err != nil {
					t.Errorf("the journal that was replaced: %v", err)
				}
			case "backup copied": // over the newest state, so that only the backup's own mark tells
				must(t, os.WriteFile(opts.GenerationPath, []byte(mark{db.id, 1, 0}.String()), 0o640))
				must(t, exec.Command("cp", backup, opts.Path).Run())
			case "marker lost":
				must(t, os.Remove(opts.GenerationPath))
			case "other marker":
				must(t, os.WriteFile(opts.GenerationPath, []byte(mark{"feedfacefeedface", 1, 1}.String()), 0o640))
			}
			again := openAt(t, opts)
			if !again.Restored() || again.DispatchOff() == "" || again.RestoredAt().IsZero() {
				t.Fatalf("restored %v, dispatch off %q", again.Restored(), again.DispatchOff())
			}
			if _, err := again.Effect(ctx, "k:1:v1"); err != nil {
				t.Error(err)
			}
			must(t, again.Close())
			third := openAt(t, opts)
			if !third.Restored() {
				t.Error("a second start forgot that nobody had confirmed")
			}
			must(t, third.Write(ctx, func(tx *Tx) error {
				return tx.ClearRestored(journal.By{Actor: "uid:0", Kind: journal.Human, Because: "old daemon is dead"})
			}))
			must(t, third.Close())
			fourth := openAt(t, opts)
			if fourth.Restored() || fourth.DispatchOff() != "" {
				t.Errorf("after the confirmation: restored %v, off %q", fourth.Restored(), fourth.DispatchOff())
			}
			if fourth.RestoredAt().IsZero() {
				t.Error("unknown keys would be sent without a read")
			}
		})
	}
}
