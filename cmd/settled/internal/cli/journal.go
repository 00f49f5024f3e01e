package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/settled-dev/settled/daemon/api"
	"github.com/settled-dev/settled/sdk/client"
)

func (a *App) journalCmd() *cobra.Command {
	var head string
	verify := verb("verify", "Checks the audit chain; 8: tampering, 9: the check could not run", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		return a.verify(c.Context(), head)
	})
	verify.Flags().StringVar(&head, "expect-head", "", "`SEQ:HASH` that must be in the chain")
	backup := verb("backup FILE", "Writes a copy of the journal to a new file", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		return a.backup(c.Context(), args[0])
	})
	stats := verb("stats", "Numbers about the journal", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		return a.stats(c.Context())
	})
	g := group("journal", "The journal, with the daemon running or not", verify, backup, stats,
		a.checkJournalCmd(), a.restoreCmd(), a.confirmRestoreCmd(), a.sqlCmd(), a.migrateCmd())
	g.AddCommand(a.pruneCmd())
	return g
}

// journal calls online with the daemon, or offline when none can be reached.
func (a *App) journal(ctx context.Context, online func(*client.Client) error, offline func(OfflineJournal) error) error {
	d, err := a.daemon()
	if err != nil {
		return err
	}
	err = online(d)
	var gone *client.UnreachableError
	if !errors.As(err, &gone) || a.OpenJournal == nil {
		return err
	}
	j, err := a.OpenJournal(ctx, a.configFile())
	if err != nil {
		where := ""
		if a.configFile() == "" {
			where = " (--config FILE or SETTLED_CONFIG says where another one lies)"
		}
		return fmt.Errorf("no daemon answers at %s, and the journal cannot be opened without it: %w%s", gone.Socket, err, where)
	}
	return errors.Join(offline(j), j.Close())
}

func (a *App) verify(ctx context.Context, head string) error {
	var r client.VerifyReport
	err := a.journal(ctx,
		func(d *client.Client) (err error) { r, err = d.Verify(ctx, head); return err },
		func(j OfflineJournal) error {
			rep, err := j.Verify(ctx, head)
			r = api.VerifyView(rep)
			return err
		})
	if err == nil && r.CouldNotRun != "" {
		err = errors.New(r.CouldNotRun)
	}
	var x *exit
	if p := new(client.Problem); errors.As(err, &p) && p.Code == client.CodeInvalid {
		return err // an --expect-head that is none
	}
	if err != nil && !errors.As(err, &x) {
		return &exit{exitNotVerified, fmt.Errorf("verify could not run, nothing is known: %w", err), "settled status"}
	}
	if err != nil {
		return err
	}
	return a.report(r, "the chain is whole")
}

// report prints what a look at the journal found; 8 when it found something.
func (a *App) report(r client.VerifyReport, whole string) error {
	if a.flags.json {
		if err := a.object(r); err != nil {
			return err
		}
	} else if r.OK {
		a.printf("%s: %d event(s), head %s\n", whole, r.Checked, r.Head)
	}
	if r.OK {
		return nil
	}
	for _, p := range r.Problems {
		fmt.Fprintf(a.Stderr, "  %s\n", clean(p))
	}
	return &exit{exitTampered, fmt.Errorf("the journal does not fit its chain: %d problem(s) in %d event(s)", len(r.Problems), r.Checked), "settled hold all --because 'the journal was changed from outside'"}
}

func (a *App) backup(ctx context.Context, file string) error {
	file, err := absolute(file)
	if err != nil {
		return err
	}
	err = a.journal(ctx,
		func(d *client.Client) error { return d.Backup(ctx, file) },
		func(j OfflineJournal) error { return j.Backup(ctx, file) })
	if err != nil {
		return err
	}
	if a.flags.json {
		return a.object(map[string]string{"file": file})
	}
	a.printf("%s\n", file)
	return nil
}

func (a *App) stats(ctx context.Context) error {
	var m map[string]any
	err := a.journal(ctx,
		func(d *client.Client) (err error) { m, err = d.Stats(ctx); return err },
		func(j OfflineJournal) (err error) { m, err = j.Stats(ctx); return err })
	if err != nil {
		return err
	}
	if a.flags.json {
		return a.object(m)
	}
	rows := [][]string{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		rows = append(rows, []string{k, number(m[k])})
	}
	return a.table([]string{"NAME", "VALUE"}, rows)
}
