package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/sdk/client"
)

// play submits everything, kills the daemon in the middle, waits until every
// effect rests, and counts.
func (d *demo) play(ctx context.Context) (demoResult, error) {
	limit := 55*time.Second + time.Duration(d.o.effects)*100*time.Millisecond
	acting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d.tell.start()
	c := d.stage.Client()
	defer c.Close()
	watching, stop := context.WithCancel(acting)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() { d.watch(watching, c) })
	err := d.act(acting, c)
	var late []string
	if err == nil {
		late, err = d.untilRest(acting, c)
	}
	stop()
	watch.Wait()
	if err != nil {
		return demoResult{}, err
	}
	return d.count(ctx, c, late)
}

// demoKillAfter is how long the two calls hang before the daemon dies: long
// enough for others to be under way, and less than a call's timeout.
const demoKillAfter = 1200 * time.Millisecond

// act is what a user and an accident do.
func (d *demo) act(ctx context.Context, c *client.Client) error {
	first, victims, rest := d.lines()
	for _, line := range first { // one by one, so that each can be read
		if err := d.submit(ctx, c, line); err != nil {
			return err
		}
		if err := sleep(ctx, 700*time.Millisecond); err != nil {
			return err
		}
	}
	if err := d.submit(ctx, c, victims...); err != nil {
		return err
	}
	if err := d.submit(ctx, c, rest...); err != nil {
		return err
	}
	d.tell.say(markPlain, "", "%d more submitted: they are on the daemon's disk and are sent a few at a time", len(victims)+len(rest))
	if err := errors.Join(d.untilInFlight(ctx), sleep(ctx, demoKillAfter)); err != nil {
		return err
	}
	st, err := c.Status(ctx)
	if err != nil {
		return fmt.Errorf("ask the daemon: %w", err)
	}
	if err := d.stage.KillDaemon(); err != nil {
		return err
	}
	d.tell.say(markKill, "", "kill -9 of the daemon while %d calls are in flight, %d effects not sent yet", st.InFlight, st.Phases["authorized"])
	if err := d.stage.StartDaemon(ctx); err != nil {
		return err
	}
	d.tell.say(markPlain, "", "daemon started again: a call that was open may have happened, so it is unknown, not failed")
	return nil
}

func (d *demo) submit(ctx context.Context, c *client.Client, lines ...[]byte) error {
	n, err := c.SubmitLines(ctx, bytes.Join(lines, nil), false, func(l client.LineResult) error {
		if l.Error != nil {
			return fmt.Errorf("line %d: %s", l.Line, l.Error.Detail)
		}
		return nil
	})
	if err == nil && n != len(lines) {
		err = fmt.Errorf("%d of %d lines were answered", n, len(lines))
	}
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	return nil
}

// untilInFlight waits until the desk has both calls in whose middle the daemon
// is to die: one already committed, one not.
func (d *demo) untilInFlight(ctx context.Context) error {
	after, before := d.find(desk.HangCommit).key, d.find(desk.Hang).key
	for {
		l, err := d.stage.Ledger(ctx)
		if err != nil {
			return err
		}
		if len(l.Of(after).Commits) > 0 && len(l.Of(before).Requests) > 0 {
			return nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("the calls to be interrupted did not arrive: %w", err)
		}
	}
}

// untilRest waits until nothing happens any more by itself. It returns the
// keys that did not get there in time.
func (d *demo) untilRest(ctx context.Context, c *client.Client) ([]string, error) {
	for {
		effects, err := listAll(ctx, c)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		var open []string
		for _, e := range effects {
			if !e.Resting() {
				open = append(open, e.Key)
			}
		}
		if err == nil && len(open) == 0 {
			return nil, nil
		}
		if err == nil {
			d.tell.tally(effects)
		}
		switch err := sleep(ctx, 250*time.Millisecond); {
		case errors.Is(err, context.DeadlineExceeded):
			return open, nil
		case err != nil:
			return nil, err
		}
	}
}

func listAll(ctx context.Context, c *client.Client) (effects []client.Effect, err error) {
	for cursor := ""; ; {
		p, err := c.List(ctx, "", cursor, 200)
		if err != nil {
			return nil, fmt.Errorf("list the effects: %w", err)
		}
		effects = append(effects, p.Effects...)
		if cursor = p.Next; cursor == "" {
			return effects, nil
		}
	}
}

// watch hands every event to the teller, in order, also over the daemon's death.
func (d *demo) watch(ctx context.Context, c *client.Client) {
	after := int64(0)
	for ctx.Err() == nil {
		_ = c.Events(ctx, after, "", true, func(e client.Event) error { // broken: the daemon is gone; ask the next one
			after = e.Seq
			d.tell.event(ctx, c, e)
			return nil
		})
		_ = sleep(ctx, 50*time.Millisecond)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
