package api

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/schedules"
	"github.com/settled-dev/settled/sdk/client"
)

// show is everything known of an effect.
func show(d daemon.EffectDetail) client.Effect {
	v := list(d.Effect)
	v.Attempts = each(d.Effect.Attempts, attempt)
	v.Reconciliations = each(d.Reconciliations, reconciliation)
	v.Evidence = each(d.Evidence, evidence)
	if v.Unknown != nil {
		v.Unknown.ProvesCommit, v.Unknown.ProvesAbsence = text(d.ProvesCommit), text(d.ProvesAbsence)
	}
	return v
}

// list is an effect without attempts, reconciliations and evidence.
func list(e journal.Effect) client.Effect {
	return client.Effect{
		Key: e.Key, Destination: e.Destination, Account: e.Account, Operation: e.Operation,
		Phase: string(e.Phase), Standing: string(e.Standing()), Finding: finding(e), Seq: e.Seq, Words: journal.Words(e),
		Fingerprint: e.Fingerprint, PayloadDigest: e.PayloadDigest, Owner: e.Owner, Actor: e.Actor,
		Outcome: outcome(e), ObjectID: text(e.Outcome.ObjectID),
		SubmittedAt: e.SubmittedAt.UTC(), SettledAt: moment(e.SettledAt), Unknown: doubt(e),
		Approvals: []client.Approval{}, Review: review(e), Repairs: each(e.Repairs, repair), Run: text(e.Run),
		Next: next(e), WaitingFor: waitingFor(e), Reason: reason(e),
		Deadline: moment(e.Deadline), Supersedes: text(e.Supersedes), Context: orEmpty(e.Context),
	}
}

func finding(e journal.Effect) string {
	if e.Finding == "" {
		return string(journal.FindingNone)
	}
	return string(e.Finding)
}

func outcome(e journal.Effect) client.Outcome {
	o := e.Outcome
	return client.Outcome{
		Acknowledgement: text(o.Acknowledgement), ObjectID: text(o.ObjectID), URL: text(o.URL),
		ProviderState: text(o.ProviderState), Postcondition: text(o.Postcondition),
		VerifiedAt: moment(o.VerifiedAt), Source: text(o.Source), Finding: finding(e), Version: o.Version,
	}
}

// doubt is shown exactly while the outcome is unknown.
func doubt(e journal.Effect) *client.Doubt {
	open := e.Phase == journal.Unknown || e.Phase == journal.Reconciling ||
		(e.Phase == journal.NeedsHuman && e.Finding == journal.FindingUnknown)
	if !open {
		return nil
	}
	v := &client.Doubt{RequestFingerprint: e.Fingerprint, WriteForbidden: true, Owner: e.Owner, Missing: []string{}}
	d := e.Doubt
	if d == nil {
		return v
	}
	v.LastTransition, v.Missing = string(d.LastTransition), orNone(d.Missing)
	v.NextReadAt, v.ResolveBy = moment(d.NextReadAt), moment(d.ResolveBy)
	v.SettleNotBefore, v.DedupeExpiresAt = moment(d.SettleNotBefore), moment(d.DedupeExpiresAt)
	return v
}

func attempt(a journal.Attempt) client.Attempt {
	return client.Attempt{
		ID: a.ID, Number: a.Number, State: string(a.State), SentAt: moment(a.SentAt), ClosedAt: moment(a.ClosedAt),
		Cause: text(a.Cause), Adapter: client.Adapter(a.Adapter), Epoch: a.Epoch,
		ProviderRequestID: text(a.ProviderRequestID), Deadline: moment(a.Deadline),
		ResponseClass: text(a.ResponseClass), Message: text(a.Message), Reason: text(a.Reason), ReleasedBy: text(a.ReleasedBy),
	}
}

func reconciliation(r journal.Reconciliation) client.Reconciliation {
	return client.Reconciliation{
		Verdict: string(r.Verdict), View: r.View, Complete: r.Complete, Consistency: string(r.Consistency),
		Objects: r.Objects, ObservedAt: moment(r.ObservedAt), Source: r.Source, Missing: orNone(r.Missing),
		Number: r.Number, Permission: r.Permission, Evidence: text(r.Evidence),
	}
}

func evidence(e journal.Evidence) client.Evidence {
	return client.Evidence{Digest: e.Digest, At: e.At.UTC(), Source: string(e.Source), Kind: e.Kind, Summary: e.Summary}
}

func repair(r journal.Repair) client.Repair {
	return client.Repair{
		ID: r.ID, Kind: string(r.Kind), State: string(r.State), Object: text(r.Object), Survivor: text(r.Survivor),
		By: r.By, Because: r.Because, OpenedAt: moment(r.OpenedAt), ClosedAt: moment(r.ClosedAt),
	}
}

// review is the effect's review with what a person needs to decide it; nil when there is none.
func review(e journal.Effect) *client.Review {
	r := e.Review
	if r == nil {
		return nil
	}
	v := &client.Review{
		Key: e.Key, Kind: string(r.Kind), State: string(r.State), Owner: r.Owner, Severity: string(r.Severity),
		DueAt: moment(r.DueAt), Finding: string(r.Finding), Missing: orNone(r.Missing),
		Candidates: each(r.Candidates, candidate), Allowed: []string{},
		Overdue: r.Overdue, OpenedAt: moment(r.OpenedAt), Destination: e.Destination, Operation: e.Operation,
		Phase: string(e.Phase), Seq: e.Seq, Words: journal.Words(e),
		Decision: text(string(r.Decision)), DecidedBy: text(r.DecidedBy), DecidedAt: moment(r.DecidedAt), Because: text(r.Because),
	}
	if r.Live() {
		v.Allowed = each(r.Allowed, func(d journal.DecisionKind) string { return string(d) })
	}
	return v
}

func candidate(m journal.Match) client.Candidate {
	v := client.Candidate{
		ObjectID: m.ObjectID, ObjectType: m.ObjectType, URL: m.URL, State: m.State, Strength: string(m.Strength),
		Agreement: string(m.Agreement), Differences: orNone(m.Differences), CreatedAt: moment(m.CreatedAt), Account: m.Account,
	}
	v.Observed, _ = document(m.Observed)
	return v
}

// document shows bytes as JSON: as they are when they are JSON, else as a
// string. ok is false for bytes that are neither JSON nor text.
func document(b []byte) (doc json.RawMessage, ok bool) {
	switch {
	case len(b) == 0:
		return json.RawMessage("null"), true
	case json.Valid(b) && utf8.Valid(b): // json.Valid lets any byte into a string
		return b, true
	}
	doc, err := json.Marshal(string(b))
	return doc, err == nil && utf8.Valid(b)
}

func next(e journal.Effect) *client.Next {
	if e.DueAt.IsZero() || e.Due == journal.DueNone {
		return nil
	}
	return &client.Next{What: string(e.Due), At: e.DueAt.UTC()}
}

func waitingFor(e journal.Effect) *string {
	if e.Phase != journal.Prepared {
		return nil
	}
	return text(e.WaitingFor)
}

func reason(e journal.Effect) *string {
	if e.Phase != journal.Failed {
		return nil
	}
	return text(e.Reason)
}

func submitted(key string, r daemon.SubmitResult) client.SubmitResult {
	return client.SubmitResult{
		Key: key, Created: r.Created, Phase: string(r.Effect.Phase), Standing: string(r.Effect.Standing()), Seq: r.Effect.Seq,
	}
}

func event(x journal.Entry) client.Event {
	return client.Event{
		Seq: x.Seq, At: x.At.UTC(), Kind: x.Kind, Key: x.Key, Run: x.Run, Attempt: x.Attempt,
		From: string(x.From), To: string(x.To), Actor: x.Actor, ActorKind: string(x.ActorKind), Origin: x.Origin,
		Because: x.Because, Evidence: x.Evidence, PolicySHA256: x.PolicySHA256, PrevHash: x.PrevHash, Hash: x.Hash,
	}
}

func hold(h journal.Hold) client.Hold {
	return client.Hold{
		Scope: h.Scope, RaisedBy: text(h.RaisedBy), Finding: text(string(h.Finding)), By: h.By, Because: h.Because, At: moment(h.At),
	}
}

// status counts every phase, at least as zero.
func status(s daemon.Status) client.Status {
	v := client.Status{
		Dispatch: client.Dispatch{Enabled: s.Dispatch, Because: s.DispatchReason},
		Phases:   map[string]int64{}, UnknownOldestS: s.UnknownOldest.Seconds(),
		Reviews: client.ReviewCounts{Open: s.ReviewsOpen, Overdue: s.ReviewsOverdue},
		Head:    s.Head, Epoch: s.Epoch, Version: s.Version, StartedAt: moment(s.Started), Draining: s.Draining, InFlight: s.InFlight,
	}
	for _, p := range journal.Phases() {
		v.Phases[string(p)] = s.Phases[p]
	}
	return v
}

func destination(d daemon.DestinationStatus) client.Destination {
	return client.Destination{
		Name: d.Name, Adapter: d.Adapter, Version: d.Version, SHA256: d.SHA256, Identity: d.Identity,
		Up: d.Up, Why: d.Why, Paused: d.Paused, Breaker: d.Breaker, BreakerSince: moment(d.BreakerSince),
		InFlight: d.InFlight, Concurrency: d.Concurrency, Rate: d.Rate, Queued: d.Queued, Unknown: d.Unknown,
		RetryTokens: d.RetryTokens, Operations: each(d.Operations, capability),
	}
}

func capability(c daemon.Capability) client.Capability {
	v := client.Capability(c)
	v.Unanswered = orNone(c.Unanswered)
	return v
}

func schedule(s daemon.ScheduleStatus) client.Schedule {
	return client.Schedule{
		Name: s.Name, Do: s.Do, Destination: s.Destination, Cron: s.Cron, Timezone: s.Timezone, Next: orNone(s.Next),
		LastNominalAt: moment(s.LastNominal), LastStartedAt: moment(s.LastStarted), LastOKAt: moment(s.LastOK),
		LastResult: s.LastResult, Missed: s.Missed, JitterS: int64(s.Jitter.Seconds()),
		Hazards: each(s.Hazards, hazard), Runs: each(s.Runs, scheduleRun),
	}
}

func hazard(h schedules.Hazard) client.Hazard {
	return client.Hazard{Kind: string(h.Kind), At: h.At, Wall: h.Wall, Runs: orNone(h.Runs)}
}

func scheduleRun(r daemon.ScheduleRun) client.ScheduleRun {
	return client.ScheduleRun{NominalAt: moment(r.Nominal), StartedAt: r.StartedAt, EndedAt: moment(r.EndedAt), Result: r.Result}
}

func sweep(r daemon.SweepReport) client.SweepReport {
	return client.SweepReport{
		Schedule: r.Schedule, Do: r.Do, Destination: r.Destination, StartedAt: moment(r.StartedAt), EndedAt: moment(r.EndedAt),
		Total: r.Total, Asked: r.Asked, Matches: r.Matches, Absent: r.Absent, Partial: r.Partial, Duplicate: r.Duplicate,
		Conflicts: r.Conflicts, Unknown: r.Unknown, ReadFailed: r.ReadFailed, WaitingForGrace: r.WaitingForGrace,
		Skipped: r.Skipped, Raised: r.Raised, Detail: r.Detail, Resumed: r.Resumed, Done: r.Done, Error: r.Error,
	}
}

func verify(r daemon.VerifyReport) client.VerifyReport {
	return client.VerifyReport{OK: r.OK, Checked: r.Checked, Head: r.Head, Problems: orNone(r.Problems), CouldNotRun: r.CouldNotRun}
}

// VerifyView and the like let the command line print what it read without a
// daemon exactly as a daemon would have answered.
func VerifyView(r daemon.VerifyReport) client.VerifyReport { return verify(r) }

// each maps a list; the result is never nil, so that JSON shows [].
func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, 0, len(in))
	for _, a := range in {
		out = append(out, f(a))
	}
	return out
}

func orNone[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
