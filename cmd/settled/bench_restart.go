package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/journal"
)

// restartLine is one measured recovery: how long after kill -9 the daemon takes
// work again, with so many effects settled and so many calls cut in half.
type restartLine struct {
	SettledRows int64   `json:"settled_rows"`
	Lost        int     `json:"lost_in_flight"`
	ReadyMS     float64 `json:"ready_ms"`
	WALMiB      float64 `json:"wal_mib"`
	IdleCPU     float64 `json:"idle_cpu_percent"`
	IdleRSS     float64 `json:"idle_rss_mib"`
}

// hungWord is what the child says once its calls are in flight.
const hungWord = "in flight"

// runRestart fills a journal, lets a child daemon put calls in flight that are
// never answered, kills it with -9 and measures the next start, then the idle
// use of it over a few seconds.
func runRestart(ctx context.Context, o benchOptions, hang int, idle time.Duration) (line restartLine, err error) {
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "settled-bench-"); err != nil {
			return line, err
		}
		defer os.RemoveAll(dir)
	}
	if err := killedChild(ctx, dir, o.settledRows, hang); err != nil {
		return line, err
	}
	begun := time.Now()
	b, err := openBench(ctx, dir, o.proof)
	if err != nil {
		return line, err
	}
	line.ReadyMS = float64(time.Since(begun).Microseconds()) / 1000
	defer func() { err = joinClose(err, b.close()) }()
	st, err := b.s.db.Stats(ctx)
	if err != nil {
		return line, err
	}
	line.WALMiB, line.SettledRows = float64(st.WALBytes)/(1<<20), st.Rows["effect"]-int64(hang)
	counts, err := b.s.db.Counts(ctx)
	if err != nil {
		return line, err
	}
	for _, p := range []journal.Phase{journal.Unknown, journal.Reconciling, journal.Verifying} {
		line.Lost += int(counts.Total(p))
	}
	if err := b.settleAll(ctx, hang); err != nil {
		return line, err
	}
	before, err := b.usage(ctx)
	if err != nil {
		return line, err
	}
	select {
	case <-ctx.Done():
		return line, ctx.Err()
	case <-time.After(idle):
	}
	after, err := b.usage(ctx)
	line.IdleCPU = 100 * (after.cpu - before.cpu).Seconds() / idle.Seconds()
	line.IdleRSS = after.rssMiB
	return line, err
}

// settleAll waits until every lost call has been read, so that idle means idle.
func (b *bench) settleAll(ctx context.Context, n int) error {
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); {
		counts, err := b.s.db.Counts(ctx)
		if err != nil {
			return err
		}
		open := counts.Total(journal.Unknown) + counts.Total(journal.Reconciling) + counts.Total(journal.Verifying)
		if open == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("%d lost calls were not read within two minutes", n)
}

// killedChild runs a daemon in a child until its calls are in flight, and kills it.
func killedChild(ctx context.Context, dir string, rows, hang int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.CommandContext(ctx, self, "bench", "--dir", dir, "--settled-rows", fmt.Sprint(rows), "--hang", fmt.Sprint(hang))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	killErr := child.Process.Kill()
	waitErr := child.Wait()
	if err != nil || strings.TrimSpace(line) != hungWord {
		return fmt.Errorf("the child said %q: %w", strings.TrimSpace(line), errors.Join(err, killErr, waitErr))
	}
	return killErr
}

// runHang is the child: it fills the journal, puts calls in flight that are
// never answered, says so and waits to be killed.
func runHang(ctx context.Context, o benchOptions, hang int, out io.Writer) error {
	b, err := openBench(ctx, o.dir, "ack")
	if err != nil {
		return err
	}
	if err := b.fill(ctx, o.settledRows); err != nil {
		return err
	}
	for i := range hang {
		_, err := b.s.daemon.Submit(ctx, daemon.SubmitRequest{
			Destination: "noop", Operation: "hang", Key: fmt.Sprintf("hang:%d:hang:v1", i), Payload: []byte(benchPayload),
		}, journal.By{Actor: "bench", Kind: journal.Service, Origin: "bench"})
		if err != nil {
			return err
		}
	}
	for until := time.Now().Add(time.Minute); ; {
		counts, err := b.s.db.Counts(ctx)
		if err != nil {
			return err
		}
		if counts.Total(journal.Dispatching) == int64(hang) {
			break
		}
		if time.Now().After(until) {
			return fmt.Errorf("only %d of %d calls got under way", counts.Total(journal.Dispatching), hang)
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Fprintln(out, hungWord)
	<-ctx.Done()
	return ctx.Err()
}

func showRestart(w io.Writer, l restartLine, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(l)
	}
	_, err := fmt.Fprintf(w, "kill -9 with %d settled and %d calls in flight: ready after %.0f ms (log %.1f MiB); idle: %.2f%% of a core, %.1f MiB\n",
		l.SettledRows, l.Lost, l.ReadyMS, l.WALMiB, l.IdleCPU, l.IdleRSS)
	return err
}
