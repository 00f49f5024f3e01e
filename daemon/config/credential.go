package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxCredential bounds one secret, in bytes, as systemd does.
const maxCredential = 1 << 20

// Credential reads one secret by name: from $CREDENTIALS_DIRECTORY where
// systemd gives it, else from credentials.dir. Only names that a destination
// lists, and journal.chain_key, can be read. One line end at the end is not
// part of the secret. A file that others on the machine can read is refused.
func (c *Config) Credential(name string) (string, error) {
	if !validName(name) {
		return "", fmt.Errorf("%q cannot name a credential: %s", name, nameRule)
	}
	if !c.mayRead(name) {
		return "", fmt.Errorf("credential %q is listed by no destination; add it to the credentials of the one that needs it", name)
	}
	for _, dir := range []string{c.opts.env("CREDENTIALS_DIRECTORY"), c.Credentials.Dir} {
		if dir == "" {
			continue
		}
		secret, err := readCredential(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("credential %q: %w", name, err)
		}
		return secret, nil
	}
	path := filepath.Join(c.Credentials.Dir, name)
	return "", fmt.Errorf("credential %q is nowhere; add LoadCredential=%s:%s to the unit, or: install -m 0640 -g settled /dev/stdin %s: %w",
		name, name, path, path, fs.ErrNotExist)
}

// Secrets reads all credentials of one destination, by name. The result goes
// to the adapter's Configure and nowhere else.
func (c *Config) Secrets(destination string) (map[string]string, error) {
	d := c.Destinations[destination]
	if d == nil {
		return nil, fmt.Errorf("there is no destination %q", destination)
	}
	out := map[string]string{}
	var all error
	for _, name := range d.Credentials {
		s, err := c.Credential(name)
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		out[name] = s
	}
	if all != nil {
		return nil, all
	}
	return out, nil
}

func (c *Config) mayRead(name string) bool {
	if name == c.Journal.ChainKey {
		return true
	}
	for _, d := range c.Destinations {
		if slices.Contains(d.Credentials, name) {
			return true
		}
	}
	return false
}

// readCredential checks the open file, not the path: what was checked is what is read.
func readCredential(path string) (string, error) {
	// Without O_NONBLOCK a FIFO of that name would block the daemon for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !fi.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	if fi.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("%s can be read or changed by every user of this machine (mode %04o); type: chmod o-rwx %s, then replace the secret, which others may know", path, fi.Mode().Perm(), path)
	}
	if fi.Size() > maxCredential {
		return "", fmt.Errorf("%s is larger than %d bytes", path, maxCredential)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCredential+1))
	if err != nil {
		return "", err
	}
	s := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if s == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return s, nil
}
