package desk

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind names what goes wrong with one request. The empty kind is none.
type Kind string

// The kinds. Where a delay matters it is Fault.Delay. Those of a read are
// LostAnswer, Error500, Error502, Truncated, Garbled, Hang and Busy; every
// other kind leaves a read alone.
const (
	None         Kind = ""
	LostAnswer   Kind = "lost-answer"  // committed, then the connection is reset
	LostRequest  Kind = "lost-request" // reset before anything was committed
	LateCommit   Kind = "late-commit"  // reset; committed Delay later
	Error500     Kind = "error-500"    // committed, then 500
	Error502     Kind = "error-502"    // committed, then 502 with a page of HTML
	Truncated    Kind = "truncated"    // committed, the 201 ends in the middle of its body
	Garbled      Kind = "garbled"      // committed, the 201 has a body that is no JSON
	DropRef      Kind = "drop-ref"     // committed and answered without external_ref
	DropBody     Kind = "drop-body"    // committed and answered without the ticket's body
	Twice        Kind = "twice"        // committed two times, answered once
	ReadLag      Kind = "read-lag"     // the list shows the ticket Delay later (default: the declared lag)
	LyingLag     Kind = "lying-lag"    // the same, but beyond the declared lag (default: ten times as long)
	Busy         Kind = "busy"         // 429 with Retry-After = Delay in whole seconds, at least 1
	Invalid      Kind = "invalid"      // 422
	Unauthorized Kind = "unauthorized" // 401
	Forbidden    Kind = "forbidden"    // 403
	Hang         Kind = "hang"         // nothing committed, no answer until the caller leaves or Delay is over (then 504)
	HangCommit   Kind = "hang-commit"  // committed, then as Hang
)

func kinds() []Kind {
	return []Kind{
		LostAnswer, LostRequest, LateCommit, Error500, Error502, Truncated, Garbled, DropRef, DropBody,
		Twice, ReadLag, LyingLag, Busy, Invalid, Unauthorized, Forbidden, Hang, HangCommit,
	}
}

// Fault is what happens to one request.
type Fault struct {
	Kind  Kind
	Delay time.Duration // 0 = the kind's default
}

// ParseFault reads "KIND" or "KIND:DELAY", as in "late-commit:400ms"; "none"
// and the empty string are no fault.
func ParseFault(text string) (Fault, error) {
	name, delay, timed := strings.Cut(strings.TrimSpace(text), ":")
	fault := Fault{Kind: Kind(name)}
	if name == "none" {
		fault.Kind = None
	}
	if fault.Kind != None && !slices.Contains(kinds(), fault.Kind) {
		return Fault{}, fmt.Errorf("unknown fault %q; the faults are none, %s", name, joinKinds())
	}
	if timed {
		d, err := time.ParseDuration(delay)
		if err != nil || d < 0 {
			return Fault{}, fmt.Errorf("fault %q: the delay %q is no duration such as 400ms", name, delay)
		}
		fault.Delay = d
	}
	return fault, nil
}

func joinKinds() string {
	names := make([]string, 0, len(kinds()))
	for _, k := range kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// String is the form that ParseFault reads.
func (f Fault) String() string {
	name := string(f.Kind)
	if f.Kind == None {
		name = "none"
	}
	if f.Delay > 0 {
		return name + ":" + f.Delay.String()
	}
	return name
}

// MarshalText writes String.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads ParseFault.
func (f *Fault) UnmarshalText(text []byte) error {
	parsed, err := ParseFault(string(text))
	if err == nil {
		*f = parsed
	}
	return err
}

// Share is the weight of one fault in a plan.
type Share struct {
	Fault  Fault
	Weight int // > 0
}

// Plan chooses a fault for every create request by seed, reference and the
// number of the request, and by nothing else: two runs with the same plan
// misbehave in the same places. The zero plan has no faults.
type Plan struct {
	Seed   uint64
	Shares []Share
	Times  int // how many first requests of a reference are affected; 0 = 1, so a second attempt goes well
}

// ParsePlan reads "none=6,lost-answer=2,late-commit:400ms=1" and, as one more
// member, "times=N". The empty text is the zero plan.
func ParsePlan(seed uint64, text string) (Plan, error) {
	plan := Plan{Seed: seed}
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, number, ok := strings.Cut(part, "=")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 1 || n > 1_000_000 {
			return Plan{}, fmt.Errorf("plan member %q is not FAULT=WEIGHT with a weight of 1 to 1000000", part)
		}
		if name == "times" {
			plan.Times = n
			continue
		}
		fault, err := ParseFault(name)
		if err != nil {
			return Plan{}, err
		}
		plan.Shares = append(plan.Shares, Share{Fault: fault, Weight: n})
	}
	return plan, nil
}

// Choose gives the fault of the n-th request (from 1) for a reference.
func (p Plan) Choose(ref string, n int) Fault {
	total := 0
	for _, s := range p.Shares {
		total += s.Weight
	}
	if total == 0 || n > max(p.Times, 1) {
		return Fault{}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", p.Seed, n, ref))
	at := int(binary.BigEndian.Uint64(sum[:8]) % uint64(total))
	for _, s := range p.Shares {
		if at -= s.Weight; at < 0 {
			return s.Fault
		}
	}
	return Fault{}
}
