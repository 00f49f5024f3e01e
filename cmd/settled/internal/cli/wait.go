package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/settled-dev/settled/sdk/client"
)

func (a *App) waitCmd() *cobra.Command {
	timeout := 5 * time.Minute
	c := verb("wait KEY", "Waits until an effect is settled or a person has it", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		if _, err := d.Effect(c.Context(), args[0]); err != nil {
			return err // an unknown key is an error, not something to wait for
		}
		e, code := a.await(c.Context(), d, args[0], timeout)
		if e.Key != "" {
			if err := a.waited(e); err != nil {
				return err
			}
		}
		return a.rested(e, args[0], code)
	})
	c.Flags().DurationVar(&timeout, "timeout", timeout, "give up after this long")
	return c
}

// await follows an effect and returns its last known state with the exit status
// that it means. A daemon that goes away meanwhile is asked again until the time
// is over: what it is doing does not depend on who waits.
func (a *App) await(ctx context.Context, c *client.Client, key string, limit time.Duration) (client.Effect, int) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last client.Effect
	for {
		e, err := c.Wait(ctx, key)
		if e.Key != "" {
			last = e
		}
		var p *client.Problem
		switch {
		case err == nil:
			return last, byPhase(last)
		case ctx.Err() != nil, errors.As(err, &p):
			if last.Key == "" {
				return last, exitUnknown
			}
			return last, timedOut(last)
		}
		select { // the daemon restarts, perhaps
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (a *App) waited(e client.Effect) error {
	switch {
	case a.flags.json:
		return a.object(e)
	case a.flags.plain:
		a.printf("%s\t%s\t%s\t%d\n", e.Key, e.Phase, e.Standing, e.Seq)
	default:
		a.printf("%s: %s: %s\n", e.Key, a.paint(e.Phase), clean(e.Words))
	}
	return nil
}

// rested explains a status other than done.
func (a *App) rested(e client.Effect, key string, code int) error {
	next := "settled show " + quote(key)
	var err error
	switch code {
	case exitDone:
		return nil
	case exitNotDone:
		err = fmt.Errorf("%s did not happen", key)
	case exitByPerson:
		err = fmt.Errorf("%s was closed by a person as %s; look at it", key, e.Phase)
	case exitTimeout:
		err = fmt.Errorf("the wait is over; %s was not sent yet (%s)", key, e.Phase)
		next = "settled wait " + quote(key) + "   (or: settled cancel)"
	default:
		if e.Review != nil && e.Phase == "needs_human" {
			next = "settled review " + quote(key)
		}
		err = fmt.Errorf("the outcome of %s is not known yet; do not do it another way", key)
	}
	return &exit{code, err, next}
}
