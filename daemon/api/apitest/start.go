package apitest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon/api"
)

// Start serves a service on a real Unix socket until the test ends, and returns the socket's path.
func Start(t testing.TB, svc api.Service, opts api.Options) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "settled") // short: a socket's path has a limit of about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- api.Serve(ctx, l, api.New(svc, opts), opts.Log, 5*time.Second) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return socket
}
