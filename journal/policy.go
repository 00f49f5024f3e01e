package journal

import "time"

// Proof says what succeeded rests on.
type Proof string

// The proofs. ProofAck is a declared waiver, shown as "acknowledged, not verified".
const (
	ProofRead Proof = "read"
	ProofAck  Proof = "ack"
)

// Settle is how an unknown outcome may be settled besides reading.
type Settle string

// The settle modes.
const (
	SettleRead   Settle = "read"
	SettleFence  Settle = "fence"
	SettleReplay Settle = "replay"
)

// Consistency is how far a view may lag behind the destination's truth.
type Consistency string

// The consistencies; the zero value proves no absence.
const (
	ConsistencyNone     Consistency = ""
	ConsistencyStrong   Consistency = "strong"
	ConsistencyBounded  Consistency = "bounded"
	ConsistencyEventual Consistency = "eventual"
)

// Policy is everything that configuration and adapter say about one operation
// of one destination. It is resolved by the shell and handed in; the core never
// looks anything up.
type Policy struct {
	SHA256   string
	Contract string // digest of the adapter's action

	Owner          string
	AuthorityOwner string // asked on 401 and 403
	Severity       Severity
	ReviewWithin   map[Severity]time.Duration

	Proof         Proof
	Timeout       time.Duration // one dispatch
	RecordReserve time.Duration // kept free inside every deadline to write the outcome down
	MaxAge        time.Duration // of a precondition's read
	Retry         Retry
	Grace         Grace

	ReconcileBudget time.Duration
	AckDeadline     time.Duration
	VerifyDeadline  time.Duration
	Settle          Settle
	Contain         map[Finding]ScopeKind
	TripBreaker     []Finding

	HasRead          bool // an authoritative read exists
	Consistency      Consistency
	ProvesAbsence    bool
	KeyedLookup      bool // by key, marker, operation id or deterministic name
	NaturalID        bool // a natural id counts as exact
	SnapshotDiff     bool // identify = "snapshot"
	Reversibility    Reversibility
	DedupeWindow     *time.Duration
	ReplaysFirst     bool // the destination declares first-response replay
	HumanOnly        bool
	WantsSnapshot    bool
	WantPrecondition bool
}

// Retry caps what may be sent again. All three caps hold.
type Retry struct {
	Attempts       int
	Elapsed        time.Duration // of answers known as not executed
	BackoffInitial time.Duration
	BackoffMax     time.Duration
	Factor         float64
	AfterAbsence   time.Duration // after the sending of the settled attempt
}

// Grace says when an empty read may be believed.
type Grace struct {
	MaxProcessing *time.Duration // nil: nobody declared it; absence is never concluded
	Lag           *time.Duration // nil: undeclared
	Skew          time.Duration
	Safety        time.Duration
	Linger        time.Duration // how long an overdue call may still answer
	AbsenceValid  time.Duration
	Reads         []time.Duration // offsets from becoming ambiguous; the last repeats
}

// reviewWithin is the severity clock; four hours when nothing says otherwise.
func (p Policy) reviewWithin(s Severity) time.Duration {
	if d, ok := p.ReviewWithin[s]; ok && d > 0 {
		return d
	}
	return 4 * time.Hour
}
