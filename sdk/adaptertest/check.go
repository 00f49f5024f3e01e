package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// check is one rule. A nil run is a check that the kit does not have yet.
type check struct {
	id    string
	level Level
	name  string
	rule  string
	why   string // not built: why
	run   func(k *kit) error
	needs need
}

// need is what a check cannot do without.
type need uint

const (
	needsAction   need = 1 << iota // an operation that the plan names, and a destination
	needsProxy                     // HTTP through the proxy
	needsRead                      // a read that finds
	needsKey                       // deduplication by key or nature
	needsAbsence                   // a read that proves absence
	needsReversal                  // an action that takes it back
	needsEffects                   // somebody who counts
	needsText                      // a free text in the payload
)

// skip is a check that does not apply, with the reason.
type skip struct{ why string }

func (s *skip) Error() string { return s.why }

func skipped(format string, args ...any) error { return &skip{fmt.Sprintf(format, args...)} }

// checks are all rules, in order.
func checks() []check {
	return slices.Concat(protocolChecks(), meaningChecks(), repairChecks(), faultChecks(), crashChecks(), readFaultChecks(), hygieneChecks())
}

// run runs one check. Whatever it did to proxy and processes is cleared.
func (k *kit) run(c check) Result {
	r := Result{ID: c.id, Level: c.level, Name: c.name, Rule: c.rule}
	begun := time.Now()
	defer func() { r.Took = time.Since(begun) }()
	if len(k.o.Only) > 0 && !slices.Contains(k.o.Only, c.id) {
		r.Status, r.Reason = Skip, "not asked for"
		return r
	}
	if c.run == nil {
		r.Status, r.Reason = NotBuilt, c.why
		return r
	}
	if why, ok := k.plan.Skip[c.id]; ok {
		r.Status, r.Reason = Skip, "the plan says: "+why
		return r
	}
	err := k.capable(c.needs)
	if err == nil {
		err = c.run(k)
	}
	if k.shared != nil && k.shared.Client != nil {
		if b := k.shared.breaches(); err == nil && len(b) > 0 {
			err = fmt.Errorf("the contract was broken: %s", b[0])
		}
	}
	if k.proxy != nil {
		k.proxy.Clear()
		k.proxy.Release()
	}
	var s *skip
	switch {
	case err == nil:
		r.Status = Pass
	case errors.As(err, &s):
		r.Status, r.Reason = Skip, s.why
	default:
		r.Status, r.Reason = Fail, err.Error()
	}
	return r
}

// capable says why a check does not apply to this adapter and plan, or nil.
func (k *kit) capable(n need) error {
	if n == 0 {
		return nil
	}
	if err := k.know(); err != nil {
		return err
	}
	read := k.spec.Read.Lookup != sdk.LookupNone && k.spec.Read.Lookup != sdk.LookupUnspecified
	mode := k.spec.Idempotency.Mode
	for _, c := range []struct {
		bit need
		ok  bool
		why string
	}{
		{needsAction, k.destination != "" || k.plan.EffectsOf != nil, "the plan has no destination for tests"},
		{needsProxy, k.proxy != nil, "the plan has no HTTP destination that the proxy could stand before"},
		{needsRead, read, "the action declares no read"},
		{needsKey, mode == sdk.IdempotencyKey || mode == sdk.IdempotencyNatural, "the action declares no deduplication"},
		{needsAbsence, k.spec.Read.ProvesAbsence, "the read does not claim to prove absence"},
		{needsReversal, k.spec.Reversal.Action != "", "nothing takes the action back"},
		{needsEffects, k.plan.Effects != "" || k.plan.EffectsOf != nil, "the plan has no \"effects\", so nobody counts what really happened"},
		{needsText, k.plan.Text != "", "the plan names no free text in the payload"},
	} {
		if n&c.bit != 0 && !c.ok {
			return skipped("%s", c.why)
		}
	}
	return nil
}

// know finds out once what the adapter can do with the plan's configuration.
func (k *kit) know() error {
	if k.spec.Name != "" {
		return nil
	}
	if len(k.plan.Config) == 0 {
		return skipped("the plan has no configuration")
	}
	c, err := k.spawn()
	if err != nil {
		return err
	}
	defer c.kill()
	out, err := k.configure(c, k.config(""), k.plan.Secrets)
	if err == nil {
		err = refusal(out)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	if k.configured, err = c.Describe(ctx); err != nil {
		return err
	}
	if out.Actions != nil {
		k.configured.Actions = out.Actions
	}
	for _, a := range k.configured.Actions {
		if a.Name == k.plan.Action || k.plan.Action == "" && len(k.configured.Actions) == 1 {
			k.spec = a
			return nil
		}
	}
	return errNoAction
}

// tell names an outcome for people.
func tell(o sdk.Outcome) string {
	switch o := o.(type) {
	case *sdk.Committed:
		return fmt.Sprintf("committed (object %q)", o.Object.ID)
	case *sdk.Rejected:
		return fmt.Sprintf("rejected (reason %d, %s %s)", o.Reason, o.Code, o.Message)
	case *sdk.NotExecuted:
		return fmt.Sprintf("not executed (basis %d, after %s, %s)", o.Basis, o.RetryAfter, o.Message)
	case *sdk.Accepted:
		return fmt.Sprintf("accepted (handle %q)", o.Handle)
	case *sdk.Unknown:
		return fmt.Sprintf("unknown (cause %d, %s)", o.Cause, o.Message)
	}
	return "nothing"
}

func tellFinding(r sdk.ReadResponse) string {
	switch f := r.Finding.(type) {
	case *sdk.Found:
		return fmt.Sprintf("found (%d)", len(f.Matches))
	case *sdk.NoneSeen:
		return fmt.Sprintf("none seen (coverage %d)", r.Coverage)
	case *sdk.Pending:
		return "pending " + f.Message
	case *sdk.Failed:
		return "failed " + f.Message
	case *sdk.Indeterminate:
		return "indeterminate: " + f.Message
	}
	return "nothing"
}

// provesAbsence is what the daemon would take for "it is not there".
func provesAbsence(r sdk.ReadResponse) bool {
	_, none := r.Finding.(*sdk.NoneSeen)
	return none && r.Coverage == sdk.CoverageComplete && r.View != nil && r.View.VisibilityProven &&
		(r.Authority == sdk.Authoritative || r.Authority == sdk.Eventual)
}

func unknown(o sdk.Outcome) error {
	if _, ok := o.(*sdk.Unknown); !ok {
		return fmt.Errorf("the answer must be unknown, but is %s", tell(o))
	}
	return nil
}
