package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Status is the daemon's own condition.
type Status struct {
	Dispatch       Dispatch         `json:"dispatch"`
	Phases         map[string]int64 `json:"phases"`
	UnknownOldestS float64          `json:"unknown_oldest_s"` // seconds; 0 = nothing is unknown
	Reviews        ReviewCounts     `json:"reviews"`
	Head           string           `json:"head"` // SEQ:HASH of the audit chain
	Epoch          int64            `json:"epoch"`
	Version        string           `json:"version"`
	StartedAt      *time.Time       `json:"started_at"`
	Draining       bool             `json:"draining"`
	InFlight       int              `json:"in_flight"` // calls that are open now
}

// Dispatch says whether anything is sent at all, and why not.
type Dispatch struct {
	Enabled bool   `json:"enabled"`
	Because string `json:"because"`
}

// ReviewCounts counts what needs a person.
type ReviewCounts struct {
	Open    int64 `json:"open"`
	Overdue int64 `json:"overdue"`
}

// Status returns the daemon's condition.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/v1/status", nil, nil, nil, &s)
	return s, err
}

// Drain stops taking and sending, and lets calls in flight end.
func (c *Client) Drain(ctx context.Context, because string) error {
	return c.call(ctx, http.MethodPost, "/v1/drain", nil, nil, map[string]string{"because": because}, nil)
}

// VerifyReport is the result of checking the audit chain and the journal.
type VerifyReport struct {
	OK          bool     `json:"ok"`
	Checked     int64    `json:"checked"` // events
	Head        string   `json:"head"`
	Problems    []string `json:"problems"`
	CouldNotRun string   `json:"could_not_run"` // why nothing is known; "" = it ran
}

// Verify checks the audit chain, and that it still contains expectHead (SEQ:HASH) when given.
func (c *Client) Verify(ctx context.Context, expectHead string) (VerifyReport, error) {
	q := url.Values{}
	setIf(q, "expect_head", expectHead)
	var r VerifyReport
	err := c.call(ctx, http.MethodGet, "/v1/journal/verify", q, nil, nil, &r)
	return r, err
}

// CheckJournal looks at every page of the journal and checks the audit chain.
func (c *Client) CheckJournal(ctx context.Context) (VerifyReport, error) {
	var r VerifyReport
	err := c.call(ctx, http.MethodGet, "/v1/journal/check", nil, nil, nil, &r)
	return r, err
}

// PruneReport says what the retention rules let go.
type PruneReport struct {
	Effects  int64 `json:"effects"`  // whole effects; their keys stay
	Payloads int64 `json:"payloads"` // payloads and evidence bodies; their digests stay
}

// Prune applies the retention rules now.
func (c *Client) Prune(ctx context.Context) (PruneReport, error) {
	var r PruneReport
	err := c.call(ctx, http.MethodPost, "/v1/journal/prune", nil, nil, nil, &r)
	return r, err
}

// ConfirmRestore says, after a restore, when the old daemon was surely dead.
// The grace of what was restored starts there, and dispatch is on again.
func (c *Client) ConfirmRestore(ctx context.Context, oldDaemonDeadAt time.Time, because string) (Status, error) {
	var s Status
	body := map[string]any{"old_daemon_dead_at": oldDaemonDeadAt, "because": because}
	err := c.call(ctx, http.MethodPost, "/v1/journal/confirm-restore", nil, nil, body, &s)
	return s, err
}

// ReloadReport says what a reload changed and what it could not.
type ReloadReport struct {
	Files        []string `json:"files"`
	Changed      []string `json:"changed"`       // holds from now on
	NeedsRestart []string `json:"needs_restart"` // is as before until the daemon starts again
	Warnings     []string `json:"warnings"`
	PolicySHA256 string   `json:"policy_sha256"`
}

// Reload has the daemon read its configuration again. A configuration with
// faults is refused as a [Problem] with code invalid, and the old one is kept.
func (c *Client) Reload(ctx context.Context) (ReloadReport, error) {
	var r ReloadReport
	err := c.call(ctx, http.MethodPost, "/v1/reload", nil, nil, nil, &r)
	return r, err
}

// Backup writes a copy of the journal to an absolute path, as the daemon's user.
func (c *Client) Backup(ctx context.Context, file string) error {
	return c.call(ctx, http.MethodPost, "/v1/journal/backup", nil, nil, map[string]string{"file": file}, nil)
}

// Stats returns numbers about the journal by name.
func (c *Client) Stats(ctx context.Context) (map[string]any, error) {
	var m map[string]any
	err := c.call(ctx, http.MethodGet, "/v1/journal/stats", nil, nil, nil, &m)
	return m, err
}

// Hold stops sends within its scope.
type Hold struct {
	Scope    string     `json:"scope"`
	RaisedBy *string    `json:"raised_by"` // key of the effect that raised it; null = a person
	Finding  *string    `json:"finding"`
	By       string     `json:"by"`
	Because  string     `json:"because"`
	At       *time.Time `json:"at"`
}

// Holds lists the holds in force.
func (c *Client) Holds(ctx context.Context) ([]Hold, error) {
	var out struct {
		Holds []Hold `json:"holds"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/holds", nil, nil, nil, &out)
	return out.Holds, err
}

// Hold raises a hold: key:K, run:R, target:DEST/T, account:DEST/A, destination:D or all.
func (c *Client) Hold(ctx context.Context, scope, because string) error {
	return c.call(ctx, http.MethodPost, "/v1/holds", nil, nil, map[string]string{"scope": scope, "because": because}, nil)
}

// Release lifts a hold and returns how many held effects may go on.
func (c *Client) Release(ctx context.Context, scope string) (int, error) {
	var out struct {
		Released int `json:"released"`
	}
	err := c.call(ctx, http.MethodDelete, "/v1/holds/"+segment(scope), nil, nil, nil, &out)
	return out.Released, err
}

// Destination is one destination's limits, breaker and capability card.
type Destination struct {
	Name         string       `json:"name"`
	Adapter      string       `json:"adapter"`
	Version      string       `json:"version"`
	SHA256       string       `json:"sha256"`
	Identity     string       `json:"identity"`
	Up           bool         `json:"up"`
	Why          string       `json:"why"` // when not up
	Paused       bool         `json:"paused"`
	Breaker      string       `json:"breaker"` // closed, open, half-open
	BreakerSince *time.Time   `json:"breaker_since"`
	InFlight     int          `json:"in_flight"`
	Concurrency  int          `json:"concurrency"`
	Rate         string       `json:"rate"`
	Queued       int64        `json:"queued"`
	Unknown      int64        `json:"unknown"`
	RetryTokens  float64      `json:"retry_tokens"`
	Operations   []Capability `json:"operations"`
}

// Capability answers the questions of the capability card for one operation.
type Capability struct {
	Operation       string   `json:"operation"`
	Identifies      string   `json:"identifies"`
	ProvesCommit    string   `json:"proves_commit"`
	ProvesAbsence   string   `json:"proves_absence"`
	OwnerWhenNot    string   `json:"owner_when_not"`
	Dedupe          string   `json:"dedupe"`
	RetryableAnswer string   `json:"retryable_answer"`
	Reversal        string   `json:"reversal"`
	Triggers        string   `json:"triggers"`
	Unanswered      []string `json:"unanswered"`
}

// Destinations lists the destinations.
func (c *Client) Destinations(ctx context.Context) ([]Destination, error) {
	var out struct {
		Destinations []Destination `json:"destinations"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/destinations", nil, nil, nil, &out)
	return out.Destinations, err
}

// Destination returns one destination.
func (c *Client) Destination(ctx context.Context, name string) (Destination, error) {
	var d Destination
	err := c.call(ctx, http.MethodGet, "/v1/destinations/"+segment(name), nil, nil, nil, &d)
	return d, err
}

// Pause stops sends to a destination; Resume lets them go on. Reads go on in either case.
func (c *Client) Pause(ctx context.Context, name, because string) error {
	return c.call(ctx, http.MethodPost, "/v1/destinations/"+segment(name)+"/pause", nil, nil, map[string]string{"because": because}, nil)
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, name, because string) error {
	return c.call(ctx, http.MethodPost, "/v1/destinations/"+segment(name)+"/resume", nil, nil, map[string]string{"because": because}, nil)
}

// Schedule is what is known of one schedule.
type Schedule struct {
	Name          string      `json:"name"`
	Do            string      `json:"do"`
	Destination   string      `json:"destination"`
	Cron          string      `json:"cron"`
	Timezone      string      `json:"timezone"`
	Next          []time.Time `json:"next"`
	LastNominalAt *time.Time  `json:"last_nominal_at"`
	LastStartedAt *time.Time  `json:"last_started_at"`
	LastOKAt      *time.Time  `json:"last_ok_at"`
	LastResult    string      `json:"last_result"`
	Missed        int64       `json:"missed"`
	// JitterS is how many seconds after its nominal time it starts.
	JitterS int64 `json:"jitter_s"`
	// Hazards are the nominal times within a year that a change of clocks touches.
	Hazards []Hazard `json:"hazards"`
	// Runs are the last ones, newest first.
	Runs []ScheduleRun `json:"runs"`
}

// Hazard is a nominal time that a change of clocks skips or doubles.
type Hazard struct {
	Kind string      `json:"kind"` // skipped or doubled
	At   time.Time   `json:"at"`   // the change
	Wall string      `json:"wall"` // the first nominal time touched
	Runs []time.Time `json:"runs"` // what is run for it
}

// ScheduleRun is one run of a schedule; EndedAt is nil while it goes on,
// NominalAt when somebody asked for it.
type ScheduleRun struct {
	NominalAt *time.Time `json:"nominal_at"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Result    string     `json:"result"`
}

// Schedules lists the schedules.
func (c *Client) Schedules(ctx context.Context) ([]Schedule, error) {
	var out struct {
		Schedules []Schedule `json:"schedules"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/schedules", nil, nil, nil, &out)
	return out.Schedules, err
}

// SweepReport is the progress and the end of one run of a schedule.
type SweepReport struct {
	Schedule        string     `json:"schedule"`
	Do              string     `json:"do"`
	Destination     string     `json:"destination"`
	StartedAt       *time.Time `json:"started_at"`
	EndedAt         *time.Time `json:"ended_at"`
	Total           int        `json:"total"`
	Asked           int        `json:"asked"`
	Matches         int        `json:"matches"`
	Absent          int        `json:"absent"`
	Partial         int        `json:"partial"`
	Duplicate       int        `json:"duplicate"`
	Conflicts       int        `json:"conflicts"`
	Unknown         int        `json:"unknown"`
	ReadFailed      int        `json:"read_failed"`
	WaitingForGrace int        `json:"waiting_for_grace"`
	Skipped         int        `json:"skipped"` // settled or taken by somebody else meanwhile
	Raised          int        `json:"raised"`  // audit: handed to a person
	Detail          string     `json:"detail"`  // what a run that reads nothing did
	Resumed         bool       `json:"resumed"` // goes on from where an interrupted run was
	Done            bool       `json:"done"`
	Error           string     `json:"error"`
}

// Sweep runs a schedule now and calls progress for each report, the last one
// with Done set; that one is returned.
func (c *Client) Sweep(ctx context.Context, name string, progress func(SweepReport)) (SweepReport, error) {
	var last SweepReport
	res, err := c.send(ctx, http.MethodPost, "/v1/schedules/"+segment(name)+"/runs", nil, http.Header{"Accept": {ndjson}}, nil)
	if err != nil {
		return last, err
	}
	defer drain(res.Body)
	err = eachLine(res.Body, func(line []byte) error {
		var r SweepReport
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		last = r
		if progress != nil {
			progress(r)
		}
		return nil
	})
	if err == nil && !last.Done {
		err = &LostError{Err: errUnfinished}
	}
	return last, err
}
