package sqlite

import (
	"context"
	"os"
	"sync"
	"time"
)

// Stats is what the journal knows of itself. Counts are since [Open] unless said otherwise.
type Stats struct {
	Commits     int64
	Ops         int64     // operations that were committed
	Failed      int64     // batches that were not
	BatchOps    [10]int64 // commits by size of batch: 1, 2, 3–4, 5–8, … 257–512
	CommitTime  [16]int64 // commits by duration: < 64 µs, < 128 µs, … doubling; the last is the rest
	CommitTotal time.Duration
	Frames      int64 // pages written to the write-ahead log
	Checkpoints int64
	Fsyncs      int64 // one a commit, two a checkpoint or marker, one when the log begins anew

	WALFrames  int64 // in the log now
	WALBytes   int64 // size of the log's file now
	FileBytes  int64
	PageBytes  int64
	Pages      int64
	FreePages  int64
	Rows       map[string]int64 // newest number in event and effect
	LedgerRows int64
}

// stats is counted by the committer and read under mu.
type stats struct {
	mu         sync.Mutex
	s          Stats
	log        int64 // frames in the log at the last look
	checkedLog int64 // frames in the log at the last checkpoint
}

func (s *stats) commit(ops int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.Commits++
	s.s.Fsyncs++
	s.s.Ops += int64(ops)
	b := 0
	for n := 1; n < ops && b < len(s.s.BatchOps)-1; n *= 2 {
		b++
	}
	s.s.BatchOps[b]++
	t := 0
	for d := 64 * time.Microsecond; d <= took && t < len(s.s.CommitTime)-1; d *= 2 {
		t++
	}
	s.s.CommitTime[t]++
	s.s.CommitTotal += took
}

func (s *stats) failed(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.Failed++
}

// frames notes the length of the log. A shorter log began anew, which costs an fsync of its header.
func (s *stats) frames(log int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if log < s.log {
		s.s.Fsyncs++
		s.s.Frames += log
		s.checkedLog = 0
	} else {
		s.s.Frames += log - s.log
	}
	s.log, s.s.WALFrames = log, log
}

// nextCheckpoint is the length of the log at which a checkpoint is worth its
// cost: a thousand frames more than at the last one, so that a reader that
// holds the log back does not make every commit try.
func (s *stats) nextCheckpoint(int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkedLog + checkpointFrames
}

func (s *stats) checkpointed(log int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.Checkpoints++
	s.s.Fsyncs += 2
	s.checkedLog = log
}

// markerWritten counts the fsyncs of the marker and of its directory.
func (s *stats) markerWritten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.Fsyncs += 2
}

// Stats returns counts and sizes.
func (db *DB) Stats(ctx context.Context) (Stats, error) {
	db.stats.mu.Lock()
	out := db.stats.s
	db.stats.mu.Unlock()
	out.Rows = map[string]int64{}
	err := db.read(ctx, func(c *conn) error {
		for _, q := range []struct {
			into  *int64
			query string
		}{
			{&out.PageBytes, "PRAGMA page_size"},
			{&out.Pages, "PRAGMA page_count"},
			{&out.FreePages, "PRAGMA freelist_count"},
			{&out.LedgerRows, "SELECT count(*) FROM key_ledger"},
		} {
			n, err := c.oneInt(ctx, q.query)
			if err != nil {
				return err
			}
			*q.into = n
		}
		for table, query := range map[string]string{
			"event": "SELECT coalesce(max(seq),0) FROM event", "effect": "SELECT coalesce(max(id),0) FROM effect",
		} {
			n, err := c.oneInt(ctx, query)
			if err != nil {
				return err
			}
			out.Rows[table] = n
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	for path, into := range map[string]*int64{db.opts.Path: &out.FileBytes, db.opts.Path + "-wal": &out.WALBytes} {
		if st, err := os.Stat(path); err == nil {
			*into = st.Size()
		}
	}
	return out, nil
}
