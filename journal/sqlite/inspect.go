package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Inspection is what can be told of a journal without working with it.
type Inspection struct {
	Exists         bool
	Holder         string // who works with it, "pid 123"; "" = nobody
	Schema, Newest int64  // of the file, and of this program
	ID             string
	Epoch, Head    int64
	Unclean        bool   // the last daemon stopped without Close
	DispatchOff    string // why nothing is sent; "" = dispatch is on
	Restored       string // why the next start will take it for a restored journal; "" = it will not
	KeyErr         error  // why the next start will refuse the key of the event chain
}

// Inspect looks at a journal, with a daemon running or not. It changes nothing,
// makes no file and holds no lock when it returns; it waits for nobody. An error
// wraps [ErrConfig] when the file cannot be opened or is no journal, and
// [ErrCorrupt] when it is damaged. With a newer schema only Holder, Schema and
// Newest are known. With a daemon running Restored is not asked for: the marker
// follows the journal.
func Inspect(ctx context.Context, opts Options) (in Inspection, err error) {
	opts = opts.withDefaults()
	steps, err := migrations()
	if err != nil {
		return in, err
	}
	in.Newest = int64(len(steps))
	if in.Holder, err = lockHolder(filepath.Dir(opts.Path)); err != nil {
		return in, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if _, err := os.Stat(opts.Path); errors.Is(err, fs.ErrNotExist) {
		in.Restored, err = restoredWhy(opts.GenerationPath, mark{}, true)
		return in, err
	} else if err != nil {
		return in, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	in.Exists = true
	c, err := dial(dsn(opts.Path, inspectQuery(opts.Path)))
	if err != nil {
		return in, storageError(err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return in, storageError(in.read(ctx, c, opts))
}

// inspectQuery reads beside the log where there is one. Without one nobody works
// with the file, and only an immutable one makes no files beside it.
func inspectQuery(path string) string {
	if st, err := os.Stat(path + "-wal"); err == nil && st.Size() > 0 {
		return "mode=ro&_busy_timeout=2000&_query_only=on"
	}
	return "mode=ro&immutable=1&_query_only=on"
}

// lockHolder names who holds the lock of a journal's directory. It is taken
// shared for the blink of the question, and never made.
func lockHolder(dir string) (string, error) {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil:
		return "", nil // closing the file releases it
	case !errors.Is(err, syscall.EWOULDBLOCK):
		return "", err
	}
	name := make([]byte, 32)
	n, _ := f.ReadAt(name, 0)
	return orUnknown(string(name[:n])), nil
}

func (in *Inspection) read(ctx context.Context, c *conn, opts Options) (err error) {
	if in.Schema, err = c.oneInt(ctx, "PRAGMA user_version"); err != nil {
		return err
	}
	if err := ours(c, in.Schema); err != nil {
		return err
	}
	if in.Schema == 0 || in.Schema > in.Newest {
		return nil
	}
	var running, epoch string
	for name, into := range map[string]*string{
		"journal_id": &in.ID, "running": &running, "epoch": &epoch, "dispatch_off": &in.DispatchOff,
	} {
		if *into, err = inspectSetting(ctx, c, name); err != nil {
			return err
		}
	}
	_, _ = fmt.Sscan(epoch, &in.Epoch) // "" is a journal that no daemon has begun
	in.Unclean = running == "1" && in.Holder == ""
	h, err := readHead(ctx, c)
	if err != nil {
		return err
	}
	in.Head = h.seq
	if in.KeyErr = inspectKey(ctx, c, opts, in.ID); in.Holder != "" {
		return nil
	}
	in.Restored, err = restoredWhy(opts.GenerationPath, mark{in.ID, in.Epoch, in.Head}, in.ID == "")
	if copied, serr := inspectSetting(ctx, c, "copied_at"); in.Restored == "" && copied != "" {
		in.Restored = "the journal is the backup of " + copied
	} else if err == nil {
		err = serr
	}
	return err
}

func inspectSetting(ctx context.Context, c *conn, name string) (string, error) {
	s, err := c.oneStr(ctx, "SELECT value FROM setting WHERE name=?", name)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return s, err
}

// inspectKey says why Open would refuse the key. It makes none.
func inspectKey(ctx context.Context, c *conn, opts Options, id string) error {
	if id == "" && opts.ChainKey == nil {
		return nil // Open makes one
	}
	key, err := chainKey(opts, false)
	if err != nil {
		return err
	}
	want, err := inspectSetting(ctx, c, "chain_key_id")
	if err == nil && want != "" && want != keyID(key) {
		err = fmt.Errorf("%w: the chain was written with key %s, the one given is %s", ErrConfig, want, keyID(key))
	}
	return err
}
