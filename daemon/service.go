package daemon

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/schedules"
)

// SubmitRequest is one intent as a client gives it: the JSONL line and the POST body.
type SubmitRequest struct {
	Destination string            `json:"destination"`
	Operation   string            `json:"operation"`
	Key         string            `json:"key"`
	Payload     []byte            `json:"-"` // exactly as given; JSON unless ContentType says otherwise
	ContentType string            `json:"content_type,omitempty"`
	Actor       string            `json:"actor,omitempty"`
	NotBefore   time.Time         `json:"not_before,omitzero"`
	NotAfter    time.Time         `json:"not_after,omitzero"`
	Approval    string            `json:"approval,omitempty"`
	Context     map[string]string `json:"context,omitempty"`
	Supersedes  string            `json:"supersedes,omitempty"`
	DryRun      bool              `json:"-"`
}

// SubmitResult says what a submit did. Created is false when the same effect existed already.
type SubmitResult struct {
	Effect  journal.Effect
	Created bool
}

// DecideRequest is a person's decision as a client gives it.
type DecideRequest struct {
	Decision     journal.DecisionKind
	Because      string
	Object, Keep string
	Then         string    // did-not-happen: retry or close
	Evidence     string    // text, or the contents of a file
	LookedAt     time.Time // did-not-happen; default now
	NoBound      string
	Record       string
	To           string // assign
	Until        time.Time
	Approver     string
	Operation    string // fix
	Payload      []byte // fix
	IfSeq        int64  // 0 = whatever it is now
}

// EffectDetail is everything known of one effect.
type EffectDetail struct {
	Effect          journal.Effect
	Reconciliations []journal.Reconciliation
	Evidence        []journal.Evidence
	ProvesCommit    string // in words: what would prove that it happened
	ProvesAbsence   string // in words: what would prove that it did not
}

// Status is the daemon's own condition.
type Status struct {
	Dispatch       bool
	DispatchReason string // why dispatch is off
	Phases         map[journal.Phase]int64
	UnknownOldest  time.Duration
	ReviewsOpen    int64
	ReviewsOverdue int64
	Head           string // SEQ:HASH of the event chain
	Epoch          int64
	Version        string
	Started        time.Time
	Draining       bool
	InFlight       int
}

// DestinationStatus is one destination's limits, breaker and capability card.
type DestinationStatus struct {
	Name, Adapter, Version, SHA256, Identity string
	Up                                       bool
	Why                                      string // when not up
	Paused                                   bool
	Breaker                                  string // closed, open, half-open
	BreakerSince                             time.Time
	InFlight, Concurrency                    int
	Rate                                     string
	Queued, Unknown                          int64
	RetryTokens                              float64
	Operations                               []Capability
}

// Capability answers the questions of the capability card for one operation.
type Capability struct {
	Operation       string
	Identifies      string // what identifies the effect
	ProvesCommit    string
	ProvesAbsence   string
	OwnerWhenNot    string // who owns it when neither can be had
	Dedupe          string
	RetryableAnswer string
	Reversal        string
	Triggers        string
	Unanswered      []string
}

// SweepReport is the progress and the end of one run of a schedule.
type SweepReport struct {
	Schedule, Do, Destination     string
	StartedAt, EndedAt            time.Time
	Total, Asked                  int
	Matches, Absent, Partial      int
	Duplicate, Conflicts, Unknown int
	ReadFailed, WaitingForGrace   int
	Skipped                       int    // settled or taken by somebody else meanwhile
	Raised                        int    // audit: handed to a person
	Detail                        string // what a run that reads nothing did
	Resumed                       bool   // goes on from where an interrupted run was
	Done                          bool
	Error                         string
}

// ScheduleStatus is what is known of one schedule.
type ScheduleStatus struct {
	Name, Do, Destination, Cron, Timezone string
	Next                                  []time.Time
	LastNominal, LastStarted, LastOK      time.Time
	LastResult                            string
	Missed                                int64
	Jitter                                time.Duration // after the nominal time
	Hazards                               []schedules.Hazard
	Runs                                  []ScheduleRun // newest first
}

// ScheduleRun is one past or present run of a schedule.
type ScheduleRun struct {
	Nominal, StartedAt, EndedAt time.Time // Nominal is zero when somebody asked for it, EndedAt while it runs
	Result                      string
}

// Errors that clients tell apart. Each wraps or names what to do next.
var (
	// ErrNotFound: no such effect, schedule or destination.
	ErrNotFound = errors.New("not found")
	// ErrStale: the effect changed since the caller looked (If-Match, --if-seq).
	ErrStale = errors.New("the effect changed meanwhile")
	// ErrJournalFull: the disk is full; nothing was recorded.
	ErrJournalFull = errors.New("journal full: nothing was recorded; free disk space and submit again")
	// ErrSubmissionUnknown: the commit's own outcome is unknown.
	ErrSubmissionUnknown = errors.New("may be recorded: send again with the same key")
	// ErrDraining: the daemon is stopping and takes nothing new.
	ErrDraining = errors.New("the daemon is stopping; submit again after it is back")
	// ErrNotBuilt: the verb or decision is known, its feature is not built yet.
	ErrNotBuilt = errors.New("not built yet")
	// ErrForbidden: this principal may not do that.
	ErrForbidden = errors.New("not permitted")
)

// InvalidError lists every fault of a request, each naming its place.
type InvalidError struct{ Faults []string }

func (e *InvalidError) Error() string { return "invalid: " + strings.Join(e.Faults, "; ") }

// BusyError asks the client to come back later: queue full, destination down.
type BusyError struct {
	Why        string
	RetryAfter time.Duration
	Outage     bool // 503 instead of 429
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s; try again in %s", e.Why, e.RetryAfter.Round(time.Second))
}
