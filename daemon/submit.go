package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/mutant"
	"github.com/settled-dev/settled/journal/sqlite"
)

// Limits of a submission.
const (
	maxPayload = 1 << 20
	maxContext = 4 << 10
)

// Submit records one intent. It returns after COMMIT: an effect that was
// acknowledged is on disk. The same key with the same fingerprint returns the
// existing effect and adds nothing.
//
// When a slot is free and nothing has to be asked first, the intent, its
// authority and the `sent` row share one commit, and the call starts right after it.
func (d *Daemon) Submit(ctx context.Context, req SubmitRequest, who journal.By) (SubmitResult, error) {
	if !d.enter() {
		return SubmitResult{}, ErrDraining
	}
	defer d.calls.Done()
	if d.full.Load() {
		return SubmitResult{}, ErrJournalFull
	}
	in, op, s, err := d.intent(ctx, req, who)
	if err != nil {
		return SubmitResult{}, err
	}
	if req.DryRun {
		return d.dryRun(ctx, in, op)
	}
	if err := s.admits(op); err != nil {
		if _, known := d.db.Effect(ctx, in.Key); known == nil {
			return d.insert(ctx, in, op, s, who, nil) // it exists: say so, whatever the load
		}
		return SubmitResult{}, err
	}
	return d.insert(ctx, in, op, s, who, s.reserve(ctx, in))
}

// intent checks a request and makes the intent of it. Every fault is listed at once.
func (d *Daemon) intent(ctx context.Context, req SubmitRequest, who journal.By) (journal.Intent, operation, *destination, error) {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	at := now()
	in := journal.Intent{
		Key: req.Key, Destination: req.Destination, Operation: req.Operation, Actor: orElse(req.Actor, who.Actor),
		Payload: req.Payload, ContentType: orElse(req.ContentType, "application/json"), Context: req.Context,
		Supersedes: req.Supersedes, SubmittedAt: at, NotBefore: micro(req.NotBefore), Deadline: micro(req.NotAfter),
	}
	if len(in.Payload) == 0 && req.ContentType == "" {
		in.Payload = []byte("{}")
	}
	if err := journal.CheckKey(req.Key, d.keyRules()); err != nil {
		fault("key: %v", err)
	}
	if len(in.Payload) > maxPayload {
		fault("payload: %d bytes, the limit is %d", len(in.Payload), maxPayload)
	} else if digest, err := journal.PayloadDigest(in.Payload, in.ContentType); err != nil {
		fault("payload: %v", err)
	} else {
		in.PayloadDigest = digest
	}
	if b, err := json.Marshal(req.Context); err == nil && len(b) > maxContext {
		fault("context: %d bytes, the limit is %d", len(b), maxContext)
	}
	if req.Approval != "" {
		fault("approval: approvals are not built yet")
	}
	s := d.dests[req.Destination]
	var op operation
	switch {
	case req.Destination == "":
		fault("destination: it is missing")
	case s == nil:
		fault("destination: %q is not configured; see: settled destination list", req.Destination)
	default:
		var err error
		if op, err = s.operation(ctx, req.Operation); err != nil {
			var inv *InvalidError
			if !errors.As(err, &inv) {
				return in, op, s, &BusyError{Why: "the adapter of " + s.name + " is not up: " + err.Error(), RetryAfter: 5 * time.Second, Outage: true}
			}
			for _, f := range inv.Faults {
				fault("operation: %s", f)
			}
			break
		}
		in.Account = op.eff.Account
		faults = append(faults, nest(&in, op)...)
	}
	if len(faults) > 0 {
		return in, op, s, &InvalidError{Faults: faults}
	}
	in.Fingerprint = journal.Fingerprint(in.Destination, in.Account, in.Operation, in.Actor, in.PayloadDigest)
	return in, op, s, nil
}

func (d *Daemon) keyRules() journal.KeyRules {
	k := d.settings.Load().Keys
	return journal.KeyRules{Allow: k.AllowPatterns(), Deny: k.DenyPatterns()}
}

// nest checks that the deadlines fit into each other.
func nest(in *journal.Intent, op operation) []string {
	begin := in.SubmittedAt
	if in.NotBefore.After(begin) {
		begin = in.NotBefore
	}
	if in.Deadline.IsZero() {
		in.Deadline = begin.Add(op.eff.Deadline)
	}
	need := op.policy.Timeout + op.policy.RecordReserve
	if room := in.Deadline.Sub(begin); room <= need {
		return []string{fmt.Sprintf("not_after: leaves %s, but one dispatch needs timeout + record_reserve = %s", room.Round(time.Millisecond), need)}
	}
	return nil
}

func micro(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}

// admits refuses what the destination's limits do not allow to queue.
func (s *destination) admits(op operation) error {
	if s.conf.Load().OnOutage == "refuse" && s.breaker.open() {
		return &BusyError{Why: "destination " + s.name + " is down and on_outage is refuse", RetryAfter: probeFirst, Outage: true}
	}
	if limit := op.eff.QueueLimit; limit > 0 {
		if n := s.d.db.Queued(s.name); n >= int64(limit) {
			return &BusyError{Why: fmt.Sprintf("destination %s has %d effects queued, its limit", s.name, n), RetryAfter: 5 * time.Second}
		}
	}
	return nil
}

// reserved is a slot with everything that a fused send needs.
type reserved struct {
	live Live
	id   string
}

// reserve takes a slot when the effect can be sent in the transaction that
// records it: no question to ask first, nothing to wait for.
func (s *destination) reserve(ctx context.Context, in journal.Intent) *reserved {
	if mutant.SentAfterCall || s.prepares() || in.NotBefore.After(in.SubmittedAt) {
		return nil
	}
	if _, open := s.mayDispatch(); !open {
		return nil
	}
	live, err := s.port.Acquire(ctx)
	if err != nil || !s.described(live) {
		return nil
	}
	select {
	case s.slots <- struct{}{}:
	default:
		return nil
	}
	if !s.claim(in.Key) {
		<-s.slots
		poke(s.wake) // the loop may have met the slot taken
		return nil
	}
	if !s.limiter.Allow() || !s.breaker.begin() {
		s.giveBack(in.Key)
		return nil
	}
	return &reserved{live: live, id: s.d.opts.NewID()}
}

// unreserve gives back a whole reservation that led to no call.
func (s *destination) unreserve(key string) {
	s.breaker.notSent()
	s.giveBack(key)
}

// giveBack gives back a key and a slot.
func (s *destination) giveBack(key string) {
	s.release(key)
	<-s.slots
	poke(s.wake)
	poke(s.care) // whatever became due for the key meanwhile was passed over
}

// insert writes the intent, its authority and, where a slot is reserved, the `sent` row.
func (d *Daemon) insert(ctx context.Context, in journal.Intent, op operation, s *destination, who journal.By, res *reserved) (SubmitResult, error) {
	var out SubmitResult
	sent := false
	err := d.db.Write(ctx, func(tx *sqlite.Tx) error {
		e, created, err := tx.Submit(in, d.env(op.policy, who), d.inRestoreWindow(tx))
		out = SubmitResult{Effect: e, Created: created}
		if err != nil || !created || e.Phase != journal.Prepared {
			return err
		}
		if e, err = tx.Apply(e, authorize(e, op), d.env(op.policy, by("engine"))); err != nil {
			return err
		}
		if res != nil {
			e, sent, err = s.fuse(tx, e, op, res)
		}
		out.Effect = e
		return err
	})
	if err == nil && out.Created {
		d.followers.tell(out.Effect)
	}
	if err == nil && sent {
		s.tokens.first(time.Now())
		s.goDispatch(in.Key, s.begun(out.Effect, op, res.live))
		return out, nil
	}
	if res != nil {
		s.unreserve(in.Key)
	}
	if err != nil {
		return out, submitError(err)
	}
	s.settleDue(out.Effect)
	return out, nil
}

// inRestoreWindow says whether a key unknown to this journal may have been used
// before the backup that it was restored from: then it is read before the first write (42).
func (d *Daemon) inRestoreWindow(tx *sqlite.Tx) bool {
	at := tx.RestoredAt()
	return !at.IsZero() && now().Before(at.Add(d.settings.Load().Journal.RestoreWindow))
}

// fuse tries the write gate inside the intake transaction. A shut gate is no
// error: the effect is recorded and waits.
func (s *destination) fuse(tx *sqlite.Tx, e journal.Effect, op operation, res *reserved) (journal.Effect, bool, error) {
	ask := s.ask(tx, e, op)
	next, err := tx.Apply(e, journal.Send{Ask: ask, Attempt: s.attempt(e, res.live, res.id)}, s.d.env(op.policy, by("dispatcher")))
	var gate *journal.GateError
	if errors.As(err, &gate) {
		return e, false, nil
	}
	return next, err == nil, err
}

func submitError(err error) error {
	switch {
	case errors.Is(err, sqlite.ErrFull):
		return ErrJournalFull
	case errors.Is(err, sqlite.ErrCommitUnknown):
		return fmt.Errorf("%w (%w)", ErrSubmissionUnknown, err)
	}
	return err
}

// authorize is the policy's grant. It lasts as long as the effect may be sent.
func authorize(e journal.Effect, op operation) journal.Authorize {
	expires := e.Deadline
	if far := now().Add(authorityLife); far.Before(expires) {
		expires = far
	}
	return journal.Authorize{Authority: journal.Authority{
		Ref: "policy:" + op.policy.SHA256, GrantedAt: now(), ExpiresAt: expires,
		PolicySHA256: op.policy.SHA256, ContractSHA256: op.policy.Contract,
	}}
}

// dryRun says what a submit would do, and writes nothing.
func (d *Daemon) dryRun(ctx context.Context, in journal.Intent, op operation) (SubmitResult, error) {
	e, err := d.db.Effect(ctx, in.Key)
	switch {
	case errors.Is(err, sqlite.ErrNotFound):
		c, err := journal.Apply(journal.Effect{}, journal.Submit{Intent: in}, d.env(op.policy, by("dry-run")))
		return SubmitResult{Effect: c.Effect, Created: true}, err
	case err != nil:
		return SubmitResult{}, err
	case e.Fingerprint != in.Fingerprint:
		return SubmitResult{}, &journal.ConflictError{Key: in.Key, Bound: e.Fingerprint, Given: in.Fingerprint}
	}
	return SubmitResult{Effect: e}, nil
}
