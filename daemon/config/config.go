package config

import (
	"encoding/json"
	"regexp"
	"time"

	"github.com/settled-dev/settled/schedules"
)

// Config is the whole configuration, checked. It is read-only after Load and
// may be shared between goroutines; a reload makes a new one.
//
// Durations are written "30s", "15m", "24h", "30d". Every name below is the
// key in the file.
type Config struct {
	Journal      Journal                 `toml:"journal" json:"journal"`
	Daemon       Daemon                  `toml:"daemon" json:"daemon"`
	Listen       Listen                  `toml:"listen" json:"listen"`
	Owners       map[string]*Owner       `toml:"owners" json:"owners"`
	Credentials  Credentials             `toml:"credentials" json:"credentials"`
	Adapters     Adapters                `toml:"adapters" json:"adapters"`
	Keys         Keys                    `toml:"keys" json:"keys"`
	Destinations map[string]*Destination `toml:"destinations" json:"destinations"`
	Schedules    map[string]*Schedule    `toml:"schedules" json:"schedules"`

	// Files are the files read, in order; empty when nothing was configured.
	Files []string `json:"-"`
	// Warnings are to be shown by check and logged at start; they refuse nothing.
	Warnings []Fault `json:"-"`
	// Overrides are the safety bounds this configuration lowers on purpose,
	// each with its reason. They belong in the audit chain.
	Overrides []Override `json:"-"`

	root *node
	opts Options
}

// Journal says where the journal is and what it keeps.
type Journal struct {
	// Path of the journal. Default /var/lib/settled/journal.db. Danger: a
	// journal on a network filesystem or one that ignores fsync loses intents.
	Path string `toml:"path" json:"path"`
	// Generation is the marker that tells a restored journal from the live one.
	// Default /var/lib/settled-generation/marker. It must lie in another
	// directory than the journal, or a restore brings both back and is not noticed.
	Generation string `toml:"generation" json:"generation"`
	// RestoreWindow is how long after a restore an unknown key is read before
	// its first write. Default 30d. Danger: shorter than the age of your
	// oldest backup means that an effect forgotten by the restore can be repeated.
	RestoreWindow time.Duration `toml:"restore_window" json:"restore_window"`
	// ChainKey names the credential that holds the key of the event chain's
	// HMAC. Default none: a 0600 key file is made beside the generation marker.
	ChainKey string `toml:"chain_key" json:"chain_key"`
	// Keep is how long settled effects are kept. Default 90d. The ledger of
	// keys is kept for ever, whatever stands here.
	Keep time.Duration `toml:"keep" json:"keep"`
	// KeepPayload is how long payloads are kept after settling. Default 7d.
	// The digest stays.
	KeepPayload time.Duration `toml:"keep_payload" json:"keep_payload"`
}

// Daemon says how the process behaves.
type Daemon struct {
	// StopBudget is how long SIGTERM waits for calls in flight. Default 60s.
	// Calls left after it are parked as unknown. Keep systemd's TimeoutStopSec above it.
	StopBudget time.Duration `toml:"stop_budget" json:"stop_budget"`
}

// Listen says where clients reach the daemon.
type Listen struct {
	// Socket is the unix socket. Default /run/settled.sock. Who may open it may submit.
	Socket string `toml:"socket" json:"socket"`
	// HTTP is host:port of console and API over TCP. Default off. Danger:
	// loopback is not authentication. Not built yet.
	HTTP string `toml:"http" json:"http"`
}

// Owner is who is asked when something needs a person.
type Owner struct {
	// Notify lists how the owner is told. Default none: the review queue only. Not built yet.
	Notify []Notify `toml:"notify" json:"notify"`
	// ReviewWithin is the severity clock: how long a review may wait.
	// Default low 3d, normal 4h, high 1h, critical 15m; one value sets all four.
	ReviewWithin ReviewWithin `toml:"review_within" json:"review_within"`
	// Second is the owner who is told, and given the item, when it is overdue. Default none.
	Second string `toml:"second" json:"second"`
}

// Notify is one way to tell an owner. Exactly one of Webhook and Mail is set.
type Notify struct {
	// Webhook is an https URL.
	Webhook string `toml:"webhook" json:"webhook,omitempty"`
	// Credential names the webhook's bearer token. Default none.
	Credential string `toml:"credential" json:"credential,omitempty"`
	// Mail is an address.
	Mail string `toml:"mail" json:"mail,omitempty"`
}

// ReviewWithin is the time a review may wait, by severity (low, normal, high, critical).
type ReviewWithin map[string]time.Duration

// Credentials says where secrets are read.
type Credentials struct {
	// Dir holds one file per credential, not readable by others. Default
	// /etc/settled/credentials. It is read for names that
	// $CREDENTIALS_DIRECTORY (systemd LoadCredential) does not give.
	Dir string `toml:"dir" json:"dir"`
}

// Adapters says where adapters that are not built in are installed.
type Adapters struct {
	// Dir holds one executable per adapter, owned by root and not writable by
	// the daemon. Default /usr/lib/settled/adapters.
	Dir string `toml:"dir" json:"dir"`
}

// Keys changes which business keys are refused. The patterns are Go regular
// expressions and match anywhere in a key unless anchored with ^ and $.
type Keys struct {
	// Allow lists patterns that overrule the refusal of personal data in keys.
	// Default none. Danger: a key is kept for ever.
	Allow []string `toml:"allow" json:"allow"`
	// Deny lists patterns of keys to refuse besides. Default none. Deny wins over Allow.
	Deny []string `toml:"deny" json:"deny"`

	allow, deny []*regexp.Regexp
}

// AllowPatterns returns Allow, compiled.
func (k Keys) AllowPatterns() []*regexp.Regexp { return k.allow }

// DenyPatterns returns Deny, compiled.
func (k Keys) DenyPatterns() []*regexp.Regexp { return k.deny }

// Destination is one system in which effects are performed.
type Destination struct {
	// Adapter is built in (http, exec) or the name of an installed adapter. Required.
	Adapter string `toml:"adapter" json:"adapter"`
	// SHA256 pins the adapter's executable, 64 hex digits. Required unless built in.
	SHA256 string `toml:"sha256" json:"sha256"`
	// Account is part of every fingerprint. Default empty. Danger: changing it
	// makes the same submission a conflict.
	Account string `toml:"account" json:"account"`
	// Timeout bounds one dispatch. Default 10s.
	Timeout time.Duration `toml:"timeout" json:"timeout"`
	// RecordReserve is kept free inside every deadline to write the outcome down. Default 30s.
	RecordReserve time.Duration `toml:"record_reserve" json:"record_reserve"`
	// Deadline is an effect's, when submit names none. Default 24h.
	Deadline time.Duration `toml:"deadline" json:"deadline"`
	// MaxAge is how old the read of a precondition may be at the write. Default 30s.
	MaxAge time.Duration `toml:"max_age" json:"max_age"`
	// SeparateDuties keeps who submitted from approving. Default false. Not built yet.
	SeparateDuties bool `toml:"separate_duties" json:"separate_duties"`
	// Credentials are the names this destination may see, and no others. Default none.
	Credentials []string `toml:"credentials" json:"credentials"`
	// Concurrency is how many dispatches run at once. Default 4.
	Concurrency int `toml:"concurrency" json:"concurrency"`
	// Rate bounds dispatches in time. Default 10/s.
	Rate Rate `toml:"rate" json:"rate"`
	// OnOutage says what submit does while the destination is down: wait,
	// refuse (503), manual (a person does it; not built yet). Default wait.
	OnOutage string `toml:"on_outage" json:"on_outage" oneof:"wait|refuse|manual"`
	// Limits bound what may queue.
	Limits Limits `toml:"limits" json:"limits"`
	// Retry bounds sending again what is known not to have been executed.
	Retry Retry `toml:"retry" json:"retry"`
	// Grace bounds how late an unanswered request may still take effect.
	Grace Grace `toml:"grace" json:"grace"`
	// Breaker stops writing to a destination that does not answer.
	Breaker Breaker `toml:"breaker" json:"breaker"`
	// With is the adapter's own table.
	With With `toml:"with" json:"with"`
	// Policy is what operations may change for themselves.
	Policy
	// Operations override Policy by name of operation.
	Operations map[string]*Policy `toml:"operations" json:"operations"`

	name string
	cfg  *Config
}

// Policy is what may be set for a destination and, again, for one of its
// operations. An empty field of an operation means as the destination has it.
type Policy struct {
	// Owner is asked about everything that goes wrong here. Required, and must stand in [owners].
	Owner string `toml:"owner" json:"owner"`
	// RepairOwner is asked to approve repairs. Default: Owner.
	RepairOwner string `toml:"repair_owner" json:"repair_owner"`
	// Approval is "none", "required" or { when = '<jq>' }. Default none. Others than none are not built yet.
	Approval Approval `toml:"approval" json:"approval"`
	// Proof is "read" (an authoritative read) or "ack": a declared waiver,
	// shown as "acknowledged, not verified". Default read. Danger: with ack
	// nobody notices an acknowledged effect that is not there; refused for
	// irreversible operations.
	Proof string `toml:"proof" json:"proof" oneof:"read|ack"`
	// Severity sets the clock of reviews: low, normal, high, critical. Default normal.
	Severity string `toml:"severity" json:"severity" oneof:"low|normal|high|critical"`
	// Contain says what a finding holds.
	Contain Contain `toml:"contain" json:"contain"`
}

// Approval says who must agree before an effect is sent.
type Approval struct {
	Mode string `json:"mode"`           // none, required, when; empty = inherit
	When string `json:"when,omitempty"` // a jq condition on $effect and $payload
}

// Limits bound what may wait.
type Limits struct {
	// Queue is how many effects may be open before submit answers 429. Default 10000.
	Queue int `toml:"queue" json:"queue"`
}

// Retry bounds sending again. All of attempts, elapsed and tokens are caps.
type Retry struct {
	// Attempts is how many writes an effect may spend. Default 3.
	Attempts int `toml:"attempts" json:"attempts"`
	// Elapsed bounds retries of answers known as not executed, from the first send. Default 90s.
	Elapsed time.Duration `toml:"elapsed" json:"elapsed"`
	// Backoff is the pause before a retry, with full jitter.
	Backoff Backoff `toml:"backoff" json:"backoff"`
	// Tokens is the destination's retry-token bucket. Default 10% + 10/m.
	Tokens Tokens `toml:"tokens" json:"tokens"`
	// AfterAbsence is how long after sending a confirmed absent attempt may be
	// followed by another. Default 15m.
	AfterAbsence time.Duration `toml:"after_absence" json:"after_absence"`
}

// Backoff is exponential; each pause is drawn between zero and its bound.
type Backoff struct {
	// Initial bound. Default 1s.
	Initial time.Duration `toml:"initial" json:"initial"`
	// Max bound. Default 30s.
	Max time.Duration `toml:"max" json:"max"`
	// Factor from one bound to the next, at least 1. Default 2.
	Factor float64 `toml:"factor" json:"factor"`
}

// Grace says when silence becomes absence. Danger: every bound here that is
// shorter than the truth makes duplicates.
type Grace struct {
	// MaxProcessing: an unanswered request cannot take effect later than this
	// after the last possible send. No default; nil is undeclared. The longer
	// of this and the adapter's own counts; with neither, absence is never concluded.
	MaxProcessing *time.Duration `toml:"max_processing" json:"max_processing"`
	// Lag of the destination's reads. No default; likewise the longer of both.
	Lag *time.Duration `toml:"lag" json:"lag"`
	// Skew between the clocks. Default 5s.
	Skew time.Duration `toml:"skew" json:"skew"`
	// Safety added to everything. Default max(10s, lag/2), which nil stands for.
	Safety *time.Duration `toml:"safety" json:"safety"`
	// Linger is how long an overdue call may still answer before its process is ended. Default 5s.
	Linger time.Duration `toml:"linger" json:"linger"`
	// AbsenceValid is how long a conclusion of absence may open the gate. Default 10m.
	AbsenceValid time.Duration `toml:"absence_valid" json:"absence_valid"`
	// Reads are the times of reconciling reads since an effect became
	// ambiguous; the last repeats. Default 15s, 1m, 5m, 15m, 1h.
	Reads []time.Duration `toml:"reads" json:"reads"`
	// OverrideReason is required to go below a default or a declaration; it
	// goes into the audit chain. Default none.
	OverrideReason string `toml:"override_reason" json:"override_reason"`
	// ReconcileBudget is the wall time from unknown to a person. Default 24h.
	ReconcileBudget time.Duration `toml:"reconcile_budget" json:"reconcile_budget"`
	// AckDeadline is how long an accepted operation may take to finish. Default 1h.
	AckDeadline time.Duration `toml:"ack_deadline" json:"ack_deadline"`
	// VerifyDeadline is how long a postcondition may stay pending. Default 10m.
	VerifyDeadline time.Duration `toml:"verify_deadline" json:"verify_deadline"`
	// Settle is read, fence or replay. Default read. Fence needs an adapter that
	// offers it, replay a destination that answers a known key with its first
	// response; where either cannot be had, it is read instead.
	Settle string `toml:"settle" json:"settle" oneof:"read|fence|replay"`
}

// Contain says which scope a finding holds: key, target, run, account or destination.
type Contain struct {
	// Unknown outcome. Default key.
	Unknown string `toml:"unknown" json:"unknown" oneof:"key|target|run|account|destination"`
	// Partial object. Default key.
	Partial string `toml:"partial" json:"partial" oneof:"key|target|run|account|destination"`
	// Duplicate objects. Default account.
	Duplicate string `toml:"duplicate" json:"duplicate" oneof:"key|target|run|account|destination"`
	// Conflicts with what was meant. Default target.
	Conflicts string `toml:"conflicts" json:"conflicts" oneof:"key|target|run|account|destination"`
	// PostconditionFailed. Default target.
	PostconditionFailed string `toml:"postcondition_failed" json:"postcondition_failed" oneof:"key|target|run|account|destination"`
	// TripBreaker lists the findings that open the destination's breaker. Default duplicate.
	TripBreaker []string `toml:"trip_breaker" json:"trip_breaker" oneof:"unknown|partial|duplicate|conflicts|postcondition_failed"`
}

// Breaker stops writing after a streak.
type Breaker struct {
	// OpenAfter is how many unknowns or errors in a row open it. Default 5. It
	// half-opens with a read, never with a write.
	OpenAfter int `toml:"open_after" json:"open_after"`
}

// Schedule is one repeated task.
type Schedule struct {
	// Do is reconcile (read what is unsettled), audit (read again what was
	// settled), submit (one effect each time), prune (retention), backup (a
	// verified copy) or verify (the chain). Required.
	Do string `toml:"do" json:"do" oneof:"reconcile|audit|submit|prune|backup|verify"`
	// Destination it works on. Required for reconcile, audit and submit.
	Destination string `toml:"destination" json:"destination"`
	// Cron has five fields (minute hour day month weekday) or is @hourly, @daily, @every 5m. Required.
	Cron string `toml:"cron" json:"cron"`
	// Timezone is an IANA name. Default UTC.
	Timezone string `toml:"timezone" json:"timezone"`
	// CatchUp says what becomes of runs missed while the daemon was down:
	// once runs the newest one, skip none. Default once.
	CatchUp string `toml:"catch_up" json:"catch_up" oneof:"once|skip"`
	// Within is how old a missed run may be to be caught up. Default 24h.
	Within time.Duration `toml:"within" json:"within"`
	// DayMatch must be "any" where both day of month and weekday are
	// restricted: cron then runs on days that match either. Default none.
	DayMatch string `toml:"day_match" json:"day_match" oneof:"any"`

	// Window is how far back an audit reads what succeeded. Default 24h. What
	// a person decided is always read.
	Window time.Duration `toml:"window" json:"window"`
	// Sample is the share of the window that an audit reads, above 0 and at
	// most 1; each run draws another. Default 1.
	Sample float64 `toml:"sample" json:"sample"`
	// Directory is where backups go, an absolute path. Default "backups"
	// beside the journal. Danger: a copy on the same disk is lost with it.
	Directory string `toml:"directory" json:"directory"`
	// KeepCopies is how many copies of this schedule a backup leaves. Default 7.
	KeepCopies int `toml:"keep_copies" json:"keep_copies"`
	// Operation is what a submit submits. Required for submit.
	Operation string `toml:"operation" json:"operation"`
	// Key of the effect that a submit submits. ${nominal} in it becomes the
	// nominal time (20261201T020000Z); without it ":TIME:v1" is appended.
	// Required for submit.
	Key string `toml:"key" json:"key"`
	// Payload of it, JSON in a string; ${nominal} becomes the nominal time in
	// RFC 3339. Default {}.
	Payload string `toml:"payload" json:"payload"`

	plan schedules.Schedule
}

// With is an adapter's own table as canonical JSON (keys sorted, dates as
// "YYYY-MM-DD" strings). It is an object, {} when the table is missing.
type With struct {
	json.RawMessage
}
