package wire

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

// Limits of an answer that the contract leaves to the SDK, in bytes.
const (
	maxText   = 4 << 10                     // a message or summary meant for people
	maxAnswer = sdk.MaxMessage - (64 << 10) // room for framing below the message limit
)

// trimResponse cuts an answer of Dispatch to the contract's sizes and leaves a
// piece of evidence that says so. It never changes the class of the outcome.
func trimResponse(m *pb.DispatchResponse) {
	var cut []string
	if c := m.GetCommitted(); c != nil && len(c.Result) > sdk.MaxResult {
		cut = append(cut, fmt.Sprintf("result of %d bytes", len(c.Result)))
		c.Result = c.Result[:sdk.MaxResult]
	}
	if r := m.GetRejected(); r != nil {
		r.Message, r.Diagnostics = cutText(r.Message), trimDiagnostics(r.Diagnostics)
	}
	if n := m.GetNotExecuted(); n != nil {
		n.Message = cutText(n.Message)
	}
	if u := m.GetUnknown(); u != nil {
		u.Message = cutText(u.Message)
	}
	m.Evidence = trimEvidence(m.Evidence, cut)
}

// trimRead cuts an answer of Read. Observed contents go first, then look-alikes,
// then matches beyond the second; a list that was cut is no longer complete.
func trimRead(m *pb.ReadResponse) {
	var cut []string
	matches := m.GetFound().GetMatches()
	near := m.GetView().GetNear()
	for _, x := range slices.Concat(matches, near) {
		if len(x.GetObserved()) > sdk.MaxObserved {
			cut = append(cut, fmt.Sprintf("observed of %d bytes", len(x.Observed)))
			x.Observed = x.Observed[:sdk.MaxObserved]
		}
	}
	if p := m.GetPending(); p != nil {
		p.Message = cutText(p.Message)
	}
	if f := m.GetFailed(); f != nil {
		f.Message = cutText(f.Message)
	}
	if i := m.GetIndeterminate(); i != nil {
		i.Message = cutText(i.Message)
	}
	m.Evidence = trimEvidence(m.Evidence, cut)
	fitRead(m)
}

func fitRead(m *pb.ReadResponse) {
	over := proto.Size(m) - maxAnswer
	near, matches := m.GetView().GetNear(), m.GetFound().GetMatches()
	// From the end: what an author lists first is what the author holds likeliest.
	for _, list := range [][]*pb.Match{near, matches} {
		for i := len(list) - 1; i >= 0 && over > 0; i-- {
			over -= len(list[i].GetObserved())
			list[i].Observed = nil
		}
	}
	if over <= 0 {
		return
	}
	if v := m.GetView(); v != nil {
		v.Near = nil
	}
	if f := m.GetFound(); f != nil {
		for len(f.Matches) > 2 && proto.Size(m) > maxAnswer {
			f.Matches = f.Matches[:max(2, len(f.Matches)/2)]
		}
	}
	m.Coverage = pb.Coverage_TRUNCATED
}

// trimPrepared refuses a baseline that is too long instead of cutting it: with
// half a baseline an older object would look new. Nothing was sent yet, so a
// refusal loses nothing.
func trimPrepared(m *pb.PrepareResponse) {
	m.Diagnostics = trimDiagnostics(m.Diagnostics)
	n := len(m.GetReady().GetBaseline())
	if n <= sdk.MaxBaseline {
		return
	}
	m.Result = &pb.PrepareResponse_Rejected{Rejected: &pb.Rejected{
		Reason: pb.Rejected_UNSUPPORTED, Code: "baseline_too_large",
		Message: fmt.Sprintf("the baseline has %d bytes, the limit is %d", n, sdk.MaxBaseline),
	}}
}

func trimFence(m *pb.FenceResponse) {
	for _, x := range m.GetFound().GetMatches() {
		if len(x.GetObserved()) > sdk.MaxObserved {
			x.Observed = x.Observed[:sdk.MaxObserved]
		}
	}
	if i := m.GetIndeterminate(); i != nil {
		i.Message = cutText(i.Message)
	}
}

func trimEvidence(list []*pb.Evidence, cut []string) []*pb.Evidence {
	for _, e := range list {
		trimOne(e)
	}
	if len(list) > sdk.MaxEvidence {
		cut = append(cut, fmt.Sprintf("evidence of %d items", len(list)))
	}
	if len(cut) == 0 {
		return list
	}
	keep := min(len(list), sdk.MaxEvidence-1)
	return append(slices.Clone(list[:keep]), &pb.Evidence{
		Kind: "truncated", Summary: cutText(fmt.Sprintf("cut to the contract's size: %v", cut)),
	})
}

// trimOne cuts the summary to a quarter and then drops fields, the longest first, until the item fits.
func trimOne(e *pb.Evidence) {
	if proto.Size(e) <= sdk.MaxEvidenceB {
		return
	}
	e.Kind, e.Summary = cutTo(e.Kind, 128), cutTo(e.Summary, sdk.MaxEvidenceB/4)
	e.BodySha256 = e.BodySha256[:min(len(e.BodySha256), 64)]
	keys := slices.SortedFunc(maps.Keys(e.Fields), func(a, b string) int {
		return len(b) + len(e.Fields[b]) - len(a) - len(e.Fields[a])
	})
	for _, k := range keys {
		if proto.Size(e) <= sdk.MaxEvidenceB {
			return
		}
		delete(e.Fields, k)
	}
}

func trimDiagnostics(list []*pb.Diagnostic) []*pb.Diagnostic {
	list = list[:min(len(list), 64)]
	for _, d := range list {
		d.Pointer, d.Summary, d.Detail = cutText(d.Pointer), cutText(d.Summary), cutText(d.Detail)
	}
	return list
}

func cutText(s string) string { return cutTo(s, maxText) }

// cutTo cuts s to n bytes without splitting a rune, and says that it did.
func cutTo(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = " …"
	end := n - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}
