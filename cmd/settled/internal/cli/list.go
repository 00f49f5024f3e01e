package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/settled-dev/settled/sdk/client"
)

func (a *App) listCmd() *cobra.Command {
	limit := 0
	c := verb("list [FILTER…]", "Lists effects, such as phase:unknown destination:desk older:5m key:ticket:*", cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
		if limit < 0 {
			return usagef("settled list --limit 100", "--limit is a number of effects, 0 for all")
		}
		d, err := a.daemon()
		if err != nil {
			return err
		}
		return a.list(c.Context(), d, filter(args), limit)
	})
	c.Flags().IntVarP(&limit, "limit", "n", 0, "end after this many (0: all)")
	return c
}

// list prints page after page; only one is in memory. Columns are aligned within a page.
func (a *App) list(ctx context.Context, c *client.Client, q string, limit int) error {
	cursor, left := "", limit
	for {
		size := 500
		if limit > 0 {
			size = min(size, left)
		}
		page, err := c.List(ctx, q, cursor, size)
		if err != nil {
			return err
		}
		if err := a.page(page.Effects, cursor == ""); err != nil {
			return err
		}
		left -= len(page.Effects)
		if cursor = page.Next; cursor == "" || (limit > 0 && left <= 0) {
			return nil
		}
	}
}

func (a *App) page(effects []client.Effect, first bool) error {
	rows := make([][]string, 0, len(effects))
	for _, e := range effects {
		if a.flags.json {
			if err := a.object(e); err != nil {
				return err
			}
			continue
		}
		next := "-"
		if e.Next != nil {
			next = e.Next.What + " " + e.Next.At.UTC().Format("2006-01-02T15:04:05Z")
		}
		rows = append(rows, []string{e.Key, a.marked(e.Phase), e.Standing, e.Finding, e.Destination, e.Operation, e.Owner, strconv.FormatInt(e.Seq, 10), next})
	}
	switch {
	case a.flags.json:
		return nil
	case len(rows) == 0 && first && !a.flags.plain:
		a.printf("no effects\n")
		return nil
	}
	return a.table([]string{"KEY", "PHASE", "STANDING", "FINDING", "DESTINATION", "OPERATION", "OWNER", "SEQ", "NEXT"}, rows)
}
