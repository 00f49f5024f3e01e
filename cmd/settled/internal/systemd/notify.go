package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Notifier tells the service manager how the daemon is. The zero value tells nobody.
type Notifier struct{ socket string }

// NewNotifier takes the address that systemd gives in NOTIFY_SOCKET; without
// one it tells nobody.
func NewNotifier(getenv func(string) string) Notifier {
	return Notifier{socket: getenv("NOTIFY_SOCKET")}
}

// Listening reports whether anybody is told.
func (n Notifier) Listening() bool { return n.socket != "" }

// Ready says that recovery is done and work is taken.
func (n Notifier) Ready(status string) error { return n.send("READY=1", statusLine(status)) }

// Status shows one line in `systemctl status`.
func (n Notifier) Status(status string) error { return n.send(statusLine(status)) }

// Stopping says that the drain has begun.
func (n Notifier) Stopping(status string) error { return n.send("STOPPING=1", statusLine(status)) }

// Extend asks for that much time from now before a stop counts as hung.
func (n Notifier) Extend(d time.Duration, status string) error {
	return n.send("EXTEND_TIMEOUT_USEC="+strconv.FormatInt(d.Microseconds(), 10), statusLine(status))
}

// Alive feeds the watchdog.
func (n Notifier) Alive() error { return n.send("WATCHDOG=1") }

func statusLine(s string) string {
	return "STATUS=" + strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}

// send writes one datagram with all lines. A name that begins with @ is abstract.
func (n Notifier) send(lines ...string) error {
	if n.socket == "" {
		return nil
	}
	name := n.socket
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer c.Close()
	// A manager that does not read must not stop the daemon.
	err = c.SetWriteDeadline(time.Now().Add(time.Second))
	if err == nil {
		_, err = c.Write([]byte(strings.Join(lines, "\n")))
	}
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// WatchdogInterval is how often the watchdog of this process must be fed: a
// third of what the unit allows. 0 means that nobody watches.
func WatchdogInterval(getenv func(string) string) time.Duration {
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	us, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || us <= 0 {
		return 0
	}
	return time.Duration(us) * time.Microsecond / 3
}

// Supervise calls look every interval until ctx ends. It feeds the watchdog
// when look finds the daemon's loops turning, and lets it starve when not: the
// manager then ends the process, and the next start reads the journal. look
// returns the line for `systemctl status`; its context ends with the interval.
func (n Notifier) Supervise(ctx context.Context, every time.Duration, look func(context.Context) (string, error), failed func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		one, cancel := context.WithTimeout(ctx, every)
		status, err := look(one)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failed(errors.Join(err, n.Status("NOT WELL: "+err.Error())))
		default:
			if err := errors.Join(n.Alive(), n.Status(status)); err != nil {
				failed(err)
			}
		}
	}
}
