package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stat is what /proc/PID/stat says of a process.
type stat struct {
	state byte
	group int
	start uint64 // clock ticks since boot
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

func readStat(pid int) (stat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The name in parentheses may hold anything, so count from its end.
	i := bytes.LastIndexByte(raw, ')')
	if i < 0 {
		return stat{}, fmt.Errorf("/proc/%d/stat is malformed", pid)
	}
	f := strings.Fields(string(raw[i+1:]))
	if len(f) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat is malformed", pid)
	}
	group, err1 := strconv.Atoi(f[2])
	start, err2 := strconv.ParseUint(f[19], 10, 64)
	return stat{state: f[0][0], group: group, start: start}, errors.Join(err1, err2)
}

func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw)), err
}

// hunt finds the living processes of one run.
type hunt struct {
	group int // 0 = the group's number is not surely the run's
	mark  string
	// seen are those found so far, with their start: a dying process loses its
	// environment, and so its mark, before it closes its connections.
	seen map[int]uint64
}

func newHunt(group int, mark string) *hunt {
	return &hunt{group: group, mark: mark, seen: map[int]uint64{}}
}

// living lists who is in the group, carries the mark, or did when it was seen
// before. Our own process is never one.
func (h *hunt) living() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if start, is := h.is(pid); is {
			h.seen[pid] = start
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (h *hunt) is(pid int) (start uint64, is bool) {
	s, err := readStat(pid)
	if err != nil || s.dead() {
		return 0, false
	}
	before, was := h.seen[pid]
	return s.start, was && before == s.start || h.group != 0 && s.group == h.group ||
		marked(pid, []byte(runMark+"="+h.mark))
}

// kill kills who is living, and lists them.
func (h *hunt) kill() ([]int, error) {
	pids, err := h.living()
	for _, pid := range pids {
		h.killOne(pid)
	}
	return pids, err
}

// killOne kills the very process that passes the test: the number could have
// been given to another since it was read, but not while a descriptor holds it.
func (h *hunt) killOne(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if _, is := h.is(pid); is {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

func marked(pid int, want []byte) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil { // gone, or another user's, which ours cannot have become
		return false
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(kv, want) {
			return true
		}
	}
	return false
}
