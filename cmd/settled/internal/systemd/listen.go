package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// firstFD is where the manager puts the first socket.
const firstFD = 3

// Listener returns the socket that systemd bound for this process, or nil when
// it bound none. More than one is an error: the daemon has one door. The path
// stays with systemd: closing the listener does not remove it.
func Listener(getenv func(string) string) (net.Listener, error) {
	return listener(getenv, os.Getpid(), firstFD)
}

func listener(getenv func(string) string, pid int, fd uintptr) (net.Listener, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(pid) {
		return nil, nil
	}
	n, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || n == 0 {
		return nil, nil
	}
	if n != 1 {
		return nil, fmt.Errorf("systemd handed over %d sockets, one is expected: give settled.socket one ListenStream", n)
	}
	f := os.NewFile(fd, "socket of systemd")
	l, err := net.FileListener(f) // a duplicate, closed at exec
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("take the socket of systemd: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("systemd handed over %s, a unix socket is expected", l.Addr().Network()), l.Close())
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}
