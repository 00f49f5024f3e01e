package exec

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// killMarked kills every process whose environment holds the mark, and reports
// whether all are known to be dead. It finds those that left the command's group
// with setsid; one that also emptied its environment only a cgroup holds.
func killMarked(mark string) bool {
	// A dying process loses its environment before it closes its connections, so
	// those seen once are waited for by descriptor.
	seen := map[int]int{}
	defer func() {
		for _, fd := range seen {
			_ = unix.Close(fd)
		}
	}()
	for deadline := time.Now().Add(killBound); ; time.Sleep(time.Millisecond) {
		whole := findMarked(mark, seen)
		for pid, fd := range seen {
			if unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == unix.ESRCH || zombie(pid) {
				_ = unix.Close(fd)
				delete(seen, pid)
			}
		}
		if whole && len(seen) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// findMarked adds a descriptor of every living process that holds the mark. It
// is false when not all could be looked at.
func findMarked(mark string, seen map[int]int) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	whole := true
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || seen[pid] != 0 || !marked(pid, mark) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err != nil:
			whole = whole && err == unix.ESRCH
		case marked(pid, mark): // the number was not given to another meanwhile
			seen[pid] = fd
		default:
			_ = unix.Close(fd)
			whole = false // look again
		}
	}
	return whole
}

func marked(pid int, mark string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(kv []byte) bool { return string(kv) == mark })
}

// zombie is a process that can do nothing any more and waits to be reaped.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	after := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(after) > 0 && (after[0] == 'Z' || after[0] == 'X')
}
