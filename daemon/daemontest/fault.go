package daemontest

import (
	"time"

	"github.com/settled-dev/settled/sdk"
)

// Fault is what befalls one call. Its parts are independent: whether and when
// the destination executes the request, and what comes back when.
type Fault struct {
	Name string

	Stays    time.Duration // in the adapter, before a byte leaves; killing the process stops it
	Commits  bool          // the destination executes it …
	Late     time.Duration // … this long after it left, whatever becomes of the answer
	DropsKey bool          // … and silently drops the key

	Answer  sdk.Outcome   // nil: as a committed object of ours
	NotSent bool          // refused before a byte left
	Dies    bool          // the process ends instead of answering
	Over    time.Duration // the answer comes this long after the deadline; 0 = in time
	Never   bool          // it never comes
}

// Honest commits and says so.
func Honest() Fault { return Fault{Name: "honest", Commits: true} }

// AnswerLost commits; the connection breaks before the answer.
func AnswerLost() Fault {
	return Fault{Name: "answer lost", Commits: true, Answer: &sdk.Unknown{Cause: sdk.CauseConnectionLost}}
}

// RequestLost never reaches the destination, and nobody can know that.
func RequestLost() Fault {
	return Fault{Name: "request lost", Answer: &sdk.Unknown{Cause: sdk.CauseConnectionLost}}
}

// LateCommit loses the connection at once and commits d later.
func LateCommit(d time.Duration) Fault {
	f := AnswerLost()
	f.Name, f.Late = "late commit", d
	return f
}

// ServerError answers 500 after the commit.
func ServerError() Fault {
	return Fault{Name: "500 after commit", Commits: true, Answer: &sdk.Unknown{Cause: sdk.CauseServerError, Message: "500"}}
}

// Garbled answers 200 with a body that cannot be read, after the commit.
func Garbled() Fault {
	return Fault{Name: "garbled 200", Commits: true, Answer: &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: "truncated body"}}
}

// KeyDropped commits an object without our key and answers as if all were well.
func KeyDropped() Fault { return Fault{Name: "key dropped", Commits: true, DropsKey: true} }

// Busy answers 429 with Retry-After.
func Busy(after time.Duration) Fault {
	return Fault{Name: "429", Answer: &sdk.NotExecuted{Basis: sdk.BasisBusy, RetryAfter: after, Message: "429"}}
}

// Invalid answers 422.
func Invalid() Fault {
	return Fault{Name: "422", Answer: &sdk.Rejected{Reason: sdk.ReasonValidation, Code: "422", Message: "subject is missing"}}
}

// Denied answers 401 or 403.
func Denied(code string) Fault {
	r := sdk.ReasonPermission
	if code == "401" {
		r = sdk.ReasonAuthentication
	}
	return Fault{Name: code, Answer: &sdk.Rejected{Reason: r, Code: code, Message: code}}
}

// Unlisted answers a code that nobody gave a meaning.
func Unlisted() Fault {
	return Fault{Name: "unlisted code", Answer: &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: "418"}}
}

// Conflict answers 409: the place is taken.
func Conflict() Fault {
	return Fault{Name: "409", Answer: &sdk.Rejected{Reason: sdk.ReasonConflict, Code: "409"}}
}

// Hang commits, and answers over after the deadline: within the linger it is an
// ordinary answer, later nobody waits any more.
func Hang(over time.Duration) Fault { return Fault{Name: "hang", Commits: true, Over: over} }

// HangEmpty hangs for ever and commits nothing.
func HangEmpty() Fault { return Fault{Name: "hang without effect", Never: true} }

// HangCommit hangs for ever and commits d after the request left.
func HangCommit(d time.Duration) Fault {
	return Fault{Name: "hang with a late commit", Never: true, Commits: true, Late: d}
}

// Dies ends the adapter's process after the commit.
func Dies() Fault { return Fault{Name: "process died", Commits: true, Dies: true} }

// Refused is a refused connection: no byte left.
func Refused() Fault { return Fault{Name: "connection refused", NotSent: true} }

// Stays keeps the request in the adapter for d before it leaves.
func (f Fault) Staying(d time.Duration) Fault {
	f.Name, f.Stays = f.Name+", held in the adapter", d
	return f
}

// Accepted answers 202 with a handle and commits d later.
func Accepted(d time.Duration) Fault {
	return Fault{Name: "202", Commits: true, Late: d, Answer: &sdk.Accepted{Handle: "op-1", PollAfter: 5 * time.Second}}
}
