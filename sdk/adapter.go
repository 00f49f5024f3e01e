package sdk

import (
	"context"
	"time"
)

// Adapter is one destination as the daemon sees it: something that can write
// once and be read authoritatively. The author's type, the gRPC client in
// plugins/host and the fake in sdk/adaptertest all implement it, so the
// daemon never knows whether a process stands behind the value.
//
// A returned error never carries an outcome. An error from Dispatch means
// unknown, unless its chain holds [ErrNotSent], the proof that no byte left.
// An error from Read is a failed read, never an empty one.
type Adapter interface {
	// Describe is pure: no configuration, no I/O.
	Describe(ctx context.Context) (Description, error)
	// Configure is the first call of every process, and the only one that carries secrets.
	Configure(ctx context.Context, c Configuration) (Configured, error)
	// Check is live and read-only: reach, identity, permissions, clock.
	Check(ctx context.Context, actions []string) (Health, error)
	// Prepare has no external effect, ever; it may read and fetch tokens.
	// The daemon calls it only when the description lists [FeaturePrepare].
	Prepare(ctx context.Context, op Operation) (Prepared, error)
	// Dispatch performs at most one effect; it never polls and never retries.
	Dispatch(ctx context.Context, r DispatchRequest) (Response, error)
	// Read is the authoritative read; it has no external effect.
	Read(ctx context.Context, r ReadRequest) (ReadResponse, error)
}

// Fencer is implemented by adapters whose destination has create-only: Fence
// takes the effect's key with a void mark, after which no earlier request can land.
type Fencer interface {
	Fence(ctx context.Context, r FenceRequest) (FenceResponse, error)
}

// ManyReader is implemented by adapters where one listing settles many reads.
// answer is called once for each index answered, in any order.
type ManyReader interface {
	ReadMany(ctx context.Context, reads []ReadRequest, answer func(index int, r ReadResponse)) error
}

// Features that a description may list.
const (
	FeaturePrepare  = "prepare"
	FeatureFence    = "fence"
	FeatureReadMany = "read_many"
)

// Size limits of the contract, in bytes. The SDK truncates answers that are
// longer; it never fails them, because a failed answer after a commit would
// turn a known outcome into an unknown one.
const (
	MaxPayload   = 4 << 20 // 1 MiB unless configured higher
	MaxResult    = 256 << 10
	MaxObserved  = 256 << 10
	MaxBaseline  = 64 << 10
	MaxEvidence  = 16 // items
	MaxEvidenceB = 4 << 10
	MaxKey       = 255
	MaxMessage   = 8 << 20
)

// Description is what an adapter says of itself before it is configured.
type Description struct {
	Name, Version, SDK string
	ProtocolMinor      uint32
	Features           []string
	ConfigSchema       []byte // JSON Schema 2020-12; secrets are "writeOnly": true
	Actions            []ActionSpec
	Egress             []string // host:port patterns it needs
}

// HasFeature reports whether the description lists the feature.
func (d Description) HasFeature(f string) bool {
	for _, have := range d.Features {
		if have == f {
			return true
		}
	}
	return false
}

// ActionSpec is one operation of an adapter: what identifies its effect, how
// it is read back, what its answers mean and whether it can be undone.
type ActionSpec struct {
	Name, Summary   string
	PayloadSchema   []byte
	Idempotency     Idempotency
	Read            ReadSpec
	Limits          Limits
	Reversal        Reversal
	LateEffectBound *time.Duration // after all connections are gone an unanswered request cannot take effect later than this; nil = no bound known
	DispatchTimeout time.Duration  // 0 = the host's
	Precondition    bool           // supports an expected revision
	Deprecated      string
	Outcomes        []OutcomeRule // what each answer means; an answer that no rule names is unknown
	Postcondition   string        // in words; empty = the match itself
	Consequences    []Consequence
	HumanOnly       bool     // no policy may authorize, retry or repair it
	Sensitive       []string // JSON pointers into payload and observed: redacted for people
}

// OutcomeRule says what one answer code of the destination means.
type OutcomeRule struct {
	Code  string
	Class OutcomeClass
}

// OutcomeClass is what an answer proves. The zero value is unknown.
type OutcomeClass uint8

// The classes, in the order of the wire contract.
const (
	ClassUnknown OutcomeClass = iota
	ClassNotExecutedRetryable
	ClassNotExecutedFinal
	ClassExecuted
)

// Consequence is what an operation does in the world.
type Consequence uint8

// The consequences, in the order of the wire contract.
const (
	ConsequenceUnspecified Consequence = iota
	ConsequenceWrite
	ConsequencePublish
	ConsequenceSend
	ConsequenceCharge
	ConsequenceDelete
	ConsequenceTrigger
)

// IdempotencyMode says what the destination itself deduplicates by.
type IdempotencyMode uint8

// The modes, in the order of the wire contract. Unspecified counts as none.
const (
	IdempotencyUnspecified IdempotencyMode = iota
	IdempotencyNone
	IdempotencyKey
	IdempotencyNatural
	IdempotencyConditional
)

// Mismatch says what the destination does with the same key and another payload.
type Mismatch uint8

// The answers to a mismatch, in the order of the wire contract.
const (
	MismatchUnspecified Mismatch = iota
	MismatchRejects
	MismatchReturnsFirst
	MismatchExecutesAgain
)

// Replay says what the destination answers to the same key and payload again.
type Replay uint8

// The replay promises, in the order of the wire contract. Unspecified = none.
const (
	ReplayUnspecified Replay = iota
	ReplayFirstResponse
	ReplaySuccessOnly
	ReplayCurrentState
)

// Idempotency describes the destination's own deduplication.
type Idempotency struct {
	Mode                IdempotencyMode
	Retention           *time.Duration // nil = unknown
	SameKeyOtherPayload Mismatch
	KeyMaxBytes         uint32
	KeyScope            string
	CachesRejections    bool
	Replay              Replay
	Covers              []string // record, notification, downstream
	VerifiedOn          string   // YYYY-MM-DD
}

// Lookup is how a read finds the effect.
type Lookup uint8

// The lookups, in the order of the wire contract.
const (
	LookupUnspecified Lookup = iota
	LookupNone
	LookupByKey
	LookupByMarker
	LookupByNaturalID
	LookupByContent
	LookupByRequestID
	LookupWindow
)

// Authority is how far an answer of a read may be believed. The zero value is advisory.
type Authority uint8

// The authorities, in the order of the wire contract.
const (
	AuthorityUnspecified Authority = iota
	Authoritative                  // strongly consistent
	Eventual                       // an effect is visible no later than a declared lag
	Advisory                       // proves no absence
)

// ReadSpec describes the authoritative read of an operation.
type ReadSpec struct {
	Lookup        Lookup
	Authority     Authority
	MaxLag        *time.Duration // Eventual: an effect is visible no later than this; nil = undeclared
	Horizon       time.Duration  // how far back effects are still found; 0 = for ever
	Permissions   []string
	ProvesAbsence bool
	View          string
}

// Limits are declared by the adapter and enforced by the host.
type Limits struct {
	MaxPayload     uint32
	MaxConcurrency uint32
	PerSecond      float64
	Burst          uint32
}

// ReversalKind says whether an operation can be taken back. The zero value is irreversible.
type ReversalKind uint8

// The kinds, in the order of the wire contract.
const (
	ReversalUnspecified ReversalKind = iota
	Irreversible
	Reversible    // restores the stored prior state and is read back
	Compensatable // makes up for what cannot be erased
)

// Reversal names the action that takes an operation back.
type Reversal struct {
	Kind   ReversalKind
	Action string
	Window time.Duration
}

// Configuration is handed to an adapter once, before its first call.
type Configuration struct {
	Destination   string
	Config        []byte            // JSON of destinations.NAME.with, secrets removed
	Secrets       map[string]string // credential name -> value; never logged, never in evidence
	StateDir      string
	ProxyURL      string
	ExtraCAPEM    []byte
	HostVersion   string
	ProtocolMinor uint32
	HostFeatures  []string
}

// Configured is the answer to Configure. Any diagnostic that is an error refuses the configuration.
type Configured struct {
	Diagnostics []Diagnostic
	Actions     []ActionSpec // replaces Describe's; may only narrow; nil = unchanged
	Identity    string       // "acct_123 as bot@x": shown, journaled
}

// Diagnostic is one fault with its place, a JSON pointer into the configuration or payload.
type Diagnostic struct {
	Warning                  bool // false = error
	Pointer, Summary, Detail string
}

// HealthStatus is the verdict of Check. The zero value is down.
type HealthStatus uint8

// The health verdicts, in the order of the wire contract.
const (
	HealthUnspecified HealthStatus = iota
	HealthOK
	HealthDegraded
	HealthDown
)

// Health is the answer to Check.
type Health struct {
	Status      HealthStatus
	Diagnostics []Diagnostic
	Permissions []string       // proven now
	ClockSkew   *time.Duration // destination minus local
}

// Operation is the effect as the adapter sees it. Key and Marker are stable
// over attempts; AttemptID is new for each.
type Operation struct {
	ID            string // of the effect (or the repair)
	Attempt       uint32
	Action        string
	Key           string // idempotency key
	Marker        string // embedded in the object for LookupByMarker
	Payload       []byte // the exact journaled bytes
	ContentType   string
	PayloadSHA256 []byte
	Traceparent   string
	Account       string
	AttemptID     string
	Actor         string
	Target        *ObjectRef // what undo and fix act on
}

// Prepared is the answer to Prepare. Exactly one of Ready, Rejected and
// Deferred is set; none means deferred.
type Prepared struct {
	Ready       *Ready
	Rejected    *Rejected
	Deferred    *NotExecuted
	Diagnostics []Diagnostic
}

// Ready says that the operation may be dispatched now.
type Ready struct {
	Baseline           []byte // <= MaxBaseline, journaled before Dispatch
	Target             string // what to serialise on
	View               *View
	Revision           string
	PreconditionFailed bool // a declared precondition no longer holds; the write is stopped
}

// DispatchRequest asks for one effect.
type DispatchRequest struct {
	Operation        Operation
	Baseline         []byte
	Deadline         time.Time
	ExpectedRevision string
}

// Response is the answer to Dispatch. Outcome nil means unknown.
type Response struct {
	Outcome           Outcome
	Evidence          []Evidence
	ProviderRequestID string // kept for every class of answer
}

// Outcome is one of *Committed, *Rejected, *NotExecuted, *Accepted, *Unknown.
type Outcome interface{ outcome() }

// Committed: the destination said it is done.
type Committed struct {
	Object   ObjectRef
	At       time.Time
	Replayed bool
	Result   []byte
}

// RejectReason says why a destination refused. The zero value is unspecified.
type RejectReason uint8

// The reasons, in the order of the wire contract. Conflict and KeyReused mean
// "read now": an earlier send of ours may be what the request collides with.
const (
	ReasonUnspecified RejectReason = iota
	ReasonValidation
	ReasonAuthentication
	ReasonPermission
	ReasonNotFound
	ReasonConflict
	ReasonPrecondition
	ReasonQuota
	ReasonPolicy
	ReasonKeyReused
	ReasonUnsupported
)

// Rejected: it did not and will not happen; the same request would fail again.
type Rejected struct {
	Reason           RejectReason
	Code, Message    string
	WholeDestination bool // pause the destination, fail nothing else
	Diagnostics      []Diagnostic
}

// NotExecutedBasis is the proof that nothing happened. The zero value proves nothing and is unknown.
type NotExecutedBasis uint8

// The bases, in the order of the wire contract.
const (
	BasisUnspecified NotExecutedBasis = iota
	BasisNotSent                      // no byte left
	BasisRefused                      // the destination said so, for now
	BasisBusy
	BasisNotStarted
)

// NotExecuted: it did not happen; the same request may be sent again.
type NotExecuted struct {
	Basis            NotExecutedBasis
	RetryAfter       time.Duration
	WholeDestination bool
	Message          string
}

// Accepted: taken, will finish later; the host polls Read with the handle.
type Accepted struct {
	Handle    string
	PollAfter time.Duration
	ExpiresAt time.Time
	Object    *ObjectRef
}

// UnknownCause says why nothing is known.
type UnknownCause uint8

// The causes, in the order of the wire contract.
const (
	CauseUnspecified UnknownCause = iota
	CauseTimeout
	CauseConnectionLost
	CauseBadResponse
	CauseServerError
	CauseCancelled
	CauseAdapterError
	CauseAdapterPanic
	CausePartial
)

// Unknown: everything else.
type Unknown struct {
	Cause           UnknownCause
	Message         string
	LateEffectBound *time.Duration // when tighter than the spec's
}

func (*Committed) outcome()   {}
func (*Rejected) outcome()    {}
func (*NotExecuted) outcome() {}
func (*Accepted) outcome()    {}
func (*Unknown) outcome()     {}

// ObjectRef names an object at the destination.
type ObjectRef struct{ Type, ID, Revision, URL, State string }

// Evidence is one fact the adapter saw; at most 4 KiB, without secrets.
type Evidence struct {
	At            time.Time
	Kind, Summary string
	Fields        map[string]string
	BodySHA256    []byte
}

// ReadPurpose says what a read is for.
type ReadPurpose uint8

// The purposes, in the order of the wire contract.
const (
	PurposeUnspecified ReadPurpose = iota
	PurposeResolve                 // did it happen?
	PurposePoll                    // what became of the handle?
	PurposeConfirm                 // is it still as meant?
)

// ReadRequest asks what the destination holds of an effect.
type ReadRequest struct {
	Purpose                      ReadPurpose
	Operation                    Operation
	Baseline                     []byte
	Handle                       string
	Object                       *ObjectRef
	DispatchedFrom, DispatchedTo time.Time
	Cursor                       string
	ProviderRequestIDs           []string
}

// ReadResponse is the answer to Read. Finding nil means indeterminate.
type ReadResponse struct {
	Finding       Finding
	Authority     Authority // of this answer
	Coverage      Coverage  // of this answer
	AsOf          time.Time // the destination state that it reflects
	Cursor        string
	Evidence      []Evidence
	Postcondition Postcondition
	View          *View // the absence guard is computed from View alone; an unset field fails it
}

// Finding is one of *Found, *NoneSeen, *Pending, *Failed, *Indeterminate.
type Finding interface{ finding() }

// Found lists what was seen, exact or similar. More than one exact match is never settled without a person.
type Found struct{ Matches []Match }

// NoneSeen: nothing of ours was seen. The daemon, not the adapter, concludes absence.
type NoneSeen struct{ ScopesSearched []string }

// Pending: the operation is still running at the destination.
type Pending struct {
	PollAfter time.Duration
	Message   string
}

// Failed: the accepted operation ended without effect, by the destination's own record.
type Failed struct {
	Code, Message string
	MayResend     bool
}

// Indeterminate: the read itself failed.
type Indeterminate struct {
	Message    string
	RetryAfter time.Duration
}

func (*Found) finding()         {}
func (*NoneSeen) finding()      {}
func (*Pending) finding()       {}
func (*Failed) finding()        {}
func (*Indeterminate) finding() {}

// PostconditionState says whether what must be true afterwards is true.
type PostconditionState uint8

// The states, in the order of the wire contract. Unspecified = none declared.
const (
	PostconditionUnspecified PostconditionState = iota
	PostconditionHolds
	PostconditionFails
	PostconditionPending
)

// Postcondition is the observed postcondition of a read.
type Postcondition struct {
	State PostconditionState
	Seen  string
}

// View is what a read could see: the absence guard is computed from it alone.
type View struct {
	ID                     string
	FilterSHA256           []byte
	Principal              string
	ScannedFrom, ScannedTo time.Time
	VisibilityProven       bool
	How                    string // how visibility was proven, or "assumed"
	Outage                 bool
	Near                   []Match // unmatched look-alikes in the window
}

// Coverage says how much of the view a read went through. The zero value is unspecified and proves nothing.
type Coverage uint8

// The coverages, in the order of the wire contract.
const (
	CoverageUnspecified Coverage = iota
	CoverageComplete
	CoverageTruncated
	CoveragePermissionLimited
	CoverageWindowLimited
)

// MatchStrength is what tied an object to the effect.
type MatchStrength uint8

// The strengths, in the order of the wire contract.
const (
	StrengthUnspecified MatchStrength = iota
	StrengthSimilar
	StrengthNaturalID
	StrengthMarker
	StrengthKey
	StrengthHandle
	StrengthSnapshotDiff // the only object new since the baseline of the same view
)

// Agreement says whether the object's content is ours.
type Agreement uint8

// The agreements, in the order of the wire contract.
const (
	AgreementUnspecified Agreement = iota
	AgreementSame
	AgreementDiffers
	AgreementNotCompared
	AgreementPartial // ours, but not whole
)

// Match is one object seen by a read.
type Match struct {
	Object      ObjectRef
	Strength    MatchStrength
	Agreement   Agreement
	Differences []string // JSON pointers, or what is missing
	CreatedAt   time.Time
	Observed    []byte
	Account     string // empty = the destination names none
	Target      string
	Void        bool // our own fence mark
}

// FenceRequest asks to take the key with a void mark.
type FenceRequest struct {
	Operation        Operation
	Deadline         time.Time
	ReplacesRevision string
}

// FenceResponse is the answer to Fence. At most one is set; none means indeterminate.
type FenceResponse struct {
	Fenced        *ObjectRef
	Found         *Found
	Indeterminate *Indeterminate
}
