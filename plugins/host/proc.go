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

// remains lists the living processes of a run: the members of its group, if
// group is not 0, and whoever carries its mark. Our own process is never one.
func remains(group int, mark string) ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	want := []byte(runMark + "=" + mark)
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		s, err := readStat(pid)
		if err != nil || s.dead() {
			continue
		}
		if group != 0 && s.group == group || marked(pid, want) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
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

// killIf sends SIGKILL to the very process that still passes the test: the
// number could have been given to another since it was read.
func killIf(pid int, still func() bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if still() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
