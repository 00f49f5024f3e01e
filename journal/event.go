package journal

import "time"

// Kind names an event.
type Kind string

// The kinds of event that an effect can meet.
const (
	KindSubmit     Kind = "submit"
	KindAuthorize  Kind = "authorize"
	KindRefuse     Kind = "refuse"
	KindSend       Kind = "send"
	KindWithdraw   Kind = "withdraw"
	KindExpire     Kind = "expire"
	KindAnswer     Kind = "answer"
	KindLost       Kind = "lost"
	KindCallEnded  Kind = "call_ended"
	KindWitness    Kind = "witness"
	KindOverdue    Kind = "overdue"
	KindReadBegin  Kind = "read_begin"
	KindReadDone   Kind = "read_done"
	KindLeaseEnd   Kind = "lease_end"
	KindEscalate   Kind = "escalate"
	KindResend     Kind = "resend"
	KindGiveUp     Kind = "give_up"
	KindDoubt      Kind = "doubt"
	KindDecide     Kind = "decide"
	KindRepairDone Kind = "repair_done"
	KindContradict Kind = "contradict"
	KindCancel     Kind = "cancel"
	KindOutage     Kind = "outage"
	KindFenceBegin Kind = "fence_begin"
	KindFenceDone  Kind = "fence_done"
	KindReplaySend Kind = "replay_send"
	KindRestore    Kind = "restore"
	KindDefer      Kind = "defer"
	KindReviewLate Kind = "review_overdue"
	KindReadAgain  Kind = "read_again"
)

// Event is something that happened to an effect, or that somebody wants to
// happen. [Apply] turns an effect and an event into the next state.
type Event interface {
	Kind() Kind
	apply(*builder) error
}

// Submit records an intent. Restored says that the journal came from a backup
// and may have forgotten this key: it is read before the first write (42).
type Submit struct {
	Intent   Intent
	Restored bool

	// With Restored only. Attempt is the one that has to be presumed; its id may
	// be empty. DeadAt is when the old daemon was dead, zero = by now. Authority,
	// when given, lets a proved absence be sent without a person.
	Attempt   Attempt
	DeadAt    time.Time
	Authority *Authority
}

// Authorize grants authority (2).
type Authorize struct{ Authority Authority }

// Refuse ends a prepared effect (3). A human rejection needs no owner; an invalid one does.
type Refuse struct {
	Reason string
	Human  bool
}

// Send opens the write gate (4). The call may be made only after the
// transaction that applied it has returned from COMMIT.
type Send struct {
	Ask     Ask
	Attempt Attempt
	Target  string
}

// Withdraw takes authority back before a send (5).
type Withdraw struct{ Reason string }

// Expire ends an effect that may not be sent any more (6).
type Expire struct{ Reason string }

// AnswerClass is what an answer proves.
type AnswerClass string

// The classes of answer.
const (
	AnswerCommitted   AnswerClass = "committed"
	AnswerAccepted    AnswerClass = "accepted"
	AnswerRejected    AnswerClass = "rejected"
	AnswerNotExecuted AnswerClass = "not_executed"
	AnswerNotSent     AnswerClass = "not_sent"
	AnswerUnknown     AnswerClass = "unknown"
)

// Answer is what came of one call, or that nothing came of it (7–11, 27, 35).
type Answer struct {
	Attempt string
	Class   AnswerClass
	At      time.Time // arrival, or the end of the linger
	Open    bool      // overdue: the call has not returned and its process lives
	Death   bool      // no answer: the process is known dead since At

	ObjectID, ObjectType, URL, State string
	Handle                           string
	PollAfter                        time.Duration
	ExpiresAt                        time.Time

	Conflict   bool // 409, 412, unique violation, key reused: read at once
	Denied     bool // 401, 403: the owner of the authority is asked
	Reason     string
	Code       string
	Cause      string
	Message    string
	RetryAfter time.Duration

	ProviderRequestID string
	Evidence          string
}

// Lost is what recovery finds: `sent` without an answer, and the process known dead since DeadAt (11).
type Lost struct {
	Attempt string
	DeadAt  time.Time
	Cause   string // crash, stop
}

// CallEnded says that an overdue call can no longer send.
type CallEnded struct {
	Attempt string
	At      time.Time
}

// Witness is late positive evidence: a webhook, a late answer (12, 27, 35).
type Witness struct {
	What     string
	ObjectID string
	Source   EvidenceSource
	Evidence string
}

// Overdue says that ack_deadline or verify_deadline has passed (13, 16).
type Overdue struct{}

// ReadBegin takes the lease on one authoritative read (18, 28).
type ReadBegin struct{ Lease time.Duration }

// ReadDone brings what the read saw (12, 14–17, 19–22, 35).
type ReadDone struct{ Reading Reading }

// LeaseEnd says that a read was never recorded (19).
type LeaseEnd struct{}

// Escalate hands an unknown effect to a person (23).
type Escalate struct{ Reason string }

// Resend asks for another attempt after a confirmed absence (24).
type Resend struct{ HeldBy string }

// GiveUp ends a confirmed absence without another attempt (25).
type GiveUp struct{ Reason string }

// DoubtAbsence says that absence evidence expired or is not believed any more (26).
type DoubtAbsence struct{ Reason string }

// Decision is a person's decision on a review (23, 25, 28–31, 34, 37 and those that change only the review).
type Decision struct {
	Decision   DecisionKind
	Object     string
	Keep       string // retire: the object that is kept
	Then       string // did-not-happen: "retry" or "close"
	Evidence   string // digest of what the person offers
	LookedAt   time.Time
	NoBound    string // why nothing can land any more, when nobody declared a bound
	Record     string // after an acceptance: the destination's operation record
	To         string // assign
	Until      time.Time
	Approver   string // a second person, where the operation is irreversible
	Repair     *Repair
	Authority  *Authority // retry: the new authority
	Residual   string
	NewExpires time.Time // retry: the new deadline of the effect
}

// RepairDone brings the end of a repair (32, 33). A repair that was frozen is
// read on; its end comes a second time, while a person has the effect.
type RepairDone struct {
	Frozen   bool // it needs a person itself: it may yet turn out either way and is never sent again
	Repair   string
	Verified bool
	Problem  string // why a person is needed; "" = verified
	Evidence string
}

// Contradict brings evidence against a closed effect, or reverses it (35).
type Contradict struct {
	Finding    Finding
	Reason     string
	Candidates []Match
	Evidence   string
}

// Cancel ends an effect before anything is unsettled (36).
type Cancel struct{}

// Outage hands an authorized effect to a person while the destination is down (38).
type Outage struct{ Reason string }

// FenceBegin makes the fence's intent durable (39).
type FenceBegin struct{ Lease time.Duration }

// FenceDone brings what the fence met: our object, our own mark, or nothing certain (39).
type FenceDone struct {
	Fenced   bool
	Revision string
	Object   *Match
	Evidence string
}

// ReplaySend records the one write that is allowed while unknown (40).
type ReplaySend struct {
	Ask     Ask
	Attempt Attempt
}

// Restore presumes one lost attempt, because the journal came from a backup
// (41). An effect that is in doubt or with a person already keeps its phase and
// gets the presumed attempt all the same: the old daemon may have sent again.
type Restore struct {
	Attempt Attempt
	DeadAt  time.Time // the operator's word that the old daemon is dead; zero until given
}

// Defer moves the next look at an authorized or absent effect that is held
// back. For an effect that a person has it gives up a read for which no view exists any more.
type Defer struct {
	Until time.Time
	Held  bool
}

// ReviewLate says that a review passed its due time: the second owner gets it.
type ReviewLate struct{ Second string }

// ReadAgain starts the read timetable anew, after a restart or at an operator's wish.
type ReadAgain struct{ At time.Time }

// Kind names the event.
func (Submit) Kind() Kind       { return KindSubmit }
func (Authorize) Kind() Kind    { return KindAuthorize }
func (Refuse) Kind() Kind       { return KindRefuse }
func (Send) Kind() Kind         { return KindSend }
func (Withdraw) Kind() Kind     { return KindWithdraw }
func (Expire) Kind() Kind       { return KindExpire }
func (Answer) Kind() Kind       { return KindAnswer }
func (Lost) Kind() Kind         { return KindLost }
func (CallEnded) Kind() Kind    { return KindCallEnded }
func (Witness) Kind() Kind      { return KindWitness }
func (Overdue) Kind() Kind      { return KindOverdue }
func (ReadBegin) Kind() Kind    { return KindReadBegin }
func (ReadDone) Kind() Kind     { return KindReadDone }
func (LeaseEnd) Kind() Kind     { return KindLeaseEnd }
func (Escalate) Kind() Kind     { return KindEscalate }
func (Resend) Kind() Kind       { return KindResend }
func (GiveUp) Kind() Kind       { return KindGiveUp }
func (DoubtAbsence) Kind() Kind { return KindDoubt }
func (Decision) Kind() Kind     { return KindDecide }
func (RepairDone) Kind() Kind   { return KindRepairDone }
func (Contradict) Kind() Kind   { return KindContradict }
func (Cancel) Kind() Kind       { return KindCancel }
func (Outage) Kind() Kind       { return KindOutage }
func (FenceBegin) Kind() Kind   { return KindFenceBegin }
func (FenceDone) Kind() Kind    { return KindFenceDone }
func (ReplaySend) Kind() Kind   { return KindReplaySend }
func (Restore) Kind() Kind      { return KindRestore }
func (Defer) Kind() Kind        { return KindDefer }
func (ReviewLate) Kind() Kind   { return KindReviewLate }
func (ReadAgain) Kind() Kind    { return KindReadAgain }
