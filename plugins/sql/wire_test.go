package sql_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// overTheWire is what may happen between the adapter and a server.
func overTheWire(t *testing.T, d *database) {
	t.Run("the answer to COMMIT is lost: unknown, and the read finds it", func(t *testing.T) {
		d.fresh(t)
		w := newWire(t, d.addr)
		a, o := d.adapter(t, w.addr(), nil), operation("pay", "k1", payload)
		w.next(afterAnswer, d.commit())
		outcome[*sdk.Unknown](t, dispatch(t, a, o, ""))
		same(t, settledRead(t, a, o), "P-k1")
		if r := outcome[*sdk.Rejected](t, dispatch(t, a, o, "")); r.Reason != sdk.ReasonKeyReused {
			t.Fatalf("%+v", r)
		}
		if n := d.payments(t); n != 1 {
			t.Fatalf("%d payments", n)
		}
	})
	t.Run("COMMIT never arrives: unknown, absence is proved, the next attempt pays", func(t *testing.T) {
		d.fresh(t)
		w := newWire(t, d.addr)
		a, o := d.adapter(t, w.addr(), nil), operation("pay", "k1", payload)
		w.next(beforeServer, d.commit())
		outcome[*sdk.Unknown](t, dispatch(t, a, o, ""))
		provesAbsence(t, settledRead(t, a, o))
		outcome[*sdk.Committed](t, dispatch(t, a, o, ""))
		same(t, read(t, a, o), "P-k1")
		if n := d.payments(t); n != 1 {
			t.Fatalf("%d payments", n)
		}
	})
	for _, stage := range []string{"INSERT INTO payment", "settled_effect"} {
		t.Run("lost before COMMIT, at "+stage+": not executed", func(t *testing.T) {
			d.fresh(t)
			w := newWire(t, d.addr)
			a, o := d.adapter(t, w.addr(), nil), operation("pay", "k1", payload)
			w.next(afterAnswer, stage)
			if n := outcome[*sdk.NotExecuted](t, dispatch(t, a, o, "")); n.Basis != sdk.BasisRefused {
				t.Fatalf("%+v", n)
			}
			provesAbsence(t, settledRead(t, a, o))
			if n := d.payments(t); n != 0 {
				t.Fatalf("%d payments", n)
			}
			if w.seen != 1 {
				t.Fatalf("%d packets with %s", w.seen, stage)
			}
		})
	}
	t.Run("COMMIT arrives late: pending until it lands, then found", func(t *testing.T) { lateCommit(t, d) })
	t.Run("COMMIT arrives later than the server waits: absent for good", func(t *testing.T) { tooLate(t, d) })
	t.Run("a fence waits for the open transaction and meets its row", func(t *testing.T) { fenceWaits(t, d) })
	t.Run("a fence after the server gave up keeps the late COMMIT out", func(t *testing.T) {
		d.fresh(t)
		w := newWire(t, d.addr)
		a, o := d.adapter(t, w.addr(), nil), operation("pay", "k1", payload)
		w.next(late, d.commit())
		outcome[*sdk.Unknown](t, dispatch(t, a, o, ""))
		r := sdk.FenceResponse{}
		for deadline := time.Now().Add(20 * time.Second); r.Fenced == nil && time.Now().Before(deadline); {
			var err error
			if r, err = a.Fence(context.Background(), sdk.FenceRequest{Operation: o}); err != nil {
				t.Fatal(err)
			}
		}
		if r.Fenced == nil {
			t.Fatalf("%+v", r)
		}
		w.let()
		outcome[*sdk.Committed](t, dispatch(t, a, o, r.Fenced.Revision))
		if n := d.payments(t); n != 1 {
			t.Fatalf("%d payments", n)
		}
	})
	t.Run("nobody listens: nothing was sent", func(t *testing.T) {
		a := d.adapter(t, "127.0.0.1:1", nil)
		if n := outcome[*sdk.NotExecuted](t, dispatch(t, a, operation("pay", "k1", payload), "")); n.Basis != sdk.BasisNotSent {
			t.Fatalf("%+v", n)
		}
	})
	t.Run("a wrong password pauses the destination", func(t *testing.T) {
		wrong := *d
		wrong.secret = "another one"
		a := wrong.adapter(t, d.addr, nil)
		r := outcome[*sdk.Rejected](t, dispatch(t, a, operation("pay", "k1", payload), ""))
		if r.Reason != sdk.ReasonAuthentication || !r.WholeDestination || strings.Contains(r.Message, "another one") {
			t.Fatalf("%+v", r)
		}
		finding[*sdk.Indeterminate](t, read(t, a, operation("pay", "k1", payload)))
	})
}

func lateCommit(t *testing.T, d *database) {
	d.fresh(t)
	w := newWire(t, d.addr)
	a := d.adapter(t, w.addr(), func(c map[string]any) { c["timeouts"] = map[string]any{"idle": "30s", "statement": "1s"} })
	o := operation("pay", "k1", payload)
	w.next(late, d.commit())
	outcome[*sdk.Unknown](t, dispatch(t, a, o, ""))
	finding[*sdk.Pending](t, read(t, a, o))
	// The next attempt may not overtake it: it waits, gives up and has written nothing.
	if n := outcome[*sdk.NotExecuted](t, dispatch(t, a, o, "")); n.Basis != sdk.BasisBusy {
		t.Fatalf("%+v", n)
	}
	provesAbsence(t, read(t, a, operation("pay", "k2", payload))) // another key is not concerned
	w.let()
	same(t, settledRead(t, a, o), "P-k1")
	if n := d.payments(t); n != 1 {
		t.Fatalf("%d payments", n)
	}
}

func tooLate(t *testing.T, d *database) {
	d.fresh(t)
	w := newWire(t, d.addr)
	a := d.adapter(t, w.addr(), func(c map[string]any) { c["timeouts"] = map[string]any{"idle": "1s"} })
	o := operation("pay", "k1", payload)
	w.next(late, d.commit())
	outcome[*sdk.Unknown](t, dispatch(t, a, o, ""))
	finding[*sdk.Pending](t, read(t, a, o))
	provesAbsence(t, settledRead(t, a, o)) // the server ended the transaction by itself
	w.let()
	provesAbsence(t, settledRead(t, a, o))
	if n := d.payments(t); n != 0 {
		t.Fatalf("%d payments", n)
	}
}

func fenceWaits(t *testing.T, d *database) {
	d.fresh(t)
	w := newWire(t, d.addr)
	a := d.adapter(t, w.addr(), func(c map[string]any) { c["timeouts"] = map[string]any{"idle": "30s", "statement": "20s"} })
	o := operation("pay", "k1", payload)
	w.next(late, d.commit())
	outcome[*sdk.Unknown](t, dispatch(t, a, o, ""))
	fenced := make(chan sdk.FenceResponse, 1)
	go func() {
		r, err := a.Fence(context.Background(), sdk.FenceRequest{Operation: o})
		if err != nil {
			r.Indeterminate = &sdk.Indeterminate{Message: err.Error()}
		}
		fenced <- r
	}()
	select {
	case r := <-fenced:
		t.Fatalf("the fence did not wait: %+v", r)
	case <-time.After(300 * time.Millisecond):
	}
	w.let()
	r := <-fenced
	if r.Found == nil || r.Found.Matches[0].Object.ID != "P-k1" {
		t.Fatalf("%+v %+v", r, r.Indeterminate)
	}
}

// commit is how COMMIT looks on the wire, and nothing else does.
func (d *database) commit() string {
	if d.driver == "postgres" {
		return "COMMIT\x00"
	}
	return "\x03COMMIT"
}
