package journal

import (
	"fmt"
	"slices"
	"time"
)

// Env is everything an application of an event may depend on besides the
// effect: the time, one random number, who acts and the policy in force. The
// core reads no clock and draws no number.
type Env struct {
	Now    time.Time
	Jitter float64 // in [0,1)
	By     By
	Policy Policy
}

// Change is what one event does to one effect. The journal writes all of it in
// one transaction, guarded by the sequence number the effect had before.
type Change struct {
	Before          int64 // Seq that must still stand
	Effect          Effect
	Entries         []Entry   // one for every transition, one for every human act
	Attempts        []Attempt // inserted or changed
	Reconciliations []Reconciliation
	Checkpoint      *Checkpoint
	HoldRaised      *Hold // replaces what this effect raised before
	HoldReleased    bool
	ReviewChanged   bool
	TripBreaker     bool // the finding is on the policy's trip list
}

// Apply is total over phase and event: it returns the next state, or an error
// that names both and leaves the effect as it was. The only other error is
// *[GateError], when a send is refused.
func Apply(e Effect, ev Event, env Env) (Change, error) {
	if ev == nil {
		return Change{}, &IllegalError{Phase: e.Phase, Event: "none", Why: "there is no event"}
	}
	whole := e.clone().whole()
	b := &builder{e: whole, env: env, ev: ev, from: whole.clone()}
	if err := ev.apply(b); err != nil {
		return Change{}, err
	}
	return b.finish()
}

// builder collects a change. It lives for one Apply.
type builder struct {
	from    Effect
	e       Effect
	ev      Event
	env     Env
	ch      Change
	touched map[int]bool // indexes of changed attempts
	put     *Defer       // moves the next look instead of deriving it
}

func (b *builder) illegal(why string) error {
	return &IllegalError{Phase: b.from.Phase, Event: b.ev.Kind(), Why: why}
}

// in reports whether the effect is in one of the phases.
func (b *builder) in(ps ...Phase) bool {
	for _, p := range ps {
		if b.e.Phase == p {
			return true
		}
	}
	return false
}

// move makes transition n. A move that the model does not list is a fault of the core itself.
func (b *builder) move(n int, to Phase) error {
	if !legal(n, b.e.Phase, to) {
		return fmt.Errorf("journal: transition %d from %s to %s is not in the model", n, b.e.Phase, to)
	}
	b.entry("transition", func(x *Entry) { x.Transition, x.From, x.To = n, b.e.Phase, to })
	b.e.Phase = to
	switch to {
	case Acknowledged:
	case Verifying:
		b.e.Ack = nil
		if d := b.e.Doubt; d != nil { // its budget goes on if the hope fails; its reads do not
			d.FirstAbsent, d.NextReadAt, d.LeaseUntil = nil, time.Time{}, time.Time{}
		}
	case Unknown, Reconciling:
		b.e.Ack, b.e.Verify, b.e.Absence = nil, nil, nil
	case NeedsHuman:
		b.e.Ack, b.e.Verify = nil, nil
	default:
		b.e.Ack, b.e.Verify, b.e.Doubt = nil, nil, nil
	}
	b.e.SettledAt = time.Time{}
	if to.Closed() {
		b.e.SettledAt = b.env.Now
	}
	return nil
}

// entry appends one line of the audit chain.
func (b *builder) entry(kind string, fill func(*Entry)) {
	x := Entry{
		At: b.env.Now, Kind: kind, Key: b.e.Key, Run: b.e.Run, PolicySHA256: b.env.Policy.SHA256,
		Actor: b.env.By.Actor, ActorKind: b.env.By.Kind, Origin: b.env.By.Origin, Because: b.env.By.Because,
	}
	if fill != nil {
		fill(&x)
	}
	b.ch.Entries = append(b.ch.Entries, x)
}

// why sets the reason of the newest entry when the actor gave none.
func (b *builder) why(reason string) {
	if x := &b.ch.Entries[len(b.ch.Entries)-1]; x.Because == "" {
		x.Because = reason
	}
}

// about ties the newest entry to an attempt and its evidence.
func (b *builder) about(attempt, evidence string) {
	x := &b.ch.Entries[len(b.ch.Entries)-1]
	x.Attempt, x.Evidence = attempt, evidence
}

// attempt finds an attempt by id, ready to be changed.
func (b *builder) attempt(id string) *Attempt {
	for i := range b.e.Attempts {
		if b.e.Attempts[i].ID == id {
			b.touch(i)
			return &b.e.Attempts[i]
		}
	}
	return nil
}

func (b *builder) touch(i int) {
	if b.touched == nil {
		b.touched = map[int]bool{}
	}
	b.touched[i] = true
}

// settle gives every attempt that is still open to doubt its final state.
func (b *builder) settle(to AttemptState, by string) {
	for i := range b.e.Attempts {
		a := &b.e.Attempts[i]
		if a.State.Unsettled() || (a.State == AttemptCommitted && to == AttemptSettledAbsent) {
			b.touch(i)
			a.State, a.ReleasedBy = to, by
			if a.ClosedAt.IsZero() {
				a.ClosedAt = b.env.Now
			}
		}
	}
}

func (b *builder) setOutcome(change func(*Outcome)) {
	o := b.e.Outcome
	change(&o)
	if o != b.e.Outcome {
		o.Version++
		b.e.Outcome = o
	}
}

// last returns the entry that brought the effect into the phase in this change, or nil.
func (b *builder) last(p Phase) *Entry {
	if b.e.Phase != p {
		return nil
	}
	for i := len(b.ch.Entries) - 1; i >= 0; i-- {
		if x := &b.ch.Entries[i]; x.Transition != 0 {
			return x
		}
	}
	return nil
}

// finish derives what is never set by hand: due work, holds, the sequence number.
func (b *builder) finish() (Change, error) {
	e := &b.e
	e.Seq = b.from.Seq + 1
	e.DueAt, e.Due = due(*e, b.env)
	if b.put != nil {
		e.DueAt, e.Due = b.put.place(*e, b.env.Now)
	}
	b.contain()
	if x := b.last(Failed); x != nil && x.owned() && !e.Review.Live() {
		return Change{}, fmt.Errorf("journal: %s would leave the failed %s without an owner", b.ev.Kind(), e.Key)
	}
	for i := range e.Attempts {
		if b.touched[i] {
			b.ch.Attempts = append(b.ch.Attempts, e.Attempts[i])
		}
	}
	b.ch.ReviewChanged = !sameReview(b.from.Review, e.Review)
	b.ch.Before = b.from.Seq
	b.ch.Effect = *e
	if v := limbo(*e); v != "" {
		return Change{}, fmt.Errorf("journal: %s would leave %s in limbo: %s", b.ev.Kind(), e.Key, v)
	}
	return b.ch, nil
}

// contain widens or lifts the hold that the effect raises, by its finding.
func (b *builder) contain() {
	e := &b.e
	want := ""
	if e.Phase.HoldsKey() {
		f := e.Finding
		if (e.Phase == Unknown || e.Phase == Reconciling) && !f.Contradicted() {
			f = FindingUnknown // what is being read again stays as contained as it was
		}
		if kind, ok := b.env.Policy.Contain[f]; ok && kind != ScopeKey {
			want = ScopeOf(kind, *e)
		}
	}
	if want == e.HoldScope {
		return
	}
	if e.HoldScope != "" {
		b.ch.HoldReleased = true
		b.entry("release", func(x *Entry) { x.Because = e.HoldScope })
	}
	e.HoldScope = want
	if want != "" {
		b.ch.HoldRaised = &Hold{Scope: want, RaisedBy: e.Key, Finding: e.Finding, By: b.env.By.Actor, Because: string(e.Finding), At: b.env.Now}
		b.entry("hold", func(x *Entry) { x.Because = want })
	}
}

func sameReview(a, b *Review) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.State == b.State && a.Owner == b.Owner && a.DueAt.Equal(b.DueAt) && a.Finding == b.Finding &&
		a.Overdue == b.Overdue && a.Severity == b.Severity && a.Kind == b.Kind && a.OpenedAt.Equal(b.OpenedAt) &&
		slices.Equal(a.Missing, b.Missing) && slices.Equal(a.Allowed, b.Allowed) &&
		slices.EqualFunc(a.Candidates, b.Candidates, func(x, y Match) bool { return x.ObjectID == y.ObjectID && x.State == y.State })
}

// due says what is owed next and when.
func due(e Effect, env Env) (time.Time, DueKind) {
	switch e.Phase {
	case Prepared:
		return e.Deadline, DueExpire
	case Authorized:
		return earliest(later(later(e.NextSend, e.NotBefore), e.SubmittedAt), e.Deadline), DueDispatch
	case Dispatching:
		return callOver(e, env), DueCall
	case Acknowledged:
		return earliest(e.Ack.NextRead, e.Ack.Deadline), DueRead
	case Verifying:
		return earliest(e.Verify.NextRead, e.Verify.Deadline), DueRead
	case Unknown:
		return e.Doubt.NextReadAt, DueRead
	case Reconciling:
		return e.Doubt.LeaseUntil, DueLease
	case ConfirmedAbsent:
		return env.Now, DueResend
	}
	return dueOfReview(e)
}

// callOver is the longest that the newest call can stay open on our side.
func callOver(e Effect, env Env) time.Time {
	a := e.Last()
	if a == nil {
		return env.Now
	}
	return a.Deadline.Add(env.Policy.Grace.Linger + env.Policy.RecordReserve)
}

// dueOfReview is the later life of an effect that a person has: reads while
// nothing is known, and the clock of the review.
func dueOfReview(e Effect) (time.Time, DueKind) {
	if e.Phase == NeedsHuman && e.Finding == FindingUnknown && e.Doubt != nil && !e.Doubt.NextReadAt.IsZero() {
		if !e.Review.Live() || e.Review.Overdue || e.Doubt.NextReadAt.Before(e.Review.DueAt) {
			return e.Doubt.NextReadAt, DueRead
		}
	}
	if e.Review.Live() && !e.Review.Overdue {
		return e.Review.DueAt, DueEscalate
	}
	return time.Time{}, DueNone
}

// limbo names what an effect lacks that its phase must carry (I8, I12), or "".
func limbo(e Effect) string {
	switch e.Phase {
	case Prepared:
		if e.WaitingFor == "" || e.Owner == "" || e.DueAt.IsZero() {
			return "prepared without waiting_for, owner or due_at"
		}
	case Unknown:
		if e.Doubt == nil || e.Doubt.NextReadAt.IsZero() || e.Doubt.ResolveBy.IsZero() {
			return "unknown without next_read_at or resolve_by"
		}
	case Repairing:
		if !e.repairOpen() {
			return "repairing without an open repair"
		}
	case NeedsHuman:
		if !e.Review.Live() || e.Review.Owner == "" || e.Review.DueAt.IsZero() {
			return "needs_human without one open review with owner and due_at"
		}
	case Authorized, Dispatching, Acknowledged, Verifying, Reconciling, ConfirmedAbsent:
		if e.DueAt.IsZero() {
			return string(e.Phase) + " without due_at"
		}
	}
	return ""
}
