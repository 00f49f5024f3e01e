package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

// Effect returns everything known of one effect.
func (d *Daemon) Effect(ctx context.Context, key string) (EffectDetail, error) {
	e, err := d.db.Effect(ctx, key)
	if err != nil {
		return EffectDetail{}, notFound(key, err)
	}
	out := EffectDetail{Effect: e}
	if out.Reconciliations, err = d.db.Reconciliations(ctx, key); err != nil {
		return out, err
	}
	if out.Evidence, err = d.db.Evidence(ctx, key); err != nil {
		return out, err
	}
	op := d.policyFor(e)
	out.ProvesCommit, out.ProvesAbsence = provesCommit(op), provesAbsence(op)
	return out, nil
}

// List returns a page of effects; the cursor of the next page is "" at the end.
func (d *Daemon) List(ctx context.Context, filter, cursor string, limit int) ([]journal.Effect, string, error) {
	f, err := journal.ParseFilter(filter, now())
	if err != nil {
		return nil, "", &InvalidError{Faults: []string{err.Error()}}
	}
	return d.db.List(ctx, f, cursor, limit)
}

// Reviews returns the effects that wait for a person.
func (d *Daemon) Reviews(ctx context.Context, filter string) ([]journal.Effect, error) {
	f, err := journal.ParseFilter(filter, now())
	if err != nil {
		return nil, &InvalidError{Faults: []string{err.Error()}}
	}
	items, err := d.db.Reviews(ctx, f, 0)
	if err != nil {
		return nil, err
	}
	out := make([]journal.Effect, 0, len(items))
	for _, it := range items {
		e, err := d.db.Effect(ctx, it.Key)
		if err != nil {
			return nil, err
		}
		if e.Review.Live() { // it may have been decided since it was listed
			out = append(out, e)
		}
	}
	return out, nil
}

// Events returns up to limit entries of the audit chain after a sequence number.
func (d *Daemon) Events(ctx context.Context, after int64, filter string, limit int) ([]journal.Entry, error) {
	f, err := journal.ParseFilter(filter, now())
	if err != nil {
		return nil, &InvalidError{Faults: []string{err.Error()}}
	}
	return d.db.Events(ctx, after, f, limit)
}

// WaitEvents returns when the chain's head is above after, or with ctx's error.
func (d *Daemon) WaitEvents(ctx context.Context, after int64) error {
	watch := d.db.Watch()
	defer watch.Close()
	for {
		if seq, _ := d.db.Head(); seq > after {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.runCtx.Done():
			return ErrDraining
		case <-watch.C:
		}
	}
}

// Status is the daemon's own condition.
func (d *Daemon) Status(ctx context.Context) (Status, error) {
	counts, err := d.db.Counts(ctx)
	if err != nil {
		return Status{}, err
	}
	seq, hash := d.db.Head()
	st := Status{
		Dispatch: true, Phases: map[journal.Phase]int64{}, ReviewsOpen: sum(counts.ReviewsOpen), ReviewsOverdue: sum(counts.ReviewsOverdue),
		Head: fmt.Sprintf("%d:%s", seq, hash), Epoch: d.db.Epoch(), Version: d.opts.Version, Started: d.started,
		Draining: d.stopping.Load(), InFlight: int(d.inFlight.Load()),
	}
	for _, p := range journal.Phases() {
		st.Phases[p] = counts.Total(p)
	}
	if oldest, _, err := d.db.OldestUnknown(ctx); err != nil {
		return st, err
	} else if !oldest.IsZero() {
		st.UnknownOldest = time.Since(oldest)
	}
	st.DispatchReason = d.whyNoDispatch(ctx)
	st.Dispatch = st.DispatchReason == ""
	return st, nil
}

func sum(by map[string]int64) (n int64) {
	for _, v := range by {
		n += v
	}
	return n
}

func (d *Daemon) whyNoDispatch(ctx context.Context) string {
	switch {
	case d.stopping.Load():
		return "the daemon is stopping"
	case d.full.Load():
		return "the disk of the journal is full"
	}
	if off := d.db.DispatchOff(); off != "" {
		return off
	}
	holds, err := d.db.Holds(ctx)
	if err != nil {
		return ""
	}
	for _, h := range holds {
		if h.Scope == "all" {
			return "held: " + h.Because
		}
	}
	return ""
}

// Healthy says why the daemon should be restarted.
func (d *Daemon) Healthy(context.Context) error { return d.db.FatalErr() }

// Ready says why the daemon should get no work now.
func (d *Daemon) Ready(ctx context.Context) error {
	if why := d.whyNoDispatch(ctx); why != "" {
		return errors.New(why)
	}
	return d.db.FatalErr()
}

// Destinations lists every destination's condition.
func (d *Daemon) Destinations(ctx context.Context) ([]DestinationStatus, error) {
	var out []DestinationStatus
	for name := range d.dests {
		st, err := d.Destination(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// Destination shows one destination: limits, breaker, capability card.
func (d *Daemon) Destination(ctx context.Context, name string) (DestinationStatus, error) {
	s := d.dests[name]
	if s == nil {
		return DestinationStatus{}, fmt.Errorf("destination %q is not configured: %w", name, ErrNotFound)
	}
	state, since := s.breaker.show()
	eff := s.conf.Load().ForOperation("")
	st := DestinationStatus{
		Name: name, Adapter: s.conf.Load().Adapter, Breaker: string(state), BreakerSince: since,
		InFlight: len(s.slots), Concurrency: cap(s.slots), Rate: fmt.Sprintf("%g/s", eff.RatePerSecond),
		RetryTokens: s.tokens.left(time.Now()), Queued: d.db.Queued(name),
	}
	counts, err := d.db.Counts(ctx)
	if err != nil {
		return st, err
	}
	st.Unknown = counts.Phases[name][journal.Unknown]
	st.Up, st.Why = s.port.Up()
	if st.Up {
		if err := s.describe(ctx); err == nil {
			if live, err := s.port.Acquire(ctx); err == nil {
				p := live.Process()
				st.Version, st.SHA256, st.Identity = p.Adapter.Version, p.Adapter.SHA256, p.Identity
			}
		}
	}
	holds, err := d.db.Holds(ctx)
	for _, h := range holds {
		st.Paused = st.Paused || h.Scope == "destination:"+name
	}
	st.Operations = s.card()
	return st, err
}

// card answers the questions of the capability card for every operation.
func (s *destination) card() []Capability {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Capability, 0, len(s.desc.Actions))
	for _, spec := range s.desc.Actions {
		out = append(out, Card(s.ops[spec.Name].spec, s.ops[spec.Name].policy, s.ops[spec.Name].eff.Owner))
	}
	return out
}

// Card answers, for one operation, what identifies its effect, what proves it
// either way, who owns it otherwise, and what may be repeated or undone.
// Questions without an answer are listed.
func Card(spec sdk.ActionSpec, p journal.Policy, owner string) Capability {
	o := operation{spec: spec, policy: p}
	c := Capability{
		Operation: spec.Name, Identifies: identifies(spec), ProvesCommit: provesCommit(o), ProvesAbsence: provesAbsence(o),
		OwnerWhenNot: owner, Dedupe: dedupe(spec.Idempotency), RetryableAnswer: retryable(spec.Outcomes),
		Reversal: orElse(string(p.Reversibility), "irreversible"), Triggers: triggers(spec.Consequences),
	}
	for question, answer := range map[string]string{
		"what identifies the effect": c.Identifies, "who owns it when nothing can be proved": c.OwnerWhenNot,
		"which answers may be retried": c.RetryableAnswer,
	} {
		if answer == "" {
			c.Unanswered = append(c.Unanswered, question)
		}
	}
	sort.Strings(c.Unanswered)
	return c
}

func identifies(spec sdk.ActionSpec) string {
	return map[sdk.Lookup]string{
		sdk.LookupByKey: "the key", sdk.LookupByMarker: "the key, embedded as a marker", sdk.LookupByNaturalID: "the destination's natural id",
		sdk.LookupByContent: "its content", sdk.LookupByRequestID: "the provider's request id",
		sdk.LookupWindow: "being new since the snapshot", sdk.LookupNone: "nothing that can be read",
	}[spec.Read.Lookup]
}

func dedupe(i sdk.Idempotency) string {
	if i.Mode == sdk.IdempotencyNone || i.Mode == sdk.IdempotencyUnspecified {
		return "none at the destination"
	}
	s := "by " + map[sdk.IdempotencyMode]string{
		sdk.IdempotencyKey: "key", sdk.IdempotencyNatural: "natural id", sdk.IdempotencyConditional: "condition",
	}[i.Mode]
	if i.Retention != nil {
		s += " for " + i.Retention.String()
	}
	if i.VerifiedOn != "" {
		s += ", verified " + i.VerifiedOn
	}
	if len(i.Covers) > 0 {
		s += ", covers " + strings.Join(i.Covers, ", ")
	}
	return s
}

func retryable(rules []sdk.OutcomeRule) string {
	var codes []string
	for _, r := range rules {
		if r.Class == sdk.ClassNotExecutedRetryable {
			codes = append(codes, r.Code)
		}
	}
	if len(codes) == 0 {
		return "none"
	}
	return strings.Join(codes, ", ")
}

func triggers(cs []sdk.Consequence) string {
	var out []string
	for _, c := range cs {
		out = append(out, [...]string{"", "write", "publish", "send", "charge", "delete", "trigger"}[min(int(c), 6)])
	}
	return orElse(strings.Join(out, ", "), "undeclared")
}

// Verify checks the audit chain, with the daemon running.
func (d *Daemon) Verify(ctx context.Context, expectHead string) (VerifyReport, error) {
	return ReportOf(d.db.Verify(ctx, expectHead))
}

// ReportOf tells tampering from a check that could not run.
func ReportOf(r sqlite.Report, err error) (VerifyReport, error) {
	out := VerifyReport{OK: err == nil && len(r.Problems) == 0, Checked: r.Checked, Head: r.Head, Problems: r.Problems}
	if errors.Is(err, sqlite.ErrCouldNotVerify) {
		out.CouldNotRun, err = err.Error(), nil
	}
	return out, err
}

// CheckJournal looks at every page and every reference of the journal, and
// verifies the chain. It reads everything once.
func (d *Daemon) CheckJournal(ctx context.Context) (VerifyReport, error) {
	return CheckReportOf(d.db.Check(ctx))
}

// CheckReportOf makes damage a finding of the report and no error.
func CheckReportOf(r sqlite.Report, err error) (VerifyReport, error) {
	if errors.Is(err, sqlite.ErrCorrupt) {
		if len(r.Problems) == 0 {
			r.Problems = []string{err.Error()}
		}
		err = nil
	}
	return ReportOf(r, err)
}

// Backup writes a verified copy of the journal to a file that does not exist yet.
// A name that is taken, or a directory that is missing or closed to the daemon's
// user, is an [InvalidError].
func (d *Daemon) Backup(ctx context.Context, file string) error {
	err := d.db.Backup(ctx, file)
	for _, why := range []error{fs.ErrExist, fs.ErrNotExist, fs.ErrPermission} {
		if errors.Is(err, why) {
			return &InvalidError{Faults: []string{fmt.Sprintf("file: %v (the daemon writes it, as uid %d)", err, os.Geteuid())}}
		}
	}
	return err
}

// Stats are numbers about the journal.
func (d *Daemon) Stats(ctx context.Context) (JournalStats, error) {
	return StatsOf(d.db.Stats(ctx))
}

// StatsOf names the journal's numbers as the API does.
func StatsOf(st sqlite.Stats, err error) (JournalStats, error) {
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(st)
	if err != nil {
		return nil, err
	}
	out := JournalStats{}
	return out, json.Unmarshal(b, &out)
}
