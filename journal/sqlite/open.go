package sqlite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/settled-dev/settled/journal"
)

// Options says where the journal lies and who opens it.
type Options struct {
	Path           string       // the file; its directory is made with mode 0750
	GenerationPath string       // the marker, best in another directory; "" = Path + ".generation"
	ChainKey       []byte       // HMAC key of the audit chain, at least 16 bytes; nil = a 0600 key file beside the marker
	BootID         string       // of the kernel; remembered, so that a reboot is noticed
	Version        string       // of the program; remembered with each migration
	Log            *slog.Logger // nil = no log
	Now            func() time.Time
	Readers        int // read connections; 0 = 3

	// Fault is a test's hook, called at the named operations of the committer:
	// "batch", "begin", "op", "flush", "commit.before", "commit.after", "ack",
	// "checkpoint". An error stands for the failure of that operation; at
	// "commit.before" and "commit.after" it stands for an error from COMMIT.
	Fault func(op string) error
}

// DB is an open journal. Its methods may be called from any goroutine.
type DB struct {
	opts    Options
	lock    *os.File
	w       *conn // the committer's alone, after Open
	readers chan *conn
	queue   chan *op
	done    chan struct{} // closed when the committer has ended
	gone    chan struct{} // closed when no more reads begin
	bg      sync.WaitGroup
	stop    context.CancelCauseFunc

	closing sync.RWMutex // held for reading while an operation is queued
	closed  bool         // under closing

	readOnly bool
	epoch    int64
	id       string
	key      []byte // of the chain
	unclean  bool
	lastBoot string

	// The committer's own state; reloaded from the file after a failed batch.
	chain       *chain
	head        head
	nextID      int64
	counters    map[counterKey]int64
	holds       map[string][]journal.Hold // by scope
	ledger      int64                     // rows in key_ledger
	dispatchOff string
	restored    bool
	restoredAt  time.Time
	warm        warmth           // effects in flight
	careful     bool             // every operation of this batch gets a savepoint
	terms       map[string]int64 // every term, by its text
	lineArgs    []any            // scratch of writeLines
	wakes       []string         // scopes whose held effects are still to be woken
	aborted     bool             // the last batch failed
	marked      time.Time

	view    view                  // what the last commit made true, for readers
	broken  atomic.Pointer[error] // set once
	fatal   chan struct{}
	watches watches
	stats   stats
}

// Open locks the journal, brings its schema up to date, checks every PRAGMA
// that durability rests on, and raises the epoch. Errors wrap [ErrLocked],
// [ErrConfig], [ErrCorrupt] or [ErrIO]; see [ExitCode].
func Open(ctx context.Context, opts Options) (*DB, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if opts.Path == "" {
		return nil, fmt.Errorf("%w: no path", ErrConfig)
	}
	opts = opts.withDefaults()
	if err := makePlace(opts); err != nil {
		return nil, err
	}
	lock, err := lockDir(filepath.Dir(opts.Path))
	if err != nil {
		return nil, err
	}
	db := &DB{opts: opts, lock: lock, warm: warmth{}, queue: make(chan *op, maxBatch), done: make(chan struct{}), gone: make(chan struct{}), fatal: make(chan struct{})}
	if err := db.open(ctx); err != nil {
		return nil, errors.Join(err, db.release())
	}
	bgctx, cancel := context.WithCancelCause(context.Background())
	db.stop = cancel
	go db.commitLoop()
	if db.unclean {
		db.bg.Go(func() { db.quickCheck(bgctx) })
	}
	return db, nil
}

func (o Options) withDefaults() Options {
	if o.GenerationPath == "" {
		o.GenerationPath = o.Path + ".generation"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Readers <= 0 {
		o.Readers = 3
	}
	return o
}

func makePlace(opts Options) error {
	for _, dir := range []string{filepath.Dir(opts.Path), filepath.Dir(opts.GenerationPath)} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return nil
}

// lockDir takes the lock file that keeps two daemons off one journal. It is held until the process ends or Close.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 32)
		n, _ := f.ReadAt(holder, 0)
		err = fmt.Errorf("%w (%s holds %s)", ErrLocked, orUnknown(string(holder[:n])), path)
		return nil, errors.Join(err, f.Close())
	}
	err = errors.Join(f.Truncate(0), second(f.WriteAt([]byte("pid "+strconv.Itoa(os.Getpid())), 0)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrConfig, err), f.Close())
	}
	return f, nil
}

func second(_ int, err error) error { return err }

func orUnknown(s string) string {
	if s == "" {
		return "another process"
	}
	return s
}

// open does everything that needs the lock. On error the caller releases what was opened.
func (db *DB) open(ctx context.Context) (err error) {
	// SQLite makes files for everybody to read; the journal is made narrow before it opens it.
	f, err := os.OpenFile(db.opts.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	switch {
	case err == nil:
		if err := f.Close(); err != nil {
			return fmt.Errorf("%w: %w", ErrIO, err)
		}
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if db.w, err = dialWriter(db.opts.Path); err != nil {
		return fmt.Errorf("open %s: %w", db.opts.Path, err)
	}
	if _, err := migrate(db.w, db.opts); err != nil {
		return err
	}
	if err := db.begin(ctx); err != nil {
		return storageError(err)
	}
	db.readers = make(chan *conn, db.opts.Readers)
	for range db.opts.Readers {
		r, err := dialReader(db.opts.Path)
		if err != nil {
			return err
		}
		db.readers <- r
	}
	return db.selfCheck(ctx)
}

// begin reads what the last daemon left and starts a new epoch, in one transaction.
func (db *DB) begin(ctx context.Context) error {
	if _, err := db.w.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	m, err := db.newEpoch(ctx)
	if err != nil {
		_, _ = db.w.exec("ROLLBACK")
		return err
	}
	if _, err := db.w.exec("COMMIT"); err != nil {
		return err
	}
	if err := writeMark(db.opts.GenerationPath, m); err != nil {
		return fmt.Errorf("%w: generation marker: %w", ErrConfig, err)
	}
	if err := db.reload(ctx); err != nil {
		return err
	}
	db.wakes = append(db.wakes, "all") // a release may have been cut short
	return nil
}

func (db *DB) newEpoch(ctx context.Context) (mark, error) {
	id, err := db.setting("journal_id")
	if err != nil {
		return mark{}, err
	}
	fresh := id == ""
	if fresh {
		raw := make([]byte, 8)
		rand.Read(raw)
		id = hex.EncodeToString(raw)
	}
	key, err := chainKey(db.opts, fresh)
	if err != nil {
		return mark{}, err
	}
	db.key, db.chain, db.id = key, newChain(key), id
	if err := db.checkKey(key, fresh); err != nil {
		return mark{}, err
	}
	epoch, err := db.settingInt("epoch")
	if err != nil {
		return mark{}, err
	}
	h, err := readHead(ctx, db.w)
	if err != nil {
		return mark{}, err
	}
	why, err := restoredWhy(db.opts.GenerationPath, mark{id, epoch, h.seq}, fresh)
	if err != nil {
		return mark{}, err
	}
	copied, err := db.setting("copied_at") // set in every copy that Backup makes
	if err != nil {
		return mark{}, err
	}
	if copied != "" && why == "" {
		why = "the journal is the backup of " + copied
	}
	if err := db.recordStart(why, id, epoch+1); err != nil {
		return mark{}, err
	}
	return mark{id, epoch + 1, h.seq}, nil
}

func (db *DB) checkKey(key []byte, fresh bool) error {
	want, err := db.setting("chain_key_id")
	if err != nil {
		return err
	}
	if fresh || want == "" {
		return db.putSetting("chain_key_id", keyID(key))
	}
	if want != keyID(key) {
		return fmt.Errorf("%w: the chain was written with key %s, the one given is %s", ErrConfig, want, keyID(key))
	}
	return nil
}

func (db *DB) recordStart(why, id string, epoch int64) error {
	running, err := db.setting("running")
	if err != nil {
		return err
	}
	if db.lastBoot, err = db.setting("boot_id"); err != nil {
		return err
	}
	db.unclean, db.epoch = running == "1", epoch
	now := us(db.opts.Now())
	sets := map[string]string{
		"journal_id": id, "epoch": strconv.FormatInt(epoch, 10), "running": "1", "boot_id": db.opts.BootID,
		"started_at": strconv.FormatInt(int64(now), 10),
	}
	if why != "" {
		db.opts.Log.Warn("this journal was restored; dispatch stays off until an operator confirms", "why", why)
		sets["restored"], sets["copied_at"] = "1", ""
		sets["restored_at"] = strconv.FormatInt(int64(now), 10)
		sets["dispatch_off"] = "restored journal: " + why + "; settled journal confirm-restore"
	}
	for name, value := range sets {
		if err := db.putSetting(name, value); err != nil {
			return err
		}
	}
	_, err = db.w.exec("UPDATE sweep_run SET finished_at=?, result='interrupted' WHERE finished_at IS NULL", now)
	return err
}

// selfCheck reads every PRAGMA back that the guarantees rest on: unknown names
// in a connection string are ignored silently.
func (db *DB) selfCheck(ctx context.Context) error {
	if err := checkPragmas(ctx, db.w, "writer", map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "recursive_triggers": "1", "auto_vacuum": "2",
		"mmap_size": "0", "trusted_schema": "0", "query_only": "0", "busy_timeout": "5000", "temp_store": "2",
		"cell_size_check": "1", "wal_autocheckpoint": "0", "application_id": strconv.Itoa(applicationID),
	}); err != nil {
		return err
	}
	for range db.opts.Readers {
		r := <-db.readers
		err := checkReader(ctx, r)
		db.readers <- r
		if err != nil {
			return err
		}
	}
	v, err := db.w.oneStr(ctx, "SELECT sqlite_version()")
	if err != nil {
		return storageError(err)
	}
	if olderThan(v, 3, 51, 3) {
		return fmt.Errorf("%w: SQLite %s can corrupt a journal; 3.51.3 is the oldest allowed", ErrConfig, v)
	}
	return nil
}

func checkReader(ctx context.Context, r *conn) error {
	if err := checkPragmas(ctx, r, "reader", map[string]string{
		"journal_mode": "wal", "synchronous": "2", "query_only": "1", "mmap_size": "0", "trusted_schema": "0",
	}); err != nil {
		return err
	}
	if _, err := r.exec("DELETE FROM setting WHERE name=''"); err == nil {
		return fmt.Errorf("%w: a read connection can write", ErrConfig)
	}
	return nil
}

func checkPragmas(ctx context.Context, c *conn, who string, want map[string]string) error {
	for name, w := range want {
		r, err := c.one(ctx, "PRAGMA "+name)
		got := ""
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return storageError(err)
		default:
			got = fmt.Sprint(r[0])
		}
		if got != w {
			return fmt.Errorf("%w: %s has %s=%q, must be %q", ErrConfig, who, name, got, w)
		}
	}
	return nil
}

func olderThan(v string, want ...int) bool {
	var have [3]int
	if _, err := fmt.Sscanf(v, "%d.%d.%d", &have[0], &have[1], &have[2]); err != nil {
		return true
	}
	for i, w := range want {
		if have[i] != w {
			return have[i] < w
		}
	}
	return false
}

// quickCheck looks for damage after an unclean stop, beside the work, for at most four seconds.
func (db *DB) quickCheck(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	err := db.read(ctx, func(c *conn) error {
		s, err := c.oneStr(ctx, "PRAGMA quick_check(1)")
		if err == nil && s != "ok" {
			err = fmt.Errorf("%w: %s", ErrCorrupt, s)
		}
		return err
	})
	switch {
	case err == nil:
		db.opts.Log.Info("journal checked after an unclean stop")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		db.opts.Log.Info("journal too large for the quick check at start; run `settled journal check`")
	case errors.Is(err, ErrCorrupt), classify(err) == storageCorrupt:
		db.fail(fmt.Errorf("%w: quick check: %w", ErrCorrupt, err))
	default:
		db.opts.Log.Warn("quick check did not run", "error", err)
	}
}

// Close stops taking writes, waits for those queued, folds the log into the
// file and clears the unclean flag. After an error from COMMIT it does neither:
// the next start must look at the disk.
func (db *DB) Close() error {
	db.closing.Lock()
	if db.closed {
		db.closing.Unlock()
		return nil
	}
	db.closed = true
	if !db.readOnly {
		close(db.queue)
	}
	db.closing.Unlock()
	<-db.done
	close(db.gone)
	db.stop(ErrClosed)
	db.bg.Wait()
	db.watches.closeAll()
	return db.release()
}

// release closes whatever is open, readers first so that the last checkpoint meets none.
func (db *DB) release() error {
	var errs []error
	if db.readers != nil {
		n := len(db.readers)
		if db.closed {
			n = cap(db.readers) // waits for reads that are still running
		}
		for range n {
			errs = append(errs, (<-db.readers).close())
		}
	}
	if db.w != nil {
		if db.closed && db.broken.Load() == nil {
			errs = append(errs, db.farewell())
		}
		errs = append(errs, db.w.close())
	}
	if db.lock != nil {
		errs = append(errs, db.lock.Close())
	}
	return errors.Join(errs...)
}

func (db *DB) farewell() error {
	if err := db.putSetting("running", "0"); err != nil {
		return storageError(err)
	}
	_, err := db.w.one(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)")
	return errors.Join(storageError(err), writeMark(db.opts.GenerationPath, mark{db.id, db.epoch, db.head.seq}))
}

// Epoch is this daemon's number; it grows with every start.
func (db *DB) Epoch() int64 { return db.epoch }

// Unclean reports whether the last daemon stopped without Close.
func (db *DB) Unclean() bool { return db.unclean }

// LastBootID is the boot id that the last daemon gave; "" when none did.
func (db *DB) LastBootID() string { return db.lastBoot }

// Path is the journal's file.
func (db *DB) Path() string { return db.opts.Path }

// Fatal is closed when the journal takes no more writes and the process must
// exit, with [ExitCode] of [DB.FatalErr].
func (db *DB) Fatal() <-chan struct{} { return db.fatal }

// FatalErr is why [DB.Fatal] is closed; nil while it is not.
func (db *DB) FatalErr() error {
	if err := db.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// fail closes the journal to writes and reports why, once.
func (db *DB) fail(err error) {
	if db.broken.CompareAndSwap(nil, &err) {
		close(db.fatal)
		db.opts.Log.Error("the journal takes no more writes", "error", err)
	}
}
