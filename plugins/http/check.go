package http

import (
	"context"
	"slices"
	"time"

	nethttp "net/http"

	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// Check asks base_url for any answer and runs the guards of the given actions
// (all of them when none are given). It only reads.
func (a *Adapter) Check(ctx context.Context, actions []string) (sdk.Health, error) {
	s := a.configured()
	if s == nil {
		return sdk.Health{Status: sdk.HealthDown, Diagnostics: []sdk.Diagnostic{{Summary: notConfigured}}}, nil
	}
	faults := &decode.Faults{}
	health := sdk.Health{Status: sdk.HealthOK}
	resp, err := s.client.Read(ctx, sdk.HTTPRequest{Method: nethttp.MethodGet, URL: s.cfg.base.String() + "/"})
	switch {
	case err != nil:
		faults.Errorf("/base_url", "%s does not answer: %s", s.cfg.base.Host, s.text(err.Error(), 512))
		return sdk.Health{Status: sdk.HealthDown, Diagnostics: faults.List}, nil
	case resp.Status >= 500:
		faults.Warnf("/base_url", "%s answers %d", s.cfg.base.Host, resp.Status)
		health.Status = sdk.HealthDegraded
	}
	health.ClockSkew = clockSkew(resp, time.Now())
	for _, name := range s.cfg.names {
		op := s.cfg.operations[name]
		if op.read == nil || op.read.guard == nil || (len(actions) > 0 && !slices.Contains(actions, name)) {
			continue
		}
		proved, failed := s.checkGuard(ctx, op, faults)
		if proved {
			health.Permissions = append(health.Permissions, name)
		}
		if failed {
			health.Status = sdk.HealthDegraded
		}
	}
	health.Diagnostics = faults.List
	return health, nil
}

// checkGuard runs a guard outside of any effect. One that needs an effect cannot
// be proved here and is not held against the destination's health.
func (s *state) checkGuard(ctx context.Context, op *operation, faults *decode.Faults) (proved, failed bool) {
	pointer := "/operations/" + op.name + "/read/guard"
	sc, err := s.scope(sdk.Operation{}, op.name, nil, "", "")
	if err != nil {
		return false, true
	}
	if _, err := s.render(ctx, op.read.guard.request, sc); err != nil {
		faults.Warnf(pointer, "can be checked only with an effect: %s", s.text(err.Error(), 256))
		return false, false
	}
	holds, _, evidence, err := s.test(ctx, op.read.guard, sc)
	switch {
	case err != nil:
		faults.Errorf(pointer, "%s", s.text(err.Error(), 512))
	case !holds:
		faults.Errorf(pointer, "does not hold (%s): an absence cannot be proved", evidence.Summary)
	}
	return err == nil && holds, err != nil || !holds
}

// clockSkew is the destination's clock minus ours, from its Date header.
func clockSkew(r *sdk.HTTPResponse, now time.Time) *time.Duration {
	at, err := nethttp.ParseTime(r.Header.Get("Date"))
	if err != nil {
		return nil
	}
	// The header has whole seconds; the middle of the exchange is the best guess.
	skew := at.Add(500 * time.Millisecond).Sub(r.At.Add(now.Sub(r.At) / 2)).Round(time.Second)
	return &skew
}
