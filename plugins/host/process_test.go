package host

import (
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

func TestAnAdapterStartsAndAnswers(t *testing.T) {
	p := start(t, command(t, nil))
	r, err := p.Dispatch(t.Context(), request("commit", 5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Outcome.(*sdk.Committed); !ok {
		t.Fatalf("got %#v, want committed", r.Outcome)
	}
	read, err := p.Read(t.Context(), sdk.ReadRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := read.Finding.(*sdk.NoneSeen); !ok || read.Authority != sdk.Authoritative {
		t.Fatalf("got %#v, want none seen, authoritative", read)
	}
	id := p.Identity()
	if id.Adapter != "rogue" || id.Version != "1.2.3" || len(id.SHA256) != 64 || id.Account != "acct_1" || id.PID == 0 || id.BootID == "" {
		t.Errorf("incomplete identity: %+v", id)
	}
}
