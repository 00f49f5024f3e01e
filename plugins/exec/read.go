package exec

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// Read runs with.read. Without a whole answer it is indeterminate.
func (a *Adapter) Read(ctx context.Context, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	s := a.configured()
	if s == nil {
		return sdk.ReadResponse{Finding: &sdk.Indeterminate{Message: notConfigured}}, nil
	}
	op, undo, err := s.action(r.Operation.Action)
	if err == nil && s.cfg.read == nil {
		err = errors.New("no command with.read is configured")
	}
	if err != nil {
		return sdk.ReadResponse{Finding: &sdk.Indeterminate{Message: err.Error()}}, nil
	}
	begun := time.Now().UTC()
	answer, evidence, err := s.ask(ctx, op, r)
	response := sdk.ReadResponse{Evidence: evidence}
	if err != nil {
		response.Finding = &sdk.Indeterminate{Message: s.text("the read failed: "+err.Error(), 1024)}
		return response, nil
	}
	s.view(op, r, answer, begun, &response)
	if undo {
		s.findUndone(r, answer, &response)
	} else {
		s.find(r, answer, &response)
	}
	return response, nil
}

// ask runs the command and takes only a whole answer.
func (s *state) ask(ctx context.Context, op *operation, r sdk.ReadRequest) (reading, []sdk.Evidence, error) {
	var answer reading
	c, rejected := s.call(op, r.Operation)
	if rejected != nil {
		return answer, nil, errors.New(rejected.Message)
	}
	c.Method, c.Snapshot, c.Handle = "read", snapshotOf(r.Baseline), r.Handle
	if r.Object != nil && r.Object.ID != "" {
		c.Operation.ObjectID = &r.Object.ID
	}
	if !r.DispatchedFrom.IsZero() {
		c.Since = r.DispatchedFrom.UTC().Format(time.RFC3339Nano)
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	res, err := s.run(ctx, s.cfg.read, c)
	if err != nil {
		return answer, nil, fmt.Errorf("the command was not started: %w", err)
	}
	isJSON, err := answered(res.stdout, &answer)
	evidence := []sdk.Evidence{s.evidence(s.cfg.read, res, answer.Evidence)}
	switch {
	case res.broken() != "" || !isJSON:
		return answer, evidence, errors.New(s.ending(res))
	case err != nil:
		return answer, evidence, err
	case answer.Items == nil:
		return answer, evidence, fmt.Errorf("the answer has no items %s", answer.Message)
	case answer.Postcondition != "" && postconditions()[answer.Postcondition] == sdk.PostconditionUnspecified:
		return answer, evidence, fmt.Errorf("the answer has the postcondition %q; it must be holds, fails or pending", s.text(answer.Postcondition, 64))
	}
	return answer, evidence, nil
}

// postconditions are the words for one. Another word must not pass for silence,
// because silence lets a match succeed.
func postconditions() map[string]sdk.PostconditionState {
	return map[string]sdk.PostconditionState{"holds": sdk.PostconditionHolds, "fails": sdk.PostconditionFails, "pending": sdk.PostconditionPending}
}

// view takes over what the command says of its own sight. What it does not say
// stays unset, and an unset field proves no absence.
func (s *state) view(op *operation, r sdk.ReadRequest, answer reading, begun time.Time, response *sdk.ReadResponse) {
	response.Authority, response.Coverage = op.terms.Authority(), sdk.CoverageTruncated
	if answer.Complete {
		response.Coverage = sdk.CoverageComplete
	}
	response.AsOf = begun
	if at := answer.AsOf.Time; !at.IsZero() && !at.After(time.Now()) {
		response.AsOf = at
	}
	view := &sdk.View{ID: s.cfg.readSpec(op, r.Operation.Action).View, Principal: s.principal, ScannedTo: response.AsOf, ScannedFrom: answer.ScannedFrom.Time}
	sum := sha256.Sum256([]byte(strings.Join(s.cfg.read, "\x00") + "\x00" + r.Operation.Key))
	view.FilterSHA256 = sum[:]
	switch {
	case answer.Visible == nil && op.terms.ProvesAbsence:
		view.VisibilityProven, view.How = true, "assumed"
	case answer.Visible != nil && *answer.Visible:
		view.VisibilityProven, view.How = true, "the command says that it sees everything"
	case answer.Visible != nil:
		view.How = "the command says that objects may be hidden"
		response.Coverage = sdk.CoveragePermissionLimited
	}
	response.View = view
	if answer.Postcondition != "" {
		response.Postcondition.State = postconditions()[answer.Postcondition]
		response.Postcondition.Seen = s.text("the command says: "+answer.Postcondition, 256)
	}
}

// find takes the objects that carry our key, byte for byte.
func (s *state) find(r sdk.ReadRequest, answer reading, response *sdk.ReadResponse) {
	var matches []sdk.Match
	ours := digest(r.Operation.PayloadSHA256)
	for _, item := range *answer.Items {
		m := s.match(item, ours)
		switch {
		case item.Key != nil && *item.Key == r.Operation.Key:
			m.Strength = sdk.StrengthKey
			matches = append(matches, m)
		case (item.Key == nil || *item.Key == "") && m.Agreement == sdk.AgreementSame && len(response.View.Near) < 10:
			m.Strength = sdk.StrengthSimilar
			response.View.Near = append(response.View.Near, m)
		}
	}
	switch {
	case len(matches) > 0:
		response.Finding = &sdk.Found{Matches: matches}
	case r.Purpose == sdk.PurposePoll:
		response.Finding = &sdk.Pending{Message: "accepted, and not visible yet"}
	default:
		response.Finding = &sdk.NoneSeen{ScopesSearched: []string{response.View.ID}}
	}
}

func (s *state) match(item readItem, ours string) sdk.Match {
	m := sdk.Match{
		Object: sdk.ObjectRef{ID: string(item.ObjectID), State: string(item.State)}, Account: string(item.Account),
		CreatedAt: item.CreatedAt.Time, Agreement: sdk.AgreementNotCompared,
	}
	if observed := s.redact.Bytes(item.raw); len(observed) <= sdk.MaxObserved {
		m.Observed = observed
	}
	if item.Digest != nil {
		var theirs string
		m.Agreement = sdk.AgreementSame
		if json.Unmarshal(item.Digest, &theirs) != nil || theirs != ours {
			m.Agreement, m.Differences = sdk.AgreementDiffers, []string{"/digest"}
		}
	}
	if len(item.Missing) > 0 && m.Agreement != sdk.AgreementDiffers {
		m.Agreement = sdk.AgreementPartial
		for _, what := range item.Missing {
			m.Differences = append(m.Differences, s.text(what, 256))
		}
	}
	return m
}

// findUndone reads whether an object is as it was before. A list that lacks it
// is no proof, because the command may have looked for the key of the undo
// itself; the command must say so by its postcondition.
func (s *state) findUndone(r sdk.ReadRequest, answer reading, response *sdk.ReadResponse) {
	object := sdk.ObjectRef{}
	if r.Operation.Target != nil {
		object = *r.Operation.Target
	}
	still := false
	for _, item := range *answer.Items {
		still = still || (object.ID != "" && string(item.ObjectID) == object.ID)
	}
	switch {
	case answer.Postcondition == "holds" && !still:
		response.Finding = &sdk.Found{Matches: []sdk.Match{{Object: object, Strength: sdk.StrengthHandle, Agreement: sdk.AgreementSame}}}
	case answer.Postcondition == "holds":
		response.Finding = &sdk.Indeterminate{Message: "the command says that the undo holds, and still lists the object"}
	case answer.Postcondition == "pending":
		response.Finding = &sdk.Pending{Message: "the undo is still running"}
	case answer.Postcondition == "fails" || still:
		response.Finding = &sdk.NoneSeen{ScopesSearched: []string{response.View.ID}}
	default:
		response.Finding = &sdk.Indeterminate{Message: "the command does not say whether the object is undone; it must answer postcondition for " + r.Operation.Action}
	}
	response.Postcondition = sdk.Postcondition{}
}
