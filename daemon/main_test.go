package daemon_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Every goroutine that a daemon, a journal or a world started has ended.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
