package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settled-dev/settled/daemon/api"
	"github.com/settled-dev/settled/sdk/client"
)

func (a *App) checkJournalCmd() *cobra.Command {
	return verb("check", "Looks at every page of the journal and at its chain; 8: damage or tampering, 9: could not run", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		var r client.VerifyReport
		ctx := c.Context()
		err := a.journal(ctx,
			func(d *client.Client) (err error) { r, err = d.CheckJournal(ctx); return err },
			func(j OfflineJournal) error {
				rep, err := j.Check(ctx)
				r = api.VerifyView(rep)
				return err
			})
		if err == nil && r.CouldNotRun != "" {
			err = errors.New(r.CouldNotRun)
		}
		if err != nil {
			return &exit{exitNotVerified, fmt.Errorf("the check could not run, nothing is known: %w", err), "settled check"}
		}
		return a.report(r, "every page and the chain are whole")
	})
}

func (a *App) restoreCmd() *cobra.Command {
	c := verb("restore FILE", "Puts a backup in the place of the journal, while no daemon runs", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if a.Restore == nil {
			return errors.New("this program cannot restore")
		}
		replaced, err := a.Restore(c.Context(), a.configFile(), args[0])
		if err != nil {
			return &exit{exitError, fmt.Errorf("nothing was replaced: %w", err), "systemctl stop settled, then the same again"}
		}
		if a.flags.json {
			return a.object(map[string]string{"restored": args[0], "replaced": replaced})
		}
		if replaced != "" {
			a.printf("the journal that was there is kept as %s\n", replaced)
		}
		a.printf("restored %s. The next daemon reads and sends nothing, until you type:\n"+
			"  settled journal confirm-restore --old-daemon-dead-at T --because WHY\n", args[0])
		return nil
	})
	c.Long = "Puts a backup in the place of the journal, while no daemon runs. The backup is\n" +
		"checked first; the journal that was there is kept beside it. The daemon that\n" +
		"starts on it takes what was open for unknown, reads, and sends nothing until\n" +
		"confirm-restore says when the old daemon was surely dead. Run it as the\n" +
		"daemon's user: sudo -u settled settled journal restore FILE"
	return c
}

func (a *App) confirmRestoreCmd() *cobra.Command {
	var dead, why string
	c := verb("confirm-restore --old-daemon-dead-at T --because WHY", "After a restore: lets the daemon send again", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		if err := needBecause(c, why); err != nil {
			return err
		}
		at, err := a.past("--old-daemon-dead-at", dead)
		if err != nil {
			return err
		}
		if at == nil {
			return usagef(c.UseLine(), "confirm-restore needs --old-daemon-dead-at: the time at which the old daemon was surely dead")
		}
		d, err := a.daemon()
		if err != nil {
			return err
		}
		if _, err := d.ConfirmRestore(c.Context(), *at, why); err != nil {
			return asExit(err, writing)
		}
		return a.status(c.Context(), d)
	})
	c.Long = "Says when the daemon that wrote the journal after the backup was surely dead:\n" +
		"its machine was off, or its process ended. From that moment on nothing of it can\n" +
		"have been sent, so the grace of everything that was open runs from there. T is\n" +
		"RFC 3339, or how long ago, such as 2h."
	because(c, &why)
	c.Flags().StringVar(&dead, "old-daemon-dead-at", "", "`T`: RFC 3339, or how long ago")
	return c
}

func (a *App) reloadCmd() *cobra.Command {
	var wait bool
	c := verb("reload", "Has the daemon read its configuration again", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		r, err := d.Reload(c.Context())
		if p := new(client.Problem); errors.As(err, &p) && p.Code == client.CodeInvalid {
			return &exit{exitError, fmt.Errorf("the new configuration has faults; the one that runs is kept\n%s", strings.Join(p.Faults, "\n")), "settled check, then settled reload"}
		}
		if err != nil {
			return err
		}
		if a.flags.json {
			return a.object(r)
		}
		a.reloaded(r)
		return nil
	})
	c.Long = "Has the daemon read its configuration again, the same files as at its start.\n" +
		"Everything is checked first; on a fault the configuration that runs is kept.\n" +
		"Owners, keys, schedules, rates, limits, deadlines and what a finding holds change\n" +
		"at once. What needs a restart is named: journal, listen, credentials, adapters,\n" +
		"new and removed destinations, and what an adapter's process was started with.\n" +
		"The verb returns when the reload is done."
	c.Flags().BoolVar(&wait, "wait", true, "wait for the end; it always does")
	return c
}

func (a *App) reloaded(r client.ReloadReport) {
	for _, w := range r.Warnings {
		fmt.Fprintf(a.Stderr, "%s\n", strings.TrimRight(w, "\n"))
	}
	if len(r.Changed) == 0 {
		a.printf("nothing changed\n")
	}
	for _, k := range r.Changed {
		a.printf("changed        %s\n", clean(k))
	}
	for _, k := range r.NeedsRestart {
		a.printf("needs restart  %s\n", clean(k))
	}
	if len(r.NeedsRestart) > 0 {
		a.printf("the rest is as before until: systemctl restart settled\n")
	}
}

func (a *App) sqlCmd() *cobra.Command {
	c := verb("sql [QUERY]", "A read-only shell on the journal; queries from standard input without one", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		if a.OpenJournal == nil {
			return errors.New("this program cannot open a journal")
		}
		j, err := a.OpenJournal(c.Context(), a.configFile())
		if err != nil {
			return &exit{exitError, err, "run it as the daemon's user: sudo -u settled settled journal sql …"}
		}
		if len(args) == 1 {
			return errors.Join(a.query(c.Context(), j, args[0]), j.Close())
		}
		return errors.Join(a.shell(c.Context(), j), j.Close())
	})
	c.Long = "Runs queries on a connection that cannot write, each for at most five seconds,\n" +
		"with the daemon running or not. Without QUERY it reads queries from standard\n" +
		"input, one a line. Tables to begin with: effect, attempt, event, review, hold."
	return c
}

// shell runs a query a line; a query with a fault does not end it on a terminal.
func (a *App) shell(ctx context.Context, j OfflineJournal) error {
	lines := bufio.NewScanner(a.Stdin)
	lines.Buffer(nil, 1<<20)
	interactive := a.terminal(a.Stdout)
	for {
		if interactive {
			fmt.Fprint(a.Stderr, "settled> ")
		}
		if !lines.Scan() {
			return lines.Err()
		}
		query := strings.TrimSpace(lines.Text())
		if query == "" {
			continue
		}
		err := a.query(ctx, j, query)
		if err != nil && (!interactive || ctx.Err() != nil) {
			return err
		}
		if err != nil {
			fmt.Fprintf(a.Stderr, "settled: %v\n", err)
		}
	}
}

func (a *App) query(ctx context.Context, j OfflineJournal, query string) error {
	var head []string
	rows := [][]string{}
	err := j.SQL(ctx, query, func(columns []string, vals []any) error {
		head = columns
		if a.flags.json {
			o := map[string]any{}
			for i, c := range columns {
				o[c] = cell(vals[i])
			}
			return a.object(o)
		}
		row := make([]string, len(vals))
		for i, v := range vals {
			row[i] = clean(fmt.Sprint(cell(v)))
		}
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		return &exit{exitError, fmt.Errorf("the query: %w", err), `settled journal sql "SELECT name, sql FROM sqlite_master"`}
	}
	if a.flags.json || len(rows) == 0 {
		return nil
	}
	return a.table(head, rows)
}

// cell shows bytes as hexadecimal digits and nothing as NULL.
func cell(v any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case []byte:
		return fmt.Sprintf("%x", v)
	}
	return v
}

// Migration says what a change of the journal's schema does, or did.
type Migration struct {
	From, To int64    `json:"-"`
	Steps    []string `json:"steps"`
	Backup   string   `json:"backup,omitempty"` // the copy made before; "" = none was needed or it was a dry run
}

func (a *App) migrateCmd() *cobra.Command {
	var dry bool
	c := verb("migrate", "Brings the journal to this program's schema, while no daemon runs", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		if a.Migrate == nil {
			return errors.New("this program cannot migrate")
		}
		m, err := a.Migrate(c.Context(), a.configFile(), dry)
		if err != nil {
			return &exit{exitError, err, "settled check"}
		}
		if a.flags.json {
			return a.object(map[string]any{"from": m.From, "to": m.To, "steps": m.Steps, "backup": m.Backup, "dry_run": dry})
		}
		if len(m.Steps) == 0 {
			a.printf("the journal has schema %d, which is this program's; nothing to do\n", m.To)
			return nil
		}
		for _, s := range m.Steps {
			a.printf("%s\n", s)
		}
		if dry {
			a.printf("a copy went from schema %d to %d and is whole; the journal is as before\n", m.From, m.To)
			return nil
		}
		a.printf("schema %d to %d; the journal as it was is in %s\n", m.From, m.To, m.Backup)
		return nil
	})
	c.Long = "Brings the journal to this program's schema, which the daemon also does when it\n" +
		"starts. A backup is written beside the journal first. With --dry-run a copy is\n" +
		"changed, checked and thrown away."
	c.Flags().BoolVar(&dry, "dry-run", false, "try it on a copy")
	return c
}
