package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/mutant"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

// begun is an attempt whose `sent` row is on disk: only now may the call be made.
type begun struct {
	effect  journal.Effect
	attempt journal.Attempt
	op      operation
	live    Live
	early   *answered // only in a mutant: what came of a call made before its row
}

// answered is what Dispatch returned.
type answered struct {
	r   sdk.Response
	err error
}

func (s *destination) begun(e journal.Effect, op operation, live Live) *begun {
	return &begun{effect: e, attempt: *e.Last(), op: op, live: live}
}

// goDispatch runs one dispatch. The caller holds a slot and has claimed the
// key; both are given back when it is over. b is nil when the gate was not
// passed yet.
func (s *destination) goDispatch(key string, b *begun) {
	s.d.calls.Add(1)
	s.d.inFlight.Add(1)
	go func() {
		defer s.d.calls.Done()
		defer s.d.inFlight.Add(-1)
		e := s.dispatch(key, b)
		<-s.slots
		if s.d.db.Queued(s.name) > 0 { // what queues later pokes for itself
			poke(s.wake)
		}
		if e == nil {
			s.rest(key)
		} else {
			*e = s.confirm(*e)
		}
		s.release(key)
		if e != nil {
			s.settleDue(*e)
			return
		}
		poke(s.wake)
		poke(s.care) // whatever became due for the key meanwhile was passed over
	}()
}

// confirm reads back at once what the destination said is done, where a read
// slot is free: the key is claimed already, and the queue of due reads need not
// be asked. Otherwise the care loop does it.
func (s *destination) confirm(e journal.Effect) journal.Effect {
	if e.Phase != journal.Verifying || e.DueAt.After(now()) || s.d.stopping.Load() || s.breaker.open() {
		return e
	}
	select {
	case s.reads <- struct{}{}:
	default:
		return e
	}
	next, _ := s.tend(s.d.runCtx, e.Key, "timer")
	full := len(s.reads) == cap(s.reads)
	<-s.reads
	if full {
		poke(s.care) // it may have met every slot taken
	}
	if next.Key == "" {
		return e
	}
	return next
}

// rest keeps a key claimed for a moment when a look at it led to no call and it
// is still due: an error must not be met again at once, over and over.
func (s *destination) rest(key string) {
	e, err := s.d.db.Effect(s.d.runCtx, key)
	if err == nil && (e.Due != journal.DueDispatch || e.DueAt.After(now()) || s.breaker.open()) {
		return
	}
	timer := time.NewTimer(noProgress)
	defer timer.Stop()
	select {
	case <-s.d.runCtx.Done():
	case <-timer.C:
	}
}

// dispatch takes one due effect through Prepare, the gate, the call and the record of its answer.
func (s *destination) dispatch(key string, b *begun) *journal.Effect {
	if b == nil {
		if b = s.pass(key); b == nil {
			return nil
		}
	}
	return s.call(b)
}

// pass brings an authorized effect through the write gate, or leaves it with a
// reason and a time at which to look again.
func (s *destination) pass(key string) *begun {
	ctx := s.d.runCtx
	e, op, ok := s.advance(ctx, key)
	if !ok || e.Phase != journal.Authorized {
		return nil
	}
	if err := s.limiter.Wait(ctx); err != nil {
		return nil
	}
	retry := e.Budget.Attempts > 0
	if retry {
		if wait, ok := s.tokens.take(time.Now()); !ok {
			s.putOff(key, op, journal.Defer{Until: now().Add(wait)}, "no retry token is left")
			return nil
		}
	}
	if !s.breaker.begin() {
		if retry {
			s.tokens.giveBack()
		}
		return nil
	}
	b := s.open(ctx, e, op)
	switch {
	case b == nil && retry:
		s.tokens.giveBack()
	case b != nil && !retry:
		s.tokens.first(time.Now())
	}
	if b == nil {
		s.breaker.notSent()
	}
	return b
}

// advance applies what the core decides until something is left for the
// dispatcher to do. ok is false when there is nothing to send.
func (s *destination) advance(ctx context.Context, key string) (journal.Effect, operation, bool) {
	for range maxSteps {
		e, err := s.d.db.Effect(ctx, key)
		if err != nil {
			s.d.unexpected(ctx, "read an effect", key, err)
			return e, operation{}, false
		}
		op, err := s.operation(ctx, e.Operation)
		if err != nil {
			s.d.unexpected(ctx, "find the policy", key, err)
			return e, op, false
		}
		switch step := journal.Decide(e, s.d.env(op.policy, by("engine")), ""); step.Do {
		case journal.StepDispatch:
			return e, op, true
		case journal.StepApply:
			if e, err = s.d.applyDecided(ctx, key, op); err != nil {
				s.d.unexpected(ctx, "apply a decision", key, err)
				return e, op, false
			}
			s.settleDue(e)
		default:
			return e, op, false
		}
	}
	return journal.Effect{}, operation{}, false
}

// open asks the adapter to prepare and then the gate to open. What comes back
// has its `sent` row on disk.
func (s *destination) open(ctx context.Context, e journal.Effect, op operation) *begun {
	live, err := s.port.Acquire(ctx)
	if err != nil {
		s.putOff(e.Key, op, journal.Defer{Until: now().Add(5 * time.Second)}, "the adapter is not up: "+err.Error())
		return nil
	}
	if op, err = s.current(ctx, e, op, live); err != nil {
		s.putOff(e.Key, op, journal.Defer{Until: now().Add(5 * time.Second)}, "the adapter was replaced: "+err.Error())
		return nil
	}
	id := s.d.opts.NewID()
	prep, ok := s.prepare(ctx, e, op, live, id)
	if !ok {
		return nil
	}
	attempt := s.attempt(e, live, id)
	var early *answered
	if mutant.SentAfterCall { // never in a normal build: the constant is false
		r, err := live.Dispatch(s.d.callCtx, sdk.DispatchRequest{Operation: operationOf(e, id, len(e.Attempts)+1), Deadline: now().Add(op.policy.Timeout)})
		early = &answered{r, err}
	}
	attempt.Baseline, attempt.ExpectedRevision = prep.Baseline, orElse(prep.Revision, revisionOf(e))
	out, err := s.d.write(ctx, e.Key, func(tx *sqlite.Tx, cur journal.Effect) (journal.Effect, error) {
		if prep.Target != "" {
			cur.Target = prep.Target
		}
		ask := s.ask(tx, cur, op)
		ask.Seq, ask.Fingerprint = e.Seq, e.Fingerprint
		ask.SnapshotStored = len(prep.Baseline) > 0
		ask.PreconditionReadAt, ask.PreconditionHolds = prep.at, !prep.PreconditionFailed
		return tx.Apply(cur, journal.Send{Ask: ask, Attempt: attempt, Target: prep.Target}, s.d.env(op.policy, by("dispatcher")))
	})
	var gate *journal.GateError
	if errors.As(err, &gate) {
		s.refused(ctx, e, op, gate)
		return nil
	}
	if err != nil {
		s.d.unexpected(ctx, "record the attempt", e.Key, err)
		return nil
	}
	b := s.begun(out, op, live)
	b.early = early
	return b
}

// prepared is what Prepare found out, and when.
type prepared struct {
	sdk.Ready
	at time.Time
}

// prepare calls the adapter's Prepare, which has no effect. A rejection ends
// the effect; a deferral or an error puts it off.
func (s *destination) prepare(ctx context.Context, e journal.Effect, op operation, live Live, attempt string) (prepared, bool) {
	if !s.prepares() {
		return prepared{}, true
	}
	p := prepared{at: now()}
	call, cancel := context.WithTimeout(ctx, op.policy.Timeout)
	defer cancel()
	r, err := live.Prepare(call, operationOf(e, attempt, len(e.Attempts)+1))
	switch {
	case err != nil:
		s.putOff(e.Key, op, journal.Defer{Until: now().Add(s.pause(e, op))}, "prepare: "+err.Error())
	case r.Ready != nil && r.Ready.PreconditionFailed: // whatever else the gate would ask
		s.end(e.Key, op, journal.Expire{Reason: "the precondition no longer holds: somebody changed the object after the submit"})
	case r.Ready != nil:
		p.Ready = *r.Ready
		return p, true
	case r.Rejected != nil:
		s.end(e.Key, op, journal.Expire{Reason: "prepare rejected it: " + r.Rejected.Message})
	default:
		until, why := s.pause(e, op), "the adapter is not ready"
		if r.Deferred != nil {
			until, why = max(until, r.Deferred.RetryAfter), orElse(r.Deferred.Message, why)
		}
		s.putOff(e.Key, op, journal.Defer{Until: now().Add(until)}, "prepare: "+why)
	}
	return p, false
}

func (s *destination) pause(e journal.Effect, op operation) time.Duration {
	return max(100*time.Millisecond, journal.Backoff(op.policy.Retry, max(1, len(e.Attempts)), s.d.opts.Rand()))
}

// attempt is the row that must be durable before the call.
func (s *destination) attempt(e journal.Effect, live Live, id string) journal.Attempt {
	p := live.Process()
	return journal.Attempt{
		ID: id, Epoch: s.d.db.Epoch(), PID: p.PID, ProcessStart: p.Start, BootID: p.BootID, Adapter: p.Adapter,
		Key: e.Key, Marker: e.Key, Account: e.Account, RequestDigest: e.PayloadDigest,
	}
}

// ask gathers what the gate wants to know, inside the transaction.
func (s *destination) ask(tx *sqlite.Tx, e journal.Effect, op operation) journal.Ask {
	off := tx.DispatchOff()
	if s.d.stopping.Load() {
		off = "the daemon is stopping"
	}
	return journal.Ask{
		Seq: e.Seq, Fingerprint: e.Fingerprint, Epoch: s.d.db.Epoch(), CurrentEpoch: tx.Epoch(),
		Dispatch: off, HeldBy: tx.HoldFor(e), SlotHeld: true, TokenHeld: true, RetryToken: true,
		Contract: op.policy.Contract,
	}
}

// refused deals with a gate that stayed shut: nothing was written or sent.
func (s *destination) refused(ctx context.Context, e journal.Effect, op operation, gate *journal.GateError) {
	s.d.log.Debug("write gate shut", "key", e.Key, "why", gate.Error())
	if s.d.stopping.Load() {
		return // it stays due, and the next start sends it
	}
	switch {
	case gate.Has(journal.GateSeq), gate.Has(journal.GatePhase):
		poke(s.wake) // it changed meanwhile: look again
	case gate.Has(journal.GateContract), gate.Has(journal.GateAuthority):
		s.reauthorize(ctx, e.Key, op, gate.Error())
	case gate.Has(journal.GateHold), gate.Has(journal.GateDispatch), gate.Has(journal.GateEpoch):
		s.putOff(e.Key, op, journal.Defer{Held: true}, gate.Error())
	default:
		s.putOff(e.Key, op, journal.Defer{Until: now().Add(gatePause(gate))}, gate.Error())
	}
}

// gatePause is how long to wait before the gate is asked again: a moment for
// what time alone changes, longer for what only a person or another adapter can.
func gatePause(gate *journal.GateError) time.Duration {
	for _, c := range []string{journal.GateHuman, journal.GateSnapshot, journal.GateUnsettled, journal.GatePositive, journal.GateFingerprint} {
		if gate.Has(c) {
			return time.Minute
		}
	}
	return time.Second
}

// reauthorize is 5 and 2 in one transaction: the grant is made anew under the contract of now.
func (s *destination) reauthorize(ctx context.Context, key string, op operation, why string) {
	e, err := s.d.write(ctx, key, func(tx *sqlite.Tx, e journal.Effect) (journal.Effect, error) {
		e, err := tx.Apply(e, journal.Withdraw{Reason: why}, s.d.env(op.policy, by("engine")))
		if err != nil {
			return e, err
		}
		return tx.Apply(e, authorize(e, op), s.d.env(op.policy, by("engine")))
	})
	if err != nil {
		s.d.unexpected(ctx, "authorize again", key, err)
		return
	}
	s.settleDue(e)
}

// putOff moves the next look at an effect that cannot be sent now.
func (s *destination) putOff(key string, op operation, ev journal.Defer, why string) {
	s.d.log.Info("not sent now", "key", key, "why", why)
	s.end(key, op, ev)
}

// end applies one event to an effect that is not being called.
func (s *destination) end(key string, op operation, ev journal.Event) {
	e, err := s.d.write(s.d.runCtx, key, func(tx *sqlite.Tx, e journal.Effect) (journal.Effect, error) {
		return tx.Apply(e, ev, s.d.env(op.policy, by("dispatcher")))
	})
	if err != nil {
		s.d.unexpected(s.d.runCtx, "apply "+string(ev.Kind()), key, err)
		return
	}
	s.settleDue(e)
}

// call makes the one call of an attempt and records what came of it. It holds
// no transaction while it acts. Ending the daemon's call context stops the
// waiting and nothing else: the outcome is then unknown.
func (s *destination) call(b *begun) *journal.Effect {
	a := b.attempt
	r, err := s.perform(b)
	ans := answerOf(a.ID, r, err, now())
	if ans.Class == journal.AnswerUnknown && s.d.callCtx.Err() != nil {
		ans.Cause = "stop"
	}
	s.count(ans, r)
	e, recErr := s.d.record(b.effect.Key, func(tx *sqlite.Tx, e journal.Effect) (journal.Effect, error) {
		if ev, ok := evidenceOf("dispatch", string(ans.Class), journal.FromAdapter, a.ID, r.Evidence, ans.At); ok {
			digest, err := tx.PutEvidence(e.Key, ev)
			if err != nil {
				return e, err
			}
			ans.Evidence = digest
		}
		return tx.Apply(e, ans, s.d.env(b.op.policy, by("dispatcher")))
	})
	if recErr != nil {
		s.d.log.Error("the outcome of a call is not recorded; it stays unknown", "key", b.effect.Key, "attempt", a.ID, "err", recErr)
		return nil
	}
	if ans.Class == journal.AnswerUnknown {
		s.d.log.Warn("outcome unknown; reading before anything else", "key", e.Key, "attempt", a.ID, "cause", ans.Cause, "next_read", e.DueAt)
	}
	s.watchEnd(e.Key, a.ID, b.op, err)
	return &e
}

// perform calls the adapter.
func (s *destination) perform(b *begun) (sdk.Response, error) {
	if b.early != nil {
		return b.early.r, b.early.err
	}
	a := b.attempt
	return b.live.Dispatch(s.d.callCtx, sdk.DispatchRequest{
		Operation: operationOf(b.effect, a.ID, a.Number), Baseline: a.Baseline,
		Deadline: a.Deadline, ExpectedRevision: a.ExpectedRevision,
	})
}

// watchEnd closes an overdue attempt once its process is proved dead. When the
// daemon stops first, the next start closes it.
func (s *destination) watchEnd(key, attempt string, op operation, err error) {
	var u unanswered
	if !errors.As(err, &u) {
		return
	}
	s.d.spawnLate(func(ctx context.Context) {
		select {
		case <-ctx.Done():
			return
		case <-u.Ended():
		}
		e, err := s.d.write(ctx, key, func(tx *sqlite.Tx, e journal.Effect) (journal.Effect, error) {
			for _, a := range e.Attempts {
				if a.ID == attempt && !a.ClosedAt.IsZero() {
					return e, nil // its end was known when the answer was recorded
				}
			}
			return tx.Apply(e, journal.CallEnded{Attempt: attempt, At: micro(u.EndedAt())}, s.d.env(op.policy, by("dispatcher")))
		})
		if err != nil {
			s.d.unexpected(ctx, "close an overdue call", key, err)
			return
		}
		s.settleDue(e)
	})
}

// count feeds the breaker with what an answer says of the destination's health.
func (s *destination) count(ans journal.Answer, r sdk.Response) {
	at := time.Now()
	s.d.counters.attempt(s.name, ans.Class)
	switch ans.Class {
	case journal.AnswerUnknown, journal.AnswerNotSent:
		if s.breaker.failed(at) {
			s.d.log.Warn("breaker open: no more writes until a read succeeds", "destination", s.name)
			poke(s.care)
		}
		return
	}
	s.breaker.answered()
	if whole(r.Outcome) {
		s.breaker.force(at)
		s.d.log.Warn("the destination refuses everything; writes stop until a read succeeds", "destination", s.name, "why", ans.Message)
		poke(s.care)
	}
}

func whole(o sdk.Outcome) bool {
	switch v := o.(type) {
	case *sdk.Rejected:
		return v.WholeDestination
	case *sdk.NotExecuted:
		return v.WholeDestination
	}
	return false
}
