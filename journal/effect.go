package journal

import "time"

// Intent is what was asked for. Nothing in it changes after the intake commit.
type Intent struct {
	Key           string
	Destination   string
	Account       string
	Operation     string
	Actor         string // "uid:1000", "token:ci": part of the fingerprint
	Payload       []byte // exactly as submitted
	ContentType   string
	PayloadDigest string // "sha256:<hex>" over the canonical payload
	Fingerprint   string // "sha256:<hex>", see [Fingerprint]
	Context       map[string]string
	Supersedes    string // key of the effect that this one replaces
	Run           string
	SubmittedAt   time.Time
	NotBefore     time.Time // submitter's; zero = at once
	Deadline      time.Time // never zero once recorded
}

// Authority is what allows an effect to be sent.
type Authority struct {
	Ref            string // "policy:<sha256>" or "approval:<id>"
	GrantedAt      time.Time
	ExpiresAt      time.Time
	PolicySHA256   string // in force when granted
	ContractSHA256 string // of the adapter's action when granted; a changed contract withdraws the authority
}

// Effect is one intended change and everything that is known of it. It is a
// value: [Apply] takes one and returns the next.
type Effect struct {
	ID int64 // the journal's row; 0 before the intake commit
	Intent

	Phase   Phase
	Finding Finding
	Seq     int64 // grows by one with every change; guards each write

	Owner      string
	Severity   Severity
	WaitingFor string // in prepared: what it waits for
	Reason     string // in failed: why
	Target     string // what two effects must not touch at once; known from Prepare
	DueAt      time.Time
	Due        DueKind
	SettledAt  time.Time

	Authority *Authority
	NextSend  time.Time // not_before of the next attempt: back-off and Retry-After
	Budget    Budget

	Ack      *Acknowledgement
	Verify   *Verification
	Doubt    *Doubt
	Absence  *Absence
	Positive *Positive
	Outcome  Outcome
	Review   *Review
	Repairs  []Repair

	HoldScope string // the wider hold that this effect raises now; "" = its own key only

	Attempts []Attempt // oldest first
	Reads    int       // reconciliations recorded so far
}

// DueKind names what is owed when DueAt comes.
type DueKind string

// The kinds of due work. DueNone means that only a person or new evidence moves the effect.
const (
	DueNone     DueKind = ""
	DueDispatch DueKind = "dispatch" // authorized: send
	DueRead     DueKind = "read"     // unknown, verifying, acknowledged, needs_human with finding unknown
	DueLease    DueKind = "lease"    // reconciling: the lease ends
	DueExpire   DueKind = "expire"   // prepared: the deadline
	DueResend   DueKind = "resend"   // confirmed_absent: decide about another attempt
	DueEscalate DueKind = "escalate" // a review is overdue
	DueHeld     DueKind = "held"     // authorized but held back; woken by a release, expires with the deadline
	DueCall     DueKind = "call"     // dispatching: the longest that a call can stay open
)

// Budget is what retries have used since the last authority was granted.
type Budget struct {
	Attempts    int           // attempts that were sent; not_sent spends none
	ElapsedFrom time.Time     // first send after the last transition 2 or 24
	Paused      time.Duration // waiting behind breaker, hold, rate, slot, Retry-After
}

// Elapsed is the retry time used at now.
func (b Budget) Elapsed(now time.Time) time.Duration {
	if b.ElapsedFrom.IsZero() {
		return 0
	}
	return now.Sub(b.ElapsedFrom) - b.Paused
}

// Acknowledgement is carried while the destination owes the result.
type Acknowledgement struct {
	Handle   string
	At       time.Time
	Deadline time.Time
	NextRead time.Time
	Polls    int
}

// Verification is carried while the postcondition is pending.
type Verification struct {
	ObjectID string
	Since    time.Time
	Deadline time.Time
	NextRead time.Time
	Reads    int
}

// Doubt is carried while nothing proves either way. Writing stays forbidden for as long as it is set.
type Doubt struct {
	Since           time.Time // became ambiguous
	ReadsFrom       time.Time // start of the read timetable; set anew after a restart
	Reads           int       // reads of this timetable
	LastTransition  Phase     // last confirmed transition before the doubt
	Cause           string    // timeout, connection_lost, stop, crash, conflict, …
	Missing         []string
	NextReadAt      time.Time
	SettleNotBefore time.Time     // zero: no bound declared, or a call still open
	ResolveBy       time.Time     // since + reconcile_budget
	DedupeExpiresAt time.Time     // zero: none declared
	LeaseUntil      time.Time     // reconciling only
	FirstAbsent     *AbsentRead   // the first of two agreeing reads
	ReadFailed      int           // streak of read_failed; no evidence, its own alarm
	Paused          time.Duration // time during which reads failed: does not count towards after_absence
	LastRead        time.Time
	Taken           bool // a person took it over: reads go on, the review stays
	Fence           string
}

// AbsentRead is what the absence guard remembers of a supporting read.
type AbsentRead struct {
	BegunAt, EndedAt            time.Time
	View, FilterSHA256, Subject string
	Evidence                    string
}

// Absence is the proof that the effect did not happen.
type Absence struct {
	Ref        string // evidence digest, or "attestation:<digest>", "fence:<revision>"
	How        string // read, attestation, fence, operation_record
	ObservedAt time.Time
	ValidUntil time.Time
	Final      bool          // no earlier request can land any more (fence)
	Paused     time.Duration // carried over from the doubt
}

// Positive is evidence that the effect happened, or was accepted.
type Positive struct {
	At         time.Time
	What       string // committed, accepted, webhook, match
	Accepted   bool   // after an acceptance only the destination's operation record proves absence
	RebuttedAt time.Time
	RebuttedBy string
}

// stands reports whether the evidence is not rebutted: by a person, or by the
// destination's own record of the operation. It is kept when it is, because
// after an acceptance no empty read is ever believed.
func (p *Positive) stands() bool { return p != nil && p.RebuttedAt.Before(p.At) }

// Outcome is what is known of the effect at the destination; one per effect, versioned.
type Outcome struct {
	Version         int
	Acknowledgement string // the destination's own word: "committed", "accepted"
	ObjectID        string
	ObjectType      string
	URL             string
	ProviderState   string
	Postcondition   string // observed
	VerifiedAt      time.Time
	Source          string // dispatch, read, webhook, person
	Evidence        string // digest
	Waived          bool   // proof = "ack": acknowledged, not verified
	Attested        bool   // a person's word, no read exists
}

// Severity orders reviews.
type Severity string

// The severities.
const (
	SeverityLow      Severity = "low"
	SeverityNormal   Severity = "normal"
	SeverityHigh     Severity = "high"
	SeverityCritical Severity = "critical"
)

// Standing derives the four-word standing.
func (e Effect) Standing() Standing { return StandingOf(e.Phase, e.Finding) }

// FirstSent is when the first attempt that may have left was sent; zero if none was.
func (e Effect) FirstSent() time.Time {
	for _, a := range e.Attempts {
		if a.State != AttemptNotSent && !a.SentAt.IsZero() {
			return a.SentAt
		}
	}
	return time.Time{}
}

// MayHaveBeenSent reports whether some attempt is not proved to have had no effect.
func (e Effect) MayHaveBeenSent() bool {
	for _, a := range e.Attempts {
		if !a.State.NoEffect() {
			return true
		}
	}
	return false
}

// Last returns the newest attempt, or nil.
func (e *Effect) Last() *Attempt {
	if len(e.Attempts) == 0 {
		return nil
	}
	return &e.Attempts[len(e.Attempts)-1]
}

// clone copies everything that Apply may change, so that the caller's value stays as it was.
func (e Effect) clone() Effect {
	e.Authority = ptrCopy(e.Authority)
	e.Ack = ptrCopy(e.Ack)
	e.Verify = ptrCopy(e.Verify)
	e.Absence = ptrCopy(e.Absence)
	e.Positive = ptrCopy(e.Positive)
	e.Review = ptrCopy(e.Review)
	if e.Doubt != nil {
		d := *e.Doubt
		d.FirstAbsent = ptrCopy(d.FirstAbsent)
		e.Doubt = &d
	}
	e.Attempts = append([]Attempt(nil), e.Attempts...)
	e.Repairs = append([]Repair(nil), e.Repairs...)
	return e
}

// whole fills in the record that a phase must carry and that is missing, as it
// would be in a damaged row. Everything in it has then run out, which leads to
// doubt or to a person and never to a write.
func (e Effect) whole() Effect {
	switch {
	case e.Phase == Acknowledged && e.Ack == nil:
		e.Ack = &Acknowledgement{}
	case e.Phase == Verifying && e.Verify == nil:
		e.Verify = &Verification{}
	case (e.Phase == Unknown || e.Phase == Reconciling) && e.Doubt == nil:
		e.Doubt = &Doubt{}
	case e.Phase == ConfirmedAbsent && e.Absence == nil:
		e.Absence = &Absence{}
	}
	return e
}

// repairOpen reports whether a repair is being done.
func (e Effect) repairOpen() bool {
	for _, r := range e.Repairs {
		if r.State == RepairOpen {
			return true
		}
	}
	return false
}

func ptrCopy[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
