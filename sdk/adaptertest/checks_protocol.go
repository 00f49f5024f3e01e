package adaptertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/settled-dev/settled/plugins/host"
	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/adaptertest/faultproxy"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

func protocolChecks() []check {
	return []check{
		{id: "01", level: L0, name: "handshake", rule: "it shakes hands within 5 s, also with mutual TLS, and prints nothing else on standard output", run: handshake},
		{id: "02", level: L0, name: "describe is pure", rule: "Describe works without a configuration, answers the same twice, and uses no network", run: describePure},
		{id: "03", level: L0, name: "declarations", rule: "schemas are JSON Schema, names and version are well-formed, every capability is declared, secrets are writeOnly", run: declarations},
		{id: "04", level: L0, name: "bad configuration", rule: "a configuration with an unknown property, and each bad one of the plan, is refused with its JSON pointer", run: badConfig},
		{id: "05", level: L0, name: "before configure", rule: "a dispatch before Configure is not executed (NOT_STARTED), and a read is no empty one", run: beforeConfigure},
		{id: "06", level: L0, name: "unknown action", rule: "an action that it does not have is rejected, and nothing is sent", needs: needsAction, run: unknownAction},
		{id: "07", level: L0, name: "unknown fields", rule: "fields of a later version of the contract are ignored", run: unknownFields},
		{id: "08", level: L0, name: "over-long request", rule: "a request over 8 MiB is refused and the process lives on", run: overlong},
		{id: "09", level: L0, name: "life and death", rule: "health is SERVING, Shutdown ends it within 2 s, and the end of standard input within 1 s", run: lifeAndDeath},
		{id: "10", level: L0, name: "SIGTERM", rule: "SIGTERM ends neither the process nor a call while standard input is open", run: sigterm},
		{id: "11", level: L0, name: "log lines", rule: "long, binary and hostile log lines do no harm", run: func(*kit) error {
			return skipped("what an adapter logs cannot be asked for from outside; the host's own tests feed it such lines")
		}},
	}
}

func handshake(k *kit) error {
	c, err := k.spawn()
	if err != nil {
		return err
	}
	defer c.kill()
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	if _, err := c.Describe(ctx); err != nil {
		return fmt.Errorf("it shook hands, and cannot describe itself: %w", err)
	}
	if out := c.stdout.String(); out != "" {
		return fmt.Errorf("it prints on standard output after the handshake: %.80q; log to standard error", out)
	}
	return k.mutualTLS(ctx)
}

// mutualTLS starts it as the daemon does; a refused configuration is as good as an accepted one.
func (k *kit) mutualTLS(ctx context.Context) error {
	path, sum, err := k.pinned()
	if err != nil {
		return err
	}
	p, err := host.Start(ctx, host.Command{
		Name: "conformance", Path: path, Args: k.plan.Adapter[1:], SHA256: sum, RuntimeDir: k.dir,
		Timeout: handshakeLimit, NoCgroup: true,
	}, sdk.Configuration{Destination: "conformance", Config: k.config(""), Secrets: k.plan.Secrets})
	var refused *host.ConfigError
	if errors.As(err, &refused) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the daemon cannot start it: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return p.Close(ctx)
}

func describePure(k *kit) error {
	c, err := k.spawn()
	if err != nil {
		return err
	}
	defer c.kill()
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	before := k.mark()
	first, err := c.raw.Describe(ctx, &pb.DescribeRequest{})
	if err != nil {
		return fmt.Errorf("Describe fails without a configuration: %w", err)
	}
	second, err := c.raw.Describe(ctx, &pb.DescribeRequest{})
	if err != nil {
		return err
	}
	if !proto.Equal(first, second) {
		return errors.New("two calls answer differently; it must depend on nothing but the program")
	}
	if k.proxy != nil && k.mark() != before {
		return errors.New("it asks the destination")
	}
	return nil
}

// mark is the length of the ledger.
func (k *kit) mark() int {
	if k.proxy == nil {
		return 0
	}
	return len(k.proxy.Ledger())
}

var (
	semver   = regexp.MustCompile(`^v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)
	nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)
)

func declarations(k *kit) error {
	if err := k.know(); err != nil {
		var s *skip
		if !errors.As(err, &s) {
			return err
		}
		c, err := k.spawn()
		if err != nil {
			return err
		}
		defer c.kill()
		if k.configured, err = c.Describe(k.ctx); err != nil {
			return err
		}
	}
	d := k.configured
	if !nameRule.MatchString(d.Name) {
		return fmt.Errorf("the name %q must be lower-case letters, digits and dashes", d.Name)
	}
	if !semver.MatchString(d.Version) && d.Version != "dev" {
		return fmt.Errorf("the version %q is no semantic version such as 0.1.0", d.Version)
	}
	if err := schemaFault(d.ConfigSchema); err != nil {
		return fmt.Errorf("the schema of the configuration: %w", err)
	}
	for name := range k.plan.Secrets {
		if err := secretDeclared(d.ConfigSchema, name); err != nil {
			return err
		}
	}
	for _, a := range d.Actions {
		if err := actionFault(a); err != nil {
			return fmt.Errorf("action %s: %w", a.Name, err)
		}
	}
	return nil
}

func actionFault(a sdk.ActionSpec) error {
	switch {
	case a.Name == "":
		return errors.New("it has no name")
	case a.Idempotency.Mode == sdk.IdempotencyUnspecified:
		return errors.New("it does not say whether the destination deduplicates")
	case a.Read.Lookup == sdk.LookupUnspecified:
		return errors.New("it does not say how it is read back")
	case a.Reversal.Kind == sdk.ReversalUnspecified:
		return errors.New("it does not say whether it can be taken back")
	case a.Read.Lookup != sdk.LookupNone && a.Read.Authority == sdk.AuthorityUnspecified:
		return errors.New("it does not say how far its read may be believed")
	case a.Read.Authority == sdk.Eventual && a.Read.MaxLag == nil && a.Read.ProvesAbsence:
		return errors.New("an eventual read proves no absence without a lag")
	case len(a.PayloadSchema) > 0:
		return schemaFault(a.PayloadSchema)
	}
	return nil
}

// schemaFault compiles as much of a schema as the contract uses.
func schemaFault(raw []byte) error {
	if len(raw) == 0 {
		return errors.New("there is none")
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	return subschema(v, "")
}

func subschema(v any, at string) error {
	if _, ok := v.(bool); ok {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("at %q is no schema", at)
	}
	kinds, _ := m["type"].([]any)
	if one, ok := m["type"]; ok && kinds == nil {
		kinds = []any{one}
	}
	for _, kind := range kinds {
		switch kind {
		case "object", "array", "string", "number", "integer", "boolean", "null":
		default:
			return fmt.Errorf("at %q: there is no type %v", at, kind)
		}
	}
	for _, word := range []string{"properties", "$defs"} {
		inner, there := m[word]
		if !there {
			continue
		}
		list, ok := inner.(map[string]any)
		if !ok {
			return fmt.Errorf("at %q: %s must be an object", at, word)
		}
		for name, s := range list {
			if err := subschema(s, at+"/"+word+"/"+name); err != nil {
				return err
			}
		}
	}
	for _, word := range []string{"items", "additionalProperties"} {
		if inner, there := m[word]; there {
			if err := subschema(inner, at+"/"+word); err != nil {
				return err
			}
		}
	}
	return nil
}

// secretDeclared looks for a property of a secret's name that is not writeOnly.
func secretDeclared(schema []byte, name string) error {
	var s struct {
		Properties map[string]struct {
			WriteOnly bool `json:"writeOnly"`
		}
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil // told elsewhere
	}
	if p, ok := s.Properties[name]; ok && !p.WriteOnly {
		return fmt.Errorf("the property %q is a secret and must be \"writeOnly\": true", name)
	}
	return nil
}

func badConfig(k *kit) error {
	if len(k.plan.Config) == 0 {
		return skipped("the plan has no configuration")
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(k.config(""), &m); err != nil {
		return skipped("the configuration is no object")
	}
	m["zz-unknown"] = json.RawMessage("1")
	doc, err := json.Marshal(m)
	if err != nil {
		return err
	}
	for _, b := range append([]Bad{{doc, "/zz-unknown"}}, k.plan.BadConfig...) {
		doc := fill(string(b.Document), map[string]string{"url": k.destination, "dir": k.plan.dir})
		c, err := k.spawn()
		if err != nil {
			return err
		}
		out, err := k.configure(c, []byte(doc), k.plan.Secrets)
		c.kill()
		if err != nil {
			return fmt.Errorf("the method Configure must answer with diagnostics, not fail: %w", err)
		}
		if err := pointed(out.Diagnostics, b.Pointer); err != nil {
			return fmt.Errorf("the configuration %.120s: %w", doc, err)
		}
	}
	return nil
}

func pointed(list []sdk.Diagnostic, pointer string) error {
	for _, d := range list {
		if !d.Warning && (pointer == "" || strings.HasPrefix(d.Pointer, pointer)) {
			return nil
		}
	}
	if refusal(sdk.Configured{Diagnostics: list}) == nil {
		return errors.New("is accepted")
	}
	return fmt.Errorf("is refused, but not at %q", pointer)
}

func beforeConfigure(k *kit) error {
	c, err := k.spawn()
	if err != nil {
		return err
	}
	defer c.kill()
	op := k.with("kit-before", []byte("{}"))
	r, err := k.dispatch(c, op)
	if err != nil {
		return fmt.Errorf("it has no answer: %w", err)
	}
	if o, ok := r.Outcome.(*sdk.NotExecuted); !ok || o.Basis != sdk.BasisNotStarted {
		return fmt.Errorf("the answer must be not executed, NOT_STARTED, but is %s", tell(r.Outcome))
	}
	read, err := k.read(c, op)
	if err != nil {
		return nil // no answer is no empty one
	}
	if _, ok := read.Finding.(*sdk.Indeterminate); !ok {
		return fmt.Errorf("the read must be indeterminate, but is %s", tellFinding(read))
	}
	return nil
}

func unknownAction(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	before, op := k.mark(), k.operation()
	op.Action = "zz-no-such-action"
	r, err := k.dispatch(c, op)
	if err != nil {
		return err
	}
	if _, ok := r.Outcome.(*sdk.Rejected); !ok {
		return fmt.Errorf("the answer must be rejected, but is %s", tell(r.Outcome))
	}
	return k.noWrites(before)
}

// noWrites fails when a write reached the proxy since the mark.
func (k *kit) noWrites(mark int) error {
	if k.proxy == nil {
		return nil
	}
	if n := writes(k.proxy.Ledger()[mark:]); n > 0 {
		return fmt.Errorf("%d writes were sent", n)
	}
	return nil
}

func writes(list []faultproxy.Entry) int {
	n := 0
	for _, e := range list {
		if e.Write {
			n++
		}
	}
	return n
}

func unknownFields(k *kit) error {
	c, err := k.spawn()
	if err != nil {
		return err
	}
	defer c.kill()
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	// Field 1999, a text that no version has.
	later := protoreflect.RawFields(append([]byte{0xfa, 0x7c, 0x05}, "later"...))
	d, s := &pb.DescribeRequest{}, &pb.CheckRequest{}
	d.ProtoReflect().SetUnknown(later)
	s.ProtoReflect().SetUnknown(later)
	if _, err := c.raw.Describe(ctx, d); err != nil {
		return fmt.Errorf("the method Describe fails on a field that it does not know: %w", err)
	}
	if _, err := c.raw.Check(ctx, s); err != nil {
		return fmt.Errorf("the method Check fails on a field that it does not know: %w", err)
	}
	return nil
}

func overlong(k *kit) error {
	c, err := k.spawn()
	if err != nil {
		return err
	}
	defer c.kill()
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	_, err = c.raw.Dispatch(ctx, &pb.DispatchRequest{Operation: &pb.Operation{Payload: bytes.Repeat([]byte("x"), sdk.MaxMessage+1)}})
	if err == nil {
		return errors.New("it is taken")
	}
	if _, err := c.raw.Describe(ctx, &pb.DescribeRequest{}); err != nil {
		return fmt.Errorf("afterwards the process does not answer: %w", err)
	}
	return nil
}

func lifeAndDeath(k *kit) error {
	c, err := k.spawn()
	if err != nil {
		return err
	}
	defer c.kill()
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	if h, err := c.health(ctx); err != nil || h.String() != "SERVING" {
		return fmt.Errorf("grpc.health.v1 answers %s for the service \"plugin\" (%v)", h, err)
	}
	_ = c.shutdown(ctx) // its end may come before its answer
	if !c.within(2 * time.Second) {
		return errors.New("it lives on 2 s after Shutdown of plugin.GRPCController")
	}
	if c, err = k.spawn(); err != nil {
		return err
	}
	defer c.kill()
	_ = c.stdin.Close()
	if !c.within(time.Second) {
		return errors.New("it lives on 1 s after the end of its standard input: it would outlive the daemon")
	}
	return nil
}

func sigterm(k *kit) error {
	if k.capable(needsAction|needsProxy) != nil {
		c, err := k.spawn()
		if err != nil {
			return err
		}
		defer c.kill()
		return c.survives(k.ctx)
	}
	c, err := k.start()
	if err != nil {
		return err
	}
	defer c.kill()
	k.proxy.Inject(faultproxy.Fault{Kind: faultproxy.Hold})
	mark, op := k.mark(), k.operation()
	type answer struct {
		r   sdk.Response
		err error
	}
	answered := make(chan answer, 1)
	go func() { // ends with the dispatch, which has a deadline
		r, err := k.dispatch(c, op)
		answered <- answer{r, err}
	}()
	if !k.seen(mark, limit, func(e faultproxy.Entry) bool { return e.Write && e.Complete }) {
		k.proxy.Release()
		<-answered
		return errors.New("the request never arrived")
	}
	err = c.survives(k.ctx)
	k.proxy.Release()
	a := <-answered
	if err == nil && a.err != nil {
		err = fmt.Errorf("the call was cut: %w", a.err)
	}
	return err
}

// survives sends SIGTERM and looks whether the process still answers.
func (c *child) survives(ctx context.Context) error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if c.within(300 * time.Millisecond) {
		return errors.New("SIGTERM ended it: a stop of the service would cut running calls")
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := c.raw.Describe(ctx, &pb.DescribeRequest{})
	return err
}

// seen waits for an entry of the ledger after the mark.
func (k *kit) seen(mark int, d time.Duration, ok func(faultproxy.Entry) bool) bool {
	ctx, cancel := context.WithTimeout(k.ctx, d)
	defer cancel()
	return k.proxy.Await(ctx, mark, func(list []faultproxy.Entry) bool {
		for _, e := range list {
			if ok(e) {
				return true
			}
		}
		return false
	})
}
