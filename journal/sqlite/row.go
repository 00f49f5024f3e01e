package sqlite

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/settled-dev/settled/journal"
)

// The stored forms. They are apart from the domain types so that a renamed
// field there never changes what old journals mean. Field names here are a
// file format: add, never rename. This file is the whole mapping.

type intentRow struct {
	Actor       word              `json:"actor,omitzero"`
	ContentType word              `json:"type,omitzero"`
	Context     map[string]string `json:"context,omitempty"`
	Supersedes  string            `json:"supersedes,omitempty"`
	Run         string            `json:"run,omitempty"`
	NotBefore   offset            `json:"not_before,omitempty"` // from submitted_at
	Deadline    offset            `json:"deadline,omitempty"`   // from submitted_at
}

// The fields that every effect has have short names, and their times are
// offsets from submitted_at: they are most of the file.
type stateRow struct {
	Severity   string        `json:"sev,omitempty"` // without it: normal; "-": none
	WaitingFor string        `json:"waiting_for,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	Target     string        `json:"target,omitempty"`
	Authority  *authorityRow `json:"auth,omitempty"`
	NextSend   offset        `json:"next_send,omitempty"`
	Budget     budgetRow     `json:"used,omitzero"`
	Ack        *ackRow       `json:"ack,omitempty"`
	Verify     *verifyRow    `json:"verify,omitempty"`
	Doubt      *doubtRow     `json:"doubt,omitempty"`
	Absence    *absenceRow   `json:"absence,omitempty"`
	Positive   *positiveRow  `json:"pos,omitempty"`
	Outcome    outcomeRow    `json:"out,omitzero"`
	Review     *reviewRow    `json:"review,omitempty"`
	Repairs    []repairRow   `json:"repairs,omitempty"`
	HoldScope  string        `json:"hold_scope,omitempty"`
	Reads      int           `json:"reads,omitempty"`
}

type authorityRow struct {
	Grant     word   `json:"grant"` // reference, policy and contract
	GrantedAt offset `json:"at,omitempty"`
	ExpiresAt offset `json:"until,omitempty"`
}

type budgetRow struct {
	Attempts    int           `json:"n,omitempty"`
	ElapsedFrom offset        `json:"from,omitempty"`
	Paused      time.Duration `json:"paused_ns,omitempty"`
}

type ackRow struct {
	Handle   string `json:"handle,omitempty"`
	At       micros `json:"at,omitempty"`
	Deadline micros `json:"deadline,omitempty"`
	NextRead micros `json:"next_read,omitempty"`
	Polls    int    `json:"polls,omitempty"`
}

type verifyRow struct {
	ObjectID string `json:"object_id,omitempty"`
	Since    micros `json:"since,omitempty"`
	Deadline micros `json:"deadline,omitempty"`
	NextRead micros `json:"next_read,omitempty"`
	Reads    int    `json:"reads,omitempty"`
}

type doubtRow struct {
	Since           micros         `json:"since,omitempty"`
	ReadsFrom       micros         `json:"reads_from,omitempty"`
	Reads           int            `json:"reads,omitempty"`
	LastTransition  string         `json:"last_transition,omitempty"`
	Cause           string         `json:"cause,omitempty"`
	Missing         []string       `json:"missing,omitempty"`
	NextReadAt      micros         `json:"next_read_at,omitempty"`
	SettleNotBefore micros         `json:"settle_not_before,omitempty"`
	ResolveBy       micros         `json:"resolve_by,omitempty"`
	DedupeExpiresAt micros         `json:"dedupe_expires_at,omitempty"`
	LeaseUntil      micros         `json:"lease_until,omitempty"`
	FirstAbsent     *absentReadRow `json:"first_absent,omitempty"`
	ReadFailed      int            `json:"read_failed,omitempty"`
	Paused          time.Duration  `json:"paused_ns,omitempty"`
	LastRead        micros         `json:"last_read,omitempty"`
	Taken           bool           `json:"taken,omitempty"`
	Fence           string         `json:"fence,omitempty"`
}

type absentReadRow struct {
	BegunAt      micros `json:"begun_at,omitempty"`
	EndedAt      micros `json:"ended_at,omitempty"`
	View         string `json:"view,omitempty"`
	FilterSHA256 string `json:"filter_sha256,omitempty"`
	Subject      string `json:"subject,omitempty"`
	Evidence     string `json:"evidence,omitempty"`
}

type absenceRow struct {
	Ref        string        `json:"ref,omitempty"`
	How        string        `json:"how,omitempty"`
	ObservedAt micros        `json:"observed_at,omitempty"`
	ValidUntil micros        `json:"valid_until,omitempty"`
	Final      bool          `json:"final,omitempty"`
	Paused     time.Duration `json:"paused_ns,omitempty"`
}

type positiveRow struct {
	At         offset `json:"at,omitempty"`
	What       string `json:"what,omitempty"`
	Accepted   bool   `json:"accepted,omitempty"`
	RebuttedAt micros `json:"rebutted_at,omitempty"`
	RebuttedBy string `json:"rebutted_by,omitempty"`
}

// The object's id has a column of its own.
type outcomeRow struct {
	Version         int    `json:"v,omitempty"`
	Acknowledgement string `json:"ack,omitempty"`
	ObjectType      string `json:"type,omitempty"`
	URL             string `json:"url,omitempty"`
	ProviderState   string `json:"state,omitempty"`
	Postcondition   string `json:"postcondition,omitempty"`
	VerifiedAt      micros `json:"verified_at,omitempty"`
	Source          string `json:"src,omitempty"`
	Evidence        string `json:"evidence,omitempty"`
	Waived          bool   `json:"waived,omitempty"`
	Attested        bool   `json:"attested,omitempty"`
}

type reviewRow struct {
	Kind       string     `json:"kind"`
	State      string     `json:"state"`
	Owner      string     `json:"owner"`
	Severity   string     `json:"severity,omitempty"`
	OpenedAt   micros     `json:"opened_at,omitempty"`
	DueAt      micros     `json:"due_at,omitempty"`
	Finding    string     `json:"finding,omitempty"`
	Missing    []string   `json:"missing,omitempty"`
	Candidates []matchRow `json:"candidates,omitempty"`
	Allowed    []string   `json:"allowed,omitempty"`
	Group      string     `json:"group,omitempty"`
	Overdue    bool       `json:"overdue,omitempty"`
	Decision   string     `json:"decision,omitempty"`
	DecidedBy  string     `json:"decided_by,omitempty"`
	DecidedAt  micros     `json:"decided_at,omitempty"`
	Because    string     `json:"because,omitempty"`
}

type matchRow struct {
	ObjectID    string   `json:"object_id,omitempty"`
	ObjectType  string   `json:"object_type,omitempty"`
	URL         string   `json:"url,omitempty"`
	State       string   `json:"state,omitempty"`
	Strength    string   `json:"strength,omitempty"`
	Agreement   string   `json:"agreement,omitempty"`
	Differences []string `json:"differences,omitempty"`
	CreatedAt   micros   `json:"created_at,omitempty"`
	Account     string   `json:"account,omitempty"`
	Target      string   `json:"target,omitempty"`
	Observed    []byte   `json:"observed,omitempty"`
	Void        bool     `json:"void,omitempty"`
}

type repairRow struct {
	ID            string `json:"id"`
	Kind          string `json:"kind,omitempty"`
	Operation     string `json:"operation,omitempty"`
	Object        string `json:"object,omitempty"`
	Survivor      string `json:"survivor,omitempty"`
	By            string `json:"by,omitempty"`
	Because       string `json:"because,omitempty"`
	Approval      string `json:"approval,omitempty"`
	PriorState    []byte `json:"prior_state,omitempty"`
	PriorEvidence string `json:"prior_evidence,omitempty"`
	State         string `json:"state,omitempty"`
	OpenedAt      micros `json:"opened_at,omitempty"`
	ClosedAt      micros `json:"closed_at,omitempty"`
}

// What is as in the effect is not repeated; the adapter and its process are one term.
type attemptRow struct {
	Same              int    `json:"same,omitempty"` // sum of sameKey, …
	Number            int    `json:"number,omitempty"`
	Key               string `json:"key,omitempty"`
	Marker            string `json:"marker,omitempty"`
	Account           string `json:"account,omitempty"`
	Target            string `json:"target,omitempty"`
	Route             string `json:"route,omitempty"`
	Authority         word   `json:"auth,omitzero"`
	ExpectedRevision  string `json:"expected_revision,omitempty"`
	Reason            word   `json:"why,omitzero"`
	Follows           string `json:"follows,omitempty"`
	ReleasedBy        string `json:"released_by,omitempty"`
	RequestDigest     string `json:"request_digest,omitempty"`
	Deadline          offset `json:"until,omitempty"` // from sent_at
	Death             bool   `json:"death,omitempty"`
	ProviderRequestID string `json:"request_id,omitempty"`
	ResponseClass     string `json:"class,omitempty"`
	Cause             string `json:"cause,omitempty"`
	Message           string `json:"message,omitempty"`
	Replay            bool   `json:"replay,omitempty"`
}

// What of an attempt is as in its effect, whose values never change.
const (
	sameKey = 1 << iota
	sameMarker
	sameAccount
	sameNumber
	sameClass // as the state
)

type reconciliationRow struct {
	View        string     `json:"view,omitempty"`
	Complete    bool       `json:"complete,omitempty"`
	Permission  string     `json:"permission,omitempty"`
	Consistency string     `json:"consistency,omitempty"`
	Objects     int        `json:"objects,omitempty"`
	BegunAt     micros     `json:"begun_at,omitempty"`
	ObservedAt  micros     `json:"observed_at,omitempty"`
	Source      string     `json:"source,omitempty"`
	Evidence    string     `json:"evidence,omitempty"`
	Missing     []string   `json:"missing,omitempty"`
	Candidates  []matchRow `json:"candidates,omitempty"`
	Number      int        `json:"number,omitempty"`
}

// encode makes the JSON of a row. The row types hold nothing that can fail to encode.
func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

func mapped[A, B any](list []A, f func(A) B) []B {
	if list == nil {
		return nil
	}
	out := make([]B, len(list))
	for i, x := range list {
		out[i] = f(x)
	}
	return out
}

func ptr[A, B any](p *A, f func(A) B) *B {
	if p == nil {
		return nil
	}
	v := f(*p)
	return &v
}

// encoder turns shared texts into terms while a row is encoded, and keeps the first error.
type encoder struct {
	tx  *Tx
	err error
}

func (w *encoder) of(s string) word {
	out, err := w.tx.term(s)
	if w.err == nil {
		w.err = err
	}
	return out
}

// decoder is the way back.
type decoder struct {
	c   *conn
	err error
}

func (t *decoder) of(w word) string {
	s, err := t.c.text(w)
	if t.err == nil {
		t.err = err
	}
	return s
}

// termSep joins what is one term.
const termSep = "\x1f"

func join(parts ...string) string { return strings.Join(parts, termSep) }

// split is the inverse of join; a damaged term gives empty parts.
func split(s string, n int) []string {
	parts := strings.SplitN(s, termSep, n)
	return append(parts, make([]string, n-len(parts))...)
}

func intentOf(w *encoder, in *journal.Intent) intentRow {
	return intentRow{
		Actor: word{s: in.Actor}, ContentType: w.of(in.ContentType), Context: in.Context,
		Supersedes: in.Supersedes, Run: in.Run, NotBefore: us(in.NotBefore).from(us(in.SubmittedAt)),
		Deadline: us(in.Deadline).from(us(in.SubmittedAt)),
	}
}

func (r *intentRow) fill(t *decoder, in *journal.Intent) {
	in.Actor, in.ContentType, in.Context = t.of(r.Actor), t.of(r.ContentType), r.Context
	base := us(in.SubmittedAt)
	in.Supersedes, in.Run, in.NotBefore, in.Deadline = r.Supersedes, r.Run, r.NotBefore.after(base).time(), r.Deadline.after(base).time()
}

// grantOf is one term for each policy; an approval is one effect's own.
func grantOf(w *encoder, a *journal.Authority) word {
	grant := join(a.Ref, a.PolicySHA256, a.ContractSHA256)
	if strings.HasPrefix(a.Ref, "policy:") {
		return w.of(grant)
	}
	return word{s: grant}
}

func stateOf(w *encoder, e *journal.Effect) stateRow {
	base := us(e.SubmittedAt)
	return stateRow{
		Severity: severityOf(e.Severity), WaitingFor: e.WaitingFor, Reason: e.Reason, Target: e.Target, NextSend: us(e.NextSend).from(base),
		Authority: ptr(e.Authority, func(a journal.Authority) authorityRow {
			return authorityRow{grantOf(w, &a), us(a.GrantedAt).from(base), us(a.ExpiresAt).from(base)}
		}),
		Budget: budgetRow{e.Budget.Attempts, us(e.Budget.ElapsedFrom).from(base), e.Budget.Paused},
		Ack: ptr(e.Ack, func(a journal.Acknowledgement) ackRow {
			return ackRow{a.Handle, us(a.At), us(a.Deadline), us(a.NextRead), a.Polls}
		}),
		Verify: ptr(e.Verify, func(v journal.Verification) verifyRow {
			return verifyRow{v.ObjectID, us(v.Since), us(v.Deadline), us(v.NextRead), v.Reads}
		}),
		Doubt: ptr(e.Doubt, doubtOf),
		Absence: ptr(e.Absence, func(a journal.Absence) absenceRow {
			return absenceRow{a.Ref, a.How, us(a.ObservedAt), us(a.ValidUntil), a.Final, a.Paused}
		}),
		Positive: ptr(e.Positive, func(p journal.Positive) positiveRow {
			return positiveRow{us(p.At).from(base), p.What, p.Accepted, us(p.RebuttedAt), p.RebuttedBy}
		}),
		Outcome: outcomeOf(e.Outcome), Review: ptr(e.Review, reviewOf), Repairs: mapped(e.Repairs, repairOf),
		HoldScope: e.HoldScope, Reads: e.Reads,
	}
}

func (r *stateRow) fill(t *decoder, e *journal.Effect) {
	base := us(e.SubmittedAt)
	e.Severity, e.WaitingFor, e.Reason, e.Target = severityFrom(r.Severity), r.WaitingFor, r.Reason, r.Target
	e.NextSend, e.HoldScope, e.Reads = r.NextSend.after(base).time(), r.HoldScope, r.Reads
	e.Authority = ptr(r.Authority, func(a authorityRow) journal.Authority {
		grant := split(t.of(a.Grant), 3)
		return journal.Authority{
			Ref: grant[0], GrantedAt: a.GrantedAt.after(base).time(), ExpiresAt: a.ExpiresAt.after(base).time(), PolicySHA256: grant[1], ContractSHA256: grant[2],
		}
	})
	e.Budget = journal.Budget{Attempts: r.Budget.Attempts, ElapsedFrom: r.Budget.ElapsedFrom.after(base).time(), Paused: r.Budget.Paused}
	e.Ack = ptr(r.Ack, func(a ackRow) journal.Acknowledgement {
		return journal.Acknowledgement{
			Handle: a.Handle, At: a.At.time(), Deadline: a.Deadline.time(), NextRead: a.NextRead.time(), Polls: a.Polls,
		}
	})
	e.Verify = ptr(r.Verify, func(v verifyRow) journal.Verification {
		return journal.Verification{
			ObjectID: v.ObjectID, Since: v.Since.time(), Deadline: v.Deadline.time(), NextRead: v.NextRead.time(), Reads: v.Reads,
		}
	})
	e.Doubt = ptr(r.Doubt, doubtRow.domain)
	e.Absence = ptr(r.Absence, func(a absenceRow) journal.Absence {
		return journal.Absence{
			Ref: a.Ref, How: a.How, ObservedAt: a.ObservedAt.time(), ValidUntil: a.ValidUntil.time(), Final: a.Final, Paused: a.Paused,
		}
	})
	e.Positive = ptr(r.Positive, func(p positiveRow) journal.Positive {
		return journal.Positive{
			At: p.At.after(base).time(), What: p.What, Accepted: p.Accepted, RebuttedAt: p.RebuttedAt.time(), RebuttedBy: p.RebuttedBy,
		}
	})
	e.Outcome, e.Review, e.Repairs = r.Outcome.domain(), ptr(r.Review, reviewRow.domain), mapped(r.Repairs, repairRow.domain)
}

func severityOf(s journal.Severity) string {
	switch s {
	case journal.SeverityNormal:
		return ""
	case "":
		return "-"
	}
	return string(s)
}

func severityFrom(s string) journal.Severity {
	switch s {
	case "":
		return journal.SeverityNormal
	case "-":
		return ""
	}
	return journal.Severity(s)
}

func doubtOf(d journal.Doubt) doubtRow {
	return doubtRow{
		Since: us(d.Since), ReadsFrom: us(d.ReadsFrom), Reads: d.Reads, LastTransition: string(d.LastTransition), Cause: d.Cause,
		Missing: d.Missing, NextReadAt: us(d.NextReadAt), SettleNotBefore: us(d.SettleNotBefore), ResolveBy: us(d.ResolveBy),
		DedupeExpiresAt: us(d.DedupeExpiresAt), LeaseUntil: us(d.LeaseUntil), ReadFailed: d.ReadFailed, Paused: d.Paused,
		LastRead: us(d.LastRead), Taken: d.Taken, Fence: d.Fence,
		FirstAbsent: ptr(d.FirstAbsent, func(f journal.AbsentRead) absentReadRow {
			return absentReadRow{us(f.BegunAt), us(f.EndedAt), f.View, f.FilterSHA256, f.Subject, f.Evidence}
		}),
	}
}

func (d doubtRow) domain() journal.Doubt {
	return journal.Doubt{
		Since: d.Since.time(), ReadsFrom: d.ReadsFrom.time(), Reads: d.Reads, LastTransition: journal.Phase(d.LastTransition),
		Cause: d.Cause, Missing: d.Missing, NextReadAt: d.NextReadAt.time(), SettleNotBefore: d.SettleNotBefore.time(),
		ResolveBy: d.ResolveBy.time(), DedupeExpiresAt: d.DedupeExpiresAt.time(), LeaseUntil: d.LeaseUntil.time(),
		ReadFailed: d.ReadFailed, Paused: d.Paused, LastRead: d.LastRead.time(), Taken: d.Taken, Fence: d.Fence,
		FirstAbsent: ptr(d.FirstAbsent, func(f absentReadRow) journal.AbsentRead {
			return journal.AbsentRead{
				BegunAt: f.BegunAt.time(), EndedAt: f.EndedAt.time(), View: f.View,
				FilterSHA256: f.FilterSHA256, Subject: f.Subject, Evidence: f.Evidence,
			}
		}),
	}
}

func outcomeOf(o journal.Outcome) outcomeRow {
	return outcomeRow{
		Version: o.Version, Acknowledgement: o.Acknowledgement, ObjectType: o.ObjectType, URL: o.URL,
		ProviderState: o.ProviderState, Postcondition: o.Postcondition, VerifiedAt: us(o.VerifiedAt), Source: o.Source,
		Evidence: o.Evidence, Waived: o.Waived, Attested: o.Attested,
	}
}

func (o outcomeRow) domain() journal.Outcome {
	return journal.Outcome{
		Version: o.Version, Acknowledgement: o.Acknowledgement, ObjectType: o.ObjectType, URL: o.URL,
		ProviderState: o.ProviderState, Postcondition: o.Postcondition, VerifiedAt: o.VerifiedAt.time(), Source: o.Source,
		Evidence: o.Evidence, Waived: o.Waived, Attested: o.Attested,
	}
}

func reviewOf(r journal.Review) reviewRow {
	return reviewRow{
		Kind: string(r.Kind), State: string(r.State), Owner: r.Owner, Severity: string(r.Severity), OpenedAt: us(r.OpenedAt),
		DueAt: us(r.DueAt), Finding: string(r.Finding), Missing: r.Missing, Candidates: mapped(r.Candidates, matchOf),
		Allowed: mapped(r.Allowed, func(d journal.DecisionKind) string { return string(d) }), Group: r.Group, Overdue: r.Overdue,
		Decision: string(r.Decision), DecidedBy: r.DecidedBy, DecidedAt: us(r.DecidedAt), Because: r.Because,
	}
}

func (r reviewRow) domain() journal.Review {
	return journal.Review{
		Kind: journal.ReviewKind(r.Kind), State: journal.ReviewState(r.State), Owner: r.Owner, Severity: journal.Severity(r.Severity),
		OpenedAt: r.OpenedAt.time(), DueAt: r.DueAt.time(), Finding: journal.Finding(r.Finding), Missing: r.Missing,
		Candidates: mapped(r.Candidates, matchRow.domain),
		Allowed:    mapped(r.Allowed, func(d string) journal.DecisionKind { return journal.DecisionKind(d) }), Group: r.Group,
		Overdue: r.Overdue, Decision: journal.DecisionKind(r.Decision), DecidedBy: r.DecidedBy, DecidedAt: r.DecidedAt.time(),
		Because: r.Because,
	}
}

func matchOf(m journal.Match) matchRow {
	return matchRow{
		ObjectID: m.ObjectID, ObjectType: m.ObjectType, URL: m.URL, State: m.State, Strength: string(m.Strength),
		Agreement: string(m.Agreement), Differences: m.Differences, CreatedAt: us(m.CreatedAt), Account: m.Account,
		Target: m.Target, Observed: m.Observed, Void: m.Void,
	}
}

func (m matchRow) domain() journal.Match {
	return journal.Match{
		ObjectID: m.ObjectID, ObjectType: m.ObjectType, URL: m.URL, State: m.State, Strength: journal.Strength(m.Strength),
		Agreement: journal.Agreement(m.Agreement), Differences: m.Differences, CreatedAt: m.CreatedAt.time(), Account: m.Account,
		Target: m.Target, Observed: m.Observed, Void: m.Void,
	}
}

func repairOf(r journal.Repair) repairRow {
	return repairRow{
		ID: r.ID, Kind: string(r.Kind), Operation: r.Operation, Object: r.Object, Survivor: r.Survivor, By: r.By, Because: r.Because,
		Approval: r.Approval, PriorState: r.PriorState, PriorEvidence: r.PriorEvidence, State: string(r.State),
		OpenedAt: us(r.OpenedAt), ClosedAt: us(r.ClosedAt),
	}
}

func (r repairRow) domain() journal.Repair {
	return journal.Repair{
		ID: r.ID, Kind: journal.RepairKind(r.Kind), Operation: r.Operation, Object: r.Object, Survivor: r.Survivor, By: r.By,
		Because: r.Because, Approval: r.Approval, PriorState: r.PriorState, PriorEvidence: r.PriorEvidence,
		State: journal.RepairState(r.State), OpenedAt: r.OpenedAt.time(), ClosedAt: r.ClosedAt.time(),
	}
}

func attemptOf(w *encoder, e *journal.Effect, a *journal.Attempt, n int) attemptRow {
	r := attemptRow{
		Number: a.Number, Key: a.Key, Marker: a.Marker, Account: a.Account, Target: a.Target, Route: a.Route,
		ExpectedRevision: a.ExpectedRevision, Reason: w.of(a.Reason), Follows: a.Follows, ReleasedBy: a.ReleasedBy,
		RequestDigest: a.RequestDigest, Deadline: us(a.Deadline).from(us(a.SentAt)), Death: a.Death, ProviderRequestID: a.ProviderRequestID,
		ResponseClass: a.ResponseClass, Cause: a.Cause, Message: a.Message, Replay: a.Replay, Authority: word{s: a.Authority},
	}
	if strings.HasPrefix(a.Authority, "policy:") {
		r.Authority = w.of(a.Authority)
	}
	same := func(flag int, have *string, as string) {
		if *have == as {
			r.Same, *have = r.Same|flag, ""
		}
	}
	same(sameKey, &r.Key, e.Key)
	same(sameMarker, &r.Marker, e.Key)
	same(sameAccount, &r.Account, e.Account)
	same(sameClass, &r.ResponseClass, string(a.State))
	if a.Number == n {
		r.Same, r.Number = r.Same|sameNumber, 0
	}
	return r
}

// viaOf joins the adapter and its process, which many attempts share.
func viaOf(w *encoder, a *journal.Attempt) word {
	return w.of(join(strconv.Itoa(a.PID), a.ProcessStart, a.Cgroup, a.BootID, a.Adapter.Name, a.Adapter.Version, a.Adapter.SHA256))
}

const attemptColumns = "attempt_id, state, epoch, sent_at, closed_at, body, baseline, via, n"

// attemptFrom reads the columns of attemptColumns, beginning at column i. e is
// the attempt's effect, of which key and account must be known.
func attemptFrom(c *conn, e *journal.Effect, r row, i int) (journal.Attempt, error) {
	var b attemptRow
	if err := json.Unmarshal([]byte(r.str(i+5)), &b); err != nil {
		return journal.Attempt{}, fmt.Errorf("attempt %s: %w: %w", r.str(i), ErrCorrupt, err)
	}
	via, err := c.word(r[i+7])
	if err != nil {
		return journal.Attempt{}, err
	}
	v, t := split(via, 7), decoder{c: c}
	pid, _ := strconv.Atoi(v[0]) // written by viaOf
	a := journal.Attempt{
		ID: r.str(i), Number: b.Number, State: journal.AttemptState(r.str(i + 1)), Epoch: r.int(i + 2), PID: pid,
		ProcessStart: v[1], Cgroup: v[2], BootID: v[3], Adapter: journal.AdapterRef{Name: v[4], Version: v[5], SHA256: v[6]},
		Key: b.Key, Marker: b.Marker, Account: b.Account, Target: b.Target, Route: b.Route, Authority: t.of(b.Authority),
		Baseline: r.blob(i + 6), ExpectedRevision: b.ExpectedRevision, Reason: t.of(b.Reason), Follows: b.Follows,
		ReleasedBy: b.ReleasedBy, RequestDigest: b.RequestDigest, SentAt: micros(r.int(i + 3)).time(),
		Deadline: b.Deadline.after(micros(r.int(i + 3))).time(), ClosedAt: micros(r.int(i + 4)).time(), Death: b.Death, ProviderRequestID: b.ProviderRequestID,
		ResponseClass: b.ResponseClass, Cause: b.Cause, Message: b.Message, Replay: b.Replay,
	}
	if b.Same&sameKey != 0 {
		a.Key = e.Key
	}
	if b.Same&sameMarker != 0 {
		a.Marker = e.Key
	}
	if b.Same&sameAccount != 0 {
		a.Account = e.Account
	}
	if b.Same&sameClass != 0 {
		a.ResponseClass = string(a.State)
	}
	if b.Same&sameNumber != 0 {
		a.Number = int(r.int(i + 8))
	}
	return a, t.err
}

// slot is the attempt's place in the index of open attempts: 0 while it is
// sent, n while it was answered but may still send, NULL when closed.
func slot(a *journal.Attempt, n int) any {
	switch {
	case a.State == journal.AttemptSent:
		return int64(0)
	case a.ClosedAt.IsZero() && !a.State.NoEffect():
		return int64(n)
	}
	return nil
}

func reconciliationOf(r *journal.Reconciliation) reconciliationRow {
	return reconciliationRow{
		View: r.View, Complete: r.Complete, Permission: r.Permission, Consistency: string(r.Consistency), Objects: r.Objects,
		BegunAt: us(r.BegunAt), ObservedAt: us(r.ObservedAt), Source: r.Source, Evidence: r.Evidence, Missing: r.Missing,
		Candidates: mapped(r.Candidates, matchOf), Number: r.Number,
	}
}

func reconciliationFrom(key, verdict, body string) (journal.Reconciliation, error) {
	var b reconciliationRow
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		return journal.Reconciliation{}, fmt.Errorf("reconciliation of %s: %w: %w", key, ErrCorrupt, err)
	}
	return journal.Reconciliation{
		Key: key, Number: b.Number, Verdict: journal.Verdict(verdict), View: b.View, Complete: b.Complete,
		Permission: b.Permission, Consistency: journal.Consistency(b.Consistency), Objects: b.Objects, BegunAt: b.BegunAt.time(),
		ObservedAt: b.ObservedAt.time(), Source: b.Source, Evidence: b.Evidence, Missing: b.Missing,
		Candidates: mapped(b.Candidates, matchRow.domain),
	}, nil
}

// effectColumns needs effect AS e and intent AS i.
const effectColumns = `e.id, e.key, e.fingerprint, e.destination, e.account, e.operation, e.phase, e.finding, e.seq, e.owner,
 e.due_at, e.due_kind, e.submitted_at, e.settled_at, e.last_event, e.state, e.object_id, i.body, i.digest, i.payload`

// effectByKey reads effectColumns of one effect. Scalar subqueries cost a fifth of a join here.
const effectByKey = `SELECT e.id, e.key, e.fingerprint, e.destination, e.account, e.operation, e.phase, e.finding, e.seq, e.owner,
 e.due_at, e.due_kind, e.submitted_at, e.settled_at, e.last_event, e.state, e.object_id,
 (SELECT body FROM intent WHERE effect = e.id), (SELECT digest FROM intent WHERE effect = e.id), (SELECT payload FROM intent WHERE effect = e.id) FROM effect AS e WHERE e.key=?`

// effectFrom reads the columns of effectColumns. Attempts are added by the caller.
func effectFrom(c *conn, r row) (e journal.Effect, lastEvent int64, err error) {
	e.ID, e.Key, e.Fingerprint = r.int(0), r.str(1), unpack(r.blob(2))
	e.Destination, e.Account, e.Operation = r.str(3), r.str(4), r.str(5)
	e.Phase, e.Finding, e.Seq, e.Owner = journal.Phase(r.str(6)), journal.Finding(r.str(7)), r.int(8), r.str(9)
	e.DueAt, e.Due = micros(r.int(10)).time(), journal.DueKind(r.str(11))
	e.SubmittedAt, e.SettledAt = micros(r.int(12)).time(), micros(r.int(13)).time()
	e.PayloadDigest, e.Payload = unpack(r.blob(18)), r.blob(19)
	var st stateRow
	var in intentRow
	if err := json.Unmarshal([]byte(r.str(15)), &st); err != nil {
		return e, 0, fmt.Errorf("effect %s: %w: %w", e.Key, ErrCorrupt, err)
	}
	if err := json.Unmarshal([]byte(r.str(17)), &in); err != nil {
		return e, 0, fmt.Errorf("intent of %s: %w: %w", e.Key, ErrCorrupt, err)
	}
	t := decoder{c: c}
	st.fill(&t, &e)
	in.fill(&t, &e.Intent)
	e.Outcome.ObjectID = r.str(16)
	return e, r.int(14), t.err
}

// attention is the phase of an effect that somebody looks for, else NULL. The
// phases that every good effect passes through are left out, so that it costs them nothing.
func attention(p journal.Phase) any {
	switch p {
	case journal.Prepared, journal.Authorized, journal.Dispatching, journal.Verifying, journal.Succeeded:
		return nil
	}
	return string(p)
}

func doubtAt(e *journal.Effect) any {
	if e.Doubt == nil || e.Phase.Closed() {
		return nil
	}
	return us(e.Doubt.Since).null()
}

func decodeIntent(body string) (in intentRow, err error) {
	err = json.Unmarshal([]byte(body), &in)
	return in, err
}
