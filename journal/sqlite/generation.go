package sqlite

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// mark is what the generation marker remembers of the journal. It lies in
// another directory and is written after the commit that it speaks of, so in
// honest life it is never ahead of the journal. A journal that is behind its
// marker, or has another id, came from a backup.
type mark struct {
	id    string
	epoch int64
	head  int64
}

func (m mark) String() string {
	return fmt.Sprintf("settled-generation v1 %s %d %d\n", m.id, m.epoch, m.head)
}

// markerEvery bounds how often the marker follows the chain, and so how much of a rollback could go unnoticed.
const markerEvery = 5 * time.Second

func readMark(path string) (mark, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return mark{}, err
	}
	var m mark
	if _, err := fmt.Sscanf(string(b), "settled-generation v1 %s %d %d", &m.id, &m.epoch, &m.head); err != nil {
		return mark{}, fmt.Errorf("generation marker %s is unreadable: %w", path, err)
	}
	return m, nil
}

// restoredWhy compares the journal with its marker. Empty means that the journal is the newest there is.
func restoredWhy(path string, now mark, fresh bool) (string, error) {
	m, err := readMark(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && fresh:
		return "", nil
	case errors.Is(err, fs.ErrNotExist):
		return "the generation marker " + path + " is missing", nil
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("%w: %w", ErrConfig, err)
	case err != nil:
		return err.Error(), nil
	case fresh:
		return fmt.Sprintf("the journal is new, but the marker knows journal %s at epoch %d", m.id, m.epoch), nil
	case m.id != now.id:
		return fmt.Sprintf("the marker belongs to journal %s, this is %s", m.id, now.id), nil
	case m.epoch > now.epoch:
		return fmt.Sprintf("the marker has seen epoch %d, the journal only %d", m.epoch, now.epoch), nil
	case m.head > now.head:
		return fmt.Sprintf("the marker has seen event %d, the journal ends at %d", m.head, now.head), nil
	}
	return "", nil
}

// writeMark replaces the marker whole: a new file, fsync, rename, fsync of the directory.
func writeMark(path string, m mark) error { return replaceFile(path, []byte(m.String()), 0o640) }

func replaceFile(path string, data []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// keyPath is where the chain's key lies when no credential is configured: beside the marker.
func keyPath(generation string) string { return generation + ".key" }

// chainKey returns the key of the event chain: the given one, or that of the
// key file, which is made once with mode 0600.
func chainKey(opts Options, fresh bool) ([]byte, error) {
	if opts.ChainKey != nil {
		if len(opts.ChainKey) < 16 {
			return nil, fmt.Errorf("%w: the chain key has %d bytes, 16 are the least", ErrConfig, len(opts.ChainKey))
		}
		return opts.ChainKey, nil
	}
	path := keyPath(opts.GenerationPath)
	key, err := ReadChainKey(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if !fresh {
		return nil, fmt.Errorf("%w: the chain key %s is missing; put it back from where the journal came, or name it with journal.chain_key",
			ErrConfig, path)
	}
	raw := make([]byte, 32)
	rand.Read(raw)
	if err := replaceFile(path, []byte(hex.EncodeToString(raw)+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("%w: make the chain key: %w", ErrConfig, err)
	}
	return raw, nil
}

// ReadChainKey reads a key file as Open makes it. It refuses a file that others can read.
func ReadChainKey(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s can be read by others (mode %o); chmod 0600 it", ErrConfig, path, st.Mode().Perm())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(key) < 16 {
		return nil, fmt.Errorf("%w: %s is not a chain key", ErrConfig, path)
	}
	return key, nil
}

// keyID names a key without telling it.
func keyID(key []byte) string {
	sum := sha256.Sum256(append([]byte("settled.key-id.v1"), key...))
	return hex.EncodeToString(sum[:8])
}
