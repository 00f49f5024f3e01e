package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/cmd/settled/internal/gitdest"
)

// Truth is what a destination itself says of one key.
type Truth struct {
	Key     string
	Calls   int       // requests that arrived, or commands that were run
	Objects int       // objects that were ever created, also if removed again
	IDs     []string  // of those objects
	First   time.Time // when the first object came into being; zero where unknown
}

// Truth asks the ledgers of both destinations, and returns the keys that they know.
func (s *Stage) Truth(ctx context.Context) (map[string]Truth, error) {
	out := map[string]Truth{}
	ledger, err := s.Ledger(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range ledger {
		t := Truth{Key: e.Ref, Calls: len(e.Requests), Objects: len(e.Commits)}
		for _, c := range e.Commits {
			t.IDs = append(t.IDs, c.ID)
		}
		if len(e.Commits) > 0 {
			t.First = e.Commits[0].At
		}
		out[e.Ref] = t
	}
	records, err := gitdest.Audit(ctx, s.Repo())
	if err != nil {
		return nil, fmt.Errorf("stage: read the repository: %w", err)
	}
	for _, r := range records {
		t := Truth{Key: r.Key, Objects: max(r.Created, len(r.Tags))}
		for _, tag := range r.Tags {
			t.IDs = append(t.IDs, tag.Name)
		}
		out[r.Key] = t
	}
	return out, nil
}

// GitCalls is how often the git destination was asked to create a key's tag.
func (s *Stage) GitCalls(key string) (int, error) { return gitdest.Dispatches(s.GitState(), key) }

// Ledger is the desk's own account of every request and every ticket.
func (s *Stage) Ledger(ctx context.Context) (desk.Ledger, error) {
	var l desk.Ledger
	return l, s.askDesk(ctx, "GET", "/_ledger", nil, &l)
}

// Inject queues faults for the next create requests of a key at the desk.
func (s *Stage) Inject(ctx context.Context, key string, faults ...desk.Fault) error {
	return s.askDesk(ctx, "POST", "/_faults", map[string]any{"ref": key, "faults": faults}, nil)
}

// InjectRead queues faults for the next lists of a key at the desk.
func (s *Stage) InjectRead(ctx context.Context, key string, faults ...desk.Fault) error {
	return s.askDesk(ctx, "POST", "/_faults", map[string]any{"ref": key, "faults": faults, "on": "read"}, nil)
}

// InjectGit queues faults for the next commands that tag for a key.
func (s *Stage) InjectGit(key string, kinds ...desk.Kind) error {
	return gitdest.Inject(s.GitState(), key, kinds...)
}

func (s *Stage) askDesk(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	s.mu.Lock()
	url := "http://" + s.deskAt + path
	s.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("stage: ask the desk: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return fmt.Errorf("stage: the desk answers %d: %s", res.StatusCode, text)
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
		return fmt.Errorf("stage: read the desk's answer: %w", err)
	}
	return nil
}
