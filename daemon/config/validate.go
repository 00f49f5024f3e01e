package config

import (
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/schedules"
)

// BuiltIn lists the adapters that need no sha256: they are part of the binary.
func BuiltIn() []string { return []string{"http", "exec", "sql", "mail"} }

// validator checks what the decoder cannot see: names, ranges and sums.
type validator struct {
	cfg    *Config
	faults *faults
}

// where is the place of the value, or of the nearest table that holds it.
func (v *validator) where(path []string) Place {
	n, exact := v.cfg.root.find(path...)
	if exact && n.kind != kindTable {
		return n.val.place()
	}
	return n.key.place()
}

func (v *validator) fault(code Code, path []string, hint, format string, args ...any) {
	v.faults.add(Fault{
		Place: v.where(path), Code: code, Key: strings.Join(path, "."), Hint: hint,
		Message: fmt.Sprintf(format, args...),
	})
}

func (v *validator) warn(path []string, hint, format string, args ...any) {
	v.faults.add(Fault{
		Place: v.where(path), Code: CodeConflict, Key: strings.Join(path, "."), Hint: hint,
		Message: fmt.Sprintf(format, args...), Warning: true,
	})
}

func (v *validator) all() {
	refuseNotBuilt(v.cfg.root, v.faults)
	v.journal()
	v.keys()
	for _, name := range slices.Sorted(maps.Keys(v.cfg.Owners)) {
		v.owner(name, v.cfg.Owners[name])
	}
	for _, name := range slices.Sorted(maps.Keys(v.cfg.Destinations)) {
		v.destination(name, v.cfg.Destinations[name])
	}
	for _, name := range slices.Sorted(maps.Keys(v.cfg.Schedules)) {
		v.schedule(name, v.cfg.Schedules[name])
	}
}

func (v *validator) journal() {
	j := v.cfg.Journal
	v.notEmpty(j.Path, "journal", "path")
	v.notEmpty(j.Generation, "journal", "generation")
	v.notEmpty(v.cfg.Listen.Socket, "listen", "socket")
	if j.Path != "" && j.Generation != "" && filepath.Dir(filepath.Clean(j.Path)) == filepath.Dir(filepath.Clean(j.Generation)) {
		v.fault(CodeConflict, []string{"journal", "generation"}, `move it, as in "/var/lib/settled-generation/marker"`,
			"journal.generation lies in the journal's own directory: a restore would bring both back and go unnoticed")
	}
	if j.ChainKey != "" {
		v.credentialName(j.ChainKey, "journal", "chain_key")
	}
	v.positive(j.RestoreWindow, "journal", "restore_window")
	v.positive(j.Keep, "journal", "keep")
	v.positive(v.cfg.Daemon.StopBudget, "daemon", "stop_budget")
}

func (v *validator) notEmpty(s string, path ...string) {
	if s == "" {
		v.fault(CodeValue, path, "", "%s is empty", strings.Join(path, "."))
	}
}

func (v *validator) positive(d time.Duration, path ...string) {
	if d <= 0 {
		v.fault(CodeValue, path, "", "%s must be longer than 0", strings.Join(path, "."))
	}
}

func (v *validator) between(n, lo, hi int, path ...string) {
	if n < lo || n > hi {
		v.fault(CodeValue, path, "", "%s must be from %d to %d", strings.Join(path, "."), lo, hi)
	}
}

func (v *validator) credentialName(name string, path ...string) {
	if !validName(name) {
		v.fault(CodeValue, path, "the file of that name is read from the credentials directory",
			"%q cannot name a credential: %s", name, nameRule)
	}
}

func (v *validator) keys() {
	v.cfg.Keys.allow = v.patterns(v.cfg.Keys.Allow, "allow")
	v.cfg.Keys.deny = v.patterns(v.cfg.Keys.Deny, "deny")
}

func (v *validator) patterns(list []string, key string) []*regexp.Regexp {
	var out []*regexp.Regexp
	for i, p := range list {
		re, err := regexp.Compile(p)
		path := []string{"keys", key, fmt.Sprint(i)}
		if err != nil {
			v.fault(CodeValue, path, "", "%s is not a regular expression: %v", strings.Join(path, "."), err)
			continue
		}
		if re.MatchString("") {
			v.fault(CodeValue, path, "say what it must contain, as in \"^ticket:\"", "%s matches every key", strings.Join(path, "."))
			continue
		}
		out = append(out, re)
	}
	return out
}

func (v *validator) owner(name string, o *Owner) {
	base := []string{"owners", name}
	for _, severity := range []string{"low", "normal", "high", "critical"} {
		if o.ReviewWithin[severity] <= 0 && !v.faults.under("owners."+name+".review_within") {
			v.fault(CodeValue, append(base, "review_within", severity), "", "owners.%s.review_within must be longer than 0", name)
		}
	}
	if o.Second == "" {
		return
	}
	if o.Second == name {
		v.fault(CodeConflict, append(base, "second"), "name somebody else", "owners.%s.second is the same owner", name)
		return
	}
	v.ownerExists(o.Second, append(base, "second"))
}

func (v *validator) ownerExists(name string, path []string) {
	if v.cfg.Owners[name] != nil {
		return
	}
	hint := fmt.Sprintf("add a table [owners.%s]", name)
	if near := nearest(name, slices.Collect(maps.Keys(v.cfg.Owners))); near != "" {
		hint = fmt.Sprintf("did you mean %q? Else add a table [owners.%s]", near, name)
	}
	if !validName(name) {
		hint = "an owner's name is " + nameRule
	}
	v.fault(CodeValue, path, hint, "%s: there is no owner %q", strings.Join(path, "."), name)
}

func (v *validator) destination(name string, d *Destination) {
	base := []string{"destinations", name}
	at := func(key ...string) []string { return append(base[:len(base):len(base)], key...) }
	v.adapter(d, at)
	if d.Owner == "" {
		if !v.faults.under(strings.Join(at("owner"), ".")) {
			v.fault(CodeMissing, at("owner"), `say who is asked, as in owner = "support-ops"`, "destinations.%s has no owner", name)
		}
	} else {
		v.ownerExists(d.Owner, at("owner"))
	}
	if d.RepairOwner != "" {
		v.ownerExists(d.RepairOwner, at("repair_owner"))
	}
	for _, op := range slices.Sorted(maps.Keys(d.Operations)) {
		own := d.Operations[op]
		if own.Owner != "" {
			v.ownerExists(own.Owner, at("operations", op, "owner"))
		}
		if own.RepairOwner != "" {
			v.ownerExists(own.RepairOwner, at("operations", op, "repair_owner"))
		}
	}
	seen := map[string]bool{}
	for i, c := range d.Credentials {
		v.credentialName(c, at("credentials", fmt.Sprint(i))...)
		if seen[c] {
			v.fault(CodeDuplicate, at("credentials", fmt.Sprint(i)), "", "credential %q is listed twice", c)
		}
		seen[c] = true
	}
	v.ranges(d, at)
	if v.faults.under(strings.Join(base, ".")) {
		return // sums over values that are themselves at fault would only mislead
	}
	v.overrides(d, base)
	v.sums(base, d.ForOperation(""))
}

func (v *validator) adapter(d *Destination, at func(...string) []string) {
	if d.SHA256 != "" {
		if raw, err := hex.DecodeString(d.SHA256); err != nil || len(raw) != 32 {
			v.fault(CodeValue, at("sha256"), "sha256sum prints it", "%s must be 64 hexadecimal digits", strings.Join(at("sha256"), "."))
		}
	}
	switch {
	case d.Adapter == "":
		if !v.faults.under(strings.Join(at("adapter"), ".")) {
			v.fault(CodeMissing, at("adapter"), `write adapter = "http", or the name of an installed adapter`, "%s has no adapter", strings.Join(at(), "."))
		}
	case slices.Contains(BuiltIn(), d.Adapter):
	case !validName(d.Adapter):
		v.fault(CodeValue, at("adapter"), "", "%q cannot name an adapter: %s", d.Adapter, nameRule)
	case d.SHA256 == "" && !v.faults.under(strings.Join(at("sha256"), ".")):
		hint := fmt.Sprintf("sha256sum %s, then write sha256 = \"…\"", filepath.Join(v.cfg.Adapters.Dir, d.Adapter))
		if near := nearest(d.Adapter, BuiltIn()); near != "" {
			hint = fmt.Sprintf("did you mean the built-in %q? Else: %s", near, hint)
		}
		v.fault(CodeMissing, at("adapter"), hint, "adapter %q is not built in, so %s is required", d.Adapter, strings.Join(at("sha256"), "."))
	}
}

func (v *validator) ranges(d *Destination, at func(...string) []string) {
	for _, x := range []struct {
		d   time.Duration
		key []string
	}{
		{d.Timeout, at("timeout")},
		{d.RecordReserve, at("record_reserve")},
		{d.Deadline, at("deadline")},
		{d.MaxAge, at("max_age")},
		{d.Retry.Elapsed, at("retry", "elapsed")},
		{d.Retry.AfterAbsence, at("retry", "after_absence")},
		{d.Retry.Backoff.Initial, at("retry", "backoff", "initial")},
		{d.Grace.AbsenceValid, at("grace", "absence_valid")},
		{d.Grace.ReconcileBudget, at("grace", "reconcile_budget")},
		{d.Grace.AckDeadline, at("grace", "ack_deadline")},
		{d.Grace.VerifyDeadline, at("grace", "verify_deadline")},
	} {
		v.positive(x.d, x.key...)
	}
	v.between(d.Concurrency, 1, 1024, at("concurrency")...)
	v.between(d.Limits.Queue, 1, 10_000_000, at("limits", "queue")...)
	v.between(d.Retry.Attempts, 1, 100, at("retry", "attempts")...)
	v.between(d.Breaker.OpenAfter, 1, 1000, at("breaker", "open_after")...)
	if f := d.Retry.Backoff.Factor; !(f >= 1 && f <= 100) {
		v.fault(CodeValue, at("retry", "backoff", "factor"), "", "%s must be from 1 to 100", strings.Join(at("retry", "backoff", "factor"), "."))
	}
	if d.Retry.Backoff.Initial > d.Retry.Backoff.Max {
		v.fault(CodeConflict, at("retry", "backoff", "max"), "", "backoff.initial (%s) is longer than backoff.max (%s)",
			FormatDuration(d.Retry.Backoff.Initial), FormatDuration(d.Retry.Backoff.Max))
	}
	v.reads(d.Grace.Reads, at("grace", "reads"))
}

func (v *validator) reads(reads []time.Duration, path []string) {
	if v.faults.under(strings.Join(path, ".")) {
		return
	}
	if len(reads) == 0 || len(reads) > 100 {
		v.fault(CodeValue, path, `write reads = ["15s", "1m", "5m", "15m", "1h"]`, "%s must have 1 to 100 times", strings.Join(path, "."))
	}
	last := time.Duration(0)
	for i, r := range reads {
		if r < time.Second || r < last {
			v.fault(CodeValue, append(path[:len(path):len(path)], fmt.Sprint(i)), "",
				"%s must not get shorter, and each must be at least 1s", strings.Join(path, "."))
		}
		last = r
	}
}

// overrides checks the grace settings against their defaults.
func (v *validator) overrides(d *Destination, base []string) {
	def := defaultGrace()
	add := func(key string, value, floor time.Duration) {
		if value < floor {
			v.cfg.Overrides = append(v.cfg.Overrides, v.floor(base, "", key, value, floor, d.Grace.OverrideReason, false)...)
		}
	}
	add("skew", d.Grace.Skew, def.Skew)
	if d.Grace.Safety != nil {
		add("safety", *d.Grace.Safety, minSafety(d.Grace.Lag))
	}
	add("linger", d.Grace.Linger, def.Linger)
	add("absence_valid", d.Grace.AbsenceValid, def.AbsenceValid)
}

// floor refuses a value below its floor, or records it when there is a reason.
func (v *validator) floor(base []string, op, key string, value, floor time.Duration, reason string, declared bool) []Override {
	path := append(base[:len(base):len(base)], "grace", key)
	if strings.TrimSpace(reason) == "" {
		v.fault(CodeOverride, path, "lengthen it, or write grace.override_reason = \"…\", which goes into the audit chain",
			"%s = %s is shorter than %s, which needs a reason", strings.Join(path, "."), FormatDuration(value), FormatDuration(floor))
		return nil
	}
	return []Override{{
		Destination: base[1], Operation: op, Key: strings.Join(path, "."), Value: value, Floor: floor,
		Declared: declared, Reason: reason,
	}}
}

// sums checks that the times of one operation fit into each other.
func (v *validator) sums(base []string, e Effective) {
	at := func(key ...string) []string { return append(base[:len(base):len(base)], key...) }
	f := FormatDuration
	v.absenceFits(base, e, "")
	if got := e.BackoffMax + e.Timeout + e.RecordReserve; got >= e.AbsenceValid {
		v.fault(CodeConflict, at("grace", "absence_valid"), "lengthen it to more than "+f(got)+", or shorten backoff.max",
			"absence would expire before the retry it allows: backoff.max %s + timeout %s + record_reserve %s = %s, absence_valid is %s",
			f(e.BackoffMax), f(e.Timeout), f(e.RecordReserve), f(got), f(e.AbsenceValid))
	}
	if got := e.Timeout + e.RecordReserve; got >= e.Elapsed {
		v.fault(CodeConflict, at("retry", "elapsed"), "lengthen it to more than "+f(got)+", or shorten timeout",
			"retry.elapsed (%s) is not longer than timeout %s + record_reserve %s = %s", f(e.Elapsed), f(e.Timeout), f(e.RecordReserve), f(got))
	}
	if e.Elapsed >= e.Deadline {
		v.fault(CodeConflict, at("deadline"), "lengthen it, or shorten retry.elapsed",
			"deadline (%s) is not longer than retry.elapsed (%s)", f(e.Deadline), f(e.Elapsed))
	}
	if got, budget := e.Timeout+e.Linger+e.RecordReserve, v.cfg.Daemon.StopBudget; got > budget {
		v.warn(at("timeout"), "lengthen daemon.stop_budget to "+f(got)+", and systemd's TimeoutStopSec with it",
			"a call in flight may outlast a stop: timeout %s + linger %s + record_reserve %s = %s, daemon.stop_budget is %s",
			f(e.Timeout), f(e.Linger), f(e.RecordReserve), f(got), f(budget))
	}
}

// absenceFits checks that absence can be concluded, and the retry made, before
// time is up. Without it grace always outlasts the retry budget and a lost
// request is never sent again.
func (v *validator) absenceFits(base []string, e Effective, note string) {
	got, f := e.AbsenceTime(), FormatDuration
	lag := orZero(e.Lag)
	sum := fmt.Sprintf("timeout %s + linger %s + kill %s + max_processing %s + lag %s + skew %s + safety %s + second read %s + backoff.max %s = %s%s",
		f(e.Timeout), f(e.Linger), f(kill), f(orZero(e.MaxProcessing)), f(lag), f(e.Skew), f(e.Safety), f(max(lag, time.Second)), f(e.BackoffMax), f(got), note)
	for _, x := range []struct {
		table, key string
		limit      time.Duration
	}{{"retry", "after_absence", e.AfterAbsence}, {"grace", "reconcile_budget", e.ReconcileBudget}} {
		if got >= x.limit {
			v.fault(CodeConflict, append(base[:len(base):len(base)], x.table, x.key), "lengthen it to more than "+f(got)+", or shorten the parts",
				"%s.%s (%s) leaves no room for a retry after absence: %s", x.table, x.key, f(x.limit), sum)
		}
	}
}

func (v *validator) schedule(name string, s *Schedule) {
	base := []string{"schedules", name}
	at := func(key string) []string { return append(base[:len(base):len(base)], key) }
	missing := func(key, hint string) {
		if !v.faults.under(strings.Join(at(key), ".")) {
			v.fault(CodeMissing, at(key), hint, "schedules.%s has no %s", name, key)
		}
	}
	if s.Do == "" {
		missing("do", `write do = "reconcile"`)
	}
	switch {
	case s.Destination != "" && v.cfg.Destinations[s.Destination] == nil:
		hint := fmt.Sprintf("add a table [destinations.%s]", s.Destination)
		if near := nearest(s.Destination, slices.Collect(maps.Keys(v.cfg.Destinations))); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		v.fault(CodeValue, at("destination"), hint, "schedules.%s: there is no destination %q", name, s.Destination)
	case s.Destination == "" && slices.Contains([]string{"reconcile", "audit", "submit"}, s.Do):
		missing("destination", "say which destination it works on")
	}
	if s.Cron == "" {
		missing("cron", `write cron = "*/5 * * * *"`)
		return
	}
	if v.faults.under("schedules." + name) {
		return
	}
	v.positive(s.Within, at("within")...)
	v.scheduleWork(name, s)
	plan, err := schedules.Parse(s.Cron, s.Timezone, v.cfg.planOptions(name, s))
	if err != nil {
		key := "cron"
		if schedules.IsTimezone(err) {
			key = "timezone"
		}
		v.fault(CodeValue, at(key), "", "schedules.%s: %v", name, err)
		return
	}
	s.plan = plan
}

func (c *Config) planOptions(name string, s *Schedule) schedules.Options {
	return schedules.Options{
		AnyDay: s.DayMatch == "any", Host: c.opts.Host, Name: name,
		CatchUp: schedules.CatchUp(s.CatchUp), Within: s.Within,
	}
}

// Plan is the schedule's arithmetic: next times, catch-up, hazards.
func (s *Schedule) Plan() schedules.Schedule { return s.plan }
