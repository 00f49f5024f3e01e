package journal

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// noon is when every story begins.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func span(d time.Duration) *time.Duration { return &d }

// strict is the policy of most stories: an eventual view with a declared lag of
// 2 s and a destination that may take 5 s after a request was lost.
func strict() Policy {
	return Policy{
		SHA256: "sha256:policy", Contract: "sha256:contract", Owner: "desk", AuthorityOwner: "keys",
		Proof: ProofRead, Timeout: 10 * time.Second, RecordReserve: 2 * time.Second,
		Retry: Retry{Attempts: 3, Elapsed: 90 * time.Second, BackoffInitial: time.Second, BackoffMax: 30 * time.Second, Factor: 2, AfterAbsence: 15 * time.Minute},
		Grace: Grace{
			MaxProcessing: span(5 * time.Second), Lag: span(2 * time.Second), Skew: 5 * time.Second, Safety: 10 * time.Second,
			Linger: 5 * time.Second, AbsenceValid: 10 * time.Minute,
			Reads: []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour},
		},
		ReconcileBudget: 24 * time.Hour, AckDeadline: 10 * time.Minute, VerifyDeadline: 2 * time.Minute,
		Settle: SettleRead, HasRead: true, Consistency: ConsistencyEventual, ProvesAbsence: true, KeyedLookup: true,
		Reversibility: ReversibleOp,
	}
}

// story drives one effect through events and fails the test on the first that is refused.
type story struct {
	t      testing.TB
	e      Effect
	now    time.Time
	policy Policy
	by     By
	jitter float64
	log    []Entry
	reads  []Reconciliation
	last   Change
}

func begin(t testing.TB, p Policy) *story {
	s := &story{t: t, now: noon, policy: p, by: By{Actor: "daemon", Kind: System, Origin: "engine"}, jitter: 0.5}
	s.do(Submit{Intent: intent()})
	return s
}

func intent() Intent {
	return Intent{
		Key: "ticket:4182:assign:v1", Destination: "desk", Account: "acme", Operation: "create", Actor: "uid:1000",
		PayloadDigest: "sha256:p", Fingerprint: "sha256:f", SubmittedAt: noon, Deadline: noon.Add(6 * time.Hour), Run: "run-1",
	}
}

func (s *story) env() Env { return Env{Now: s.now, Jitter: s.jitter, By: s.by, Policy: s.policy} }

// try applies the event and keeps what it changed.
func (s *story) try(ev Event) error {
	ch, err := Apply(s.e, ev, s.env())
	if err == nil {
		s.e, s.last = ch.Effect, ch
		s.log = append(s.log, ch.Entries...)
		s.reads = append(s.reads, ch.Reconciliations...)
	}
	return err
}

func (s *story) do(evs ...Event) *story {
	s.t.Helper()
	for _, ev := range evs {
		if err := s.try(ev); err != nil {
			s.t.Fatalf("%s in %s: %v", ev.Kind(), s.e.Phase, err)
		}
	}
	return s
}

func (s *story) wait(d time.Duration) *story { s.now = s.now.Add(d); return s }

func (s *story) is(p Phase, f Finding) *story {
	s.t.Helper()
	if s.e.Phase != p || s.e.Finding != f {
		s.t.Fatalf("phase %s with finding %s, want %s with %s", s.e.Phase, s.e.Finding, p, f)
	}
	return s
}

func (s *story) refuses(ev Event) error {
	s.t.Helper()
	before := s.e
	err := s.try(ev)
	if err == nil {
		s.t.Fatalf("%s in %s was accepted and led to %s", ev.Kind(), before.Phase, s.e.Phase)
	}
	return err
}

// person makes the next events those of a person with a reason.
func (s *story) person() *story {
	s.by = By{Actor: "ada", Kind: Human, Origin: "cli", Because: "looked at it"}
	return s
}

func (s *story) engine() *story {
	s.by = By{Actor: "daemon", Kind: System, Origin: "engine"}
	return s
}

func grant(now time.Time) Authorize {
	return Authorize{Authority: Authority{
		Ref: "policy:sha256:policy", GrantedAt: now, ExpiresAt: now.Add(6 * time.Hour), PolicySHA256: "sha256:policy", ContractSHA256: "sha256:contract",
	}}
}

func (s *story) authorized() *story { return s.do(grant(s.now)) }

func ask(e Effect) Ask {
	return Ask{
		Seq: e.Seq, Fingerprint: e.Fingerprint, Epoch: 1, CurrentEpoch: 1, SlotHeld: true, TokenHeld: true, RetryToken: true,
		Contract: "sha256:contract", PreconditionHolds: true, SnapshotStored: true,
	}
}

func attemptID(e Effect) string { return fmt.Sprintf("a%d", len(e.Attempts)+1) }

func (s *story) sendEvent() Send {
	return Send{Ask: ask(s.e), Attempt: Attempt{ID: attemptID(s.e), Epoch: 1}}
}

func (s *story) sent() *story { s.t.Helper(); return s.do(s.sendEvent()) }

// dispatching is an effect whose first call is under way.
func dispatching(t testing.TB, p Policy) *story { return begin(t, p).authorized().sent() }

func (s *story) answer(class AnswerClass) Answer {
	return Answer{Attempt: s.e.Last().ID, Class: class, At: s.now, ObjectID: "obj-1", Handle: "op-1", Evidence: "sha256:answer"}
}

// timeout is an effect whose call was given up by the adapter itself.
func (s *story) timeout() *story {
	s.t.Helper()
	return s.do(Answer{Attempt: s.e.Last().ID, Class: AnswerUnknown, At: s.now, Cause: "timeout"})
}

func unknownEffect(t testing.TB, p Policy) *story {
	return dispatching(t, p).wait(10 * time.Second).timeout()
}

// empty is a complete and permitted read that sees nothing.
func empty(now time.Time) Reading {
	return Reading{
		Source: "timer", BegunAt: now, EndedAt: now, View: "list", FilterSHA256: "sha256:filter", Principal: "bot",
		ScannedTo: now.Add(time.Second), Complete: true, VisibilityProven: true, How: "guard", Consistency: ConsistencyEventual, Evidence: "sha256:empty",
	}
}

func ours(id string) Match {
	return Match{ObjectID: id, Strength: StrengthKey, Agreement: AgreementSame, Account: "acme"}
}

func sees(now time.Time, ms ...Match) Reading {
	r := empty(now)
	r.Matches, r.Evidence = ms, "sha256:seen"
	return r
}

// read takes the lease where one is needed and brings what was read.
func (s *story) read(r Reading) *story {
	s.t.Helper()
	if s.e.Phase == Unknown || s.e.Phase == NeedsHuman {
		s.do(ReadBegin{Lease: time.Minute})
	}
	return s.do(ReadDone{Reading: r})
}

// absent waits out the grace and reads twice.
func (s *story) absent() *story {
	s.t.Helper()
	if t := s.e.Doubt.SettleNotBefore; t.After(s.now) {
		s.now = t
	}
	s.read(empty(s.now))
	s.is(Unknown, FindingUnknown)
	s.wait(2 * time.Second)
	return s.read(empty(s.now)).is(ConfirmedAbsent, FindingAbsent)
}

func illegal(t testing.TB, err error) *IllegalError {
	t.Helper()
	var x *IllegalError
	if !errors.As(err, &x) {
		t.Fatalf("got %v, want an IllegalError", err)
	}
	return x
}

func shut(t testing.TB, err error, clause string) {
	t.Helper()
	var g *GateError
	if !errors.As(err, &g) || !g.Has(clause) {
		t.Fatalf("got %v, want the gate shut by %q", err, clause)
	}
}
