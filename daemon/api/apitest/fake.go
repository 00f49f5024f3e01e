// Package apitest is a daemon made of memory for tests of whatever talks to
// the API. It sends nothing; an effect's phase is decided by its operation's
// name (see [Fake.Submit]) and by [Fake.Change]. Nothing survives a test.
package apitest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/journal"
)

// noon is the fake's present; a value, not state.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// Fake is an in-memory service. Its zero value is not ready; use [New].
type Fake struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every change
	effects map[string]journal.Effect
	entries []journal.Entry
	holds   map[string]journal.Hold
	errs    map[string]error
	paused  map[string]bool
	drained bool

	// Report is what Verify returns.
	Report daemon.VerifyReport
	// LastSubmit and LastDecide are what came in last, with who sent it.
	LastSubmit daemon.SubmitRequest
	LastDecide daemon.DecideRequest
	LastBy     journal.By
	// Pages counts calls of Events.
	Pages int
}

// New returns an empty fake.
func New() *Fake {
	return &Fake{
		changed: make(chan struct{}), effects: map[string]journal.Effect{}, holds: map[string]journal.Hold{},
		errs: map[string]error{}, paused: map[string]bool{}, Report: daemon.VerifyReport{OK: true, Checked: 3, Head: "3:cc"},
	}
}

// Fail makes a method ("Submit") answer with an error; nil ends it. An error
// for "Submit KEY" hits that key only.
func (f *Fake) Fail(method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs[method] = err
}

// Put places an effect as it is.
func (f *Fake) Put(e journal.Effect) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(e, "test")
}

// Change changes an effect and moves its sequence number on.
func (f *Fake) Change(key string, change func(*journal.Effect)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.effects[key]
	change(&e)
	e.Seq++
	f.put(e, "test")
}

func (f *Fake) put(e journal.Effect, kind string) {
	from := f.effects[e.Key].Phase
	f.effects[e.Key] = e
	n := int64(len(f.entries) + 1)
	f.entries = append(f.entries, journal.Entry{
		Seq: n, At: noon.Add(time.Duration(n) * time.Second), Kind: kind, Key: e.Key, From: from, To: e.Phase,
		Actor: "uid:1", ActorKind: journal.Human, Origin: "api", PrevHash: fmt.Sprintf("%02x", n-1), Hash: fmt.Sprintf("%02x", n),
	})
	close(f.changed)
	f.changed = make(chan struct{})
}

// Submit records. The operation's name decides the phase it lands in: "done",
// "refused", "lost", "asks", "compensated", "abandoned", "wait" (prepared);
// any other is authorized and stays there.
func (f *Fake) Submit(_ context.Context, req daemon.SubmitRequest, by journal.By) (daemon.SubmitResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.LastSubmit, f.LastBy = req, by
	for _, m := range []string{"Submit", "Submit " + req.Key} {
		if err := f.errs[m]; err != nil {
			return daemon.SubmitResult{}, err
		}
	}
	if err := journal.CheckKey(req.Key, journal.KeyRules{}); err != nil {
		return daemon.SubmitResult{}, err
	}
	if req.Destination != "desk" {
		return daemon.SubmitResult{}, &daemon.InvalidError{Faults: []string{fmt.Sprintf("destination: %q is not configured", req.Destination)}}
	}
	digest, err := journal.PayloadDigest(req.Payload, req.ContentType)
	if err != nil {
		return daemon.SubmitResult{}, err
	}
	print := journal.Fingerprint(req.Destination, "acme", req.Operation, req.Actor, digest)
	if old, ok := f.effects[req.Key]; ok {
		if old.Fingerprint != print {
			return daemon.SubmitResult{}, &journal.ConflictError{Key: req.Key, Bound: old.Fingerprint, Given: print}
		}
		return daemon.SubmitResult{Effect: old}, nil
	}
	e := Effect(req.Key, phaseFor(req.Operation))
	e.Operation, e.Actor, e.Payload, e.ContentType = req.Operation, req.Actor, req.Payload, req.ContentType
	e.PayloadDigest, e.Fingerprint, e.Context, e.Supersedes = digest, print, req.Context, req.Supersedes
	if !req.DryRun {
		f.put(e, "transition")
	}
	return daemon.SubmitResult{Effect: e, Created: true}, nil
}

func phaseFor(operation string) journal.Phase {
	switch operation {
	case "done":
		return journal.Succeeded
	case "refused":
		return journal.Failed
	case "lost":
		return journal.Unknown
	case "asks":
		return journal.NeedsHuman
	case "compensated":
		return journal.Compensated
	case "abandoned":
		return journal.Abandoned
	case "wait":
		return journal.Prepared
	}
	return journal.Authorized
}

// Effect returns a full example of an effect in a phase.
func Effect(key string, p journal.Phase) journal.Effect {
	e := journal.Effect{
		Intent: journal.Intent{
			Key: key, Destination: "desk", Account: "acme", Operation: "create", Actor: "uid:1000",
			Payload: []byte(`{"subject":"printer on fire"}`), ContentType: "application/json",
			PayloadDigest: "sha256:aa", Fingerprint: "sha256:bb", SubmittedAt: noon, Deadline: noon.Add(24 * time.Hour),
		},
		Phase: p, Finding: journal.FindingNone, Seq: 2, Owner: "support-ops", Severity: journal.SeverityNormal,
		DueAt: noon.Add(time.Second), Due: journal.DueDispatch,
	}
	switch p {
	case journal.Prepared:
		e.WaitingFor, e.DueAt, e.Due = "an approval by support-lead", e.Deadline, journal.DueExpire
	case journal.Authorized, journal.ConfirmedAbsent:
	case journal.Failed:
		e.Finding, e.Reason, e.SettledAt = journal.FindingRejected, "rejected: queue is closed", noon.Add(3*time.Second)
		sent(&e, journal.AttemptRejected)
	case journal.Unknown, journal.Reconciling:
		doubtful(&e)
	case journal.NeedsHuman:
		doubtful(&e)
		e.DueAt, e.Due = noon.Add(4*time.Hour), journal.DueEscalate
		e.Review = exampleReview()
	case journal.Succeeded, journal.Compensated:
		e.Finding, e.SettledAt, e.Due, e.DueAt = journal.FindingMatches, noon.Add(3*time.Second), journal.DueNone, time.Time{}
		e.Outcome = journal.Outcome{Version: 2, Acknowledgement: "committed", ObjectID: "T-17", ProviderState: "open", VerifiedAt: noon.Add(3 * time.Second), Source: "read"}
		sent(&e, journal.AttemptCommitted)
	case journal.Abandoned, journal.RolledBack:
		e.Finding, e.SettledAt, e.Due, e.DueAt = journal.FindingUnknown, noon.Add(3*time.Second), journal.DueNone, time.Time{}
		sent(&e, journal.AttemptTimedOut)
	default:
		sent(&e, journal.AttemptSent)
	}
	return e
}

func sent(e *journal.Effect, s journal.AttemptState) {
	a := journal.Attempt{
		ID: "att-1", Number: 1, State: s, Epoch: 3, Adapter: journal.AdapterRef{Name: "http", Version: "1.0", SHA256: "sha256:cc"},
		SentAt: noon.Add(time.Second), Deadline: noon.Add(11 * time.Second), Key: e.Key,
	}
	if s != journal.AttemptSent {
		a.ClosedAt = noon.Add(2 * time.Second)
	}
	if s == journal.AttemptTimedOut {
		a.Cause, a.ResponseClass = "timeout", "unknown:timeout"
	}
	e.Attempts = []journal.Attempt{a}
}

func doubtful(e *journal.Effect) {
	sent(e, journal.AttemptTimedOut)
	e.Seq, e.Finding, e.Reads = 7, journal.FindingUnknown, 1
	e.DueAt, e.Due = noon.Add(time.Minute), journal.DueRead
	e.Doubt = &journal.Doubt{
		Since: noon.Add(11 * time.Second), LastTransition: journal.Dispatching, Cause: "timeout",
		Missing:    []string{"seen before 12:01:28, when the view may still lag"},
		NextReadAt: noon.Add(time.Minute), SettleNotBefore: noon.Add(88 * time.Second), ResolveBy: noon.Add(24 * time.Hour),
	}
}

func exampleReview() *journal.Review {
	return &journal.Review{
		Kind: journal.ReviewAmbiguity, State: journal.ReviewOpen, Owner: "support-ops", Severity: journal.SeverityNormal,
		OpenedAt: noon.Add(time.Minute), DueAt: noon.Add(4 * time.Hour), Finding: journal.FindingUnknown,
		Missing: []string{"2 similar object(s) seen, none tied to this key"},
		Candidates: []journal.Match{
			{ObjectID: "T-17", ObjectType: "ticket", URL: "http://desk/T-17", State: "open", Strength: journal.StrengthSimilar, Agreement: journal.AgreementSame, CreatedAt: noon, Account: "acme", Observed: []byte(`{"subject":"printer on fire"}`)},
			{ObjectID: "T-18", Strength: journal.StrengthSimilar, Agreement: journal.AgreementDiffers, Differences: []string{"/subject"}},
		},
		Allowed: []journal.DecisionKind{journal.DecideRead, journal.DecideHappened, journal.DecideDidNotHappen, journal.DecideAbandon, journal.DecideAssign},
	}
}

func (f *Fake) get(method, key string) (journal.Effect, error) {
	if err := f.errs[method]; err != nil {
		return journal.Effect{}, err
	}
	e, ok := f.effects[key]
	if !ok {
		return e, fmt.Errorf("effect %s: %w", key, daemon.ErrNotFound)
	}
	return e, nil
}

// Effect returns an effect with one example read when it was read.
func (f *Fake) Effect(_ context.Context, key string) (daemon.EffectDetail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := f.get("Effect", key)
	d := daemon.EffectDetail{
		Effect: e, ProvesCommit: "one ticket whose external_ref is the key", ProvesAbsence: "two complete empty reads after 12:01:28",
	}
	if e.Reads > 0 {
		d.Reconciliations = []journal.Reconciliation{{
			Key: key, Number: 1, Verdict: journal.VerdictUnknown, View: "by_ref", Complete: true, Consistency: journal.ConsistencyBounded,
			ObservedAt: noon.Add(26 * time.Second), Source: "sweep", Missing: e.Doubt.Missing, Permission: "proven",
		}}
		d.Evidence = []journal.Evidence{{Digest: "sha256:ee", At: noon.Add(26 * time.Second), Source: journal.FromRead, Kind: "http", Summary: "200, no items"}}
	}
	return d, err
}

// List pages by key. The filter knows phase: and key: with a trailing *.
func (f *Fake) List(_ context.Context, filter, cursor string, limit int) ([]journal.Effect, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.errs["List"]; err != nil {
		return nil, "", err
	}
	var out []journal.Effect
	for _, k := range slices.Sorted(maps.Keys(f.effects)) {
		if k <= cursor || !selects(filter, f.effects[k]) {
			continue
		}
		if len(out) == limit {
			return out, out[limit-1].Key, nil
		}
		out = append(out, f.effects[k])
	}
	return out, "", nil
}

func selects(filter string, e journal.Effect) bool {
	for _, term := range strings.Fields(filter) {
		name, want, _ := strings.Cut(term, ":")
		switch prefix, star := strings.CutSuffix(want, "*"); {
		case name == "phase" && want != string(e.Phase):
			return false
		case name == "key" && star && !strings.HasPrefix(e.Key, prefix):
			return false
		case name == "key" && !star && want != e.Key:
			return false
		}
	}
	return true
}

// WaitChange waits for a newer seq.
func (f *Fake) WaitChange(ctx context.Context, key string, after int64) (journal.Effect, error) {
	for {
		f.mu.Lock()
		e, err := f.get("WaitChange", key)
		changed := f.changed
		f.mu.Unlock()
		if err != nil || e.Seq > after {
			return e, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return e, ctx.Err()
		}
	}
}

// Cancel fails an effect of which nothing is unsettled.
func (f *Fake) Cancel(_ context.Context, key string, by journal.By) (journal.Effect, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := f.get("Cancel", key)
	if err != nil {
		return e, err
	}
	f.LastBy = by
	if e.Phase != journal.Prepared && e.Phase != journal.Authorized {
		return e, &journal.IllegalError{Phase: e.Phase, Event: journal.KindCancel, Why: "only what was never sent can be cancelled"}
	}
	e.Phase, e.Reason, e.Seq = journal.Failed, "cancelled: "+by.Because, e.Seq+1
	f.put(e, "transition")
	return e, nil
}

// Decide knows happened, abandon and assign; others are accepted and change nothing but seq.
func (f *Fake) Decide(_ context.Context, key string, req daemon.DecideRequest, by journal.By) (journal.Effect, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.LastDecide, f.LastBy = req, by
	e, err := f.get("Decide", key)
	switch {
	case err != nil:
		return e, err
	case req.IfSeq != 0 && req.IfSeq != e.Seq:
		return e, fmt.Errorf("effect %s: %w", key, daemon.ErrStale)
	case e.Review == nil:
		return e, &journal.IllegalError{Phase: e.Phase, Event: journal.KindDecide, Why: "it is not in review"}
	}
	r := *e.Review
	e.Review = &r
	switch req.Decision {
	case journal.DecideHappened:
		e.Phase, e.Outcome.ObjectID, r.State = journal.Verifying, req.Object, journal.ReviewDecided
	case journal.DecideAbandon:
		e.Phase, r.State = journal.Abandoned, journal.ReviewDecided
	case journal.DecideAssign:
		r.Owner = req.To
	}
	e.Seq++
	f.put(e, "decision")
	return e, nil
}

// Reviews lists what has a live review.
func (f *Fake) Reviews(_ context.Context, filter string) ([]journal.Effect, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []journal.Effect
	for _, k := range slices.Sorted(maps.Keys(f.effects)) {
		if e := f.effects[k]; e.Review.Live() && selects(filter, e) {
			out = append(out, e)
		}
	}
	return out, f.errs["Reviews"]
}

// Events pages through the chain.
func (f *Fake) Events(_ context.Context, after int64, filter string, limit int) ([]journal.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Pages++
	var out []journal.Entry
	for _, x := range f.entries {
		if x.Seq > after && len(out) < limit && selects(filter, journal.Effect{Intent: journal.Intent{Key: x.Key}, Phase: x.To}) {
			out = append(out, x)
		}
	}
	return out, f.errs["Events"]
}

// WaitEvents waits until the chain is longer than after.
func (f *Fake) WaitEvents(ctx context.Context, after int64) error {
	for {
		f.mu.Lock()
		n, changed := int64(len(f.entries)), f.changed
		f.mu.Unlock()
		if n > after {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Holds lists the holds by scope.
func (f *Fake) Holds(context.Context) ([]journal.Hold, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []journal.Hold
	for _, k := range slices.Sorted(maps.Keys(f.holds)) {
		out = append(out, f.holds[k])
	}
	return out, f.errs["Holds"]
}

// Hold raises a hold.
func (f *Fake) Hold(_ context.Context, scope string, by journal.By) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holds[scope] = journal.Hold{Scope: scope, By: by.Actor, Because: by.Because, At: noon}
	return f.errs["Hold"]
}

// Release lifts a hold.
func (f *Fake) Release(_ context.Context, scope string, _ journal.By) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.holds[scope]; !ok {
		return 0, fmt.Errorf("hold %s: %w", scope, daemon.ErrNotFound)
	}
	delete(f.holds, scope)
	return 2, f.errs["Release"]
}

// Sweep reports twice.
func (f *Fake) Sweep(_ context.Context, name string, progress func(daemon.SweepReport)) (daemon.SweepReport, error) {
	f.mu.Lock()
	err := f.errs["Sweep"]
	f.mu.Unlock()
	if name != "desk-sweep" {
		return daemon.SweepReport{}, fmt.Errorf("schedule %s: %w", name, daemon.ErrNotFound)
	}
	if err != nil {
		return daemon.SweepReport{}, err
	}
	r := daemon.SweepReport{Schedule: name, Destination: "desk", StartedAt: noon, Total: 3, Asked: 1}
	progress(r)
	r.Asked, r.Matches, r.WaitingForGrace, r.Done, r.EndedAt = 3, 2, 1, true, noon.Add(2*time.Second)
	progress(r)
	return r, nil
}

// Schedules has one.
func (f *Fake) Schedules(context.Context) ([]daemon.ScheduleStatus, error) {
	return []daemon.ScheduleStatus{{
		Name: "desk-sweep", Do: "reconcile", Destination: "desk", Cron: "*/5 * * * *", Timezone: "Europe/Berlin",
		Next: []time.Time{noon.Add(5 * time.Minute), noon.Add(10 * time.Minute), noon.Add(15 * time.Minute)}, LastOK: noon, LastResult: "ok", Missed: 1,
	}}, nil
}

// Destinations has one.
func (f *Fake) Destinations(ctx context.Context) ([]daemon.DestinationStatus, error) {
	d, err := f.Destination(ctx, "desk")
	return []daemon.DestinationStatus{d}, err
}

// Destination knows "desk".
func (f *Fake) Destination(_ context.Context, name string) (daemon.DestinationStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != "desk" {
		return daemon.DestinationStatus{}, fmt.Errorf("destination %s: %w", name, daemon.ErrNotFound)
	}
	return daemon.DestinationStatus{
		Name: "desk", Adapter: "http", Version: "1.0", SHA256: "sha256:cc", Identity: "acme as bot", Up: true, Paused: f.paused[name],
		Breaker: "closed", Concurrency: 4, Rate: "10/s", Queued: 1, RetryTokens: 10,
		Operations: []daemon.Capability{{Operation: "create", Identifies: "external_ref = key", ProvesCommit: "one match", ProvesAbsence: "two empty reads", Unanswered: []string{"what it triggers"}}},
	}, nil
}

// PauseDestination pauses or resumes.
func (f *Fake) PauseDestination(_ context.Context, name string, pause bool, by journal.By) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused[name], f.LastBy = pause, by
	return f.errs["PauseDestination"]
}

// Status counts.
func (f *Fake) Status(context.Context) (daemon.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := daemon.Status{Dispatch: !f.drained, Phases: map[journal.Phase]int64{}, Epoch: 3, Version: "test", Started: noon, Draining: f.drained}
	if f.drained {
		s.DispatchReason = "draining"
	}
	for _, e := range f.effects {
		s.Phases[e.Phase]++
		if e.Review.Live() {
			s.ReviewsOpen++
		}
	}
	if n := len(f.entries); n > 0 {
		s.Head = fmt.Sprintf("%d:%s", n, f.entries[n-1].Hash)
	}
	if s.Phases[journal.Unknown] > 0 {
		s.UnknownOldest = 90 * time.Second
	}
	return s, f.errs["Status"]
}

// Hook believes what is signed "yes".
func (f *Fake) Hook(_ context.Context, _ string, headers map[string]string, _ []byte) (daemon.HookResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if headers["signature"] != "yes" {
		return daemon.HookResult{}, daemon.ErrHookRefused
	}
	return daemon.HookResult{Key: "k", EventID: "1"}, f.errs["Hook"]
}

// Verify returns Report.
func (f *Fake) Verify(context.Context, string) (daemon.VerifyReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Report, f.errs["Verify"]
}

// Prune removes two effects and three payloads.
func (f *Fake) Prune(context.Context) (daemon.PruneReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return daemon.PruneReport{Effects: 2, Payloads: 3}, f.errs["Prune"]
}

// CheckJournal finds what Verify finds.
func (f *Fake) CheckJournal(ctx context.Context) (daemon.VerifyReport, error) {
	return f.Verify(ctx, "")
}

// ConfirmRestore refuses a future time and a missing reason, as the daemon does.
func (f *Fake) ConfirmRestore(_ context.Context, deadAt time.Time, by journal.By) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if deadAt.After(time.Now()) || by.Because == "" {
		return &daemon.InvalidError{Faults: []string{"old-daemon-dead-at: not in the future"}}
	}
	return f.errs["ConfirmRestore"]
}

// Backup does nothing.
func (f *Fake) Backup(context.Context, string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errs["Backup"]
}

// Stats has one number.
func (f *Fake) Stats(context.Context) (daemon.JournalStats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return daemon.JournalStats{"effects": len(f.effects)}, nil
}

// Drain stops dispatch.
func (f *Fake) Drain(context.Context, journal.By) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drained = true
	return f.errs["Drain"]
}

// Healthy answers with the error set for it.
func (f *Fake) Healthy(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errs["Healthy"]
}

// Ready answers with the error set for it.
func (f *Fake) Ready(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errs["Ready"]
}
