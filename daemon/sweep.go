package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// How a sweep is cut up.
const (
	// manyPage is how many reads one listing settles at most.
	manyPage = 500
	// onePage is how many single reads are recorded together.
	onePage = 32
	// verdictsPerWrite bounds one transaction of verdicts, so that nobody who
	// submits meanwhile waits for long.
	verdictsPerWrite = 25
	// maxFailures is how many calls in a row may bring nothing before a sweep gives up.
	maxFailures = 5
)

// Sweep runs a schedule now. A sweep only brings reads forward: what it finds
// is judged by the same guard as every other read.
func (d *Daemon) Sweep(ctx context.Context, name string, progress func(SweepReport)) (SweepReport, error) {
	sched := d.sched.Load()
	item := sched.items[name]
	if item == nil {
		return SweepReport{}, fmt.Errorf("schedule %q is not configured; see: settled schedule list: %w", name, ErrNotFound)
	}
	if !d.enter() {
		return SweepReport{}, ErrDraining
	}
	defer d.calls.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(d.runCtx, cancel)
	defer stop()
	j, err := sched.open(ctx, item, time.Time{}, progress)
	if err != nil {
		return SweepReport{}, err
	}
	return sched.perform(ctx, j)
}

// reconcile reads every unsettled effect of one destination once, in the order
// of their numbers, within the destination's read budget. Verdicts are recorded
// page by page, each with the place that the sweep has come to: killed anywhere,
// it repeats at most one page of reads.
func (j *job) reconcile(ctx context.Context) error {
	ids, err := j.d.db.OpenReads(ctx, j.report.Destination, j.cursor)
	if err != nil {
		return fmt.Errorf("list what is open: %w", err)
	}
	return newSweeper(j, "sweep", sweepable).run(ctx, ids)
}

// sweepable reports whether a sweep reads an effect.
func sweepable(e journal.Effect) bool {
	switch e.Phase {
	case journal.Unknown, journal.Verifying, journal.Acknowledged:
		return e.Due == journal.DueRead
	case journal.NeedsHuman: // nothing is known yet, and the timetable still runs
		return e.Due == journal.DueRead && e.Finding == journal.FindingUnknown
	}
	return false
}

// sweeper reads a list of effects in pages: one page is read while the one
// before it is recorded.
type sweeper struct {
	j        *job
	s        *destination
	source   string
	wanted   func(journal.Effect) bool
	budget   *readBudget
	failures int // calls in a row that brought nothing; of the reading goroutine
}

func newSweeper(j *job, source string, wanted func(journal.Effect) bool) *sweeper {
	s := j.d.dests[j.report.Destination]
	return &sweeper{j: j, s: s, source: source, wanted: wanted, budget: newReadBudget(s)}
}

// page is a part of the list, with what the destination said of each.
type page struct {
	reads []oneRead
	last  int64 // number up to which the sweep has come
	left  int   // not read: settled meanwhile, or somebody else reads it
	err   error // the last page: why the sweep ends
}

// run reads the effects of these numbers and records what they show.
func (w *sweeper) run(ctx context.Context, ids []int64) error {
	rep := w.j.snapshot()
	rep.Total = rep.Asked + rep.Skipped + len(ids)
	w.j.kept(rep, w.j.cursor)
	ctx, cancel := context.WithCancel(ctx)
	pages := make(chan *page, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(pages)
		w.readPages(ctx, ids, pages)
	}()
	var err error
	for p := range pages {
		if err == nil && p.err == nil {
			err = w.record(ctx, p)
			if err != nil {
				cancel()
			}
		}
		err = errors.Join(err, p.err)
		w.letGo(p)
	}
	cancel()
	<-done
	return err
}

func (w *sweeper) readPages(ctx context.Context, ids []int64, pages chan<- *page) {
	many, err := w.budget.many(ctx)
	if err != nil {
		pages <- &page{err: fmt.Errorf("the adapter of %s is not up: %w", w.s.name, err)}
		return
	}
	size := onePage
	if many {
		size = manyPage
	}
	if w.s.breaker.open() {
		size = 1 // a probe: a destination that is down gets one read and no more
	}
	for len(ids) > 0 {
		n := min(size, len(ids))
		p := w.readPage(ctx, ids[:n], many)
		ids = ids[n:]
		if size = onePage; many {
			size = manyPage
		}
		select {
		case pages <- p:
		case <-ctx.Done():
			w.letGo(p)
			pages <- &page{err: ctx.Err()} // the reader of pages drains them to the end
			return
		}
		if p.err != nil {
			return
		}
		if w.failures >= maxFailures || w.failures > 0 && w.s.breaker.open() {
			pages <- &page{err: fmt.Errorf("destination %s does not answer reads; the timed reads go on", w.s.name)}
			return
		}
	}
}

// readPage loads a page, takes what nobody else works on and asks for it.
func (w *sweeper) readPage(ctx context.Context, ids []int64, many bool) *page {
	p := &page{last: ids[len(ids)-1]}
	list, err := w.j.d.db.EffectsByID(ctx, ids)
	if err != nil {
		p.err = err
		return p
	}
	for _, e := range list {
		op := w.j.d.policyFor(e)
		if !w.wanted(e) || !op.policy.HasRead || !w.s.claim(e.Key) {
			continue
		}
		p.reads = append(p.reads, oneRead{effect: e, op: op})
	}
	p.left = len(ids) - len(p.reads)
	if len(p.reads) == 0 {
		return p
	}
	if many {
		p.err = w.budget.listing(ctx, p.reads)
	} else {
		p.err = w.budget.singly(ctx, p.reads)
	}
	if p.err == nil {
		w.judgeCalls(p, many)
	}
	return p
}

// judgeCalls counts calls in a row that brought nothing, and tells the breaker.
func (w *sweeper) judgeCalls(p *page, many bool) {
	good := 0
	for i := range p.reads {
		if p.reads[i].begun.IsZero() {
			continue
		}
		ok := p.reads[i].err == nil
		if ok {
			good++
		}
		if many {
			continue
		}
		if w.failures++; ok {
			w.failures = 0
		}
	}
	if many {
		if w.failures++; good > 0 {
			w.failures = 0
		}
	}
	if w.s.breaker.read(good > 0, time.Now()) {
		w.s.d.log.Info("a read succeeded; one write may try", "destination", w.s.name)
		poke(w.s.wake)
	}
}

func (w *sweeper) letGo(p *page) {
	for _, r := range p.reads {
		w.s.release(r.effect.Key)
	}
	p.reads = nil
	poke(w.s.care)
	poke(w.s.wake)
}

// record writes the verdicts of a page, a few at a time.
func (w *sweeper) record(ctx context.Context, p *page) error {
	if len(p.reads) == 0 {
		rep := w.j.snapshot()
		rep.Skipped += p.left
		w.j.kept(rep, p.last)
		return nil
	}
	chunks := slices.Collect(slices.Chunk(p.reads, verdictsPerWrite))
	for i, chunk := range chunks {
		last, left := chunk[len(chunk)-1].effect.ID, 0
		if i == len(chunks)-1 {
			last, left = p.last, p.left
		}
		if err := w.write(ctx, chunk, last, left); err != nil {
			return err
		}
	}
	return nil
}

// settledBy is what the verdict on one effect led to.
type settledBy struct {
	change  journal.Change
	held    string
	verdict journal.Verdict
}

// write records some verdicts and the sweep's place in one transaction. An
// effect that changed since it was read keeps what it became.
func (w *sweeper) write(ctx context.Context, chunk []oneRead, last int64, left int) error {
	var outs []settledBy
	var rep SweepReport
	err := w.j.d.db.Write(ctx, func(tx *sqlite.Tx) error {
		outs = outs[:0]
		rep = w.j.snapshot()
		rep.Skipped += left
		for i := range chunk {
			out, ok, err := w.one(tx, &chunk[i])
			if err != nil {
				return err
			}
			if !ok {
				rep.Skipped++
				continue
			}
			rep.count(out)
			outs = append(outs, out)
		}
		return w.j.save(tx, rep, last)
	})
	if err != nil {
		return fmt.Errorf("record verdicts: %w", err)
	}
	w.tell(ctx, outs)
	w.j.kept(rep, last)
	return nil
}

// one records one read. ok is false when there was none, or when the effect
// changed since it was read.
func (w *sweeper) one(tx *sqlite.Tx, r *oneRead) (out settledBy, ok bool, err error) {
	if r.begun.IsZero() {
		return out, false, nil
	}
	cur, err := tx.Recall(r.effect)
	if errors.Is(err, sqlite.ErrStale) || errors.Is(err, sqlite.ErrNotFound) {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	out.held = cur.HoldScope
	reading := readingOf(w.source, r.begun, r.ended, r.resp, r.err)
	if ev, found := evidenceOf("read", reading.View, journal.FromRead, "", r.resp.Evidence, reading.EndedAt); found {
		if reading.Evidence, err = tx.PutEvidence(cur.Key, ev); err != nil {
			return out, false, err
		}
	}
	env := w.j.d.env(r.op.policy, by(w.source))
	if cur.Phase == journal.Unknown || cur.Phase == journal.NeedsHuman {
		// The lease keeps others from reading the same; here its taking and its
		// end are one transaction, because a read has no effect that a crash could hide.
		if cur, err = tx.Apply(cur, journal.ReadBegin{Lease: r.op.policy.Timeout + r.op.policy.RecordReserve}, env); err != nil {
			return out, false, w.refused(cur.Key, err)
		}
	}
	if out.change, err = tx.Change(cur, journal.ReadDone{Reading: reading}, env); err != nil {
		return out, false, w.refused(cur.Key, err)
	}
	if n := len(out.change.Reconciliations); n > 0 {
		out.verdict = out.change.Reconciliations[n-1].Verdict
	}
	return out, true, nil
}

// refused tells the core's refusal, which concerns one effect, from an error of the journal.
func (w *sweeper) refused(key string, err error) error {
	var illegal *journal.IllegalError
	if errors.As(err, &illegal) {
		w.j.d.log.Warn("a read was not taken up", "key", key, "err", err)
		return nil
	}
	return err
}

// tell does what follows a verdict outside of the journal.
func (w *sweeper) tell(ctx context.Context, outs []settledBy) {
	released := false
	for _, o := range outs {
		e := o.change.Effect
		w.s.d.followers.tell(e)
		if o.verdict != "" {
			w.s.d.counters.read(w.s.name, o.verdict)
		}
		released = released || o.held != "" && o.held != e.HoldScope
		if o.change.TripBreaker {
			w.s.breaker.force(time.Now())
			w.s.d.log.Error("breaker open by finding", "destination", w.s.name, "key", e.Key, "finding", e.Finding)
		}
		if e.Phase == journal.NeedsHuman && o.change.ReviewChanged {
			w.s.d.log.Warn("needs a person", "key", e.Key, "owner", e.Owner, "finding", e.Finding)
		}
	}
	if released {
		w.s.d.released(ctx)
	}
}

// count adds one verdict to the report.
func (r *SweepReport) count(o settledBy) {
	e := o.change.Effect
	r.Asked++
	if e.Phase == journal.NeedsHuman && r.Do == "audit" {
		r.Raised++
	}
	switch o.verdict {
	case journal.VerdictMatches:
		r.Matches++
	case journal.VerdictAbsent:
		r.Absent++
	case journal.VerdictPartial:
		r.Partial++
	case journal.VerdictDuplicate:
		r.Duplicate++
	case journal.VerdictConflicts:
		r.Conflicts++
	case journal.VerdictReadFailed:
		r.ReadFailed++
	default:
		r.Unknown++
		if d := e.Doubt; d != nil && d.SettleNotBefore.After(now()) {
			r.WaitingForGrace++
		}
	}
}
