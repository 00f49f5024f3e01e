package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk/client"
)

func unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// ReviewList is the answer of /v1/reviews.
type ReviewList struct {
	Reviews []client.Review `json:"reviews"`
}

func (a *api) reviews(w http.ResponseWriter, r *http.Request) {
	effects, err := a.svc.Reviews(r.Context(), r.URL.Query().Get("q"))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	out := ReviewList{Reviews: []client.Review{}}
	for _, e := range effects {
		if v := review(e); v != nil {
			out.Reviews = append(out.Reviews, *v)
		}
	}
	writeJSON(w, http.StatusOK, out)
}

func (a *api) decide(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	seq, err := ifMatch(r.Header.Get("If-Match"))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	body, err := readBody(w, r, maxEnvelope)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	var in client.Decision
	if err := strict(body, &in); err != nil {
		a.fail(w, r, err)
		return
	}
	if faults := decisionFaults(in); len(faults) > 0 {
		a.fail(w, r, &daemon.InvalidError{Faults: faults})
		return
	}
	e, err := a.svc.Decide(r.Context(), key, decideRequest(in, seq), by(r, in.Because))
	if err != nil {
		a.failOn(w, r, key, err)
		return
	}
	writeEffect(w, e)
}

func decideRequest(in client.Decision, seq int64) daemon.DecideRequest {
	return daemon.DecideRequest{
		Decision: journal.DecisionKind(in.Decision), Because: in.Because, Object: in.Object, Keep: in.Keep, Then: in.Then,
		Evidence: in.Evidence, LookedAt: value(in.LookedAt), NoBound: in.NoBound, Record: in.Record, To: in.To,
		Until: value(in.Until), Approver: in.Approver, Operation: in.Operation, Payload: in.Payload, IfSeq: seq,
	}
}

// decisions lists what may be decided, with what each needs.
func decisions() []journal.DecisionKind {
	return []journal.DecisionKind{
		journal.DecideRead, journal.DecideHappened, journal.DecideDidNotHappen, journal.DecideComplete,
		journal.DecideRollback, journal.DecideCompensate, journal.DecideFix, journal.DecideRetire, journal.DecideRetry,
		journal.DecideClose, journal.DecideAbandon, journal.DecideAssign, journal.DecideKeepWaiting, journal.DecideClaim,
	}
}

// decisionFaults names what a decision lacks by itself, whatever the effect is like.
func decisionFaults(in client.Decision) (faults []string) {
	need := func(ok bool, fault string) {
		if !ok {
			faults = append(faults, fault)
		}
	}
	known := false
	for _, d := range decisions() {
		known = known || string(d) == in.Decision
	}
	need(known, fmt.Sprintf("decision: %q is none; known are %s", in.Decision, words(decisions())))
	need(strings.TrimSpace(in.Because) != "", "because: say why; it goes into the audit chain")
	switch journal.DecisionKind(in.Decision) {
	case journal.DecideHappened, journal.DecideComplete:
		need(in.Object != "", "object: name the object at the destination")
	case journal.DecideDidNotHappen:
		need(in.Then == "retry" || in.Then == "close", "then: say retry or close; absence by itself sends nothing")
	case journal.DecideRetire:
		need(in.Object != "", "object: name the duplicate")
		need(in.Keep != "", "keep: name the object that is kept")
	case journal.DecideFix:
		need(in.Operation != "", "operation: name the operation that fixes it")
	case journal.DecideAssign:
		need(in.To != "", "to: name the new owner")
	case journal.DecideKeepWaiting:
		need(in.Until != nil, "until: say until when")
	}
	return faults
}

func words(list []journal.DecisionKind) string {
	return strings.Join(each(list, func(d journal.DecisionKind) string { return string(d) }), ", ")
}

// ifMatch reads the sequence number of If-Match; 0 = no condition.
func ifMatch(h string) (int64, error) {
	h = strings.TrimSpace(h)
	if h == "" || h == "*" {
		return 0, nil
	}
	seq, err := strconv.ParseInt(strings.Trim(h, `"`), 10, 64)
	if err != nil || seq < 1 {
		return 0, &daemon.InvalidError{Faults: []string{"If-Match: the ETag of the effect, such as \"7\", is expected"}}
	}
	return seq, nil
}
