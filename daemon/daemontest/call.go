package daemontest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// Linger and killing as the host has them.
const (
	linger  = 5 * time.Second
	killing = 3 * time.Second
)

// unanswered is the error of a call that ended without an answer, as the host's is.
type unanswered struct {
	cause error
	ended chan struct{}
	mu    sync.Mutex
	at    time.Time // under mu
}

func (u *unanswered) Error() string          { return "no answer: " + u.cause.Error() }
func (u *unanswered) Unwrap() error          { return u.cause }
func (u *unanswered) Ended() <-chan struct{} { return u.ended }
func (u *unanswered) EndedAt() time.Time     { u.mu.Lock(); defer u.mu.Unlock(); return u.at }

func (u *unanswered) end(at time.Time) {
	u.mu.Lock()
	u.at = at
	u.mu.Unlock()
	close(u.ended)
}

// arrived is what the adapter makes of one call.
type arrived struct {
	r   sdk.Response
	err error
}

// Dispatch sends one request. It ends as a call through the host does: with an
// outcome, with an error that proves that nothing was sent, or unanswered.
func (p *process) Dispatch(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	f := p.w.take(r, p.pid)
	if f.NotSent {
		return sdk.Response{}, sdk.NotSent(errors.New("connection refused"))
	}
	u := &unanswered{cause: errGone, ended: make(chan struct{})}
	answer := make(chan arrived, 1)
	p.w.late.Add(1)
	go func() {
		defer p.w.late.Done()
		p.perform(r, f, u, answer)
	}()
	limit := time.NewTimer(time.Until(r.Deadline) + linger + p.w.tick())
	defer limit.Stop()
	select {
	case a := <-answer:
		return a.r, a.err
	case <-ctx.Done():
		u.cause = context.Cause(ctx)
	case <-limit.C: // a process with a call that does not end is replaced
		p.w.late.Go(func() {
			p.wait(killing)
			p.kill()
		})
	}
	return sdk.Response{}, u
}

// perform is one call inside the adapter, from its arrival to its end.
func (p *process) perform(r sdk.DispatchRequest, f Fault, u *unanswered, answer chan<- arrived) {
	if !p.wait(f.Stays + p.w.tick()) {
		p.lose(u, answer)
		return // it never left
	}
	object := make(chan Object, 1)
	if f.Commits {
		p.w.late.Add(1)
		go func() {
			defer p.w.late.Done()
			time.Sleep(f.Late + latency/2 + p.w.tick())
			object <- p.w.commit(r.Operation, r.ExpectedRevision, f)
		}()
	}
	if f.Dies {
		time.Sleep(latency + p.w.tick())
		p.kill()
	}
	wait := latency + p.w.tick()
	if f.Over > 0 {
		wait = time.Until(r.Deadline) + f.Over
	}
	if f.Never || !p.wait(wait) {
		p.lose(u, answer)
		return
	}
	u.end(time.Now())
	answer <- arrived{r: p.outcome(r, f, object)}
}

// lose ends a call with the death of its process.
func (p *process) lose(u *unanswered, answer chan<- arrived) {
	<-p.gone
	u.end(p.diedAt())
	select {
	case answer <- arrived{err: u}:
	default:
	}
}

// wait reports whether the process still lives after d.
func (p *process) wait(d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-p.gone:
		return false
	case <-t.C:
		return true
	}
}

func (p *process) outcome(_ sdk.DispatchRequest, f Fault, object <-chan Object) sdk.Response {
	out := sdk.Response{Outcome: f.Answer, Evidence: []sdk.Evidence{{At: time.Now(), Kind: "exchange", Summary: f.Name}}}
	if f.Answer != nil {
		return out
	}
	o := <-object
	if o.ID == "" {
		out.Outcome = &sdk.Rejected{Reason: sdk.ReasonKeyReused, Code: "412", Message: "the key is taken"}
		return out
	}
	out.Outcome = &sdk.Committed{Object: sdk.ObjectRef{ID: o.ID, Type: "ticket"}, At: o.At}
	return out
}

// Read shows what the destination lets us see of a key.
func (p *process) Read(ctx context.Context, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	p.w.mu.Lock()
	p.w.reads[r.Operation.Key]++
	p.w.mu.Unlock()
	v := p.w.seen()
	if v.ReadsHang {
		<-ctx.Done()
		return sdk.ReadResponse{}, ctx.Err()
	}
	begun := time.Now()
	found, near := p.w.visible(r, begun)
	if err := sleep(ctx, latency+p.w.tick()); err != nil {
		return sdk.ReadResponse{}, err
	}
	if v.Down {
		return sdk.ReadResponse{}, errors.New("connection refused")
	}
	out := sdk.ReadResponse{
		Authority: p.w.spec.Read.Authority, Coverage: sdk.CoverageComplete, AsOf: begun,
		Postcondition: sdk.Postcondition{State: v.Postcond},
		Evidence:      []sdk.Evidence{{At: begun, Kind: "read", Summary: "by key"}},
		View: &sdk.View{
			ID: "by-key", Principal: "tester", ScannedTo: time.Now(), // a lookup by key covers all time
			VisibilityProven: !v.Blind, How: "guard", Outage: v.Outage,
		},
	}
	if v.Incomplete {
		out.Coverage = sdk.CoverageTruncated
	}
	switch all := append(found, near...); {
	case len(all) > 0:
		out.Finding = &sdk.Found{Matches: all}
	case r.Purpose == sdk.PurposePoll:
		out.Finding = &sdk.Pending{PollAfter: 5 * time.Second}
	default:
		out.Finding = &sdk.NoneSeen{ScopesSearched: []string{"by-key"}}
	}
	return out, nil
}

func (w *World) visible(r sdk.ReadRequest, at time.Time) (found, near []sdk.Match) {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := digest(r.Operation.Payload)
	for _, o := range w.made[r.Operation.Key] {
		if o.At.Add(w.view.Lag).After(at) || w.view.Blind {
			continue
		}
		m := sdk.Match{Object: sdk.ObjectRef{ID: o.ID, Type: "ticket"}, Strength: sdk.StrengthKey, Agreement: sdk.AgreementSame, CreatedAt: o.At}
		if o.Digest != want || w.view.OtherPayload {
			m.Agreement = sdk.AgreementDiffers
		}
		found = append(found, m)
	}
	if rev := w.fences.marks[r.Operation.Key]; rev != "" {
		found = append(found, sdk.Match{Object: sdk.ObjectRef{ID: r.Operation.Key, Type: "fence", Revision: rev}, Strength: sdk.StrengthKey, Void: true})
	}
	for i := range w.view.Similar {
		near = append(near, sdk.Match{
			Object: sdk.ObjectRef{ID: "similar-" + string(rune('a'+i)), Type: "ticket"}, Strength: sdk.StrengthSimilar, Agreement: sdk.AgreementNotCompared,
		})
	}
	return found, near
}
