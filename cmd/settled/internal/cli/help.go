package cli

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed topics/*.md
var topicFiles embed.FS // read-only data of the binary

// Topics are the pages of `settled help TOPIC`, in Markdown, by name.
func Topics() map[string]string {
	out := map[string]string{}
	files, err := topicFiles.ReadDir("topics")
	for _, f := range files {
		data, rerr := topicFiles.ReadFile("topics/" + f.Name())
		if rerr != nil {
			err = rerr
		}
		out[strings.TrimSuffix(f.Name(), ".md")] = string(data)
	}
	if err != nil {
		panic("cli: the embedded topics cannot be read: " + err.Error()) // not possible in a built program
	}
	return out
}

// Root returns the whole tree of verbs, for man pages.
func (a *App) Root() *cobra.Command { return a.root() }

func (a *App) helpCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "help [TOPIC|VERB…]", Short: "A page on a topic: " + strings.Join(slices.Sorted(maps.Keys(Topics())), ", "),
		ValidArgs: slices.Sorted(maps.Keys(Topics())),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				if page, ok := Topics()[args[0]]; ok {
					a.printf("%s", page)
					return nil
				}
			}
			found, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage(fmt.Errorf("there is no topic and no verb %q", strings.Join(args, " ")), "settled help")
			}
			if found == c.Root() {
				defer a.printf("\nTopics: settled help %s\n", strings.Join(slices.Sorted(maps.Keys(Topics())), " · "))
			}
			return found.Help()
		},
	}
	return c
}
