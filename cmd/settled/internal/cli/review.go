package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/settled-dev/settled/sdk/client"
)

func (a *App) reviewCmd() *cobra.Command {
	var q string
	c := verb("review [KEY]", "What needs a person, or one item with its evidence side by side", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		if len(args) == 0 {
			rs, err := d.Reviews(c.Context(), q)
			if err != nil {
				return err
			}
			return a.reviews(rs)
		}
		e, err := d.Effect(c.Context(), args[0], client.WithPayload())
		if err != nil {
			return err
		}
		return a.review(e)
	})
	c.Flags().StringVar(&q, "filter", "", "such as owner:support-ops")
	return c
}

func (a *App) reviews(rs []client.Review) error {
	rows := [][]string{}
	for _, r := range rs {
		if a.flags.json {
			if err := a.object(r); err != nil {
				return err
			}
		}
		due := a.at(r.DueAt)
		if r.Overdue {
			due += " OVERDUE"
		}
		rows = append(rows, []string{r.Key, r.Kind, r.Severity, r.Owner, due, r.Finding, clean(strings.Join(r.Missing, "; "))})
	}
	if a.flags.json {
		return nil
	}
	if len(rows) == 0 && !a.flags.plain {
		a.printf("nothing needs a person\n")
		return nil
	}
	return a.table([]string{"KEY", "KIND", "SEVERITY", "OWNER", "DUE", "FINDING", "MISSING"}, rows)
}

// review prints one item: what was meant beside what is there.
func (a *App) review(e client.Effect) error {
	r := e.Review
	if r == nil {
		return &exit{exitError, errNoReview(e.Key), "settled show " + quote(e.Key)}
	}
	if a.flags.json {
		return a.object(r)
	}
	a.printf("%s   %s, %s, %s\n  %s\n", e.Key, r.Kind, r.State, r.Severity, clean(r.Words))
	a.printf("  owner %s, due %s, seq %d\n", r.Owner, a.at(r.DueAt), r.Seq)
	a.missing(e)
	a.attempts(e)
	a.printf("\nMeant\n  %s at %s\n  %s\n", clean(e.Operation), clean(e.Destination), clean(string(e.Payload)))
	a.printf("\nThere\n")
	if len(r.Candidates) == 0 {
		a.printf("  nothing was seen\n")
	}
	for i, c := range r.Candidates {
		a.printf("  %d. %s %s", i+1, clean(c.ObjectType), clean(c.ObjectID))
		if c.URL != "" {
			a.printf("  %s", clean(c.URL))
		}
		a.printf("\n     tied by %s, content %s", c.Strength, c.Agreement)
		if len(c.Differences) > 0 {
			a.printf(" (%s)", clean(strings.Join(c.Differences, ", ")))
		}
		if c.CreatedAt != nil {
			a.printf(", created %s", a.at(c.CreatedAt))
		}
		a.printf("\n")
		if s := string(c.Observed); s != "" && s != "null" {
			a.printf("     %s\n", clean(s))
		}
	}
	a.choices(e)
	return nil
}

type noReviewError string

func (k noReviewError) Error() string { return string(k) + " is not in review" }

func errNoReview(key string) error { return noReviewError(key) }
