package cli_test

import "testing"

func TestPruneSaysWhatItRemoved(t *testing.T) {
	d := newDesk(t)
	if r := d.run("journal prune --json"); r.code != 0 || r.out != "{\"effects\":2,\"payloads\":3}\n" {
		t.Errorf("exit %d, %q", r.code, r.out)
	}
	if r := d.run("journal prune"); r.out != "removed 2 effect(s) and 3 payload(s); their keys and digests stay\n" {
		t.Errorf("%q", r.out)
	}
}
