package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/plugins/host"
	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/client"
)

const (
	// checkBudget is how long a destination may take to answer a check.
	checkBudget = 10 * time.Second
	// checkAtOnce bounds how many adapters a check has running.
	checkAtOnce = 4
)

// destinationCheck is the check of one destination. Only its own goroutine uses it.
type destinationCheck struct {
	cfg   *config.Config
	o     checkOptions
	name  string
	dest  *config.Destination
	items []checkItem
	found *checkedDestination // nil = its adapter did not start
}

// adapters starts every destination's adapter in a directory of its own, asks
// it, and ends it.
func (r *checkReport) adapters(ctx context.Context, cfg *config.Config, o checkOptions, missing map[string]bool) {
	if len(cfg.Destinations) == 0 {
		return
	}
	dir, remove, err := privateRuntime(cfg.RuntimeDir())
	if err != nil {
		r.add(checkItem{
			Group: "adapters", Level: levelFault, Message: "no adapter can be started: " + err.Error(),
			Hint: "check as the user that runs the daemon, or set RUNTIME_DIRECTORY to a directory of this user",
		})
		return
	}
	names := sortedKeys(cfg.Destinations)
	checks := make([]*destinationCheck, len(names))
	slots := make(chan struct{}, checkAtOnce)
	var wait sync.WaitGroup
	for i, name := range names {
		c := &destinationCheck{cfg: cfg, o: o, name: name, dest: cfg.Destinations[name]}
		checks[i] = c
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if missing[name] {
				c.add(levelWarn, "not started: a credential is missing", "")
				return
			}
			c.run(ctx, dir)
		})
	}
	wait.Wait()
	for _, c := range checks {
		r.add(c.items...)
		if c.found != nil {
			r.Destinations[c.name] = c.found
		}
	}
	if err := remove(); err != nil {
		r.add(checkItem{Group: "adapters", Level: levelWarn, Message: "something was left behind: " + err.Error(), Hint: "rm -r " + dir})
	}
}

// privateRuntime makes a runtime directory beside those of daemons, for one
// check. remove takes it away, and whatever was made above it.
func privateRuntime(base string) (dir string, remove func() error, err error) {
	var made []string
	for at := base; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		made = append(made, at)
	}
	removeMade := func() error {
		for _, d := range made { // the deepest first; one that somebody else uses meanwhile stays
			if err := os.Remove(d); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", nil, errors.Join(err, removeMade())
	}
	if dir, err = os.MkdirTemp(base, "check-"); err != nil { // 0700
		return "", nil, errors.Join(err, removeMade())
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), removeMade()) }, nil
}

func (c *destinationCheck) add(level checkLevel, message, hint string) {
	c.items = append(c.items, checkItem{Group: c.group(), Level: level, Message: message, Hint: hint})
}

// at is add with the place in the adapter's own table.
func (c *destinationCheck) at(pointer string, level checkLevel, message, hint string) {
	f := c.cfg.AdapterFault(c.name, pointer, message, "", level == levelWarn)
	f.Hint = hint
	c.items = append(c.items, faultItem(c.group(), f))
}

func (c *destinationCheck) group() string { return "destinations." + c.name }

// run starts the adapter, asks it everything that needs no effect, and ends it.
func (c *destinationCheck) run(ctx context.Context, dir string) {
	secrets, err := c.cfg.Secrets(c.name)
	if err != nil {
		c.add(levelFault, err.Error(), "")
		return
	}
	cmd := adapterCommand(c.cfg, c.name, dir, slog.New(slog.DiscardHandler))
	p, err := host.Start(ctx, cmd, sdk.Configuration{
		Destination: c.name, Config: c.dest.With.RawMessage, Secrets: secrets, HostVersion: version(),
	})
	if err != nil {
		c.refused(err)
		return
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBudget)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			c.add(levelFault, "its process does not end: "+err.Error(), "ps -p "+strconv.Itoa(p.Identity().PID))
		}
	}()
	desc, err := p.Describe(ctx)
	if err != nil {
		c.add(levelFault, "it does not describe itself: "+err.Error(), "")
		return
	}
	id := p.Identity()
	c.found = &checkedDestination{Adapter: id.Adapter, Version: id.Version, SHA256: id.SHA256, Identity: id.Account, Operations: []client.Capability{}}
	c.add(levelOK, c.program(cmd, id), "")
	c.diagnostics(p.Configured().Diagnostics)
	c.declared(desc)
	for _, spec := range desc.Actions {
		c.operation(spec)
	}
	if !c.o.offline {
		c.live(ctx, p)
	}
}

// program says what was started: whose file it is and what stands in it.
func (c *destinationCheck) program(cmd host.Command, id host.Identity) string {
	what := fmt.Sprintf("%s %s", id.Adapter, id.Version)
	if id.Account != "" {
		what += ", as " + id.Account
	}
	if cmd.Path == "" {
		return what + ", built in"
	}
	owner := "?"
	mode := ""
	if st, err := os.Stat(cmd.Path); err == nil {
		mode = fmt.Sprintf(" mode %04o", st.Mode().Perm())
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			owner = userName(sys.Uid)
		}
	}
	return fmt.Sprintf("%s, %s, owner %s%s, sha256 %s as pinned", what, cmd.Path, owner, mode, id.SHA256)
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// refused tells why the adapter did not start, each diagnostic at its place.
func (c *destinationCheck) refused(err error) {
	var conf *host.ConfigError
	var pin *host.PinError
	switch {
	case errors.As(err, &conf):
		c.diagnostics(conf.Diagnostics)
	case errors.As(err, &pin):
		c.add(levelFault, pin.Error(), "sha256 = \""+pin.Have+"\"")
	case errors.Is(err, fs.ErrNotExist):
		c.add(levelFault, err.Error(), "built in: "+strings.Join(config.BuiltIn(), ", ")+"; installed: ls "+c.cfg.Adapters.Dir)
	default:
		c.add(levelFault, err.Error(), "")
	}
}

func (c *destinationCheck) diagnostics(list []sdk.Diagnostic) {
	for _, d := range list {
		c.items = append(c.items, faultItem(c.group(), c.cfg.AdapterFault(c.name, d.Pointer, d.Summary, d.Detail, d.Warning)))
	}
}

// declared compares what the adapter says with what the operator wrote.
func (c *destinationCheck) declared(desc sdk.Description) {
	faults, lowered := declaredFaults(c.cfg, c.name, desc)
	for _, f := range faults {
		c.items = append(c.items, faultItem(c.group(), f))
	}
	for _, o := range lowered {
		c.items = append(c.items, overrideItem(c.group(), o))
	}
	known := map[string]bool{}
	for _, a := range desc.Actions {
		known[a.Name] = true
	}
	for _, name := range sortedKeys(c.dest.Operations) {
		if !known[name] {
			c.add(levelFault, fmt.Sprintf("destinations.%s.operations.%s is about no operation of the adapter", c.name, name),
				"it has: "+strings.Join(sortedKeys(known), ", "))
		}
	}
	if len(desc.Actions) == 0 {
		c.add(levelFault, "the adapter has no operation", "")
	}
}

// operation fills in the capability card and judges its answers.
func (c *destinationCheck) operation(spec sdk.ActionSpec) {
	eff := c.dest.ForOperation(spec.Name)
	card := client.Capability(daemon.CardOf(eff, spec))
	if card.Unanswered == nil {
		card.Unanswered = []string{}
	}
	c.found.Operations = append(c.found.Operations, card)
	c.add(levelOK, fmt.Sprintf("%s: identified by %s\nhappened: %s\ndid not happen: %s\nelse decided by %s; dedupe %s; retried: %s; %s; triggers %s",
		card.Operation, card.Identifies, card.ProvesCommit, card.ProvesAbsence, card.OwnerWhenNot, card.Dedupe, card.RetryableAnswer, card.Reversal, card.Triggers), "")
	pointer := "/operations/" + escapePointer(spec.Name)
	for _, q := range card.Unanswered {
		c.at(pointer, levelFault, spec.Name+": nobody answers: "+q, "the adapter must declare it; see its documentation")
	}
	hasRead := spec.Read.Lookup != sdk.LookupNone && spec.Read.Lookup != sdk.LookupUnspecified
	if !hasRead && eff.Proof == "read" {
		c.at(pointer, levelWarn, spec.Name+": proof = \"read\", but there is no read: a person will decide every outcome",
			"configure a read, or waive the proof with proof = \"ack\"")
	}
	if hasRead && spec.Read.ProvesAbsence && eff.WithDeclared(daemon.Declared(spec)).MaxProcessing == nil {
		c.at(pointer+"/read/proves_absence", levelWarn, spec.Name+": proves_absence does nothing until somebody declares how late an unanswered request may take effect",
			"write max_processing under destinations."+c.name+".grace")
	}
	if hasRead && spec.Read.ProvesAbsence && c.dest.Adapter == "exec" {
		c.at(pointer+"/read/proves_absence", levelWarn, spec.Name+": that the read command sees every object is assumed unless it says \"visible\"",
			"let the command answer \"visible\": true only after it has checked its own permission")
	}
	c.dedupe(pointer+"/dedupe", spec)
}

// dedupe judges how old the word about a deduplication is.
func (c *destinationCheck) dedupe(pointer string, spec sdk.ActionSpec) {
	i := spec.Idempotency
	if i.Mode == sdk.IdempotencyNone || i.Mode == sdk.IdempotencyUnspecified {
		return
	}
	if i.VerifiedOn == "" {
		c.at(pointer, levelWarn, spec.Name+": nobody wrote when the deduplication was verified", "try it, then write verified_on")
		return
	}
	at, err := time.Parse(time.DateOnly, i.VerifiedOn)
	now := c.o.now()
	switch {
	case err != nil:
		c.at(pointer+"/verified_on", levelFault, spec.Name+": "+i.VerifiedOn+" is not a date", "write it as 2026-11-30")
	case at.After(now.Add(24 * time.Hour)): // somewhere it is tomorrow already
		c.at(pointer+"/verified_on", levelWarn, spec.Name+": the deduplication was verified on "+i.VerifiedOn+", which is yet to come", "write the day on which it was tried")
	case at.AddDate(1, 0, 1).Before(now): // the anniversary itself is in time
		c.at(pointer+"/verified_on", levelWarn, spec.Name+": the deduplication was verified on "+i.VerifiedOn+", over a year ago", "try it again, then change verified_on")
	}
}

// live asks the destination itself. It only reads.
func (c *destinationCheck) live(ctx context.Context, p *host.Process) {
	ctx, cancel := context.WithTimeout(ctx, checkBudget)
	defer cancel()
	without := "leave this out with: settled check --offline"
	h, err := p.Check(ctx, nil)
	if err != nil {
		c.add(levelFault, "it does not answer: "+err.Error(), without)
		return
	}
	c.diagnostics(h.Diagnostics)
	switch {
	case h.Status == sdk.HealthOK:
		c.add(levelOK, "it answers"+proven(h.Permissions), "")
	case h.Status == sdk.HealthDegraded:
		c.add(levelWarn, "it answers, but not as it should"+proven(h.Permissions), "")
	case slices.ContainsFunc(h.Diagnostics, func(d sdk.Diagnostic) bool { return !d.Warning }):
		last := &c.items[len(c.items)-1] // said already, at its place
		last.Hint, last.text = without, last.text+"\n        "+without
	default:
		c.add(levelFault, "the destination is down", without)
	}
	if skew := c.dest.ForOperation("").Skew; h.ClockSkew != nil && h.ClockSkew.Abs() > skew {
		c.add(levelWarn, fmt.Sprintf("its clock differs from ours by %s, more than grace.skew = %s", h.ClockSkew, config.FormatDuration(skew)),
			"set both clocks by NTP, or write a longer skew under destinations."+c.name+".grace")
	}
}

func proven(permissions []string) string {
	if len(permissions) == 0 {
		return ""
	}
	return "; shown to be permitted: " + strings.Join(permissions, ", ")
}

// escapePointer spells a name inside a JSON pointer.
func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
