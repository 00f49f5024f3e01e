package api

import (
	"net/http"

	"github.com/settled-dev/settled/sdk/client"
)

// role is what a principal needs for a route. On the socket its owner and group
// have all of them; open routes ask for nobody.
type role string

const (
	open   role = ""
	reads  role = "read"
	sends  role = "submit"
	judges role = "decide"
	admin  role = "admin"
)

// route is one line of the API: what the mux serves and OpenAPI describes.
type route struct {
	method, path, id, words string
	role                    role
	handle                  http.HandlerFunc
	query                   [][2]string // name, words
	body                    any         // nil: none
	bodyType                string      // default application/json
	status                  int
	answer                  any    // nil: text
	answerType              string // default application/json
	problems                []int
}

// routes is the table. Everything else about the API's shape is derived from it.
func (a *api) routes() []route {
	filter := [2]string{"q", "filter, such as phase:unknown destination:desk"}
	dry := [2]string{"dry_run", "true: check, record nothing"}
	return []route{
		{method: "POST", path: "/v1/effects", id: "submit", words: "Record one effect. 200: it exists already. Prefer: wait=SECONDS waits for its end.", role: sends, handle: a.submit, query: [][2]string{dry}, body: client.SubmitRequest{}, status: 201, answer: client.SubmitResult{}, problems: []int{409, 413, 422, 429, 503, 507}},
		{method: "GET", path: "/v1/effects", id: "listEffects", words: "A page of effects, by key.", role: reads, handle: a.list, query: [][2]string{filter, {"cursor", "where the last page ended"}, {"limit", "1 to 1000"}}, status: 200, answer: client.Page{}, problems: []int{422}},
		{method: "POST", path: "/v1/effects:batch", id: "submitBatch", words: "Record many effects, one JSON object a line; answers come in the same order.", role: sends, handle: a.batch, query: [][2]string{dry}, body: client.SubmitRequest{}, bodyType: ndjson, status: 200, answer: client.LineResult{}, answerType: ndjson},
		{method: "GET", path: "/v1/effects/{key}", id: "showEffect", words: "Everything known of an effect. ETag is its seq.", role: reads, handle: a.effect, query: [][2]string{{"after", "wait until seq is above this"}, {"wait", "how long, such as 30s"}, {"include", "payload"}}, status: 200, answer: client.Effect{}, problems: []int{404, 422}},
		{method: "POST", path: "/v1/effects/{key}/decisions", id: "decide", words: "Record a person's decision. If-Match: 412 when the effect changed meanwhile.", role: judges, handle: a.decide, body: client.Decision{}, status: 200, answer: client.Effect{}, problems: []int{404, 409, 412, 422}},
		{method: "POST", path: "/v1/effects/{key}/cancel", id: "cancel", words: "End an effect of which nothing is unsettled.", role: sends, handle: a.cancel, body: Reason{}, status: 200, answer: client.Effect{}, problems: []int{404, 409, 422}},
		{method: "GET", path: "/v1/reviews", id: "listReviews", words: "What needs a person.", role: reads, handle: a.reviews, query: [][2]string{filter}, status: 200, answer: ReviewList{}, problems: []int{422}},
		{method: "GET", path: "/v1/holds", id: "listHolds", words: "The holds in force.", role: reads, handle: a.holds, status: 200, answer: HoldList{}},
		{method: "POST", path: "/v1/holds", id: "hold", words: "Stop sends within a scope.", role: admin, handle: a.hold, body: HoldRequest{}, status: 201, answer: HoldRequest{}, problems: []int{422}},
		{method: "DELETE", path: "/v1/holds/{scope}", id: "release", words: "Lift a hold.", role: admin, handle: a.release, query: [][2]string{{"because", "why"}}, status: 200, answer: Released{}, problems: []int{404}},
		{method: "GET", path: "/v1/destinations", id: "listDestinations", words: "The destinations.", role: reads, handle: a.destinations, status: 200, answer: DestinationList{}},
		{method: "GET", path: "/v1/destinations/{name}", id: "showDestination", words: "Limits, breaker and capability card.", role: reads, handle: a.destination, status: 200, answer: client.Destination{}, problems: []int{404}},
		{method: "POST", path: "/v1/destinations/{name}/pause", id: "pauseDestination", words: "Stop sends to a destination.", role: admin, handle: a.pause(true), body: Reason{}, status: 200, answer: client.Destination{}, problems: []int{404, 422}},
		{method: "POST", path: "/v1/destinations/{name}/resume", id: "resumeDestination", words: "Let sends to a destination go on.", role: admin, handle: a.pause(false), body: Reason{}, status: 200, answer: client.Destination{}, problems: []int{404, 422}},
		{method: "GET", path: "/v1/schedules", id: "listSchedules", words: "The schedules, with next times and last results.", role: reads, handle: a.schedules, status: 200, answer: ScheduleList{}},
		{method: "POST", path: "/v1/schedules/{name}/runs", id: "sweep", words: "Run a schedule now; progress a line, the last with done.", role: admin, handle: a.sweep, status: 200, answer: client.SweepReport{}, answerType: ndjson, problems: []int{404}},
		{method: "GET", path: "/v1/events", id: "events", words: "The audit chain as server-sent events (Last-Event-ID), or NDJSON when accepted.", role: reads, handle: a.events, query: [][2]string{filter, {"after", "seq"}, {"follow", "true: NDJSON goes on"}, {"format", "ndjson"}}, status: 200, answer: client.Event{}, answerType: "text/event-stream", problems: []int{422}},
		{method: "GET", path: "/v1/status", id: "status", words: "The daemon's own condition.", role: reads, handle: a.status, status: 200, answer: client.Status{}},
		{method: "POST", path: "/v1/drain", id: "drain", words: "Take and send nothing new; let calls in flight end.", role: admin, handle: a.drain, body: Reason{}, status: 200, answer: client.Status{}, problems: []int{422}},
		{method: "GET", path: "/v1/journal/verify", id: "verifyJournal", words: "Check the audit chain.", role: reads, handle: a.verify, query: [][2]string{{"expect_head", "SEQ:HASH that must be in the chain"}}, status: 200, answer: client.VerifyReport{}},
		{method: "POST", path: "/v1/journal/backup", id: "backupJournal", words: "Write a copy of the journal to a new file.", role: admin, handle: a.backup, body: BackupFile{}, status: 201, answer: BackupFile{}, problems: []int{422}},
		{method: "GET", path: "/v1/journal/stats", id: "journalStats", words: "Numbers about the journal.", role: reads, handle: a.stats, status: 200, answer: map[string]any{}},
		{method: "GET", path: "/v1/journal/check", id: "checkJournal", words: "Look at every page of the journal, and check the audit chain.", role: admin, handle: a.checkJournal, status: 200, answer: client.VerifyReport{}},
		{method: "POST", path: "/v1/journal/prune", id: "pruneJournal", words: "Apply the retention rules now. Never what is open, in review or lately acted on by a person.", role: admin, handle: a.prune, status: 200, answer: client.PruneReport{}},
		{method: "POST", path: "/v1/journal/confirm-restore", id: "confirmRestore", words: "After a restore: say when the old daemon was surely dead. Starts the grace of what was restored and enables dispatch.", role: admin, handle: a.confirmRestore, body: RestoreConfirmation{}, status: 200, answer: client.Status{}, problems: []int{422}},
		{method: "POST", path: "/v1/reload", id: "reload", words: "Read the configuration again. 422: it has faults, and the one that runs is kept.", role: admin, handle: a.reload, status: 200, answer: client.ReloadReport{}, problems: []int{422, 501}},
		{method: "POST", path: "/hooks/{destination}", id: "hook", words: "A message that a destination sends of itself, signed with its secret. 200: it is on disk.", role: open, handle: a.hook, body: map[string]any{}, status: 200, answer: HookAnswer{}, problems: []int{401, 404, 413, 503}},
		{method: "GET", path: "/healthz", id: "healthz", words: "503: restart the daemon.", role: open, handle: a.healthz, status: 200, answerType: "text/plain", problems: []int{503}},
		{method: "GET", path: "/readyz", id: "readyz", words: "503: give it no work now.", role: open, handle: a.readyz, status: 200, answerType: "text/plain", problems: []int{503}},
		{method: "GET", path: "/metrics", id: "metrics", words: "Prometheus text.", role: open, handle: a.metrics, status: 200, answerType: "text/plain"},
		{method: "GET", path: "/openapi.json", id: "openapi", words: "This document.", role: open, handle: a.openapi, status: 200, answer: map[string]any{}},
	}
}
