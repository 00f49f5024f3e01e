package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/daemon/webhook"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// ErrHookRefused: a message was not believed. Why is logged, and not told to the sender.
var ErrHookRefused = errors.New("the message was not believed")

// HookResult says what became of a message.
type HookResult struct {
	EventID string
	Key     string // "" = about none of our effects
	Seen    bool   // it was taken up before
	Verdict string // happened, ended; "" = it says nothing that counts
}

// hooks keeps the compiled webhooks of a destination for as long as its settings stand.
type hooks struct {
	mu sync.Mutex
	// protects following
	of   *config.Destination
	list []operationHook
	err  error
}

type operationHook struct {
	operation string
	hook      *webhook.Hook
}

// hooksOf reads the tables `webhook` of a destination's operations.
func hooksOf(conf *config.Destination) (list []operationHook, err error) {
	var with struct {
		Operations map[string]struct {
			Webhook *webhook.Config `json:"webhook"`
		} `json:"operations"`
	}
	if len(conf.With.RawMessage) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(conf.With.RawMessage, &with); err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(with.Operations) {
		c := with.Operations[name].Webhook
		if c == nil {
			continue
		}
		h, err := webhook.New(*c)
		if err == nil && !slices.Contains(conf.Credentials, c.Credential) {
			err = fmt.Errorf("credential %q is not among those of the destination", c.Credential)
		}
		if err != nil {
			return nil, fmt.Errorf("operations.%s.webhook: %w", name, err)
		}
		list = append(list, operationHook{name, h})
	}
	return list, nil
}

func (s *destination) webhooks() ([]operationHook, error) {
	conf := s.conf.Load()
	s.hooks.mu.Lock()
	defer s.hooks.mu.Unlock()
	if s.hooks.of != conf {
		s.hooks.of = conf
		s.hooks.list, s.hooks.err = hooksOf(conf)
	}
	return s.hooks.list, s.hooks.err
}

// Hook takes up a message that a destination sent of itself. It returns after
// COMMIT: the sender's 200 means that evidence and event id are on disk. A
// message that was taken up before changes nothing. What it says moves an effect
// forward or brings a read near; it never opens the gate, and a report of no
// effect counts only where it can be about one attempt alone.
func (d *Daemon) Hook(ctx context.Context, name string, headers map[string]string, body []byte) (HookResult, error) {
	s := d.dests[name]
	if s == nil {
		return HookResult{}, fmt.Errorf("destination %q: %w", name, ErrNotFound)
	}
	if !d.enter() {
		return HookResult{}, ErrDraining
	}
	defer d.calls.Done()
	list, err := s.webhooks()
	if err != nil {
		return HookResult{}, err
	}
	if len(list) == 0 {
		return HookResult{}, fmt.Errorf("destination %q takes no webhooks: %w", name, ErrNotFound)
	}
	err = webhook.ErrSignature
	for _, h := range list {
		secret, serr := d.settings.Load().Credential(h.hook.Credential())
		if serr != nil {
			return HookResult{}, serr
		}
		m, merr := h.hook.Read(secret, headers, body, now())
		if merr != nil {
			if err = merr; errors.Is(merr, webhook.ErrSignature) {
				continue
			}
			break
		}
		out, mine, terr := s.takeUp(ctx, h.operation, m, body)
		if terr != nil || mine {
			return out, terr
		}
		err = nil
	}
	if err != nil {
		d.log.Warn("a webhook was refused", "destination", name, "why", err)
		return HookResult{}, ErrHookRefused
	}
	return HookResult{}, nil // signed, and about nothing of ours
}

// takeUp records a message about one of the operation's effects and lets it
// count. mine is false when it is about none of them.
func (s *destination) takeUp(ctx context.Context, operation string, m webhook.Message, body []byte) (out HookResult, mine bool, err error) {
	out = HookResult{EventID: m.EventID, Key: m.Key, Verdict: string(m.Verdict)}
	e, err := s.d.db.Effect(ctx, m.Key)
	if m.Key == "" || errors.Is(err, sqlite.ErrNotFound) || err == nil && (e.Destination != s.name || e.Operation != operation) {
		return HookResult{}, false, nil
	}
	if err != nil {
		return out, true, err
	}
	op := s.d.policyFor(e)
	if known, derr := s.operation(ctx, e.Operation); derr == nil {
		op = known
	}
	next, err := s.d.write(ctx, m.Key, func(tx *sqlite.Tx, cur journal.Effect) (journal.Effect, error) {
		out.Seen = false
		at := now()
		fresh, err := tx.TakeWebhook(s.name, m.EventID, m.Key, at)
		if err != nil {
			return cur, err
		}
		if !fresh {
			out.Seen = true
			return cur, nil
		}
		digest, err := tx.PutEvidence(m.Key, journal.Evidence{
			At: at, Source: journal.FromWebhook, Kind: "webhook", Summary: "event " + m.EventID + " " + string(m.Verdict), Body: body,
		})
		if err != nil {
			return cur, err
		}
		ev := hookEvent(cur, m, digest)
		if ev == nil {
			return cur, nil
		}
		done, err := tx.Apply(cur, ev, s.d.env(op.policy, by("webhook")))
		var illegal *journal.IllegalError
		if errors.As(err, &illegal) {
			return cur, nil // it is kept as evidence; the reads decide
		}
		return done, err
	})
	if err != nil {
		return out, true, err
	}
	s.settleDue(next)
	poke(s.care)
	return out, true, nil
}

// hookEvent is what a message means for an effect. A report of no effect may be
// an old one about an earlier attempt: with more than one attempt, or once an
// object is known, it only brings the next read near.
func hookEvent(e journal.Effect, m webhook.Message, evidence string) journal.Event {
	switch {
	case m.Verdict == webhook.Happened:
		return journal.Witness{What: "webhook " + m.EventID, ObjectID: m.ObjectID, Source: journal.FromWebhook, Evidence: evidence}
	case m.Verdict != webhook.Ended || e.Phase.Closed():
		return nil
	case len(e.Attempts) == 1 && (e.Phase == journal.Acknowledged || e.Phase == journal.Unknown):
		at := now()
		return journal.ReadDone{Reading: journal.Reading{
			Source: "webhook", BegunAt: at, EndedAt: at, View: "webhook", Evidence: evidence,
			Ended: &journal.OperationEnd{Code: "webhook", Message: "event " + m.EventID, MayResend: m.MayResend},
		}}
	}
	return journal.ReadAgain{At: now()}
}
