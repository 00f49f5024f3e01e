package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Event is one line of the audit chain.
type Event struct {
	Seq          int64     `json:"seq"`
	At           time.Time `json:"at"`
	Kind         string    `json:"kind"`
	Key          string    `json:"key"`
	Run          string    `json:"run"`
	Attempt      string    `json:"attempt"`
	From         string    `json:"from"`
	To           string    `json:"to"`
	Actor        string    `json:"actor"`
	ActorKind    string    `json:"actor_kind"`
	Origin       string    `json:"origin"`
	Because      string    `json:"because"`
	Evidence     string    `json:"evidence"`
	PolicySHA256 string    `json:"policy_sha256"`
	PrevHash     string    `json:"prev_hash"`
	Hash         string    `json:"hash"`
}

// Events calls each for every event after seq that the filter selects. With
// follow it goes on with new ones until the context ends, which is no error.
func (c *Client) Events(ctx context.Context, after int64, filter string, follow bool, each func(Event) error) error {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}}
	setIf(q, "q", filter)
	if follow {
		q.Set("follow", "true")
	}
	res, err := c.send(ctx, http.MethodGet, "/v1/events", q, http.Header{"Accept": {ndjson}}, nil)
	if err == nil {
		defer func() { _ = res.Body.Close() }()
		err = eachLine(res.Body, func(line []byte) error {
			var e Event
			if err := json.Unmarshal(line, &e); err != nil {
				return err
			}
			return each(e)
		})
	}
	if follow && ctx.Err() != nil {
		return nil
	}
	return err
}
