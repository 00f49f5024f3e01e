package systemd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// manager is the other end: a datagram socket as systemd and journald have one.
func manager(t *testing.T) (path string, next func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return path, func() string {
		t.Helper()
		buf := make([]byte, 64<<10)
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func env(m map[string]string) func(string) string { return func(k string) string { return m[k] } }

func TestTheManagerIsToldInItsOwnWords(t *testing.T) {
	path, next := manager(t)
	n := NewNotifier(env(map[string]string{"NOTIFY_SOCKET": path}))
	for _, c := range []struct {
		send func() error
		want string
	}{
		{func() error { return n.Ready("ready") }, "READY=1\nSTATUS=ready"},
		{func() error { return n.Status("two\nlines") }, "STATUS=two lines"},
		{func() error { return n.Stopping("3 in flight") }, "STOPPING=1\nSTATUS=3 in flight"},
		{func() error { return n.Extend(15*time.Second, "x") }, "EXTEND_TIMEOUT_USEC=15000000\nSTATUS=x"},
		{n.Alive, "WATCHDOG=1"},
	} {
		if err := c.send(); err != nil {
			t.Fatal(err)
		}
		if got := next(); got != c.want {
			t.Errorf("the manager read %q, want %q", got, c.want)
		}
	}
}

func TestWithoutAManagerNobodyIsTold(t *testing.T) {
	n := NewNotifier(env(nil))
	if err := n.Ready("x"); err != nil || n.Listening() {
		t.Errorf("Ready = %v, Listening = %v; want nothing to happen", err, n.Listening())
	}
	if err := (Notifier{socket: "/no/such/socket"}).Alive(); err == nil {
		t.Error("a manager that is not there gave no error")
	}
}

func TestTheWatchdogIsFedAThirdOfItsTime(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"60000000", "", 20 * time.Second}, {"60000000", me, 20 * time.Second}, {"60000000", "1", 0}, {"", "", 0}, {"soon", "", 0},
	} {
		if got := WatchdogInterval(env(map[string]string{"WATCHDOG_USEC": c.usec, "WATCHDOG_PID": c.pid})); got != c.want {
			t.Errorf("%s us for pid %q: %s, want %s", c.usec, c.pid, got, c.want)
		}
	}
}

// A loop that does not turn starves the watchdog; a good look feeds it again.
func TestADaemonThatHangsIsNotFed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		looks, fails := 0, 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			Notifier{}.Supervise(ctx, time.Second, func(look context.Context) (string, error) {
				looks++
				if looks == 2 {
					<-look.Done() // hangs, and is given up after the interval
					return "", errors.New("a loop does not turn")
				}
				return "well", nil
			}, func(error) { fails++ })
		}()
		time.Sleep(5*time.Second + time.Millisecond)
		cancel()
		<-done
		if looks < 3 || fails != 1 {
			t.Errorf("%d looks, %d failures; want more than two looks and one failure", looks, fails)
		}
	})
}

func TestASocketOfTheManagerIsTakenAndLeftInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	e := env(map[string]string{"LISTEN_PID": "7", "LISTEN_FDS": "1"})
	if got, err := listener(e, 8, f.Fd()); got != nil || err != nil {
		t.Errorf("a socket for another process: %v, %v", got, err)
	}
	if _, err := listener(env(map[string]string{"LISTEN_PID": "7", "LISTEN_FDS": "2"}), 7, f.Fd()); err == nil {
		t.Error("two sockets were taken")
	}
	got, err := listener(e, 7, dup(t, f))
	if err != nil || got == nil {
		t.Fatalf("listener: %v, %v", got, err)
	}
	if err := errors.Join(got.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("closing removed the manager's socket: %v", err)
	}
}

func dup(t *testing.T, f *os.File) uintptr {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var out uintptr
	if err := raw.Control(func(fd uintptr) {
		n, derr := syscall.Dup(int(fd))
		out, err = uintptr(n), derr
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryAttributeIsAFieldOfTheJournal(t *testing.T) {
	path, next := manager(t)
	h, err := NewJournalHandler(path, slog.LevelInfo, slog.DiscardHandler)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(h).With("destination", "desk")
	log.Debug("not this one")
	log.Warn("it is not known", "key", "ticket:1:create:v1", "err", errors.New("two\nlines"), slog.Group("adapter", "name", "http"))
	got := decode(t, next())
	for name, want := range map[string]string{
		"MESSAGE":  `it is not known destination=desk key=ticket:1:create:v1 err="two\nlines" adapter_name=http`,
		"PRIORITY": "4", "SYSLOG_IDENTIFIER": "settled", "SETTLED_KEY": "ticket:1:create:v1",
		"SETTLED_DESTINATION": "desk", "SETTLED_ERR": "two\nlines", "SETTLED_ADAPTER_NAME": "http",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
}

func TestWhatJournaldDoesNotTakeGoesToStandardError(t *testing.T) {
	path, _ := manager(t)
	var out bytes.Buffer
	h, err := NewJournalHandler(path, slog.LevelInfo, slog.NewTextHandler(&out, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	h.(*journalHandler).conn.conn.Close()
	slog.New(h).With("destination", "desk").Error("lost?", "key", "k")
	if !strings.Contains(out.String(), "lost?") || !strings.Contains(out.String(), "destination=desk") {
		t.Errorf("standard error has %q", out.String())
	}
}

// decode reads journald's protocol as journald does.
func decode(t *testing.T, s string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for s != "" {
		name, rest, ok := strings.Cut(s, "\n")
		if !ok || len(rest) < 8 {
			t.Fatalf("broken entry at %q", s)
		}
		n := binary.LittleEndian.Uint64([]byte(rest[:8]))
		out[name], s = rest[8:8+n], rest[8+n+1:]
	}
	return out
}
