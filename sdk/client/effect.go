package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Effect is one intended change and everything known of it: `settled show
// --json`. In lists attempts and reconciliations are left out.
type Effect struct {
	Key             string            `json:"key"`
	Destination     string            `json:"destination"`
	Account         string            `json:"account"`
	Operation       string            `json:"operation"`
	Phase           string            `json:"phase"`
	Standing        string            `json:"standing"` // not_started, in_flight, committed, contradicted
	Finding         string            `json:"finding"`
	Seq             int64             `json:"seq"`   // grows with every change; the ETag
	Words           string            `json:"words"` // the state in words for a person
	Fingerprint     string            `json:"fingerprint"`
	PayloadDigest   string            `json:"payload_digest"`
	Owner           string            `json:"owner"`
	Actor           string            `json:"actor"`
	Outcome         Outcome           `json:"outcome"`
	ObjectID        *string           `json:"object_id"`
	SubmittedAt     time.Time         `json:"submitted_at"`
	SettledAt       *time.Time        `json:"settled_at"`
	Unknown         *Doubt            `json:"unknown"`                  // in unknown, reconciling, and needs_human with finding unknown
	Attempts        []Attempt         `json:"attempts,omitzero"`        // not in lists
	Reconciliations []Reconciliation  `json:"reconciliations,omitzero"` // not in lists
	Approvals       []Approval        `json:"approvals"`
	Review          *Review           `json:"review"`
	Repairs         []Repair          `json:"repairs"`
	Run             *string           `json:"run"`
	Checkpoint      *Checkpoint       `json:"checkpoint"`
	Next            *Next             `json:"next"`        // null: nothing happens without new evidence or a person
	WaitingFor      *string           `json:"waiting_for"` // in prepared
	Reason          *string           `json:"reason"`      // in failed
	Deadline        *time.Time        `json:"deadline"`
	Supersedes      *string           `json:"supersedes"`
	Context         map[string]string `json:"context"`
	Evidence        []Evidence        `json:"evidence,omitzero"`      // not in lists
	Payload         json.RawMessage   `json:"payload,omitempty"`      // only when asked for with include=payload; a string unless JSON
	ContentType     string            `json:"content_type,omitempty"` // with the payload
}

// Outcome is what is known of the effect at the destination.
type Outcome struct {
	Acknowledgement *string    `json:"acknowledgement"`
	ObjectID        *string    `json:"object_id"`
	URL             *string    `json:"url"`
	ProviderState   *string    `json:"provider_state"`
	Postcondition   *string    `json:"postcondition"`
	VerifiedAt      *time.Time `json:"verified_at"`
	Source          *string    `json:"source"`
	Finding         string     `json:"finding"`
	Version         int        `json:"version"`
}

// Doubt is what an effect of unknown outcome carries. Nothing is written while it stands.
type Doubt struct {
	RequestFingerprint string     `json:"request_fingerprint"`
	LastTransition     string     `json:"last_transition"`
	Missing            []string   `json:"missing"`
	WriteForbidden     bool       `json:"write_forbidden"` // always true
	Owner              string     `json:"owner"`
	NextReadAt         *time.Time `json:"next_read_at"`
	ResolveBy          *time.Time `json:"resolve_by"`
	SettleNotBefore    *time.Time `json:"settle_not_before"` // null: no bound is known, absence is never concluded
	ProvesCommit       *string    `json:"proves_commit"`     // null in lists
	ProvesAbsence      *string    `json:"proves_absence"`    // null in lists
	DedupeExpiresAt    *time.Time `json:"dedupe_expires_at"`
}

// Attempt is one call.
type Attempt struct {
	ID                string     `json:"id"`
	Number            int        `json:"number"`
	State             string     `json:"state"`
	SentAt            *time.Time `json:"sent_at"`
	ClosedAt          *time.Time `json:"closed_at"` // null: the call may still be open
	Cause             *string    `json:"cause"`
	Adapter           Adapter    `json:"adapter"`
	Epoch             int64      `json:"epoch"`
	ProviderRequestID *string    `json:"provider_request_id"`
	Deadline          *time.Time `json:"deadline"`
	ResponseClass     *string    `json:"response_class"`
	Message           *string    `json:"message"`
	Reason            *string    `json:"reason"`      // why this attempt was made
	ReleasedBy        *string    `json:"released_by"` // the evidence that settled it
}

// NoEffect reports whether this call is proved to have changed nothing.
func (a Attempt) NoEffect() bool {
	switch a.State {
	case "scheduled", "not_sent", "rejected", "not_executed", "settled_absent":
		return true
	}
	return false
}

// Adapter pins what performed a call.
type Adapter struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

// Reconciliation is one read of the destination and its verdict.
type Reconciliation struct {
	Verdict     string     `json:"verdict"`
	View        string     `json:"view"`
	Complete    bool       `json:"complete"`
	Consistency string     `json:"consistency"`
	Objects     int        `json:"objects"`
	ObservedAt  *time.Time `json:"observed_at"`
	Source      string     `json:"source"`
	Missing     []string   `json:"missing"`
	Number      int        `json:"number"`
	Permission  string     `json:"permission"` // proven, assumed, unproven
	Evidence    *string    `json:"evidence"`
}

// Approval allows one fingerprint to be sent.
type Approval struct {
	ID        string     `json:"id"`
	State     string     `json:"state"`
	By        string     `json:"by"`
	Scope     string     `json:"scope"`
	GrantedAt *time.Time `json:"granted_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	Uses      int        `json:"uses"` // 0: unlimited
	Used      int        `json:"used"`
}

// Repair mends a contradicted effect under an id of its own.
type Repair struct {
	ID       string     `json:"id"`
	Kind     string     `json:"kind"`
	State    string     `json:"state"`
	Object   *string    `json:"object"`
	Survivor *string    `json:"survivor"`
	By       string     `json:"by"`
	Because  string     `json:"because"`
	OpenedAt *time.Time `json:"opened_at"`
	ClosedAt *time.Time `json:"closed_at"`
}

// Checkpoint is a verified postcondition of a run's step.
type Checkpoint struct {
	Run      string    `json:"run"`
	Step     string    `json:"step"`
	Evidence string    `json:"evidence"`
	At       time.Time `json:"at"`
}

// Next says what the daemon does next, and when.
type Next struct {
	What string    `json:"what"` // dispatch, read, lease, expire, resend, escalate, held, call
	At   time.Time `json:"at"`
}

// Evidence is one immutable fact, named by its digest.
type Evidence struct {
	Digest  string    `json:"digest"`
	At      time.Time `json:"at"`
	Source  string    `json:"source"` // adapter, read, webhook, person
	Kind    string    `json:"kind"`
	Summary string    `json:"summary"`
}

// Closed reports whether nothing happens any more without new evidence or a person.
func (e Effect) Closed() bool {
	switch e.Phase {
	case "succeeded", "failed", "rolled_back", "compensated", "abandoned":
		return true
	}
	return false
}

// Resting reports whether waiting longer brings nothing by itself: the effect is closed or a person has it.
func (e Effect) Resting() bool {
	return e.Closed() || e.Phase == "needs_human" || e.Phase == "repairing"
}

// MayHaveBeenSent reports whether the destination may hold something of this
// effect. When attempts were left out it answers by the standing.
func (e Effect) MayHaveBeenSent() bool {
	if e.Standing != "not_started" {
		return true
	}
	for _, a := range e.Attempts {
		if !a.NoEffect() {
			return true
		}
	}
	return false
}

// EffectOption changes what [Client.Effect] asks for.
type EffectOption func(url.Values)

// WithPayload asks for the payload as it was submitted.
func WithPayload() EffectOption { return func(q url.Values) { q.Set("include", "payload") } }

// Effect returns everything known of one effect, or a [*Problem] with code not-found.
func (c *Client) Effect(ctx context.Context, key string, opts ...EffectOption) (Effect, error) {
	q := url.Values{}
	for _, o := range opts {
		o(q)
	}
	var e Effect
	err := c.call(ctx, http.MethodGet, effectPath(key), q, nil, nil, &e)
	return e, err
}

// Change waits until the effect's seq is above after, at most the given time
// (the daemon caps it at five minutes), and returns the effect as it is then,
// changed or not.
func (c *Client) Change(ctx context.Context, key string, after int64, wait time.Duration) (Effect, error) {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "wait": {wait.String()}}
	var e Effect
	err := c.call(ctx, http.MethodGet, effectPath(key), q, nil, nil, &e)
	return e, err
}

// pollFor is how long one long poll stays open.
const pollFor = 30 * time.Second

// Wait returns the effect once it rests (see [Effect.Resting]). When the
// context ends first it returns the last state seen together with the
// context's error; the zero Effect says that none was seen.
func (c *Client) Wait(ctx context.Context, key string) (Effect, error) {
	last, err := c.Effect(ctx, key)
	for err == nil && !last.Resting() {
		var e Effect
		if e, err = c.Change(ctx, key, last.Seq, pollFor); err == nil {
			last = e
		}
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return last, err
}

// Page is one page of a list. Next is the cursor of the next page, or "".
type Page struct {
	Effects []Effect `json:"effects"`
	Next    string   `json:"next"`
}

// List returns one page of the effects that the filter selects, for example
// "phase:unknown destination:desk". limit 0 leaves the page's size to the daemon.
func (c *Client) List(ctx context.Context, filter, cursor string, limit int) (Page, error) {
	q := url.Values{}
	setIf(q, "q", filter)
	setIf(q, "cursor", cursor)
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var p Page
	err := c.call(ctx, http.MethodGet, "/v1/effects", q, nil, nil, &p)
	return p, err
}

// Cancel ends an effect while nothing of it is unsettled.
func (c *Client) Cancel(ctx context.Context, key, because string) (Effect, error) {
	var e Effect
	err := c.call(ctx, http.MethodPost, effectPath(key)+"/cancel", nil, nil, map[string]string{"because": because}, &e)
	return e, err
}

func setIf(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}
