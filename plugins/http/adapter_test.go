package http

import (
	"testing"

	"github.com/settled-dev/settled/sdk"
)

func TestAnEffectIsWrittenOnceAndReadBackAsOurs(t *testing.T) {
	d := newDesk(t)
	a := open(t, d.URL, nil)
	r := send(t, a, operation1("ticket:SUP-1:create:v1"))
	c := as[*sdk.Committed](t, r.Outcome)
	if c.Object.ID != "1" || r.ProviderRequestID != "req-1" || d.writes() != 1 {
		t.Fatalf("committed %+v, request id %q, %d writes", c, r.ProviderRequestID, d.writes())
	}
	got := readBack(t, a, sdk.ReadRequest{Operation: operation1("ticket:SUP-1:create:v1")})
	m := found(t, got)
	if len(m) != 1 || m[0].Object.ID != "1" || m[0].Strength != sdk.StrengthMarker || m[0].Agreement != sdk.AgreementSame ||
		m[0].Account != "acme" || m[0].Object.State != "open" || m[0].CreatedAt.IsZero() {
		t.Fatalf("matches %+v", m)
	}
	if got.Coverage != sdk.CoverageComplete || got.Authority != sdk.Eventual || !got.View.VisibilityProven || got.AsOf.IsZero() || got.View.ID != "by_ref" {
		t.Fatalf("read %+v view %+v", got, got.View)
	}
}

func TestAnUndoIsADispatchAndIsVerified(t *testing.T) {
	d := newDesk(t)
	a := open(t, d.URL, nil)
	send(t, a, operation1("k:1"))
	undo := operation1("repair:1")
	undo.Action, undo.Target = "create.undo", &sdk.ObjectRef{ID: "1"}
	before := readBack(t, a, sdk.ReadRequest{Operation: undo})
	as[*sdk.NoneSeen](t, before.Finding)
	as[*sdk.Committed](t, send(t, a, undo).Outcome)
	after := found(t, readBack(t, a, sdk.ReadRequest{Operation: undo}))
	if len(after) != 1 || after[0].Strength != sdk.StrengthHandle || after[0].Agreement != sdk.AgreementSame || after[0].Object.ID != "1" {
		t.Fatalf("verify found %+v", after)
	}
	again := as[*sdk.Rejected](t, send(t, a, undo).Outcome)
	if again.Reason != sdk.ReasonConflict {
		t.Fatalf("the undo of a vanished object is %+v, want read-now", again)
	}
	undo.Target = nil
	writes := d.writes()
	as[*sdk.Rejected](t, send(t, a, undo).Outcome)
	if d.writes() != writes {
		t.Fatal("an undo without an object was sent")
	}
}
