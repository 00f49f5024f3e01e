package http

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/settled-dev/settled/sdk"
)

// Read looks up what the destination holds of an effect. A read that failed is
// indeterminate, never empty.
func (a *Adapter) Read(ctx context.Context, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	s := a.configured()
	if s == nil {
		return indeterminate(errors.New(notConfigured)), nil
	}
	op, undo, err := s.action(r.Operation.Action)
	if err != nil {
		return indeterminate(err), nil
	}
	var result sdk.ReadResponse
	switch {
	case undo:
		result, err = s.readUndo(ctx, op, r)
	case r.Purpose == sdk.PurposePoll && op.poll != nil && r.Handle != "":
		result, err = s.readPoll(ctx, op, r)
	default:
		result, err = s.readEffect(ctx, op, r)
	}
	if err != nil {
		evidence := result.Evidence
		result = indeterminate(err)
		result.Evidence = evidence
	}
	if finding, ok := result.Finding.(*sdk.Indeterminate); ok {
		finding.Message = s.text(finding.Message, 1024)
	}
	return result, nil
}

func indeterminate(err error) sdk.ReadResponse {
	finding := &sdk.Indeterminate{Message: "the read failed: " + err.Error()}
	var status *statusError
	if errors.As(err, &status) {
		finding.RetryAfter = status.retryAfter
	}
	return sdk.ReadResponse{Finding: finding}
}

func (s *state) readScope(op *operation, r sdk.ReadRequest) (scope, error) {
	base, err := parseBaseline(r.Baseline)
	if err != nil {
		return nil, err
	}
	objectID := ""
	switch {
	case r.Object != nil && r.Object.ID != "":
		objectID = r.Object.ID
	case r.Operation.Target != nil:
		objectID = r.Operation.Target.ID
	}
	return s.scope(r.Operation, op.name, base.Snapshot, objectID, r.Handle)
}

// readEffect is the authoritative read: list, guard, identify, postcondition.
func (s *state) readEffect(ctx context.Context, op *operation, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	var result sdk.ReadResponse
	if op.read == nil {
		return result, fmt.Errorf("no read is configured for %s", op.name)
	}
	sc, err := s.readScope(op, r)
	if err != nil {
		return result, err
	}
	l, err := s.list(ctx, op.read, sc)
	if l != nil {
		result.Evidence = append(result.Evidence, l.evidence)
	}
	if err != nil {
		return result, err
	}
	result.Authority, result.Coverage, result.AsOf = op.read.terms.Authority(), l.coverage, l.begun
	result.View = &sdk.View{
		ID: op.read.viewName(op), FilterSHA256: l.filter, Principal: s.principal,
		ScannedFrom: unbounded(), ScannedTo: l.begun,
	}
	// The guard comes last: visibility that was lost during the listing is noticed.
	if err := s.guard(ctx, op.read, sc, &result); err != nil {
		return result, fmt.Errorf("guard: %w", err)
	}
	found, err := s.identify(ctx, op, r, l, &result)
	if err != nil {
		return result, err
	}
	switch {
	case len(found) > 0:
		result.Finding = &sdk.Found{Matches: found}
	case r.Purpose == sdk.PurposePoll:
		result.Finding = &sdk.Pending{Message: "accepted, and not visible yet"}
	default:
		result.Finding = &sdk.NoneSeen{ScopesSearched: []string{result.View.ID}}
	}
	if op.postcondition != nil && len(found) == 1 && found[0].Strength > sdk.StrengthSimilar {
		return result, s.checkPostcondition(ctx, op, r, found[0].Object.ID, &result)
	}
	return result, nil
}

// guard proves, in the same read and with the same credentials, that nothing is hidden.
func (s *state) guard(ctx context.Context, r *read, sc scope, result *sdk.ReadResponse) error {
	if r.guard == nil {
		if r.terms.ProvesAbsence {
			result.View.VisibilityProven, result.View.How = true, "assumed"
		}
		return nil
	}
	holds, a, evidence, err := s.test(ctx, r.guard, sc)
	evidence.Kind = "http.guard"
	result.Evidence = append(result.Evidence, evidence)
	if err != nil {
		return err
	}
	if holds {
		result.View.VisibilityProven, result.View.How = true, "guard: "+evidence.Summary
		return nil
	}
	result.View.How = fmt.Sprintf("guard failed: answered %d", a.Status)
	if result.Coverage == sdk.CoverageComplete {
		result.Coverage = sdk.CoveragePermissionLimited
	}
	return nil
}

func (s *state) checkPostcondition(ctx context.Context, op *operation, r sdk.ReadRequest, objectID string, result *sdk.ReadResponse) error {
	r.Object = &sdk.ObjectRef{ID: objectID}
	sc, err := s.readScope(op, r)
	if err != nil {
		return err
	}
	holds, a, evidence, err := s.test(ctx, op.postcondition, sc)
	evidence.Kind = "http.postcondition"
	result.Evidence = append(result.Evidence, evidence)
	if err == nil && denied(a) {
		err = a.readable()
	}
	if err != nil {
		return fmt.Errorf("postcondition: %w", err)
	}
	result.Postcondition = sdk.Postcondition{State: sdk.PostconditionFails, Seen: evidence.Summary + "; " + evidence.Fields["note"]}
	if holds {
		result.Postcondition.State = sdk.PostconditionHolds
	}
	return nil
}

// readUndo asks verify whether the object is as it was before.
func (s *state) readUndo(ctx context.Context, op *operation, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	var result sdk.ReadResponse
	if op.verify == nil {
		return result, fmt.Errorf("no undo.verify is configured for %s", op.name)
	}
	sc, err := s.readScope(op, r)
	if err != nil {
		return result, err
	}
	object := sdk.ObjectRef{}
	if r.Operation.Target != nil {
		object = *r.Operation.Target
	} else if r.Object != nil {
		object = *r.Object
	}
	holds, a, evidence, err := s.test(ctx, op.verify, sc)
	result.Evidence = append(result.Evidence, evidence)
	if err != nil {
		return result, err
	}
	if denied(a) {
		return result, a.readable()
	}
	result.Coverage, result.AsOf, result.Authority = sdk.CoverageComplete, a.At, sdk.Advisory
	result.View = &sdk.View{
		ID: op.name + undoSuffix, FilterSHA256: filterOf(op.verify), Principal: s.principal,
		ScannedFrom: unbounded(), ScannedTo: a.At,
	}
	if op.read != nil {
		result.Authority = op.read.terms.Authority()
		if err := s.guard(ctx, op.read, sc, &result); err != nil {
			return result, fmt.Errorf("guard: %w", err)
		}
	}
	if !holds {
		result.Finding = &sdk.NoneSeen{ScopesSearched: []string{result.View.ID}}
		return result, nil
	}
	if op.read != nil && op.read.guard != nil && !result.View.VisibilityProven {
		return result, errors.New("verify holds, but the guard says that objects may be hidden")
	}
	result.Finding = &sdk.Found{Matches: []sdk.Match{{
		Object: object, Strength: sdk.StrengthHandle, Agreement: sdk.AgreementSame,
		Observed: s.document(a.value["body"], sdk.MaxObserved),
	}}}
	return result, nil
}

// readPoll asks what became of an accepted operation. That it is done is not
// believed alone where there is an authoritative read.
func (s *state) readPoll(ctx context.Context, op *operation, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	var result sdk.ReadResponse
	sc, err := s.readScope(op, r)
	if err != nil {
		return result, err
	}
	a, req, err := s.get(ctx, op.poll.request, sc)
	result.Evidence = []sdk.Evidence{s.evidence("http.poll", req, a, "")}
	if err != nil {
		return result, err
	}
	if err := a.readable(); err != nil {
		return result, err
	}
	result.AsOf, result.Authority, result.Coverage = a.At, sdk.Authoritative, sdk.CoverageComplete
	sc = sc.with("$response", a.value)
	done, err := op.poll.done.runBool(ctx, nil, sc)
	if err != nil {
		return result, fmt.Errorf("done: %w", err)
	}
	failed := false
	if op.poll.failed != nil {
		if failed, err = op.poll.failed.runBool(ctx, nil, sc); err != nil {
			return result, fmt.Errorf("failed: %w", err)
		}
	}
	switch {
	case done && failed:
		return result, errors.New("poll: done and failed both hold")
	case failed:
		result.Finding = &sdk.Failed{Code: "failed", Message: s.text("the destination's own record says that it ended without effect: "+strings.TrimSpace(string(a.Body)), 512)}
	case !done:
		result.Finding = &sdk.Pending{PollAfter: sdk.RetryAfter(a.Header, a.At), Message: "still running at the destination"}
	case op.read != nil:
		// What is finished but not visible yet is pending, not absent.
		effect, err := s.readEffect(ctx, op, r)
		effect.Evidence = append(result.Evidence, effect.Evidence...)
		return effect, err
	default:
		match := sdk.Match{Strength: sdk.StrengthHandle, Agreement: sdk.AgreementNotCompared, Observed: s.document(a.value["body"], sdk.MaxObserved)}
		if r.Object != nil {
			match.Object = *r.Object
		}
		result.Finding = &sdk.Found{Matches: []sdk.Match{match}}
	}
	return result, nil
}

// denied answers say nothing of the object, whatever a test makes of them.
func denied(a *answer) bool { return a.Status == 401 || a.Status == 403 }
