package cli

import "github.com/spf13/cobra"

// pruneCmd lets the running daemon apply the retention rules now. Without a
// daemon there is no prune: whoever prunes must be the one who writes.
func (a *App) pruneCmd() *cobra.Command {
	return verb("prune", "Applies journal.keep and journal.keep_payload now; needs the daemon", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		r, err := d.Prune(c.Context())
		if err != nil {
			return err
		}
		if a.flags.json {
			return a.object(r)
		}
		a.printf("removed %d effect(s) and %d payload(s); their keys and digests stay\n", r.Effects, r.Payloads)
		return nil
	})
}
