package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// laterCmds are verbs whose names are promised and whose work is not there yet.
func (a *App) laterCmds() []*cobra.Command {
	taken := map[string]bool{}
	for _, l := range a.Local {
		taken[l.Name] = true
	}
	var out []*cobra.Command
	for _, name := range []string{"serve", "check", "demo", "bench", "approve", "reject", "run", "incident", "drill", "case", "ui", "adapter"} {
		if !taken[name] {
			out = append(out, notBuilt(name))
		}
	}
	return out
}

// notBuilt says so, whatever is typed after it, and does nothing.
func notBuilt(name string) *cobra.Command {
	return &cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true, RunE: func(c *cobra.Command, _ []string) error {
		return &exit{exitError, fmt.Errorf("%s is not built yet; nothing was done", c.CommandPath()), "settled --help"}
	}}
}
