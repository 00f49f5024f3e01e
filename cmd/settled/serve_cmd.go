package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/settled-dev/settled/daemon/config"
)

// serveMain is `settled serve`.
func serveMain(args []string) int {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	file := flags.String("config", "", "configuration `FILE` (SETTLED_CONFIG)")
	hold := flags.String("hold", "", "start with dispatch held, for this `REASON`")
	level := flags.String("log-level", "info", "debug, info, warn or error")
	format := flags.String("log-format", "auto", "auto (tint on a terminal), text or json")
	if err := flags.Parse(args); err != nil {
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
	if err := runServe(stop, hurry, cfg, log, *hold, nil); err != nil {
		log.Error("settled ends", "err", err)
		return exitStatus(err)
	}
	return 0
}

// newLogger is tint on a terminal and plain text elsewhere, or what is asked for.
func newLogger(format, level string) (*slog.Logger, error) {
	var min slog.Level
	if err := min.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q is none of debug, info, warn, error", level)
	}
	opts := &slog.HandlerOptions{Level: min}
	terminal := term.IsTerminal(int(os.Stderr.Fd()))
	switch {
	case format == "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, opts)), nil
	case format == "text", format == "auto" && !terminal:
		return slog.New(slog.NewTextHandler(os.Stderr, opts)), nil
	case format == "auto":
		return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{Level: min, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != ""})), nil
	}
	return nil, fmt.Errorf("--log-format %q is none of auto, text, json", format)
}
