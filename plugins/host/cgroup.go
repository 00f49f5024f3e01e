package host

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroup is one child's own control group: nothing that it starts can leave it.
// The nil cgroup is "there is none": the process group and the mark then stand alone.
type cgroup struct {
	path string
	fd   int
}

// newCgroup makes a group below ours in the version 2 hierarchy, wherever that
// is mounted. It returns nil where none can be made or killed as a whole.
func newCgroup(mark string) *cgroup {
	base := ownCgroup()
	if base == "" {
		return nil
	}
	path := filepath.Join(base, "settled-adapter-"+mark)
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil
	}
	g := &cgroup{path: path}
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil || unix.Access(filepath.Join(path, "cgroup.kill"), unix.W_OK) != nil {
		if err == nil {
			_ = unix.Close(fd)
		}
		_ = os.Remove(path)
		return nil
	}
	g.fd = fd
	return g
}

// ownCgroup is the directory of our group in the version 2 hierarchy, or empty.
func ownCgroup() string {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer mounts.Close()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	rel := ""
	for line := range strings.Lines(string(own)) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			rel = p
		}
	}
	for s := bufio.NewScanner(mounts); s.Scan() && rel != ""; {
		before, after, ok := strings.Cut(s.Text(), " - ")
		f := strings.Fields(before)
		if ok && strings.HasPrefix(after, "cgroup2 ") && len(f) >= 5 && (f[3] == "/" || strings.HasPrefix(rel, f[3])) {
			return filepath.Join(f[4], strings.TrimPrefix(rel, strings.TrimSuffix(f[3], "/")))
		}
	}
	return ""
}

func (g *cgroup) kill() {
	if g != nil {
		_ = os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0o200)
	}
}

// empty reports that no process is left in it. A group that is gone is empty.
func (g *cgroup) empty() bool {
	if g == nil {
		return true
	}
	raw, err := os.ReadFile(filepath.Join(g.path, "cgroup.events"))
	return os.IsNotExist(err) || err == nil && bytes.Contains(raw, []byte("populated 0"))
}

func (g *cgroup) remove() {
	if g != nil {
		_ = unix.Close(g.fd)
		_ = os.Remove(g.path)
	}
}
