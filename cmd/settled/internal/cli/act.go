package cli

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settled-dev/settled/sdk/client"
)

// because registers --because and says what is missing without it.
func because(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "because", "", "why; it goes into the audit chain")
}

func needBecause(c *cobra.Command, why string) error {
	if strings.TrimSpace(why) == "" {
		return usagef(c.UseLine()+" --because 'WHY'", "%s needs --because: it goes into the audit chain", c.Name())
	}
	return nil
}

func (a *App) cancelCmd() *cobra.Command {
	var why string
	c := verb("cancel KEY", "Ends an effect while nothing of it is unsettled", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if err := needBecause(c, why); err != nil {
			return err
		}
		d, err := a.daemon()
		if err != nil {
			return err
		}
		e, err := d.Cancel(c.Context(), args[0], why)
		if err != nil {
			return asExit(err, writing)
		}
		return a.waited(e)
	})
	because(c, &why)
	return c
}

// decideFlags are the flags of a decision.
type decideFlags struct {
	client.Decision
	lookedAt, until, payload string
	ifSeq                    int64
}

func (a *App) decideCmd() *cobra.Command {
	var f decideFlags
	c := verb("decide KEY DECISION", "Records a person's decision", cobra.ExactArgs(2), func(c *cobra.Command, args []string) error {
		if err := needBecause(c, f.Because); err != nil {
			return err
		}
		return asExit(a.decide(c.Context(), args[0], args[1], f), writing)
	})
	c.Long = "Records a person's decision on an effect in review.\n\n" +
		"  read                                       read the destination now\n" +
		"  happened --object ID                       it did; this is the object\n" +
		"  did-not-happen --then retry|close          it did not; --evidence says how you know\n" +
		"  complete --object ID                       you did it by hand\n" +
		"  rollback · compensate · fix --operation O --payload F · retire --object DUP --keep ID\n" +
		"  retry · close                              of an effect that did not happen\n" +
		"  abandon · assign --to OWNER · keep-waiting --until T · claim"
	because(c, &f.Because)
	p := c.Flags()
	p.StringVar(&f.Object, "object", "", "`ID` of the object at the destination")
	p.StringVar(&f.Keep, "keep", "", "retire: `ID` of the object that is kept")
	p.StringVar(&f.Then, "then", "", "did-not-happen: retry or close")
	p.StringVar(&f.Evidence, "evidence", "", "`TEXT|FILE|URL`: how you know; a file's contents are kept")
	p.StringVar(&f.lookedAt, "looked-at", "", "did-not-happen: when you looked (default: now)")
	p.StringVar(&f.NoBound, "no-bound", "", "did-not-happen: why nothing can land any more, where nobody declared a bound")
	p.StringVar(&f.Record, "record", "", "did-not-happen after an acceptance: the destination's operation record")
	p.StringVar(&f.To, "to", "", "assign: the new owner")
	p.StringVar(&f.until, "until", "", "keep-waiting: RFC 3339 or a duration from now")
	p.StringVar(&f.Approver, "approver", "", "a second person, where the operation is irreversible")
	p.StringVar(&f.Operation, "operation", "", "fix: the operation")
	p.StringVar(&f.payload, "payload", "", "fix: `FILE` with the payload, - for standard input")
	p.Int64Var(&f.ifSeq, "if-seq", 0, "only if the effect is still at this seq")
	return c
}

func (a *App) decide(ctx context.Context, key, decision string, f decideFlags) (err error) {
	in := f.Decision
	in.Decision = decision
	if in.LookedAt, err = a.past("--looked-at", f.lookedAt); err != nil {
		return err
	}
	if in.Until, err = a.moment("--until", f.until); err != nil {
		return err
	}
	if in.Evidence, err = a.evidence(f.Evidence); err != nil {
		return err
	}
	if f.payload != "" {
		data, err := a.read(f.payload)
		if err != nil {
			return err
		}
		if !json.Valid(data) {
			return usagef("settled decide … --payload FILE.json", "the payload in %s is not JSON", f.payload)
		}
		in.Payload = data
	}
	d, err := a.daemon()
	if err != nil {
		return err
	}
	e, err := d.Decide(ctx, key, in, f.ifSeq)
	if err != nil {
		return err
	}
	return a.waited(e)
}

// past reads a moment; a bare duration lies before now.
func (a *App) past(flag, s string) (*time.Time, error) {
	if _, err := time.ParseDuration(s); err == nil && s != "" && s[0] != '-' && s[0] != '+' {
		s = "-" + s
	}
	return a.moment(flag, s)
}

// evidence is text, an address, or the contents of a file that exists.
func (a *App) evidence(s string) (string, error) {
	if s == "" || strings.Contains(s, "://") {
		return s, nil
	}
	if fi, err := os.Stat(s); err != nil || fi.IsDir() {
		return s, nil
	}
	data, err := a.read(s)
	return string(data), err
}

func (a *App) holdCmd() *cobra.Command {
	var why string
	c := verb("hold [SCOPE]", "Stops sends within a scope; without one lists the holds", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		if len(args) == 0 {
			return a.holds(c.Context(), d)
		}
		if err := needBecause(c, why); err != nil {
			return err
		}
		if err := d.Hold(c.Context(), args[0], why); err != nil {
			return err
		}
		if a.flags.json {
			return a.object(map[string]string{"scope": args[0], "because": why})
		}
		a.printf("%s is held; reads go on. End it with: settled release %s\n", args[0], quote(args[0]))
		return nil
	})
	c.Long = "Stops sends within a scope: key:K, run:R, target:DEST/T, account:DEST/A, destination:D or all.\nReads and repairs go on."
	because(c, &why)
	return c
}

func (a *App) holds(ctx context.Context, d *client.Client) error {
	hs, err := d.Holds(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{}
	for _, h := range hs {
		if a.flags.json {
			if err := a.object(h); err != nil {
				return err
			}
		}
		by := h.By
		if h.RaisedBy != nil {
			by = *h.RaisedBy
		}
		rows = append(rows, []string{h.Scope, by, a.at(h.At), clean(h.Because)})
	}
	if a.flags.json {
		return nil
	}
	if len(rows) == 0 && !a.flags.plain {
		a.printf("nothing is held\n")
		return nil
	}
	return a.table([]string{"SCOPE", "BY", "SINCE", "BECAUSE"}, rows)
}

func (a *App) releaseCmd() *cobra.Command {
	return verb("release SCOPE", "Lifts a hold", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		n, err := d.Release(c.Context(), args[0])
		if err != nil {
			return err
		}
		if a.flags.json {
			return a.object(map[string]any{"scope": args[0], "released": n})
		}
		a.printf("%s is released\n", args[0])
		return nil
	})
}

func (a *App) drainCmd() *cobra.Command {
	why := "drain"
	c := verb("drain", "Takes and sends nothing new; calls in flight end. Undo with: settled release all", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		d, err := a.daemon()
		if err != nil {
			return err
		}
		if err := d.Drain(c.Context(), why); err != nil {
			return err
		}
		return a.status(c.Context(), d)
	})
	c.Flags().StringVar(&why, "because", why, "why; it goes into the audit chain")
	return c
}
