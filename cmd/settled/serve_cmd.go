package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/settled-dev/settled/cmd/settled/internal/systemd"
	"github.com/settled-dev/settled/daemon/config"
)

// serveMain is `settled serve`.
func serveMain(args []string) int {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	file := flags.String("config", "", "configuration `FILE` (SETTLED_CONFIG)")
	var hold holdFlag
	flags.Var(&hold, "hold", "start with dispatch held; --hold=`WHY` gives a reason. Undo with: settled release all")
	level := flags.String("log-level", "info", "debug, info, warn or error")
	format := flags.String("log-format", "auto", "auto (colours on a terminal, fields in the journal under systemd), text or json")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "settled serve takes no argument %q; name the configuration with --config FILE\n", flags.Arg(0))
		return exitUsage
	}
	log, err := newLogger(*format, *level)
	if err != nil {
		fmt.Fprintln(os.Stderr, "settled serve:", err)
		return exitUsage
	}
	cfg, err := config.Open(*file, config.FromOS())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitConfig
	}
	for _, w := range cfg.Warnings {
		log.Warn(w.Message, "key", w.Key, "file", w.File, "line", w.Line)
	}
	stop, hurry, release := signals(context.Background())
	defer release()
	if err := runServe(stop, hurry, cfg, log, serveOptions{*file, string(hold), os.Getenv}); err != nil {
		log.Error("settled ends", "err", err)
		return exitStatus(err)
	}
	return 0
}

// holdFlag is --hold, with or without a reason.
type holdFlag string

func (h *holdFlag) String() string   { return string(*h) }
func (h *holdFlag) IsBoolFlag() bool { return true }
func (h *holdFlag) Set(s string) error {
	switch s {
	case "true":
		s = "started with --hold"
	case "false":
		s = ""
	}
	*h = holdFlag(s)
	return nil
}

// newLogger writes for people on a terminal, with fields under systemd and plain
// text elsewhere, or what is asked for.
func newLogger(format, level string) (*slog.Logger, error) {
	var min slog.Level
	if err := min.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q is none of debug, info, warn, error", level)
	}
	opts := &slog.HandlerOptions{Level: min}
	terminal := term.IsTerminal(int(os.Stderr.Fd()))
	switch {
	case format == "auto" && systemd.UnderJournal(os.Getenv):
		h, err := systemd.NewJournalHandler(systemd.JournalSocket, min, slog.NewTextHandler(os.Stderr, opts))
		if err == nil {
			return slog.New(h), nil
		}
		return slog.New(slog.NewTextHandler(os.Stderr, opts)), nil // journald reads the text, too
	case format == "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, opts)), nil
	case format == "text", format == "auto" && !terminal:
		return slog.New(slog.NewTextHandler(os.Stderr, opts)), nil
	case format == "auto":
		return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{Level: min, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != ""})), nil
	}
	return nil, fmt.Errorf("--log-format %q is none of auto, text, json", format)
}
