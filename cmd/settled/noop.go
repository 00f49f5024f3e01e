package main

import (
	"context"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// noop is the embedded destination of `settled bench`: it answers every
// dispatch as done and every read as found, and touches nothing.
type noop struct{}

func newNoop() sdk.Adapter { return noop{} }

func (noop) Describe(context.Context) (sdk.Description, error) {
	none := time.Duration(0)
	spec := sdk.ActionSpec{
		Name: "noop", Summary: "does nothing and says that it is done",
		Idempotency:     sdk.Idempotency{Mode: sdk.IdempotencyNone},
		Read:            sdk.ReadSpec{Lookup: sdk.LookupByKey, Authority: sdk.Authoritative, ProvesAbsence: true, View: "noop"},
		Reversal:        sdk.Reversal{Kind: sdk.Reversible},
		LateEffectBound: &none,
	}
	hang := spec
	hang.Name, hang.Summary = "hang", "does nothing and never says so"
	return sdk.Description{Name: "noop", Version: version(), Actions: []sdk.ActionSpec{spec, hang}}, nil
}

func (noop) Configure(context.Context, sdk.Configuration) (sdk.Configured, error) {
	return sdk.Configured{Identity: "noop"}, nil
}

func (noop) Check(context.Context, []string) (sdk.Health, error) {
	return sdk.Health{Status: sdk.HealthOK}, nil
}

func (noop) Prepare(context.Context, sdk.Operation) (sdk.Prepared, error) {
	return sdk.Prepared{Ready: &sdk.Ready{}}, nil
}

func (noop) Dispatch(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	if r.Operation.Action == "hang" {
		<-ctx.Done()
		return sdk.Response{Outcome: &sdk.Unknown{Cause: sdk.CauseTimeout}}, nil
	}
	return sdk.Response{Outcome: &sdk.Committed{Object: sdk.ObjectRef{Type: "noop", ID: r.Operation.Key}, At: time.Now()}}, nil
}

func (noop) Read(_ context.Context, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	at := time.Now()
	return sdk.ReadResponse{
		Finding: &sdk.Found{Matches: []sdk.Match{{
			Object: sdk.ObjectRef{Type: "noop", ID: r.Operation.Key}, Strength: sdk.StrengthKey, Agreement: sdk.AgreementSame,
		}}},
		Authority: sdk.Authoritative, Coverage: sdk.CoverageComplete, AsOf: at,
		View: &sdk.View{ID: "noop", VisibilityProven: true, How: "it sees all", ScannedTo: at},
	}, nil
}
