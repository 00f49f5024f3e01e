package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk"
)

// authorityLife is how long a grant by policy lasts when the effect's deadline
// does not end it earlier. The stricter of the two counts.
const authorityLife = 365 * 24 * time.Hour

// operation is one operation of a destination with everything that rules it.
type operation struct {
	spec   sdk.ActionSpec
	eff    config.Effective
	policy journal.Policy
}

// resolve joins what the operator wrote with what the adapter declares.
func resolve(eff config.Effective, spec sdk.ActionSpec, adapterSHA, policySHA string) operation {
	declared := Declared(spec)
	eff = eff.WithDeclared(declared)
	p := journal.Policy{
		SHA256: policySHA, Contract: contractOf(spec, adapterSHA),
		Owner: eff.Owner, AuthorityOwner: eff.Owner, Severity: journal.Severity(eff.Severity),
		ReviewWithin: map[journal.Severity]time.Duration{},
		Proof:        journal.Proof(eff.Proof), Timeout: eff.Timeout, RecordReserve: eff.RecordReserve, MaxAge: eff.MaxAge,
		Retry: journal.Retry{
			Attempts: eff.Attempts, Elapsed: eff.Elapsed, BackoffInitial: eff.BackoffInitial,
			BackoffMax: eff.BackoffMax, Factor: eff.BackoffFactor, AfterAbsence: eff.AfterAbsence,
		},
		Grace: journal.Grace{
			MaxProcessing: eff.MaxProcessing, Lag: eff.Lag, Skew: eff.Skew, Safety: eff.Safety,
			Linger: eff.Linger, AbsenceValid: eff.AbsenceValid, Reads: eff.Reads,
		},
		ReconcileBudget: eff.ReconcileBudget, AckDeadline: eff.AckDeadline, VerifyDeadline: eff.VerifyDeadline,
		Settle: journal.Settle(eff.Settle), Contain: map[journal.Finding]journal.ScopeKind{},
		HumanOnly: spec.HumanOnly, WantPrecondition: spec.Precondition,
	}
	for s, d := range eff.ReviewWithin {
		p.ReviewWithin[journal.Severity(s)] = d
	}
	for f, k := range eff.Contain {
		p.Contain[journal.Finding(f)] = journal.ScopeKind(k)
	}
	for _, f := range eff.TripBreaker {
		p.TripBreaker = append(p.TripBreaker, journal.Finding(f))
	}
	readPolicy(&p, spec)
	return operation{spec: spec, eff: eff, policy: p}
}

// readPolicy copies what the adapter says of its read and its deduplication.
func readPolicy(p *journal.Policy, spec sdk.ActionSpec) {
	r := spec.Read
	p.HasRead = r.Lookup != sdk.LookupNone && r.Lookup != sdk.LookupUnspecified
	p.ProvesAbsence = r.ProvesAbsence
	switch r.Lookup {
	case sdk.LookupByKey, sdk.LookupByMarker, sdk.LookupByRequestID:
		p.KeyedLookup = true
	case sdk.LookupByNaturalID:
		p.KeyedLookup, p.NaturalID = true, true
	case sdk.LookupWindow, sdk.LookupByContent:
		p.SnapshotDiff, p.WantsSnapshot = r.Lookup == sdk.LookupWindow, r.Lookup == sdk.LookupWindow
	}
	p.NaturalID = p.NaturalID || spec.Idempotency.Mode == sdk.IdempotencyNatural
	p.Consistency = consistencyOf(r.Authority, r.MaxLag)
	switch spec.Reversal.Kind {
	case sdk.Reversible:
		p.Reversibility = journal.ReversibleOp
	case sdk.Compensatable:
		p.Reversibility = journal.CompensatableOp
	}
	p.DedupeWindow = spec.Idempotency.Retention
	p.ReplaysFirst = spec.Idempotency.Replay == sdk.ReplayFirstResponse
}

func consistencyOf(a sdk.Authority, lag *time.Duration) journal.Consistency {
	switch {
	case a == sdk.Authoritative:
		return journal.ConsistencyStrong
	case a == sdk.Eventual && lag != nil:
		return journal.ConsistencyBounded
	case a == sdk.Eventual:
		return journal.ConsistencyEventual
	}
	return journal.ConsistencyNone
}

// Declared is what the adapter's action says that the configuration must agree with.
func Declared(spec sdk.ActionSpec) config.Declared {
	d := config.Declared{MaxProcessing: spec.LateEffectBound, Lag: spec.Read.MaxLag}
	d.Irreversible = spec.Reversal.Kind == sdk.Irreversible || spec.Reversal.Kind == sdk.ReversalUnspecified
	if spec.Read.Authority == sdk.Authoritative && d.Lag == nil {
		zero := time.Duration(0)
		d.Lag = &zero
	}
	return d
}

// contractOf is the digest of the adapter's binary and its action: when either
// changes, an authority granted before is withdrawn and asked for again.
func contractOf(spec sdk.ActionSpec, adapterSHA string) string {
	b, err := json.Marshal(spec)
	if err != nil { // a value of plain fields always encodes
		b = []byte(spec.Name)
	}
	h := sha256.New()
	h.Write([]byte(adapterSHA))
	h.Write(b)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// provesCommit and provesAbsence say in words what would settle a doubt.
func provesCommit(o operation) string {
	if !o.policy.HasRead {
		return "a person who looks at the destination and names the object (decide … happened --object ID)"
	}
	how := map[sdk.Lookup]string{
		sdk.LookupByKey: "its key", sdk.LookupByMarker: "the marker embedded in it", sdk.LookupByNaturalID: "its natural id",
		sdk.LookupByContent: "its content", sdk.LookupByRequestID: "the provider's request id", sdk.LookupWindow: "being the only new object since the snapshot",
	}[o.spec.Read.Lookup]
	return "one object found by " + orElse(how, "the read") + " in view " + orElse(o.spec.Read.View, "of the read") + ", with our content"
}

func provesAbsence(o operation) string {
	p := o.policy
	switch {
	case !p.HasRead:
		return "a person with evidence (decide … did-not-happen)"
	case !p.ProvesAbsence:
		return "nothing this view can show; a person with evidence (decide … did-not-happen)"
	case p.Grace.MaxProcessing == nil:
		return "nothing until grace.max_processing is declared; a person with evidence (decide … did-not-happen)"
	case p.Consistency == journal.ConsistencyStrong && *p.Grace.MaxProcessing == 0:
		return "one complete, permitted read that sees nothing"
	}
	return "two agreeing complete, permitted reads that see nothing, both after the grace has passed"
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
