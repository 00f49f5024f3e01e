package daemon

import (
	"context"
	"fmt"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// FillForBench records effects that are settled already, so that the cost of a
// long history can be measured. Each goes through the same events as a real one.
func (d *Daemon) FillForBench(ctx context.Context, destination string, rows, perCommit int) error {
	s := d.dests[destination]
	if s == nil {
		return fmt.Errorf("destination %q: %w", destination, ErrNotFound)
	}
	live, err := s.port.Acquire(ctx)
	if err != nil {
		return err
	}
	for done := 0; done < rows; {
		n := min(perCommit, rows-done)
		err := d.db.Write(ctx, func(tx *sqlite.Tx) error {
			for i := range n {
				if err := d.fillOne(ctx, tx, s, live, done+i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		done += n
	}
	return nil
}

func (d *Daemon) fillOne(ctx context.Context, tx *sqlite.Tx, s *destination, live Live, i int) error {
	name := s.desc.Actions[0].Name
	in, op, _, err := d.intent(ctx, SubmitRequest{
		Destination: s.name, Operation: name, Key: fmt.Sprintf("fill:%09d:%s:v1", i, name), Payload: []byte(`{"fill":true}`),
	}, journal.By{Actor: "bench", Kind: journal.Service, Origin: "bench"})
	if err != nil {
		return err
	}
	env := d.env(op.policy, by("bench"))
	e, created, err := tx.Submit(in, env, false)
	if err != nil || !created {
		return err
	}
	id := d.opts.NewID()
	for _, next := range []func() journal.Event{
		func() journal.Event { return authorize(e, op) },
		func() journal.Event {
			return journal.Send{Ask: s.ask(tx, e, op), Attempt: s.attempt(e, live, id)}
		},
		func() journal.Event {
			return journal.Answer{Attempt: id, Class: journal.AnswerCommitted, At: now(), ObjectID: in.Key}
		},
	} {
		if e, err = tx.Apply(e, next(), env); err != nil {
			return err
		}
	}
	return nil
}
