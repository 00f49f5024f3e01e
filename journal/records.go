package journal

import "time"

// RepairKind is what a repair does.
type RepairKind string

// The kinds of repair.
const (
	RepairRollback   RepairKind = "rollback"
	RepairCompensate RepairKind = "compensate"
	RepairFix        RepairKind = "fix"
	RepairRetire     RepairKind = "retire"
	RepairComplete   RepairKind = "complete"
)

// Repair is an effect of its own, under its own id and key at the destination,
// linked to the effect it mends and keeping that effect's business key.
type Repair struct {
	ID            string // repair id, marker and idempotency key at the destination
	Kind          RepairKind
	Operation     string
	Object        string // what it acts on
	Survivor      string // retire: the object that is kept
	By, Because   string
	Approval      string
	PriorState    []byte
	PriorEvidence string
	State         RepairState
	OpenedAt      time.Time
	ClosedAt      time.Time
}

// RepairState is what is known of a repair.
type RepairState string

// The states of a repair.
const (
	RepairOpen      RepairState = "open"
	RepairSucceeded RepairState = "succeeded"
	RepairFailed    RepairState = "failed"
	RepairFrozen    RepairState = "frozen" // needed a person: read, never sent
)

// Approval is bound to fingerprint, destination and action. Uses count effects, not attempts.
type Approval struct {
	ID                               string
	Fingerprint, Destination, Action string
	State                            ApprovalState
	By, Scope                        string
	GrantedAt, ExpiresAt             time.Time
	Uses, Used                       int
}

// ApprovalState is what an approval is worth now.
type ApprovalState string

// The states of an approval.
const (
	ApprovalGranted  ApprovalState = "granted"
	ApprovalRejected ApprovalState = "rejected"
	ApprovalExpired  ApprovalState = "expired"
	ApprovalUsed     ApprovalState = "used"
	ApprovalRevoked  ApprovalState = "revoked"
)

// Covers reports whether the approval allows this intent to be sent until t.
func (a Approval) Covers(in Intent, until time.Time) bool {
	return a.State == ApprovalGranted && a.Fingerprint == in.Fingerprint && a.Destination == in.Destination &&
		a.Action == in.Operation && a.ExpiresAt.After(until) && (a.Uses == 0 || a.Used < a.Uses)
}

// Checkpoint is a verified postcondition of a run's step. It never changes.
type Checkpoint struct {
	Run, Step string
	Key       string
	Evidence  string
	Result    []byte
	At        time.Time
}

// RunState is where a run of several steps stands.
type RunState string

// The states of a run.
const (
	RunStarted   RunState = "started"
	RunWaiting   RunState = "waiting"
	RunCompleted RunState = "completed"
	RunFailed    RunState = "failed"
)

// Run is a trigger event bound to a workflow version.
type Run struct {
	ID, Trigger, Workflow, Version string
	State                          RunState
	Why                            string // why it waits
	Steps                          []string
	At                             time.Time
}

// IncidentState follows a contradicted effect to a verified fix.
type IncidentState string

// The states of an incident.
const (
	IncidentOpen      IncidentState = "open"
	IncidentContained IncidentState = "contained"
	IncidentRepaired  IncidentState = "repaired"
	IncidentLearned   IncidentState = "learned"
	IncidentClosed    IncidentState = "closed"
)

// Incident groups contradicted effects of one cause.
type Incident struct {
	ID, Owner     string
	State         IncidentState
	Severity      Severity
	Effects       []string
	ContainedAt   time.Time
	Cause         string
	Decision      string
	Fix, FixOwner string
	FixDue        time.Time
	Case          string
}

// EvidenceSource is who says it.
type EvidenceSource string

// The sources of evidence.
const (
	FromAdapter EvidenceSource = "adapter"
	FromRead    EvidenceSource = "read"
	FromWebhook EvidenceSource = "webhook"
	FromPerson  EvidenceSource = "person"
)

// Evidence is immutable and named by its digest. Body is redacted before it gets here.
type Evidence struct {
	Digest  string
	At      time.Time
	Source  EvidenceSource
	Kind    string
	Summary string
	Body    []byte
	Attempt string
}

// ScopeKind is how far a hold reaches.
type ScopeKind string

// The scopes of a hold.
const (
	ScopeKey         ScopeKind = "key"
	ScopeTarget      ScopeKind = "target"
	ScopeRun         ScopeKind = "run"
	ScopeAccount     ScopeKind = "account"
	ScopeDestination ScopeKind = "destination"
	ScopeAll         ScopeKind = "all"
)

// Hold stops sends within its scope. Reads and the repairs of the effect that
// raised it go on. Scope reads "key:K", "run:R", "target:DEST/T",
// "account:DEST/A", "destination:D" or "all".
type Hold struct {
	Scope    string
	RaisedBy string // key of the effect that raised it; empty = a person
	Finding  Finding
	By       string
	Because  string
	At       time.Time
}

// ScopeOf spells the scope of a kind that covers the effect, or "" when the effect has no such part.
func ScopeOf(kind ScopeKind, e Effect) string {
	switch kind {
	case ScopeTarget:
		if e.Target == "" {
			return "key:" + e.Key
		}
		return "target:" + e.Destination + "/" + e.Target
	case ScopeRun:
		if e.Run == "" {
			return "key:" + e.Key
		}
		return "run:" + e.Run
	case ScopeAccount:
		return "account:" + e.Destination + "/" + e.Account
	case ScopeDestination:
		return "destination:" + e.Destination
	case ScopeAll:
		return "all"
	case ScopeKey:
		return "key:" + e.Key
	}
	return ""
}

// Covers reports whether the hold stops a send of e.
func (h Hold) Covers(e Effect) bool {
	if h.RaisedBy != "" && h.RaisedBy == e.Key {
		return false // its own phase already forbids sending; its repairs must go on
	}
	switch h.Scope {
	case "all", "key:" + e.Key, "destination:" + e.Destination, "account:" + e.Destination + "/" + e.Account:
		return true
	}
	return (e.Target != "" && h.Scope == "target:"+e.Destination+"/"+e.Target) || (e.Run != "" && h.Scope == "run:"+e.Run)
}

// Entry is one line of the audit chain: a transition or a human act, written in
// the transaction that made it true. Seq and the hashes are filled in by the journal.
type Entry struct {
	Seq          int64
	At           time.Time
	Kind         string // transition, submit_again, conflict, read, hold, release, decision, …
	Transition   int    // number in the model's table; 0 = no transition
	Key          string
	Run          string
	Attempt      string
	From, To     Phase
	Actor        string
	ActorKind    ActorKind
	Origin       string
	Because      string
	Evidence     string
	PolicySHA256 string
	PrevHash     string
	Hash         string
}

// owned reports whether entering failed by this transition needs an owner: only
// a cancel (36) and a human rejection (3) end without one.
func (x Entry) owned() bool {
	return x.To == Failed && x.Transition != 36 && !(x.Transition == 3 && x.ActorKind == Human)
}

// ActorKind tells people from programs.
type ActorKind string

// The kinds of actor.
const (
	Human   ActorKind = "human"
	Service ActorKind = "service"
	System  ActorKind = "system" // the daemon itself
)

// By says who acted, from where and why.
type By struct {
	Actor   string
	Kind    ActorKind
	Origin  string // engine, dispatcher, sweep, recovery, api, cli, webhook
	Because string
}
