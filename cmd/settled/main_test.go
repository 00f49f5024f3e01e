package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settled-dev/settled/sdk/serve"
)

// TestMain lets the test binary be what the program starts: itself, as an
// adapter; and, under the name of a fake, an adapter of somebody else.
func TestMain(m *testing.M) {
	if a, ok := fakes()[filepath.Base(os.Args[0])]; ok {
		os.Exit(serve.Run(a, os.Args[1:]))
	}
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(run(os.Args[1:]))
	}
	// A program built with the race detector sleeps a second before it ends,
	// which check 09 of the kit would take for life after the daemon.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
