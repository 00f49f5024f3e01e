package desk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// line is one record of the journal. Exactly one of its pointers is set.
type line struct {
	Ref     string   `json:"ref"`
	Arrival *Arrival `json:"arrival,omitempty"`
	Row     *row     `json:"row,omitempty"`
	Removal *Removal `json:"removal,omitempty"`
}

// journal is an append-only file of JSON lines, held by one process at a time.
type journal struct {
	file   *os.File
	broken error // after a failed write nothing more is accepted: the tail is unknown
}

// openJournal opens or creates DIR/desk.jsonl, hands every whole line to replay
// and cuts off a torn last one.
func openJournal(dir string, replay func(line) error) (*journal, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("desk journal: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "desk.jsonl"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, fmt.Errorf("desk journal: %w", err)
	}
	if err := load(file, dir, replay); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &journal{file: file}, nil
}

func load(file *os.File, dir string, replay func(line) error) error {
	if err := lock(file); err != nil {
		return fmt.Errorf("desk journal %s is held by another process: %w", file.Name(), err)
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		return fmt.Errorf("desk journal: %w", err)
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	if whole < len(data) {
		if err := file.Truncate(int64(whole)); err != nil {
			return fmt.Errorf("desk journal: cut the torn line: %w", err)
		}
	}
	n := 0
	for text := range bytes.Lines(data[:whole]) {
		n++
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("desk journal %s line %d: %w", file.Name(), n, err)
		}
		if err := replay(l); err != nil {
			return fmt.Errorf("desk journal %s line %d: %w", file.Name(), n, err)
		}
	}
	return syncDir(dir)
}

// lock waits a little: a desk that was just killed may still be going away.
func lock(file *os.File) error {
	var err error
	for range 100 {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("desk journal: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("desk journal: sync %s: %w", dir, err)
	}
	return nil
}

// append writes one line. Only a durable one survives a power cut; every one
// survives the death of the process.
func (j *journal) append(l line, durable bool) error {
	if j == nil {
		return nil
	}
	if j.broken != nil {
		return j.broken
	}
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("desk journal: %w", err)
	}
	if _, err = j.file.Write(append(data, '\n')); err == nil && durable {
		err = j.file.Sync()
	}
	if err != nil {
		j.broken = fmt.Errorf("desk journal: %w", err)
	}
	return j.broken
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return j.file.Close()
}
