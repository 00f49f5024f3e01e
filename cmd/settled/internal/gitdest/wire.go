package gitdest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// maxRequest bounds what is read from standard input.
const maxRequest = 16 << 20

// request is what the exec adapter writes. Fields that are not used here are ignored.
type request struct {
	Method    string    `json:"method"`
	Operation operation `json:"operation"`
	Deadline  time.Time `json:"deadline"`
}

type operation struct {
	Key       string          `json:"key"`
	AttemptID string          `json:"attempt_id"`
	Digest    string          `json:"digest"`
	Account   string          `json:"account"`
	ObjectID  string          `json:"object_id"`
	Payload   json.RawMessage `json:"payload"`
}

// release is the payload of the operation tag.
type release struct {
	Tag    string `json:"tag"`
	Repo   string `json:"repo"`
	Commit string `json:"commit"`
	Notes  string `json:"notes"`
}

// outcome is the answer to dispatch and undo.
type outcome struct {
	Outcome  string            `json:"outcome"` // done, rejected, not_executed, unknown
	ObjectID string            `json:"object_id,omitempty"`
	Message  string            `json:"message,omitempty"`
	Evidence map[string]string `json:"evidence,omitempty"`
}

// reading is the answer to read.
type reading struct {
	Items       []item    `json:"items"`
	Complete    bool      `json:"complete"`
	Visible     bool      `json:"visible"`
	AsOf        time.Time `json:"as_of"`
	ScannedFrom time.Time `json:"scanned_from"`
}

type item struct {
	ObjectID  string     `json:"object_id"`
	Key       string     `json:"key"`
	Digest    string     `json:"digest"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	State     string     `json:"state"`
	Missing   []string   `json:"missing"`
}

func decode(in io.Reader) (request, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxRequest))
	if err != nil {
		return request{}, fmt.Errorf("read the request: %w", err)
	}
	var req request
	if err := json.Unmarshal(data, &req); err != nil {
		return request{}, fmt.Errorf("the request on standard input is no JSON: %w", err)
	}
	return req, nil
}

// decodeRelease says what is wrong in words that end up in front of a person.
func decodeRelease(payload json.RawMessage) (release, error) {
	var text string
	if json.Unmarshal(payload, &text) == nil {
		payload = json.RawMessage(text) // payloads may come as text
	}
	var r release
	if err := json.Unmarshal(payload, &r); err != nil {
		return release{}, fmt.Errorf("the payload is no release: %w", err)
	}
	switch {
	case r.Tag == "":
		return release{}, errors.New("the payload names no tag")
	case strings.ContainsAny(r.Tag, "\n\r\x00") || strings.ContainsRune(r.Notes, 0):
		return release{}, errors.New("the payload holds control characters that a tag cannot carry")
	}
	return r, nil
}
