package journal

import (
	"strings"
	"time"
)

// AttemptState is what the wire did on one call.
type AttemptState string

// The states of an attempt.
const (
	AttemptScheduled      AttemptState = "scheduled" // waits for not_before; never stored before `sent`
	AttemptSent           AttemptState = "sent"      // on disk before the call
	AttemptCommitted      AttemptState = "committed"
	AttemptAccepted       AttemptState = "accepted"
	AttemptRejected       AttemptState = "rejected"
	AttemptNotExecuted    AttemptState = "not_executed"
	AttemptTimedOut       AttemptState = "timed_out"
	AttemptLost           AttemptState = "lost"
	AttemptNotSent        AttemptState = "not_sent" // spends no attempt
	AttemptSettledAbsent  AttemptState = "settled_absent"
	AttemptSettledPresent AttemptState = "settled_present"
)

// NoEffect reports whether the state proves that this call changed nothing.
func (s AttemptState) NoEffect() bool {
	switch s {
	case AttemptScheduled, AttemptNotSent, AttemptRejected, AttemptNotExecuted, AttemptSettledAbsent:
		return true
	}
	return false
}

// Unsettled reports whether the call may still turn out either way. The write
// gate stays shut while one attempt is unsettled.
func (s AttemptState) Unsettled() bool {
	switch s {
	case AttemptSent, AttemptAccepted, AttemptTimedOut, AttemptLost:
		return true
	}
	return false
}

// AdapterRef pins what performed a call.
type AdapterRef struct{ Name, Version, SHA256 string }

// Attempt is one call. Its row is on disk as `sent` before the call is made.
type Attempt struct {
	ID     string
	Number int
	State  AttemptState

	Epoch        int64 // of the daemon that sent it
	PID          int   // of the adapter's process
	ProcessStart string
	Cgroup       string
	BootID       string
	Adapter      AdapterRef

	Key, Marker      string // as sent
	Account, Target  string
	Route            string
	Authority        string
	Baseline         []byte // snapshot taken anew for this attempt
	ExpectedRevision string
	Reason           string // why this attempt was made
	Follows          string // the attempt before it
	ReleasedBy       string // the evidence that released this one
	RequestDigest    string

	SentAt   time.Time
	Deadline time.Time
	// ClosedAt is when the call can no longer send: its answer arrived, or its
	// process is known dead. Zero = still open on our side.
	ClosedAt time.Time
	// Death says that ClosedAt is the death of the process and not an answer.
	Death bool

	ProviderRequestID string
	ResponseClass     string // committed, rejected:validation, unknown:timeout, …
	Cause             string
	Message           string
	Replay            bool // transition 40, the one named exception
}

// presumed begins the reason of an attempt that nobody saw: a restored journal
// has to assume that the daemon after the backup made one.
const presumed = "presumed: "

// Presumed reports whether the attempt is assumed after a restore (41, 42) and not known.
func (a Attempt) Presumed() bool { return strings.HasPrefix(a.Reason, presumed) }

// LastPossibleSend is the last moment at which this call can have put bytes on
// the wire: its deadline or its own answer if that came later, and the death
// of its process when there was no answer. ok is false while the call is open.
func (a Attempt) LastPossibleSend() (t time.Time, ok bool) {
	if a.ClosedAt.IsZero() {
		return time.Time{}, false
	}
	if !a.Death && a.Deadline.After(a.ClosedAt) {
		return a.Deadline, true
	}
	return a.ClosedAt, true
}
