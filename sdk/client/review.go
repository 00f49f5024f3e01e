package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Review is one question to one owner.
type Review struct {
	Key         string      `json:"key"`
	Kind        string      `json:"kind"`  // ambiguity, contradiction, exception
	State       string      `json:"state"` // open, claimed, decided
	Owner       string      `json:"owner"`
	Severity    string      `json:"severity"`
	DueAt       *time.Time  `json:"due_at"`
	Finding     string      `json:"finding"`
	Missing     []string    `json:"missing"`
	Candidates  []Candidate `json:"candidates"`
	Allowed     []string    `json:"allowed"` // what may be decided
	Overdue     bool        `json:"overdue"`
	OpenedAt    *time.Time  `json:"opened_at"`
	Destination string      `json:"destination"`
	Operation   string      `json:"operation"`
	Phase       string      `json:"phase"`
	Seq         int64       `json:"seq"` // of the effect: for If-Match
	Words       string      `json:"words"`
	Decision    *string     `json:"decision"`
	DecidedBy   *string     `json:"decided_by"`
	DecidedAt   *time.Time  `json:"decided_at"`
	Because     *string     `json:"because"`
}

// Candidate is an object at the destination that may be the effect's.
type Candidate struct {
	ObjectID    string          `json:"object_id"`
	ObjectType  string          `json:"object_type"`
	URL         string          `json:"url"`
	State       string          `json:"state"`
	Strength    string          `json:"strength"`  // what ties it to the effect
	Agreement   string          `json:"agreement"` // same, differs, not_compared, partial
	Differences []string        `json:"differences"`
	CreatedAt   *time.Time      `json:"created_at"`
	Account     string          `json:"account"`
	Observed    json.RawMessage `json:"observed"` // null, JSON, or text as a string
}

// Decision is what a person decides. Which fields count depends on Decision.
type Decision struct {
	Decision  string          `json:"decision"`
	Because   string          `json:"because"`
	Object    string          `json:"object,omitempty"`
	Keep      string          `json:"keep,omitempty"`     // retire
	Then      string          `json:"then,omitempty"`     // did-not-happen: retry or close
	Evidence  string          `json:"evidence,omitempty"` // text or contents
	LookedAt  *time.Time      `json:"looked_at,omitempty"`
	NoBound   string          `json:"no_bound,omitempty"` // why nothing can land any more
	Record    string          `json:"record,omitempty"`   // the destination's operation record
	To        string          `json:"to,omitempty"`       // assign
	Until     *time.Time      `json:"until,omitempty"`    // keep-waiting
	Approver  string          `json:"approver,omitempty"`
	Operation string          `json:"operation,omitempty"` // fix
	Payload   json.RawMessage `json:"payload,omitempty"`   // fix
}

// Reviews returns what needs a person.
func (c *Client) Reviews(ctx context.Context, filter string) ([]Review, error) {
	q := url.Values{}
	setIf(q, "q", filter)
	var out struct {
		Reviews []Review `json:"reviews"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/reviews", q, nil, nil, &out)
	return out.Reviews, err
}

// Decide records a decision. With ifSeq above 0 it counts only if the effect
// has not changed since: a [*Problem] with code stale says that it did.
func (c *Client) Decide(ctx context.Context, key string, d Decision, ifSeq int64) (Effect, error) {
	h := http.Header{}
	if ifSeq > 0 {
		h.Set("If-Match", `"`+strconv.FormatInt(ifSeq, 10)+`"`)
	}
	var e Effect
	err := c.call(ctx, http.MethodPost, effectPath(key)+"/decisions", nil, h, d, &e)
	return e, err
}
