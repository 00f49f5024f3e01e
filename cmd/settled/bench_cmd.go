package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

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
	restart := flags.Int("restart", 0, "measure the start after kill -9 with so many calls in flight, and the idle use after it")
	hang := flags.Int("hang", 0, "for --restart itself: put calls in flight that are never answered")
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
	if *hang > 0 {
		return benchStatus(runHang(context.Background(), o, *hang, os.Stdout))
	}
	if *restart > 0 {
		line, err := runRestart(context.Background(), o, *restart, o.duration)
		if err == nil {
			err = showRestart(os.Stdout, line, *asJSON)
		}
		return benchStatus(err)
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
			fmt.Fprintf(w, "%9s %10s %8s %8s %8s %8s %14s %14s %12s %9s %8s\n",
				"in flight", "effects/s", "of raw", "sent p50", "p50 ms", "p99 ms", "fsyncs/effect", "KiB/effect", "CPU us", "RSS MiB", "rows")
		}
		_, err := fmt.Fprintf(w, "%9d %10.0f %7.1f%% %8.2f %8.2f %8.2f %14.3f %14.1f %12.0f %9.1f %8d\n",
			l.InFlight, l.EffectsPerS, 100*l.EffectsPerS/l.RawRows, l.DispatchedP50, l.P50, l.P99, l.Fsyncs, l.DiskBytes/1024, l.CPU, l.RSS, l.SettledRows)
		return err
	}
}
