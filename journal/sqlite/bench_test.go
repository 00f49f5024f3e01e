package sqlite

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/settled-dev/settled/journal"
)

// BenchmarkFused is the whole life of an effect as the journal sees it: intent,
// authority and `sent` row in one operation, the answer in another. It prints
// the figures that the project has limits for: fsyncs and bytes per effect.
func BenchmarkFused(b *testing.B) {
	for _, inFlight := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			db := openTest(b)
			ctx := context.Background()
			before, begun := usageOf(b, db), time.Now()
			b.ResetTimer()
			var next atomic.Int64
			var wg sync.WaitGroup
			for range inFlight {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if err := oneFused(ctx, db, fmt.Sprintf("bench:%09d:create:v1", i)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			took := time.Since(begun).Seconds()
			after, n := usageOf(b, db), float64(b.N)
			b.ReportMetric(n/took, "effects/s")
			b.ReportMetric(float64(after.Fsyncs-before.Fsyncs)/n, "fsyncs/effect")
			b.ReportMetric(float64(after.Frames-before.Frames)*4/n, "walKiB/effect")
			b.ReportMetric(float64(after.bytes-before.bytes)/1024/n, "diskKiB/effect")
			b.ReportMetric(float64(after.cpu-before.cpu)/1e3/n, "cpuµs/effect")
			b.ReportMetric(float64(after.Ops-before.Ops)/float64(max(1, after.Commits-before.Commits)), "ops/commit")
		})
	}
}

func oneFused(ctx context.Context, db *DB, key string) error {
	now := time.Now().UTC()
	err := db.Write(ctx, func(tx *Tx) error {
		_, err := submitSent(tx, key, now)
		return err
	})
	if err != nil {
		return err
	}
	return db.Write(ctx, func(tx *Tx) error {
		e, err := answer(tx, key, now.Add(time.Millisecond))
		if err == nil && e.Phase != journal.Succeeded {
			err = fmt.Errorf("%s is %s", key, e.Phase)
		}
		return err
	})
}

type usage struct {
	Stats
	bytes int64 // written to the device by this process
	cpu   int64 // ns
}

func usageOf(tb testing.TB, db *DB) usage {
	tb.Helper()
	st, err := db.Stats(context.Background())
	must(tb, err)
	u := usage{Stats: st}
	if b, err := os.ReadFile("/proc/self/io"); err == nil {
		for line := range strings.SplitSeq(string(b), "\n") {
			if rest, ok := strings.CutPrefix(line, "write_bytes: "); ok {
				_, _ = fmt.Sscan(rest, &u.bytes)
			}
		}
	}
	var ru syscall.Rusage
	must(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &ru))
	u.cpu = ru.Utime.Nano() + ru.Stime.Nano()
	return u
}
