package daemontest

import (
	"context"
	"errors"
	"fmt"

	"github.com/settled-dev/settled/sdk"
)

// FenceFault is what befalls one fence. The zero value is honesty.
type FenceFault struct {
	Taken bool // the key is taken, the answer is lost
	Lost  bool // the request never arrives
}

// fences is what the world knows of create-only keys.
type fences struct {
	marks   map[string]string // revision of the void mark, by key
	script  map[string][]FenceFault
	calls   map[string]int
	made    int
	refused int
	dedupes bool
}

// Dedupes makes the world answer a request of a known key with the first response.
func (w *World) Dedupes() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fences.dedupes = true
}

// ScriptFence says what befalls the next fences of a key.
func (w *World) ScriptFence(key string, faults ...FenceFault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fences.script == nil {
		w.fences.script = map[string][]FenceFault{}
	}
	w.fences.script[key] = append(w.fences.script[key], faults...)
}

// Fences counts the fences that were asked for with a key, and the requests
// that any fence has kept out.
func (w *World) Fences(key string) (asked, keptOut int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fences.calls[key], w.fences.refused
}

// first is the object that a key made first. The caller holds mu.
func (w *World) first(key string) (Object, bool) {
	if made := w.made[key]; len(made) > 0 {
		return made[0], true
	}
	return Object{}, false
}

// Fence takes a key with a void mark. A mark that stands is replaced only on
// condition of its revision.
func (p *process) Fence(ctx context.Context, r sdk.FenceRequest) (sdk.FenceResponse, error) {
	if err := sleep(ctx, latency+p.w.tick()); err != nil {
		return sdk.FenceResponse{}, err
	}
	return p.w.fence(r)
}

func (w *World) fence(r sdk.FenceRequest) (sdk.FenceResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, key := &w.fences, r.Operation.Key
	if f.marks == nil {
		f.marks, f.calls = map[string]string{}, map[string]int{}
	}
	f.calls[key]++
	fault := FenceFault{}
	if s := f.script[key]; len(s) > 0 {
		fault, f.script[key] = s[0], s[1:]
	}
	if fault.Lost {
		return sdk.FenceResponse{}, errors.New("no answer")
	}
	if o, ok := w.first(key); ok {
		m := sdk.Match{Object: sdk.ObjectRef{ID: o.ID, Type: "ticket"}, Strength: sdk.StrengthKey, Agreement: sdk.AgreementSame, CreatedAt: o.At}
		return sdk.FenceResponse{Found: &sdk.Found{Matches: []sdk.Match{m}}}, nil
	}
	if rev := f.marks[key]; rev != "" && rev != r.ReplacesRevision {
		m := sdk.Match{Object: sdk.ObjectRef{ID: key, Type: "fence", Revision: rev}, Strength: sdk.StrengthKey, Void: true}
		return sdk.FenceResponse{Found: &sdk.Found{Matches: []sdk.Match{m}}}, nil
	}
	f.made++
	f.marks[key] = fmt.Sprintf("void-%d", f.made)
	if fault.Taken {
		return sdk.FenceResponse{}, errors.New("no answer")
	}
	return sdk.FenceResponse{Fenced: &sdk.ObjectRef{ID: key, Type: "fence", Revision: f.marks[key]}}, nil
}
