package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
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
		return slog.New(tint.NewHandler(os.Stderr, &tint.Options{Level: min, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != ""})), nil
	}
	return nil, fmt.Errorf("--log-format %q is none of auto, text, json", format)
}

// benchMain is `settled bench`.
func benchMain(args []string) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	inFlight := flags.String("in-flight", "1,16,64,256", "effects in flight, a level each")
	seconds := flags.Float64("seconds", 5, "how long each level runs")
	rows := flags.Int("settled-rows", 0, "settled effects to put into the journal first")
	proof := flags.String("proof", "ack", "ack or read")
	dir := flags.String("dir", "", "where the journal lies (default: a temporary directory)")
	asJSON := flags.Bool("json", false, "one JSON object a level")
	profile := flags.String("cpuprofile", "", "write the daemon's CPU profile of all levels to this `FILE`")
	gated := flags.Bool("gate", false, "measure the levels that have bounds, and fail where a count is above its bound")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	o := benchOptions{duration: time.Duration(*seconds * float64(time.Second)), settledRows: *rows, proof: *proof, dir: *dir}
	for _, part := range strings.Split(*inFlight, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || n > 4096 {
			fmt.Fprintf(os.Stderr, "settled bench: --in-flight %q: write numbers from 1 to 4096, as in 1,16,64\n", part)
			return 2
		}
		o.inFlight = append(o.inFlight, n)
	}
	if *proof != "ack" && *proof != "read" {
		fmt.Fprintln(os.Stderr, "settled bench: --proof is ack or read")
		return 2
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "settled bench: --cpuprofile:", err)
			return 1
		}
		defer f.Close()
		defer pprof.StopCPUProfile()
	}
	if *gated {
		err := runGates(context.Background(), benchGates(), os.Stdout, func(ctx context.Context, inFlight []int, show func(benchLine) error) error {
			o.inFlight = inFlight
			return runBench(ctx, o, show)
		})
		return benchStatus(err)
	}
	show := benchTable(os.Stdout)
	if *asJSON {
		encode := json.NewEncoder(os.Stdout)
		show = func(l benchLine) error { return encode.Encode(l) }
	}
	return benchStatus(runBench(context.Background(), o, show))
}

func benchStatus(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "settled bench:", err)
		return 1
	}
	return 0
}

// benchTable prints a line a level under one heading.
func benchTable(w *os.File) func(benchLine) error {
	begun := false
	return func(l benchLine) error {
		if !begun {
			begun = true
			fmt.Fprintf(w, "this machine: %.0f fdatasync/s, raw SQLite %.0f rows/s in groups of 64; proof = %s, synchronous = FULL\n", l.Fdatasync, l.RawRows, l.Proof)
			fmt.Fprintf(w, "%9s %10s %8s %8s %8s %14s %14s %12s %9s %8s\n",
				"in flight", "effects/s", "of raw", "p50 ms", "p99 ms", "fsyncs/effect", "KiB/effect", "CPU us", "RSS MiB", "rows")
		}
		_, err := fmt.Fprintf(w, "%9d %10.0f %7.1f%% %8.2f %8.2f %14.3f %14.1f %12.0f %9.1f %8d\n",
			l.InFlight, l.EffectsPerS, 100*l.EffectsPerS/l.RawRows, l.P50, l.P99, l.Fsyncs, l.DiskBytes/1024, l.CPU, l.RSS, l.SettledRows)
		return err
	}
}
