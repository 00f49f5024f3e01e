package desk

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a desk until SIGINT or SIGTERM and returns the exit status: 0 after
// a signal, 1 when it cannot run, 2 for wrong flags. Its first line on standard
// output is "listening URL".
func Main(args []string) int {
	cfg, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "desk: %v\n", err)
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	d, err := Start(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("listening %s\n", d.URL())
	<-ctx.Done()
	if err := d.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func parse(args []string) (Config, error) {
	var cfg Config
	flags := flag.NewFlagSet("desk", flag.ContinueOnError)
	flags.StringVar(&cfg.Listen, "listen", "127.0.0.1:0", "address to listen on")
	flags.StringVar(&cfg.Data, "data", "", "directory of the journal; empty keeps nothing")
	flags.StringVar(&cfg.Token, "token", "", "bearer token that callers must send")
	flags.StringVar(&cfg.RepairToken, "repair-token", "", "bearer token that alone may delete")
	flags.DurationVar(&cfg.Lag, "lag", 0, "a new ticket reaches the list this much later")
	flags.DurationVar(&cfg.DedupeWindow, "dedupe", 0, "answer the same Idempotency-Key again within this window")
	flags.BoolVar(&cfg.Mode.Unique, "unique", false, "refuse a second ticket of one external_ref with 409")
	plan := flags.String("plan", "", "faults by weight, as in none=6,lost-answer=2,late-commit:400ms=1,times=1")
	seed := flags.Uint64("seed", 1, "seed of the plan")
	if err := flags.Parse(args); err != nil {
		return Config{}, err
	}
	if flags.NArg() > 0 {
		return Config{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	parsed, err := ParsePlan(*seed, *plan)
	cfg.Plan = parsed
	return cfg, err
}
