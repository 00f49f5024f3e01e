package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/settled-dev/settled/sdk/client"
)

// defaultWait is how long --wait waits when it names no time.
const defaultWait = "5m"

// submitFlags are the flags of one submit.
type submitFlags struct {
	key, payload, contentType, notBefore, notAfter, approval, actor, supersedes, file, wait string
	set, context                                                                            []string
	dryRun                                                                                  bool
}

func (a *App) submitCmd() *cobra.Command {
	var f submitFlags
	c := verb("submit DESTINATION OPERATION --key KEY", "Records one effect, or many from a file", submitArgs, func(c *cobra.Command, args []string) error {
		if f.file != "" {
			return a.submitFile(c.Context(), f, args)
		}
		return asExit(a.submitOne(c.Context(), f, args), writing)
	})
	c.Long = "Records one effect, or many from a file.\n\n" +
		"A line of the file is one JSON object: key, destination and operation, and of your choice payload\n" +
		"(or payload_base64 with content_type), not_before, not_after, actor, approval, supersedes, context.\n" +
		"Lines that are refused are told with their number; the others are recorded."
	c.Example = "  settled submit desk create --key ticket:SUP-1:reply:v1 --set subject='printer on fire' --wait\n" +
		"  settled submit --file effects.jsonl   (lines such as the next)\n" +
		`  {"key":"ticket:SUP-1:create:v1","destination":"desk","operation":"create","payload":{"subject":"hello"}}`
	p := c.Flags()
	p.StringVar(&f.key, "key", "", "business key: entity:id:operation:vN")
	p.StringVar(&f.payload, "payload", "", "`FILE` with the payload, - for standard input")
	p.StringVar(&f.contentType, "content-type", "", "of the payload (default: JSON)")
	p.StringArrayVar(&f.set, "set", nil, "`a=b`: one member of a JSON payload; a value that is JSON is taken as such (repeat)")
	p.StringVar(&f.wait, "wait", "", "wait for the end, at most this long (default "+defaultWait+")")
	p.Lookup("wait").NoOptDefVal = defaultWait
	p.StringVar(&f.notBefore, "not-before", "", "send no earlier: RFC 3339 or a duration from now")
	p.StringVar(&f.notAfter, "not-after", "", "send no later: RFC 3339 or a duration from now")
	p.StringVar(&f.approval, "approval", "", "id of an approval")
	p.StringVar(&f.actor, "actor", "", "on whose behalf; part of the fingerprint")
	p.StringArrayVar(&f.context, "context", nil, "`k=v` kept as evidence, no secrets (repeat)")
	p.StringVar(&f.supersedes, "supersedes", "", "`KEY` of the effect that this one replaces")
	p.StringVar(&f.file, "file", "", "`FILE.jsonl` with one effect a line, - for standard input")
	p.BoolVar(&f.dryRun, "dry-run", false, "check only, record nothing")
	return c
}

// submitArgs knows the one mistake that looks right: --wait takes its time with "=".
func submitArgs(c *cobra.Command, args []string) error {
	if len(args) == 3 && c.Flags().Changed("wait") {
		if _, err := time.ParseDuration(args[2]); err == nil {
			return fmt.Errorf("the time of --wait is written with =, as in --wait=%s", args[2])
		}
	}
	return cobra.MaximumNArgs(2)(c, args)
}

func (a *App) submitOne(ctx context.Context, f submitFlags, args []string) error {
	wait, err := f.check(args)
	if err != nil {
		return err
	}
	req, err := a.request(f, args)
	if err != nil {
		return err
	}
	c, err := a.daemon()
	if err != nil {
		return err
	}
	send := c.Submit
	if f.dryRun {
		send = c.DryRun
	}
	res, err := send(ctx, req)
	if err != nil {
		return err
	}
	if wait == 0 || f.dryRun {
		return a.submitted(res)
	}
	e, code := a.await(ctx, c, req.Key, wait)
	if e.Key != "" {
		res.Phase, res.Standing, res.Seq = e.Phase, e.Standing, e.Seq
	}
	return errors.Join(a.submitted(res), a.rested(e, req.Key, code))
}

// check finds what the flags contradict or lack.
func (f submitFlags) check(args []string) (wait time.Duration, err error) {
	const next = "settled submit DESTINATION OPERATION --key ticket:SUP-1:reply:v1 --payload FILE"
	switch {
	case len(args) != 2:
		return 0, usagef(next, "submit needs DESTINATION and OPERATION, or --file FILE.jsonl")
	case f.key == "":
		return 0, usagef(next, "submit needs --key: the same key finds the effect again")
	case f.payload != "" && len(f.set) > 0:
		return 0, usagef(next, "--payload and --set are both given; use one")
	case f.wait == "":
		return 0, nil
	}
	wait, err = time.ParseDuration(f.wait)
	if err != nil || wait <= 0 {
		return 0, usagef("settled submit … --wait=30s", "--wait=%s is no duration", f.wait)
	}
	return wait, nil
}

func (a *App) request(f submitFlags, args []string) (client.SubmitRequest, error) {
	req := client.SubmitRequest{
		Destination: args[0], Operation: args[1], Key: f.key, ContentType: f.contentType, Actor: f.actor,
		Approval: f.approval, Supersedes: f.supersedes,
	}
	var errs [4]error
	req.NotBefore, errs[0] = a.moment("--not-before", f.notBefore)
	req.NotAfter, errs[1] = a.moment("--not-after", f.notAfter)
	req.Context, errs[2] = pairs("--context", f.context)
	errs[3] = a.payload(&req, f)
	for _, err := range errs {
		if err != nil {
			return req, err
		}
	}
	return req, nil
}

// payload reads the payload as it is. JSON is passed on byte for byte.
func (a *App) payload(req *client.SubmitRequest, f submitFlags) error {
	if f.payload == "" {
		p, err := assemble(f.set)
		req.Payload = p
		return err
	}
	data, err := a.read(f.payload)
	switch {
	case err != nil:
		return err
	case !isJSON(f.contentType) && utf8.Valid(data):
		req.Payload, err = json.Marshal(string(data))
	case !isJSON(f.contentType):
		req.PayloadBase64 = data
	case !json.Valid(data):
		return usagef("settled submit … --content-type text/plain", "the payload in %s is not JSON", f.payload)
	default:
		req.Payload = data
	}
	return err
}

// maxFile bounds what is read into memory at once: a payload, evidence.
const maxFile = 2 << 20

func (a *App) read(name string) ([]byte, error) {
	var r io.Reader = a.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usage(err, "the same with a file that can be read")
		}
		defer func() { _ = f.Close() }() // only read
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxFile {
		return nil, usagef("", "%s has more than %d bytes", name, maxFile)
	}
	return data, nil
}

// assemble makes a JSON object of a=b pairs, in their order. A value that is
// JSON other than a bare word is taken as such, anything else is a string.
func assemble(set []string) (json.RawMessage, error) {
	if len(set) == 0 {
		return json.RawMessage("{}"), nil
	}
	parts := make([]string, 0, len(set))
	for _, s := range set {
		name, val, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usagef("settled submit … --set subject=hello", "--set %q is not a=b", s)
		}
		k, _ := json.Marshal(name) // a string always marshals
		v := json.RawMessage(val)
		if !json.Valid(v) {
			v, _ = json.Marshal(val)
		}
		parts = append(parts, string(k)+":"+string(v))
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}"), nil
}

func isJSON(contentType string) bool {
	t, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	t = strings.TrimSpace(t)
	return t == "" || t == "application/json" || strings.HasSuffix(t, "+json")
}

func pairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, usagef("settled submit … "+flag+" model=v3", "%s %q is not k=v", flag, s)
		}
		m[k] = v
	}
	return m, nil
}

// moment reads RFC 3339, a date with a time in UTC, or a duration from now.
func (a *App) moment(flag, s string) (*time.Time, error) {
	if s == "" {
		return nil, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return &t, nil
		}
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil {
			s = strconv.Itoa(24*n) + "h"
		}
	}
	d, err := time.ParseDuration(strings.TrimPrefix(s, "+"))
	if err != nil {
		return nil, usagef(flag+" 2026-12-01T08:00:00Z, or "+flag+" 90m", "%s %q is neither a time nor a duration", flag, s)
	}
	t := a.Now().Add(d).UTC()
	return &t, nil
}

func (a *App) submitted(r client.SubmitResult) error {
	switch {
	case a.flags.json:
		return a.object(r)
	case a.flags.plain:
		a.printf("%s\t%t\t%s\t%s\t%d\n", r.Key, r.Created, r.Phase, r.Standing, r.Seq)
	case r.DryRun && r.Created:
		a.printf("%s: would be recorded (nothing was)\n", r.Key)
	case r.DryRun:
		a.printf("%s: exists already, %s\n", r.Key, r.Phase)
	case r.Created:
		a.printf("%s: recorded, %s\n", r.Key, a.paint(r.Phase))
	default:
		a.printf("%s: the same effect exists already, %s\n", r.Key, a.paint(r.Phase))
	}
	return nil
}
