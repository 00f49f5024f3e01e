package cutproxy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// Kind is what the proxy does with one request. The empty kind passes it on.
type Kind string

// The kinds.
const (
	Pass          Kind = ""
	BeforeForward Kind = "before-forward" // reset; the server sees nothing
	AfterForward  Kind = "after-forward"  // the server answered; the caller gets a reset instead
	MidAnswer     Kind = "mid-answer"     // half of the answer, then a reset
	LateForward   Kind = "late-forward"   // reset; the server gets the request Delay later
	DelayRequest  Kind = "delay-request"  // forwarded Delay later, if the caller waits or not
	DelayAnswer   Kind = "delay-answer"   // answered Delay later
)

// Action is a kind with its delay.
type Action struct {
	Kind  Kind
	Delay time.Duration
}

// Request is what a plan may choose by. In raw mode only Number and Time are set.
type Request struct {
	Number int    // of all requests, from 1
	Method string // HTTP
	Path   string // with the query
	Key    string // of the Idempotency-Key header
	Time   int    // how often this method, path and key came, from 1
}

// Plan chooses. It is called for one request at a time; nil passes everything on.
type Plan func(Request) Action

// Share is the weight of one action in a seeded plan.
type Share struct {
	Action Action
	Weight int // > 0
}

// Seeded chooses by seed, method, path, key and time, and not by the order of
// requests of different callers. Requests that only rejects pass; nil = none do.
func Seeded(seed uint64, only func(Request) bool, shares ...Share) Plan {
	total := 0
	for _, s := range shares {
		total += max(s.Weight, 0)
	}
	return func(r Request) Action {
		if total == 0 || only != nil && !only(r) {
			return Action{}
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s %s %s", seed, r.Time, r.Method, r.Path, r.Key))
		at := int(binary.BigEndian.Uint64(sum[:8]) % uint64(total))
		for _, s := range shares {
			if at -= max(s.Weight, 0); at < 0 {
				return s.Action
			}
		}
		return Action{}
	}
}

// Script gives the actions in order, one per request that only accepts (nil =
// all), and passes everything after them.
func Script(only func(Request) bool, actions ...Action) Plan {
	return func(r Request) Action {
		if len(actions) == 0 || only != nil && !only(r) {
			return Action{}
		}
		next := actions[0]
		actions = actions[1:]
		return next
	}
}

// Writes accepts everything but GET and HEAD.
func Writes(r Request) bool { return r.Method != "GET" && r.Method != "HEAD" }
