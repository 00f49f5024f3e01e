package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// Hold stops sends within a scope until it is released. Reads go on.
func (d *Daemon) Hold(ctx context.Context, scope string, who journal.By) error {
	if err := d.checkScope(scope); err != nil {
		return err
	}
	if who.Because == "" {
		return &InvalidError{Faults: []string{"because: say why (--because)"}}
	}
	return d.db.Write(ctx, func(tx *sqlite.Tx) error {
		return tx.PutHold(journal.Hold{Scope: scope, By: who.Actor, Because: who.Because, At: now()}, who)
	})
}

// Release lifts a hold that a person placed and wakes what it kept back. A scope
// without such a hold is [ErrNotFound].
func (d *Daemon) Release(ctx context.Context, scope string, who journal.By) (int, error) {
	if err := d.checkScope(scope); err != nil {
		return 0, err
	}
	n := 0
	err := d.db.Write(ctx, func(tx *sqlite.Tx) (err error) {
		n, err = tx.ReleaseHold(scope, who)
		return err
	})
	if errors.Is(err, sqlite.ErrNotFound) {
		return 0, fmt.Errorf("no person holds %s: %w", scope, ErrNotFound)
	}
	if err == nil {
		d.released(ctx)
	}
	return n, err
}

// Holds lists what is held, by people and by findings.
func (d *Daemon) Holds(ctx context.Context) ([]journal.Hold, error) { return d.db.Holds(ctx) }

func (d *Daemon) holdAll(ctx context.Context, why string) error {
	return d.db.Write(ctx, func(tx *sqlite.Tx) error {
		return tx.PutHold(journal.Hold{Scope: "all", By: "settled", Because: why, At: now()}, by("engine"))
	})
}

// checkScope refuses a scope that could never cover anything.
func (d *Daemon) checkScope(scope string) error {
	bad := func(format string, args ...any) error {
		return &InvalidError{Faults: []string{"scope: " + fmt.Sprintf(format, args...)}}
	}
	if scope == "all" {
		return nil
	}
	kind, rest, ok := strings.Cut(scope, ":")
	if !ok || rest == "" {
		return bad("%q is none; write key:K, run:R, target:DEST/T, account:DEST/A, destination:D or all", scope)
	}
	dest := rest
	switch kind {
	case "key", "run":
		return nil
	case "target", "account":
		var part bool
		if dest, _, part = strings.Cut(rest, "/"); !part {
			return bad("%q needs a destination and a name, as in %s:desk/acme", scope, kind)
		}
	case "destination":
	default:
		return bad("%q is not a kind; write key, run, target, account, destination or all", kind)
	}
	if d.dests[dest] == nil {
		return bad("destination %q is not configured", dest)
	}
	return nil
}

// PauseDestination stops or resumes sends to one destination. It is a hold on
// the destination, so it is recorded and outlives a restart. Resuming one that
// is not paused changes nothing and is no error.
func (d *Daemon) PauseDestination(ctx context.Context, name string, pause bool, who journal.By) error {
	if d.dests[name] == nil {
		return fmt.Errorf("destination %q is not configured: %w", name, ErrNotFound)
	}
	if pause {
		who.Because = orElse(who.Because, "paused")
		return d.Hold(ctx, "destination:"+name, who)
	}
	if _, err := d.Release(ctx, "destination:"+name, who); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// Drain stops sends everywhere, so that a stop afterwards finds nothing in flight.
func (d *Daemon) Drain(ctx context.Context, who journal.By) error {
	who.Because = orElse(who.Because, "drain")
	return d.Hold(ctx, "all", who)
}
