package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const runPrefix, runSuffix = "adapter-", ".run"

// runFile says which process a daemon started. It is written before the child
// exists, with the process number 0, and removed when the child is proven dead.
type runFile struct {
	Name   string `json:"name"`
	PID    int    `json:"pid"`   // 0 = find it by its mark
	Start  uint64 `json:"start"` // clock ticks since boot
	BootID string `json:"boot_id"`
	Mark   string `json:"mark"`
	Cgroup string `json:"cgroup,omitempty"`

	path string
}

func newRunFile(dir, name, mark string) *runFile {
	id, _ := bootID() // unreadable: empty, and then equal to itself
	return &runFile{Name: name, BootID: id, Mark: mark, path: filepath.Join(dir, runPrefix+mark+runSuffix)}
}

func (f *runFile) write() error {
	raw, err := json.Marshal(f)
	if err != nil {
		return err
	}
	tmp := f.path + ".new"
	if err := os.WriteFile(tmp, raw, 0o600); err != nil {
		return fmt.Errorf("cannot write the run file: %w", err)
	}
	if err := os.Rename(tmp, f.path); err != nil {
		return fmt.Errorf("cannot write the run file: %w", err)
	}
	return nil
}

func (f *runFile) remove() { _ = os.Remove(f.path) }

// Orphan is a process that an earlier daemon left and that was killed.
type Orphan struct {
	Name string // of the command
	PID  int
}

// ReapOrphans proves dead what an earlier daemon started in this runtime
// directory, and removes its files. Call it once at start, before anything is
// concluded about lost attempts, and only while holding the lock that keeps a
// second daemon out: it kills whatever the files name.
//
// An error names a process that could not be proven dead in three seconds;
// nothing may then be concluded about its attempts. Its file stays.
func ReapOrphans(runtimeDir string) ([]Orphan, error) {
	files, err := filepath.Glob(filepath.Join(runtimeDir, runPrefix+"*"+runSuffix))
	if err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, fmt.Errorf("cannot tell whether the machine was booted since: %w", err)
	}
	var killed []Orphan
	var failures []error
	for _, path := range files {
		list, err := reap(path, boot)
		killed = append(killed, list...)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		_ = os.Remove(path)
	}
	if len(failures) == 0 {
		removeLeftovers(runtimeDir)
	}
	return killed, errors.Join(failures...)
}

// removeLeftovers removes socket directories and half-written run files of a daemon that is gone.
func removeLeftovers(dir string) {
	for _, pattern := range []string{"plugin-dir*", runPrefix + "*" + runSuffix + ".new"} {
		paths, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, p := range paths {
			_ = os.RemoveAll(p)
		}
	}
}

func reap(path, boot string) ([]Orphan, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f runFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("the run file %s is damaged; make sure that no adapter runs, then remove it: %w", path, err)
	}
	if f.BootID != boot || f.Mark == "" {
		return nil, nil // nothing survives a boot
	}
	g := &cgroup{path: f.Cgroup, fd: -1}
	if !strings.Contains(filepath.Base(f.Cgroup), f.Mark) { // never a group that is not the run's own
		g = nil
	}
	h := newHunt(f.ownGroup(), f.Mark)
	for end := time.Now().Add(killBound); ; time.Sleep(5 * time.Millisecond) {
		g.kill()
		pids, err := h.kill()
		if err == nil && len(pids) == 0 && g.empty() {
			if g != nil {
				_ = os.Remove(g.path)
			}
			return f.orphans(h), nil
		}
		if time.Now().After(end) {
			return f.orphans(h), fmt.Errorf("processes %v of adapter %s are not proven dead after %s; end them, then start again",
				pids, f.Name, killBound)
		}
	}
}

func (f *runFile) orphans(h *hunt) []Orphan {
	var list []Orphan
	for _, pid := range slices.Sorted(maps.Keys(h.seen)) {
		list = append(list, Orphan{Name: f.Name, PID: pid})
	}
	return list
}

// ownGroup is the group of the run, if its number is still surely the run's:
// while the leader is the process that was started. It is 0 otherwise.
func (f *runFile) ownGroup() int {
	s, err := readStat(f.PID)
	if f.PID > 1 && err == nil && s.start == f.Start && s.group == f.PID && f.PID != unix.Getpgrp() {
		return f.PID
	}
	return 0
}
