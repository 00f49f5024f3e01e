package desk

import (
	"encoding/json"
	"time"
)

// Ticket is one object of the desk, as it is stored and answered.
type Ticket struct {
	ID          string          `json:"id"`
	ExternalRef string          `json:"external_ref,omitempty"`
	Digest      string          `json:"digest,omitempty"`
	Queue       string          `json:"queue"`
	Subject     string          `json:"subject"`
	Body        *string         `json:"body"` // null = the desk has none
	Project     string          `json:"project"`
	Status      string          `json:"status"`
	Requester   string          `json:"requester,omitempty"`
	Priority    json.RawMessage `json:"priority,omitempty"`
	CreatedAt   time.Time       `json:"created_at"`
}

// row is a stored ticket with what only the desk knows of it.
type row struct {
	Ticket    Ticket    `json:"ticket"`
	Asked     string    `json:"asked"`         // the reference in the request, even if it was dropped
	Key       string    `json:"key,omitempty"` // the Idempotency-Key of the request
	VisibleAt time.Time `json:"visible_at"`    // to the list
	deleted   bool
}

// request is the body of POST /tickets. Fields that it does not name are
// ignored, as most services do.
type request struct {
	ExternalRef string          `json:"external_ref"`
	Digest      string          `json:"digest"`
	Queue       string          `json:"queue"`
	Subject     string          `json:"subject"`
	Body        *string         `json:"body"`
	Requester   string          `json:"requester"`
	Priority    json.RawMessage `json:"priority"`
	Fault       *Fault          `json:"desk_fault"`
}
