package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
	"github.com/settled-dev/settled/sdk"
)

// maxSteps bounds how many decisions one look at an effect takes: expired
// evidence, doubt, read, absence, another attempt is the longest chain there is.
const maxSteps = 12

// noProgress is how long an effect is left alone when a look at it changed nothing.
const noProgress = time.Second

// goCare takes one due effect as far as it goes without a write to the
// destination. The caller holds a read slot and has claimed the key.
func (s *destination) goCare(key, source string) {
	s.d.spawnLate(func(ctx context.Context) {
		e, moved := s.tend(ctx, key, source)
		<-s.reads
		if !moved && ctx.Err() == nil { // never spin on an effect that does not move
			timer := time.NewTimer(noProgress)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
		s.release(key)
		if e.Key != "" {
			s.settleDue(e)
		}
		poke(s.care)
	})
}

// goRead does the read that a person asked for; its lease is taken already. When
// it cannot be done, the lease ends and the read is made then.
func (s *destination) goRead(e journal.Effect, source string) {
	s.d.spawnLate(func(ctx context.Context) {
		select {
		case s.reads <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() {
			<-s.reads
			poke(s.care)
		}()
		if !s.claim(e.Key) {
			return
		}
		op, err := s.operation(ctx, e.Operation)
		if err == nil {
			e, err = s.read(ctx, e, op, source)
		}
		if err != nil {
			s.d.unexpected(ctx, "read again", e.Key, err)
		}
		s.release(e.Key)
		s.settleDue(e)
	})
}

// tend asks the core what is owed and does it until the effect waits for a
// time, a write or a person. moved is false when it is due and nothing changed.
func (s *destination) tend(ctx context.Context, key, source string) (e journal.Effect, moved bool) {
	for range maxSteps {
		var err error
		if e, err = s.d.db.Effect(ctx, key); err != nil {
			s.d.unexpected(ctx, "read an effect", key, err)
			return journal.Effect{}, false
		}
		op, err := s.operation(ctx, e.Operation)
		if err != nil {
			s.d.unexpected(ctx, "find the policy", key, err)
			return e, false
		}
		switch step := journal.Decide(e, s.d.env(op.policy, by("sweep")), ""); step.Do {
		case journal.StepApply:
			next, err := s.d.applyDecided(ctx, key, op)
			if err != nil {
				s.d.unexpected(ctx, "apply a decision", key, err)
				return e, false
			}
			moved = next.Seq != e.Seq
			e = next
		case journal.StepRead, journal.StepFence, journal.StepReplay:
			next, err := s.settle(ctx, e, op, source, step.Do)
			if err != nil {
				s.d.unexpected(ctx, "reconcile", key, err)
				return e, false
			}
			e, moved = next, true
		case journal.StepDispatch:
			if e.Due != journal.DueHeld {
				return e, true // the other loop sends it
			}
			next, err := s.unhold(ctx, key, op)
			if err != nil {
				s.d.unexpected(ctx, "release a held effect", key, err)
				return e, false
			}
			return next, true
		default:
			return e, moved || e.DueAt.IsZero() || e.DueAt.After(now())
		}
		if !moved {
			return e, false
		}
	}
	return e, true
}

// unhold asks again, after a release, whether a held effect may be sent: it is
// due at once, or held for another reason until the next release.
func (s *destination) unhold(ctx context.Context, key string, op operation) (journal.Effect, error) {
	return s.d.write(ctx, key, func(tx *sqlite.Tx, e journal.Effect) (journal.Effect, error) {
		if e.Phase != journal.Authorized || e.Due != journal.DueHeld {
			return e, nil
		}
		put := journal.Defer{Until: now()}
		if tx.DispatchOff() != "" || tx.HoldFor(e) != "" {
			put = journal.Defer{Held: true}
		}
		return tx.Apply(e, put, s.d.env(op.policy, by("engine")))
	})
}

// applyDecided decides inside the transaction, where holds are known, and applies what is decided.
func (d *Daemon) applyDecided(ctx context.Context, key string, op operation) (journal.Effect, error) {
	return d.write(ctx, key, func(tx *sqlite.Tx, e journal.Effect) (journal.Effect, error) {
		env := d.env(op.policy, by("engine"))
		step := journal.Decide(e, env, tx.HoldFor(e))
		if step.Do != journal.StepApply {
			return e, nil
		}
		if late, ok := step.Event.(journal.ReviewLate); ok {
			late.Second = op.eff.SecondOwner
			step.Event = late
		}
		return tx.Apply(e, step.Event, env)
	})
}

// read does one authoritative read: the lease first where the phase needs one,
// then the call with no transaction open, then verdict, evidence and phase together.
func (s *destination) read(ctx context.Context, e journal.Effect, op operation, source string) (journal.Effect, error) {
	if e.Phase == journal.Unknown || e.Phase == journal.NeedsHuman {
		var err error
		e, err = s.d.write(ctx, e.Key, func(tx *sqlite.Tx, cur journal.Effect) (journal.Effect, error) {
			return tx.Apply(cur, journal.ReadBegin{Lease: op.policy.Timeout + op.policy.RecordReserve}, s.d.env(op.policy, by(source)))
		})
		if err != nil {
			return e, fmt.Errorf("take the lease: %w", err)
		}
	}
	begun := now()
	resp, err := s.ask1(ctx, e, op)
	reading := readingOf(source, begun, now(), resp, err)
	if ctx.Err() != nil && reading.Failed != "" {
		return e, ctx.Err() // stopping: the lease ends by itself
	}
	if s.breaker.read(reading.Failed == "", time.Now()) {
		s.d.log.Info("a read succeeded; one write may try", "destination", s.name)
		poke(s.wake)
	}
	return s.recordReading(e, op, reading, resp)
}

func (s *destination) recordReading(e journal.Effect, op operation, reading journal.Reading, resp sdk.ReadResponse) (journal.Effect, error) {
	trip, verdict := false, journal.Verdict("")
	out, err := s.d.record(e.Key, func(tx *sqlite.Tx, cur journal.Effect) (journal.Effect, error) {
		if ev, ok := evidenceOf("read", reading.View, journal.FromRead, "", resp.Evidence, reading.EndedAt); ok {
			digest, err := tx.PutEvidence(e.Key, ev)
			if err != nil {
				return cur, err
			}
			reading.Evidence = digest
		}
		ch, err := tx.Change(cur, journal.ReadDone{Reading: reading}, s.d.env(op.policy, by(reading.Source)))
		var illegal *journal.IllegalError
		if errors.As(err, &illegal) && cur.Seq != e.Seq {
			return cur, nil // it was settled while we read: the read is not needed any more
		}
		if err != nil {
			return cur, err
		}
		trip = ch.TripBreaker
		if n := len(ch.Reconciliations); n > 0 {
			verdict = ch.Reconciliations[n-1].Verdict
		}
		return ch.Effect, nil
	})
	if trip {
		s.breaker.force(time.Now())
		s.d.log.Error("breaker open by finding", "destination", s.name, "key", e.Key, "finding", out.Finding)
	}
	if err == nil && verdict != "" {
		s.d.counters.read(s.name, verdict)
	}
	if err == nil && out.Phase == journal.NeedsHuman {
		s.d.log.Warn("needs a person", "key", out.Key, "owner", out.Owner, "finding", out.Finding)
	}
	return out, err
}

// ask1 asks the adapter what the destination holds of one effect.
func (s *destination) ask1(ctx context.Context, e journal.Effect, op operation) (sdk.ReadResponse, error) {
	live, err := s.port.Acquire(ctx)
	if err != nil {
		return sdk.ReadResponse{}, fmt.Errorf("the adapter is not up: %w", err)
	}
	call, cancel := context.WithTimeout(ctx, op.policy.Timeout)
	defer cancel()
	return live.Read(call, readRequest(e, op))
}

func readRequest(e journal.Effect, op operation) sdk.ReadRequest {
	r := sdk.ReadRequest{Purpose: sdk.PurposeResolve, Operation: operationOf(e, "", len(e.Attempts)), DispatchedTo: now()}
	switch e.Phase {
	case journal.Acknowledged:
		r.Purpose, r.Handle = sdk.PurposePoll, e.Ack.Handle
	case journal.Verifying, journal.Succeeded:
		r.Purpose = sdk.PurposeConfirm
	}
	if id := e.Outcome.ObjectID; id != "" {
		r.Object = &sdk.ObjectRef{ID: id, Type: e.Outcome.ObjectType, URL: e.Outcome.URL}
	}
	if first := e.FirstSent(); !first.IsZero() {
		r.DispatchedFrom = first.Add(-op.policy.Grace.Skew)
	}
	if a := e.Last(); a != nil {
		r.Baseline = a.Baseline
		r.Operation.AttemptID = a.ID
		if t, ok := a.LastPossibleSend(); ok {
			r.DispatchedTo = t
		}
	}
	for _, a := range e.Attempts {
		if a.ProviderRequestID != "" {
			r.ProviderRequestIDs = append(r.ProviderRequestIDs, a.ProviderRequestID)
		}
	}
	return r
}

// goProbe asks whether a destination whose breaker is open is back. It is a read.
func (s *destination) goProbe() {
	s.d.spawnLate(func(ctx context.Context) {
		ok := s.probe(ctx)
		s.breaker.probed()
		if s.breaker.read(ok, time.Now()) {
			s.d.log.Info("the destination answers; one write may try", "destination", s.name)
			poke(s.wake)
		}
		poke(s.care)
	})
}

func (s *destination) probe(ctx context.Context) bool {
	live, err := s.port.Acquire(ctx)
	if err != nil {
		return false
	}
	call, cancel := context.WithTimeout(ctx, s.conf.Load().Timeout)
	defer cancel()
	h, err := live.Check(call, nil)
	return err == nil && h.Status != sdk.HealthDown && h.Status != sdk.HealthUnspecified
}

// unexpected logs what a worker could not do and nobody waits for.
func (d *Daemon) unexpected(ctx context.Context, what, key string, err error) {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	d.log.Error("could not "+what, "key", key, "err", err)
}
