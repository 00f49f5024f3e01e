package config

import (
	"maps"
	"slices"
	"time"
)

// Effective is everything that holds for one operation of one destination, in
// one flat value: the destination's settings with the operation's own on top.
type Effective struct {
	Destination string
	Operation   string
	Adapter     string
	Account     string

	Owner        string
	RepairOwner  string
	SecondOwner  string // "" = nobody
	Severity     string
	ReviewWithin map[string]time.Duration // by severity: low, normal, high, critical

	ApprovalMode string // none, required, when
	ApprovalWhen string // jq, with mode when
	Proof        string // read, ack
	OnOutage     string // wait, refuse, manual
	Settle       string // read, fence, replay

	Timeout       time.Duration
	RecordReserve time.Duration
	Deadline      time.Duration
	MaxAge        time.Duration

	Attempts        int
	Elapsed         time.Duration
	BackoffInitial  time.Duration
	BackoffMax      time.Duration
	BackoffFactor   float64
	TokensShare     float64 // 0 to 1
	TokensPerMinute float64
	AfterAbsence    time.Duration

	MaxProcessing   *time.Duration // nil = undeclared: absence is never concluded
	Lag             *time.Duration // nil = undeclared
	Skew            time.Duration
	Safety          time.Duration
	Linger          time.Duration
	AbsenceValid    time.Duration
	Reads           []time.Duration
	ReconcileBudget time.Duration
	AckDeadline     time.Duration
	VerifyDeadline  time.Duration
	OverrideReason  string // "" = none given

	Contain     map[string]string // finding -> key, target, run, account, destination
	TripBreaker []string          // findings
	OpenAfter   int               // breaker

	Concurrency    int
	RatePerSecond  float64
	QueueLimit     int
	SeparateDuties bool

	safety *time.Duration // as configured
}

// minSafety is the least safety for a lag: max(10s, lag/2).
func minSafety(lag *time.Duration) time.Duration {
	if lag == nil {
		return 10 * time.Second
	}
	return max(10*time.Second, *lag/2)
}

// Name is the destination's name.
func (d *Destination) Name() string { return d.name }

// ForOperation resolves what holds for the named operation. A name that the
// configuration does not mention gets the destination's own settings. The
// adapter's declarations are not in it yet: see [Effective.WithDeclared].
func (d *Destination) ForOperation(name string) Effective {
	p := d.Policy
	if own := d.Operations[name]; own != nil {
		p = p.overlaid(*own)
	}
	e := Effective{
		Destination: d.name, Operation: name, Adapter: d.Adapter, Account: d.Account,
		Owner: p.Owner, RepairOwner: p.RepairOwner, Severity: p.Severity,
		ApprovalMode: p.Approval.Mode, ApprovalWhen: p.Approval.When, Proof: p.Proof,
		OnOutage: d.OnOutage, Settle: d.Grace.Settle,
		Timeout: d.Timeout, RecordReserve: d.RecordReserve, Deadline: d.Deadline, MaxAge: d.MaxAge,
		Attempts: d.Retry.Attempts, Elapsed: d.Retry.Elapsed,
		BackoffInitial: d.Retry.Backoff.Initial, BackoffMax: d.Retry.Backoff.Max, BackoffFactor: d.Retry.Backoff.Factor,
		TokensShare: d.Retry.Tokens.Share, TokensPerMinute: d.Retry.Tokens.PerMinute, AfterAbsence: d.Retry.AfterAbsence,
		MaxProcessing: d.Grace.MaxProcessing, Lag: d.Grace.Lag, Skew: d.Grace.Skew, Linger: d.Grace.Linger,
		AbsenceValid: d.Grace.AbsenceValid, Reads: slices.Clone(d.Grace.Reads),
		ReconcileBudget: d.Grace.ReconcileBudget, AckDeadline: d.Grace.AckDeadline, VerifyDeadline: d.Grace.VerifyDeadline,
		OverrideReason: d.Grace.OverrideReason, safety: d.Grace.Safety,
		Contain: p.Contain.scopes(), TripBreaker: slices.Clone(p.Contain.TripBreaker), OpenAfter: d.Breaker.OpenAfter,
		Concurrency: d.Concurrency, RatePerSecond: d.Rate.PerSecond(), QueueLimit: d.Limits.Queue, SeparateDuties: d.SeparateDuties,
	}
	if e.RepairOwner == "" {
		e.RepairOwner = e.Owner
	}
	e.setSafety()
	if d.cfg != nil {
		if o := d.cfg.Owners[e.Owner]; o != nil {
			e.SecondOwner, e.ReviewWithin = o.Second, maps.Clone(map[string]time.Duration(o.ReviewWithin))
		}
	}
	return e
}

func (e *Effective) setSafety() {
	e.Safety = minSafety(e.Lag)
	if e.safety != nil {
		e.Safety = *e.safety
	}
}

// ReviewTime is how long a review may wait at the operation's severity.
func (e Effective) ReviewTime() time.Duration { return e.ReviewWithin[e.Severity] }

// overlaid returns p with what own sets.
func (p Policy) overlaid(own Policy) Policy {
	set := func(into *string, v string) {
		if v != "" {
			*into = v
		}
	}
	set(&p.Owner, own.Owner)
	set(&p.RepairOwner, own.RepairOwner)
	set(&p.Proof, own.Proof)
	set(&p.Severity, own.Severity)
	set(&p.Contain.Unknown, own.Contain.Unknown)
	set(&p.Contain.Partial, own.Contain.Partial)
	set(&p.Contain.Duplicate, own.Contain.Duplicate)
	set(&p.Contain.Conflicts, own.Contain.Conflicts)
	set(&p.Contain.PostconditionFailed, own.Contain.PostconditionFailed)
	if own.Contain.TripBreaker != nil {
		p.Contain.TripBreaker = own.Contain.TripBreaker
	}
	if own.Approval.Mode != "" {
		p.Approval = own.Approval
	}
	return p
}

func (c Contain) scopes() map[string]string {
	return map[string]string{
		"unknown": c.Unknown, "partial": c.Partial, "duplicate": c.Duplicate,
		"conflicts": c.Conflicts, "postcondition_failed": c.PostconditionFailed,
	}
}

// kill is how long a process may take to die after its linger.
const kill = 3 * time.Second

func orZero(d *time.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return *d
}

// AbsenceTime is the longest it can take from sending to a retry after
// confirmed absence: timeout + linger + 3 s + max_processing + lag + skew +
// safety + max(lag, 1 s) + backoff.max. It must fit after_absence and reconcile_budget.
func (e Effective) AbsenceTime() time.Duration {
	lag := orZero(e.Lag)
	return e.Timeout + e.Linger + kill + orZero(e.MaxProcessing) + lag + e.Skew + e.Safety + max(lag, time.Second) + e.BackoffMax
}
