package daemon

import (
	"context"
	"fmt"
	"io"
	"sort"
	"sync"
	"time"

	"github.com/settled-dev/settled/journal"
)

// counters are the numbers of /metrics that are counted as things happen. Every
// label set that can occur starts at 0, so that an alert can tell "none" from "unknown".
type counters struct {
	mu sync.Mutex
	// protects following
	attempts map[[2]string]int64 // destination, outcome
	reads    map[string]int64    // verdict
	streak   map[string]int64    // destination: read_failed in a row
}

func newCounters(destinations []string) *counters {
	c := &counters{attempts: map[[2]string]int64{}, reads: map[string]int64{}, streak: map[string]int64{}}
	for _, d := range destinations {
		c.streak[d] = 0
		for _, o := range []journal.AnswerClass{
			journal.AnswerCommitted, journal.AnswerAccepted, journal.AnswerRejected,
			journal.AnswerNotExecuted, journal.AnswerNotSent, journal.AnswerUnknown,
		} {
			c.attempts[[2]string{d, string(o)}] = 0
		}
	}
	for _, v := range []journal.Verdict{
		journal.VerdictAbsent, journal.VerdictMatches, journal.VerdictPartial, journal.VerdictDuplicate,
		journal.VerdictConflicts, journal.VerdictUnknown, journal.VerdictReadFailed,
	} {
		c.reads[string(v)] = 0
	}
	return c
}

func (c *counters) attempt(destination string, o journal.AnswerClass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts[[2]string{destination, string(o)}]++
}

func (c *counters) read(destination string, v journal.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads[string(v)]++
	if v == journal.VerdictReadFailed {
		c.streak[destination]++
	} else {
		c.streak[destination] = 0
	}
}

// Metrics writes the daemon's numbers in the Prometheus text format. No key of
// an effect is ever a label.
func (d *Daemon) Metrics(w io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	p := &promText{w: w}
	counts, err := d.db.Counts(ctx)
	if err != nil {
		return err
	}
	p.head("settled_effects", "gauge", "Effects by destination and phase.")
	for _, dest := range sortedKeys(d.dests) {
		for _, phase := range journal.Phases() {
			p.line("settled_effects", float64(counts.Phases[dest][phase]), "destination", dest, "phase", string(phase))
		}
	}
	d.counters.write(p)
	p.head("settled_unknown_oldest_timestamp_seconds", "gauge", "Since when the oldest open doubt exists; 0 = none.")
	oldest, _, err := d.db.OldestUnknown(ctx)
	if err != nil {
		return err
	}
	p.line("settled_unknown_oldest_timestamp_seconds", unixOrZero(oldest))
	p.head("settled_reviews_open", "gauge", "Reviews that wait for a person.")
	for owner := range d.settings.Load().Owners {
		p.line("settled_reviews_open", float64(counts.ReviewsOpen[owner]), "owner", owner)
	}
	p.head("settled_reviews_overdue", "gauge", "Reviews past their due time.")
	for owner := range d.settings.Load().Owners {
		p.line("settled_reviews_overdue", float64(counts.ReviewsOverdue[owner]), "owner", owner)
	}
	p.head("settled_adapter_up", "gauge", "Whether the destination's adapter runs.")
	for _, dest := range sortedKeys(d.dests) {
		up, _ := d.dests[dest].port.Up()
		p.line("settled_adapter_up", boolFloat(up), "destination", dest)
	}
	p.head("settled_dispatch_enabled", "gauge", "Whether anything may be sent.")
	p.line("settled_dispatch_enabled", boolFloat(d.whyNoDispatch(ctx) == ""))
	p.head("settled_config_reload_ok", "gauge", "0 = the last reload was refused and the configuration before it is kept.")
	p.line("settled_config_reload_ok", boolFloat(d.reloadOK()))
	if err := d.sweepMetrics(ctx, p); err != nil {
		return err
	}
	return d.journalMetrics(ctx, p)
}

// sweepMetrics says when each schedule last ended well; 0 = never yet.
func (d *Daemon) sweepMetrics(ctx context.Context, p *promText) error {
	list, err := d.Schedules(ctx)
	if err != nil {
		return err
	}
	p.head("settled_sweep_last_ok_timestamp_seconds", "gauge", "When a schedule last ended well; 0 = never.")
	for _, s := range list {
		p.line("settled_sweep_last_ok_timestamp_seconds", unixOrZero(s.LastOK), "schedule", s.Name)
	}
	return nil
}

func (d *Daemon) journalMetrics(ctx context.Context, p *promText) error {
	st, err := d.db.Stats(ctx)
	if err != nil {
		return err
	}
	p.head("settled_journal_wal_bytes", "gauge", "Size of the write-ahead log.")
	p.line("settled_journal_wal_bytes", float64(st.WALBytes))
	p.head("settled_journal_commits_total", "counter", "Transactions committed.")
	p.line("settled_journal_commits_total", float64(st.Commits))
	p.head("settled_journal_ops_total", "counter", "Operations committed.")
	p.line("settled_journal_ops_total", float64(st.Ops))
	p.head("settled_journal_errors_total", "counter", "Transactions that were not committed.")
	p.line("settled_journal_errors_total", float64(st.Failed), "code", "not_committed")
	p.head("settled_journal_commit_seconds_sum", "counter", "Time spent in COMMIT.")
	p.line("settled_journal_commit_seconds_sum", st.CommitTotal.Seconds())
	return p.err
}

func (c *counters) write(p *promText) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.head("settled_attempts_total", "counter", "Calls by destination and what their answer proved.")
	for _, k := range sortedPairs(c.attempts) {
		p.line("settled_attempts_total", float64(c.attempts[k]), "destination", k[0], "outcome", k[1])
	}
	p.head("settled_reconciliations_total", "counter", "Authoritative reads by verdict.")
	for _, k := range sortedKeys(c.reads) {
		p.line("settled_reconciliations_total", float64(c.reads[k]), "verdict", k)
	}
	p.head("settled_read_failed_streak", "gauge", "Reads that failed in a row.")
	for _, k := range sortedKeys(c.streak) {
		p.line("settled_read_failed_streak", float64(c.streak[k]), "destination", k)
	}
}

// promText writes the text format and keeps the first error.
type promText struct {
	w   io.Writer
	err error
}

func (p *promText) head(name, kind, help string) {
	p.printf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (p *promText) line(name string, value float64, labels ...string) {
	set := ""
	for i := 0; i+1 < len(labels); i += 2 {
		if set != "" {
			set += ","
		}
		set += fmt.Sprintf("%s=%q", labels[i], labels[i+1])
	}
	if set != "" {
		set = "{" + set + "}"
	}
	p.printf("%s%s %g\n", name, set, value)
}

func (p *promText) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

func sortedPairs(m map[[2]string]int64) [][2]string {
	out := make([][2]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Slice(out, func(i, j int) bool { return out[i][0]+"\x00"+out[i][1] < out[j][0]+"\x00"+out[j][1] })
	return out
}

func unixOrZero(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

func boolFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
