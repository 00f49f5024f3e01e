package journal

import (
	"fmt"
	"strings"
	"time"
)

// Ask is what the dispatcher brings to the write gate. Everything in it is
// known inside the transaction that would insert the `sent` row.
type Ask struct {
	Seq          int64  // of the effect as the dispatcher saw it
	Fingerprint  string // as the dispatcher saw it
	Epoch        int64  // of the daemon that asks
	CurrentEpoch int64  // of the journal
	Dispatch     string // why dispatch is off; "" = on
	HeldBy       string // the hold that covers the effect; "" = none
	BreakerOpen  bool
	SlotHeld     bool
	TokenHeld    bool // rate
	RetryToken   bool // only asked of a second or later attempt
	Contract     string

	PreconditionReadAt time.Time // when the precondition was re-read; zero when none is declared
	PreconditionHolds  bool
	SnapshotStored     bool
	Approval           *Approval // when the authority is one
}

// Refusal is one clause of the write gate that does not hold.
type Refusal struct {
	Clause string
	Why    string
}

// GateError is returned when the write gate stays shut. Nothing was written and nothing may be sent.
type GateError struct {
	Key      string
	Refusals []Refusal
}

func (g *GateError) Error() string {
	whys := make([]string, len(g.Refusals))
	for i, r := range g.Refusals {
		whys[i] = r.Why
	}
	return "write gate shut for " + g.Key + ": " + strings.Join(whys, "; ")
}

// Has reports whether the clause is among the refusals.
func (g *GateError) Has(clause string) bool {
	for _, r := range g.Refusals {
		if r.Clause == clause {
			return true
		}
	}
	return false
}

// The clauses of the gate that the shell tells apart.
const (
	GatePhase        = "phase"
	GateSeq          = "seq"
	GateUnsettled    = "unsettled"
	GateFingerprint  = "fingerprint"
	GateAuthority    = "authority"
	GatePrecondition = "precondition"
	GateDeadline     = "deadline"
	GateBudget       = "budget"
	GateAbsence      = "absence"
	GatePositive     = "positive"
	GateNotBefore    = "not_before"
	GateSlot         = "slot"
	GateHold         = "hold"
	GateBreaker      = "breaker"
	GateEpoch        = "epoch"
	GateDispatch     = "dispatch"
	GateContract     = "contract"
	GateSnapshot     = "snapshot"
	GateHuman        = "human_only"
)

// Gate is the write gate. An empty result opens it; otherwise every clause
// that does not hold is named. It is evaluated inside the transaction that
// inserts the attempt as `sent`, and nowhere else.
func Gate(e Effect, a Ask, env Env) []Refusal {
	var out []Refusal
	shut := func(clause, format string, args ...any) {
		out = append(out, Refusal{clause, fmt.Sprintf(format, args...)})
	}
	if e.Phase != Authorized {
		shut(GatePhase, "phase is %s, not authorized", e.Phase)
	}
	if a.Seq != e.Seq {
		shut(GateSeq, "the effect changed meanwhile (seq %d, now %d)", a.Seq, e.Seq)
	}
	if a.Fingerprint != e.Fingerprint {
		shut(GateFingerprint, "fingerprint changed")
	}
	gateHistory(e, env, shut)
	gateAuthority(e, a, env, shut)
	gateTime(e, a, env, shut)
	gateShell(a, shut)
	if env.Policy.WantPrecondition {
		switch {
		case a.PreconditionReadAt.IsZero() || env.Now.Sub(a.PreconditionReadAt) > env.Policy.MaxAge:
			shut(GatePrecondition, "precondition was not re-read within %s", env.Policy.MaxAge)
		case !a.PreconditionHolds:
			shut(GatePrecondition, "precondition no longer holds")
		}
	}
	if env.Policy.WantsSnapshot && !a.SnapshotStored {
		shut(GateSnapshot, "no snapshot is stored")
	}
	return out
}

type shutter func(clause, format string, args ...any)

// gateHistory asks what earlier attempts left behind.
func gateHistory(e Effect, env Env, shut shutter) {
	sentBefore := false
	for _, at := range e.Attempts {
		if at.State.Unsettled() || at.State == AttemptCommitted || at.State == AttemptSettledPresent {
			shut(GateUnsettled, "attempt %d is %s and not settled", at.Number, at.State)
		}
		sentBefore = sentBefore || at.State == AttemptSettledAbsent
	}
	if e.Positive.stands() {
		shut(GatePositive, "evidence says it may have happened (%s)", e.Positive.What)
	}
	if sentBefore && (e.Absence == nil || (!e.Absence.Final && !env.Now.Before(e.Absence.ValidUntil))) {
		shut(GateAbsence, "the evidence of absence has expired")
	}
}

// approvalRef begins the reference of an authority that a person gave.
const approvalRef = "approval:"

func gateAuthority(e Effect, a Ask, env Env, shut shutter) {
	until := env.Now.Add(env.Policy.Timeout)
	switch {
	case e.Authority == nil:
		shut(GateAuthority, "no authority")
	case !e.Authority.ExpiresAt.After(until):
		shut(GateAuthority, "authority expires before the call would end")
	case a.Approval == nil && strings.HasPrefix(e.Authority.Ref, approvalRef):
		shut(GateAuthority, "the approval that allowed this was not brought to the gate")
	case a.Approval != nil && !a.Approval.Covers(e.Intent, until):
		shut(GateAuthority, "the approval no longer covers this")
	}
	if e.Authority != nil && e.Authority.ContractSHA256 != a.Contract {
		shut(GateContract, "the adapter's contract changed since authorization")
	}
	if env.Policy.HumanOnly && (a.Approval == nil) {
		shut(GateHuman, "only a person may authorize this operation")
	}
}

func gateTime(e Effect, a Ask, env Env, shut shutter) {
	if env.Now.Before(e.NextSend) || env.Now.Before(e.NotBefore) {
		shut(GateNotBefore, "not before %s", clock(later(e.NextSend, e.NotBefore)))
	}
	if why := spent(e, env); why != "" {
		clause := GateBudget
		if why == "deadline passed" {
			clause = GateDeadline
		}
		shut(clause, "%s", why)
	}
	if e.Budget.Attempts > 0 && !a.RetryToken {
		shut(GateBudget, "no retry token left for %s", e.Destination)
	}
}

func gateShell(a Ask, shut shutter) {
	if a.Epoch != a.CurrentEpoch {
		shut(GateEpoch, "a newer daemon owns the journal (epoch %d, asked with %d)", a.CurrentEpoch, a.Epoch)
	}
	if a.Dispatch != "" {
		shut(GateDispatch, "dispatch is off: %s", a.Dispatch)
	}
	if a.HeldBy != "" {
		shut(GateHold, "held by %s", a.HeldBy)
	}
	if a.BreakerOpen {
		shut(GateBreaker, "the destination's breaker is open")
	}
	if !a.SlotHeld || !a.TokenHeld {
		shut(GateSlot, "no slot or rate token is held")
	}
}
