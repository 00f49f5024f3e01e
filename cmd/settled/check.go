package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/sdk/client"
)

// checkMain is `settled check`.
func checkMain(args []string) int {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	file := flags.String("config", "", "configuration `FILE` (SETTLED_CONFIG)")
	o := checkOptions{env: config.FromOS(), now: time.Now, fsType: statfsType}
	flags.BoolVar(&o.asJSON, "json", false, "one JSON object")
	flags.BoolVar(&o.quiet, "quiet", false, "faults only")
	flags.BoolVar(&o.offline, "offline", false, "do not ask the destinations whether they answer")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "settled check takes no argument %q; name the configuration with --config FILE\n", flags.Arg(0))
		return 2
	}
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer release()
	return runCheck(ctx, *file, o, os.Stdout, os.Stderr)
}

// checkOptions are what a check takes from its surroundings. env, now and
// fsType are required.
type checkOptions struct {
	asJSON, quiet, offline bool
	env                    config.Options
	now                    func() time.Time
	fsType                 func(path string) (int64, error) // of statfs(2)
}

// checkLevel is how bad an item is.
type checkLevel string

const (
	levelOK    checkLevel = "ok"
	levelWarn  checkLevel = "warn"
	levelFault checkLevel = "fault"
)

// checkItem is one thing that was looked at.
type checkItem struct {
	Group   string      `json:"group"` // configuration, credentials, journal, destinations.NAME, schedules
	Level   checkLevel  `json:"level"`
	Message string      `json:"message"`
	Hint    string      `json:"hint,omitempty"`
	Key     string      `json:"key,omitempty"`
	Code    config.Code `json:"code,omitempty"`
	config.Place

	text string // for people, where it is more than message and hint
}

// checkReport is everything that a check found; --json prints it.
type checkReport struct {
	OK           bool                           `json:"ok"`
	Faults       int                            `json:"faults"`
	Warnings     int                            `json:"warnings"`
	Version      string                         `json:"version"`
	Files        []string                       `json:"files"`
	PolicySHA256 string                         `json:"policy_sha256,omitempty"`
	Running      string                         `json:"running,omitempty"` // who holds the journal
	Items        []checkItem                    `json:"items"`
	Destinations map[string]*checkedDestination `json:"destinations"`
	Schedules    map[string]*checkedSchedule    `json:"schedules"`
	Next         string                         `json:"next"` // what to type
}

// checkedDestination is an adapter that was started, with its capability cards.
type checkedDestination struct {
	Adapter    string              `json:"adapter"`
	Version    string              `json:"version"`
	SHA256     string              `json:"sha256"`
	Identity   string              `json:"identity"`
	Operations []client.Capability `json:"operations"`
}

// add notes an item and counts it.
func (r *checkReport) add(items ...checkItem) {
	for _, i := range items {
		switch i.Level {
		case levelFault:
			r.Faults++
		case levelWarn:
			r.Warnings++
		}
	}
	r.Items = append(r.Items, items...)
}

// runCheck looks at everything that a daemon with this configuration would rest
// on, in the order configuration, credentials, journal, adapters, schedules, and
// tells all that is wrong at once. Nothing is dispatched and nothing is written:
// adapters run from a directory of their own that is gone when it returns, so it
// may run beside a daemon. It returns 0, 78 when there is a fault, and 1 when it
// was interrupted and so knows nothing.
func runCheck(ctx context.Context, configPath string, o checkOptions, stdout, stderr io.Writer) int {
	r := &checkReport{
		Version: version(), Files: []string{}, Items: []checkItem{},
		Destinations: map[string]*checkedDestination{}, Schedules: map[string]*checkedSchedule{},
	}
	if cfg := r.configuration(configPath, o); cfg != nil {
		missing := r.credentials(cfg, o)
		r.journal(ctx, cfg, o)
		r.adapters(ctx, cfg, o, missing)
		r.schedules(cfg, o)
	}
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "settled check: interrupted, so nothing is known; type: settled check")
		return 1
	}
	r.OK = r.Faults == 0
	r.Next = r.whatNext(configPath)
	if err := r.print(stdout, o); err != nil {
		fmt.Fprintln(stderr, "settled check:", err)
		return 1
	}
	if !r.OK {
		return exitConfig
	}
	return 0
}

// configuration reads the files. nil: a fault was found, and the rest waits.
func (r *checkReport) configuration(configPath string, o checkOptions) *config.Config {
	cfg, err := config.Open(configPath, o.env)
	var all *config.Error
	switch {
	case errors.As(err, &all):
		for _, f := range all.Faults {
			r.add(faultItem("configuration", f))
		}
		return nil
	case err != nil:
		r.add(checkItem{Group: "configuration", Level: levelFault, Message: err.Error()})
		return nil
	}
	r.Files, r.PolicySHA256 = append(r.Files, cfg.Files...), cfg.PolicySHA256()
	for _, f := range cfg.Files {
		r.add(checkItem{Group: "configuration", Level: levelOK, Message: f})
	}
	if len(cfg.Files) == 0 {
		r.add(checkItem{
			Group: "configuration", Level: levelWarn, Message: "there is no configuration; the defaults have no destination",
			Hint: "write " + config.SystemPath + ", or name a file with --config FILE",
		})
	} else if len(cfg.Destinations) == 0 {
		r.add(checkItem{Group: "configuration", Level: levelWarn, Message: "no destination is configured, so nothing can be submitted", Hint: "write a [destinations.NAME]"})
	}
	for _, f := range cfg.Warnings {
		r.add(faultItem("configuration", f))
	}
	for _, ov := range cfg.Overrides {
		r.add(overrideItem("configuration", ov))
	}
	return cfg
}

// faultItem shows a fault of the configuration as its package does, with line and caret.
func faultItem(group string, f config.Fault) checkItem {
	level := levelFault
	if f.Warning {
		level = levelWarn
	}
	f.Warning = false // the level says it already
	return checkItem{
		Group: group, Level: level, Message: f.Message, Hint: f.Hint, Key: f.Key, Code: f.Code, Place: f.Place, text: f.Error(),
	}
}

func overrideItem(group string, o config.Override) checkItem {
	floor := "the default"
	if o.Declared {
		floor = "what the adapter declares"
	}
	return checkItem{
		Group: group, Level: levelWarn, Key: o.Key, Code: config.CodeOverride,
		Message: fmt.Sprintf("%s = %s goes below %s, %s: %s", o.Key, config.FormatDuration(o.Value), floor, config.FormatDuration(o.Floor), o.Reason),
	}
}

// credentials reads every secret that is named and shows none. It returns the
// destinations that lack one.
func (r *checkReport) credentials(cfg *config.Config, o checkOptions) (missing map[string]bool) {
	missing = map[string]bool{}
	users := map[string][]string{}
	for name, d := range cfg.Destinations {
		for _, c := range d.Credentials {
			users[c] = append(users[c], name)
		}
	}
	if c := cfg.Journal.ChainKey; c != "" {
		users[c] = append(users[c], "")
	}
	for _, name := range sortedKeys(users) {
		secret, err := cfg.Credential(name)
		switch {
		case err != nil:
			for _, d := range users[name] {
				missing[d] = true
			}
			r.add(checkItem{Group: "credentials", Level: levelFault, Key: name, Message: err.Error()})
		case name == cfg.Journal.ChainKey && len(secret) < minChainKey:
			r.add(checkItem{
				Group: "credentials", Level: levelFault, Key: name,
				Message: fmt.Sprintf("the chain key %q has %d bytes, %d are the least", name, len(secret), minChainKey),
				Hint:    "make one with: head -c 32 /dev/urandom | base64",
			})
		default:
			r.add(checkItem{Group: "credentials", Level: levelOK, Key: name, Message: name + credentialPlace(cfg, o, name)})
		}
	}
	return missing
}

// minChainKey is what the journal asks of the key of the event chain, in bytes.
const minChainKey = 16

// credentialPlace says where a readable credential lies, and who may read it there.
func credentialPlace(cfg *config.Config, o checkOptions, name string) string {
	dirs := []string{cfg.Credentials.Dir}
	if o.env.Getenv != nil {
		dirs = append([]string{o.env.Getenv("CREDENTIALS_DIRECTORY")}, dirs...)
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return fmt.Sprintf("  %s, mode %04o", filepath.Join(dir, name), st.Mode().Perm())
		}
	}
	return ""
}

// whatNext is the one thing to type now.
func (r *checkReport) whatNext(configPath string) string {
	again := "settled check"
	with := ""
	if configPath != "" {
		with = " --config " + configPath
	}
	again += with
	for _, i := range r.Items {
		switch {
		case i.Level != levelFault:
		case i.Line > 0:
			return "${EDITOR:-vi} +" + strconv.Itoa(i.Line) + " " + i.File + ", then " + again
		default:
			return "mend the first FAULT, then " + again
		}
	}
	switch {
	case r.Running != "":
		return "restart the daemon that runs (" + r.Running + ") to have it use this configuration"
	case len(r.Files) > 0 && r.Files[0] == config.SystemPath:
		return "systemctl restart settled"
	}
	return "settled serve" + with
}

// print writes the report in the form that was asked for.
func (r *checkReport) print(w io.Writer, o checkOptions) error {
	if o.asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	var b strings.Builder
	group := ""
	for _, i := range r.Items {
		if o.quiet && i.Level != levelFault {
			continue
		}
		if i.Group != group {
			group = i.Group
			b.WriteString(group + "\n")
		}
		b.WriteString(i.lines())
	}
	if !o.quiet || r.Faults > 0 {
		fmt.Fprintf(&b, "%s, %s. Next: %s\n", count(r.Faults, "fault"), count(r.Warnings, "warning"), r.Next)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lines are one line for an item, and its place and hint below.
func (i checkItem) lines() string {
	word := map[checkLevel]string{levelOK: "ok", levelWarn: "warn", levelFault: "FAULT"}[i.Level]
	text := i.text
	if text == "" {
		text = i.Message
		if i.Hint != "" {
			text += "\n" + i.Hint
		}
	}
	return fmt.Sprintf("  %-5s  %s\n", word, strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n         "))
}

func count(n int, what string) string {
	switch n {
	case 0:
		return "no " + what + "s"
	case 1:
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
