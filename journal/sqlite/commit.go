package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/settled-dev/settled/journal"
)

// maxBatch bounds how many operations share one COMMIT.
const maxBatch = 512

// checkpointFrames is how many frames the write-ahead log may grow before it is copied into the file.
const checkpointFrames = 1000

// op is one queued operation. err is written by the committer before done is signalled.
type op struct {
	fn   func(*Tx) error
	err  error
	done chan struct{} // nil for the committer's own operations
}

type counterKey struct{ destination, name string }

// view is what the last COMMIT made true. Written by the committer, read by anybody, under mu.
type view struct {
	mu          sync.RWMutex
	head        head
	counters    map[counterKey]int64
	holds       []journal.Hold
	dispatchOff string
	restored    bool
	restoredAt  time.Time
}

// batch is one transaction of the committer.
type batch struct {
	ops   []*op
	delta map[counterKey]int64
	wrote bool
	holds bool // some hold changed

	written map[string]*record // effects as the batch leaves them
	lines   []line             // of the chain, written last
}

func newBatch(ops []*op) *batch {
	return &batch{ops: ops, delta: map[counterKey]int64{}, written: map[string]*record{}}
}

// Write runs fn in a transaction and returns after COMMIT. fn runs on the
// committer's goroutine under its own savepoint: when it fails, only its own
// work is undone and its error is returned. fn must not block, must not call
// Write and must not end its goroutine; it may be run twice, so it must not act
// outside the transaction. ctx is looked at only before the
// operation is queued; once queued, Write always waits for the outcome.
//
// Besides fn's own errors: [ErrClosed], [ErrStopped], [ErrFull], [ErrBusy],
// [ErrIO] (nothing recorded) and [ErrCommitUnknown] (may be recorded).
func (db *DB) Write(ctx context.Context, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &op{fn: fn, done: make(chan struct{})}
	if err := db.enqueue(ctx, o); err != nil {
		return err
	}
	<-o.done
	return o.err
}

func (db *DB) enqueue(ctx context.Context, o *op) error {
	db.closing.RLock()
	defer db.closing.RUnlock()
	if db.closed || db.readOnly {
		return ErrClosed
	}
	select {
	case db.queue <- o:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commitLoop is the committer. It ends when the queue is closed and empty.
func (db *DB) commitLoop() {
	defer close(db.done)
	for {
		o := db.next()
		if o == nil {
			return
		}
		db.commit(db.drain([]*op{o}))
	}
}

// wakeAgain is how long waking waits after a batch that failed, for it would fail again at once.
const wakeAgain = time.Second

// next waits for an operation: the committer's own waking first, unless the
// last batch failed. Nil means that the queue is closed and empty.
func (db *DB) next() *op {
	var again <-chan time.Time
	if len(db.wakes) > 0 && db.broken.Load() == nil {
		if !db.aborted {
			return &op{fn: wake}
		}
		timer := time.NewTimer(wakeAgain)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case o := <-db.queue:
		return o
	case <-again:
		return &op{fn: wake}
	}
}

// drain adds what has queued meanwhile. It never waits.
func (db *DB) drain(ops []*op) []*op {
	for len(ops) < maxBatch {
		select {
		case o, ok := <-db.queue:
			if !ok {
				return ops
			}
			ops = append(ops, o)
		default:
			return ops
		}
	}
	return ops
}

// commit runs one batch and answers every operation of it.
func (db *DB) commit(ops []*op) {
	if cause := db.broken.Load(); cause != nil {
		db.answer(ops, fmt.Errorf("%w: %w", ErrStopped, *cause))
		return
	}
	b := newBatch(ops)
	began, wakes := time.Now(), slices.Clone(db.wakes)
	err := db.run(b)
	if errors.Is(err, errBare) {
		b, db.wakes = newBatch(ops), slices.Clone(wakes)
		err = db.runCarefully(b)
	}
	if db.aborted = err != nil; db.aborted {
		db.wakes = wakes // what was taken up or added was undone with the rest
		db.abort(b, err)
		return
	}
	if b.wrote {
		db.publish(b)
		db.warm.keep(b.written)
		db.stats.commit(len(ops), time.Since(began))
	}
	if err := db.fault("ack"); err != nil {
		db.opts.Log.Debug("fault at ack", "error", err)
	}
	for _, o := range ops {
		if o.done != nil {
			close(o.done)
		}
	}
	if b.wrote {
		db.watches.tell(db.head.seq)
		db.afterCommit()
	}
}

// errBare stops a batch in which an operation failed after it had written
// without a savepoint of its own.
var errBare = errors.New("an operation failed half-way without a savepoint")

// runCarefully runs a batch again with a savepoint for every operation. Most
// operations write nothing before they are sure to succeed and need none; two
// statements each are saved that way.
func (db *DB) runCarefully(b *batch) error {
	if _, err := db.w.exec("ROLLBACK"); err != nil {
		return storageError(err)
	}
	if err := db.reload(context.Background()); err != nil {
		return storageError(err)
	}
	for _, o := range b.ops {
		o.err = nil
	}
	db.careful = true
	defer func() { db.careful = false }()
	return db.run(b)
}

// run executes the operations and commits. Its error concerns the whole batch.
func (db *DB) run(b *batch) error {
	if err := db.fault("batch"); err != nil {
		return storageError(err)
	}
	if _, err := db.w.exec("BEGIN IMMEDIATE"); err != nil {
		return storageError(err)
	}
	for _, o := range b.ops {
		if err := db.runOp(b, o); err != nil {
			return err
		}
	}
	if !b.wrote {
		_, err := db.w.exec("ROLLBACK")
		return storageError(err)
	}
	if err := db.writeLines(b.lines); err != nil {
		return storageError(err)
	}
	if err := db.writeCounters(b.delta); err != nil {
		return storageError(err)
	}
	if db.w.c.AutoCommit() {
		return fmt.Errorf("%w: the transaction was rolled back underneath", ErrIO)
	}
	return db.commitNow()
}

// commitNow is the one COMMIT. A full disk means not committed; every other
// failure of COMMIT leaves the outcome unknown until a restart reads the disk.
func (db *DB) commitNow() error {
	err := db.fault("commit.before")
	if err == nil {
		if _, err = db.w.exec("COMMIT"); err == nil {
			err = db.fault("commit.after")
		}
	}
	switch {
	case err == nil:
		return nil
	case classify(err) == storageFull, classify(err) == storageBusy:
		return storageError(err)
	case classify(err) == storageCorrupt:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
}

// runOp runs one operation. It returns an error only when the batch cannot go on.
func (db *DB) runOp(b *batch, o *op) error {
	if err := db.fault("op"); err != nil {
		return storageError(err)
	}
	tx := &Tx{db: db, before: db.own()}
	err := tx.call(o.fn)
	if err == nil {
		err = tx.flush()
	}
	if tx.storage != nil {
		return storageError(tx.storage)
	}
	if err != nil {
		if classify(err) != storageFine {
			return storageError(err)
		}
		if tx.bare {
			return errBare
		}
		o.err = err
		if err := tx.undo(); err != nil {
			return storageError(err)
		}
	}
	if tx.began {
		if _, err := db.w.exec("RELEASE op"); err != nil {
			return storageError(err)
		}
	}
	if tx.began || tx.bare {
		b.wrote = true
		b.lines = append(b.lines, tx.lines...)
		b.touched(db.warm, tx)
	}
	for k, d := range tx.delta {
		b.delta[k] += d
	}
	b.holds = b.holds || tx.holds
	return nil
}

// abort undoes a batch and answers all of it with the reason.
func (db *DB) abort(b *batch, err error) {
	db.stats.failed(err)
	unknown := errors.Is(err, ErrCommitUnknown)
	if !unknown && !db.w.c.AutoCommit() {
		if _, rerr := db.w.exec("ROLLBACK"); rerr != nil {
			err = fmt.Errorf("%w: rollback: %w", err, rerr)
			db.fail(err)
		}
	}
	switch {
	case unknown, errors.Is(err, ErrIO), errors.Is(err, ErrCorrupt):
		db.fail(err)
	default:
		if rerr := db.reload(context.Background()); rerr != nil {
			db.fail(storageError(rerr))
		}
	}
	db.answer(b.ops, err)
}

func (db *DB) answer(ops []*op, err error) {
	for _, o := range ops {
		o.err = err
		if o.done != nil {
			close(o.done)
		}
	}
}

// own is what the committer keeps in memory and an operation may change.
type own struct {
	head        head
	nextID      int64
	dispatchOff string
	restored    bool
	restoredAt  time.Time
	wakes       []string
}

func (db *DB) own() own {
	return own{db.head, db.nextID, db.dispatchOff, db.restored, db.restoredAt, slices.Clone(db.wakes)}
}

func (db *DB) putBack(o own) {
	db.head, db.nextID = o.head, o.nextID
	db.dispatchOff, db.restored, db.restoredAt, db.wakes = o.dispatchOff, o.restored, o.restoredAt, o.wakes
}

// publish makes the batch visible to readers of the view.
func (db *DB) publish(b *batch) {
	v := &db.view
	v.mu.Lock()
	defer v.mu.Unlock()
	for k, d := range b.delta {
		db.counters[k] += d
		v.counters[k] = db.counters[k]
	}
	v.head, v.dispatchOff, v.restored, v.restoredAt = db.head, db.dispatchOff, db.restored, db.restoredAt
	if b.holds {
		v.holds = flatten(db.holds)
	}
}

// writeCounters adds the batch's changes to the maintained counters.
func (db *DB) writeCounters(delta map[counterKey]int64) error {
	for k, d := range delta {
		if d == 0 {
			continue
		}
		if _, err := db.w.exec(`INSERT INTO counter (destination, name, value) VALUES (?1,?2,?3)
			ON CONFLICT DO UPDATE SET value=?3`, k.destination, k.name, db.counters[k]+d); err != nil {
			return err
		}
	}
	return nil
}

// afterCommit copies the log into the file when it has grown, and moves the marker along.
func (db *DB) afterCommit() {
	log, err := db.walFrames("NOOP")
	if err == nil && log >= db.stats.nextCheckpoint(log) {
		if err = db.fault("checkpoint"); err == nil {
			_, err = db.walFrames("PASSIVE")
			db.stats.checkpointed(log)
		}
	}
	if err != nil {
		switch classify(err) {
		case storageBroken, storageCorrupt:
			db.fail(storageError(err))
		default:
			db.opts.Log.Warn("checkpoint did not run", "error", err)
		}
	}
	now := db.opts.Now()
	if now.Sub(db.marked) < markerEvery && !now.Before(db.marked) {
		return
	}
	db.marked = now
	if err := writeMark(db.opts.GenerationPath, mark{db.id, db.epoch, db.head.seq}); err != nil {
		db.opts.Log.Warn("generation marker not written", "error", err)
		return
	}
	db.stats.markerWritten()
}

// walFrames runs a checkpoint of the given kind and returns the frames in the log.
func (db *DB) walFrames(kind string) (int64, error) {
	r, err := db.w.one(context.Background(), "PRAGMA wal_checkpoint("+kind+")")
	if err != nil {
		return 0, err
	}
	db.stats.frames(r.int(1))
	return r.int(1), nil
}

func (db *DB) fault(at string) error {
	if db.opts.Fault == nil {
		return nil
	}
	return db.opts.Fault(at)
}

// reload reads the committer's memory from the file: at start, and after a batch was lost.
func (db *DB) reload(ctx context.Context) (err error) {
	if db.head, err = readHead(ctx, db.w); err != nil {
		return err
	}
	if err := db.reloadTerms(ctx); err != nil {
		return err
	}
	for _, q := range []struct {
		into  *int64
		query string
	}{
		{&db.nextID, "SELECT max(coalesce((SELECT max(id) FROM effect),0), coalesce((SELECT max(id) FROM key_ledger),0))+1"},
		{&db.ledger, "SELECT count(*) FROM (SELECT 1 FROM key_ledger LIMIT 1)"},
	} {
		if *q.into, err = db.w.oneInt(ctx, q.query); err != nil {
			return err
		}
	}
	if err := db.reloadID(ctx); err != nil {
		return err
	}
	if db.counters, err = readCounters(ctx, db.w); err != nil {
		return err
	}
	if err := db.reloadHolds(ctx); err != nil {
		return err
	}
	if err := db.reloadFlags(); err != nil {
		return err
	}
	v := &db.view
	v.mu.Lock()
	defer v.mu.Unlock()
	v.head, v.counters, v.holds = db.head, maps.Clone(db.counters), flatten(db.holds)
	v.dispatchOff, v.restored, v.restoredAt = db.dispatchOff, db.restored, db.restoredAt
	return nil
}

// reloadID keeps row numbers from being used again after the newest effect was pruned.
func (db *DB) reloadID(ctx context.Context) error {
	n, err := db.settingInt("next_id")
	if err != nil {
		return err
	}
	db.nextID = max(db.nextID, n)
	return nil
}

func (db *DB) reloadFlags() (err error) {
	if db.dispatchOff, err = db.setting("dispatch_off"); err != nil {
		return err
	}
	restored, err := db.setting("restored")
	if err != nil {
		return err
	}
	at, err := db.settingInt("restored_at")
	if err != nil {
		return err
	}
	db.restored, db.restoredAt = restored == "1", micros(at).time()
	return nil
}
