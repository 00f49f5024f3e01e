package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command says what to start and where. It comes from the operator's
// configuration only; no request of a client may set any of it.
type Command struct {
	Name       string        // the destination, for logs, errors and file names
	Path       string        // absolute, without symbolic links; empty = this very program
	Args       []string      // arguments after the program's name
	SHA256     string        // hexadecimal pin; required unless the program is our own
	Env        []string      // NAME=value, added to the allow-list; for no secret
	RuntimeDir string        // of this user, mode 0700, at most 69 bytes long: sockets and run files
	Timeout    time.Duration // for spawn and handshake, and again for Configure; 0 = 15 s
	Linger     time.Duration // how long a dispatch stays open past its deadline; 0 = 10 s
	CheckStart bool          // Check must not be down for a start to succeed
	NoCgroup   bool          // use the process group alone, even where a cgroup could be made
	Log        *slog.Logger  // gets what the adapter logs; nil = discard
}

const (
	defaultTimeout = 15 * time.Second
	defaultLinger  = 10 * time.Second
	describeLimit  = 5 * time.Second
	// maxRuntimeDir leaves room for "/plugin-dir0123456789/plugin0123456789" in the 107 bytes of a socket's path.
	maxRuntimeDir = 107 - 38
)

// withDefaults checks what can be checked without touching the program.
func (c Command) withDefaults() (Command, error) {
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.Linger <= 0 {
		c.Linger = defaultLinger
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if !filepath.IsAbs(c.RuntimeDir) {
		return c, fmt.Errorf("the runtime directory %q must be an absolute path", c.RuntimeDir)
	}
	if n := len(c.RuntimeDir); n > maxRuntimeDir {
		return c, fmt.Errorf("the runtime directory %q has %d bytes and sockets in it would not fit; choose a path of at most %d",
			c.RuntimeDir, n, maxRuntimeDir)
	}
	if err := os.MkdirAll(c.RuntimeDir, 0o700); err != nil {
		return c, fmt.Errorf("cannot make the runtime directory: %w", err)
	}
	return c, nil
}

// program is an open executable: what is executed is this descriptor.
type program struct {
	file   *os.File
	name   string // argv[0]
	digest string // hex
}

// openProgram opens, judges and hashes the program. The caller closes the file.
func openProgram(c Command) (_ *program, err error) {
	path := c.Path
	if path == "" {
		path = "/proc/self/exe"
	}
	// O_NONBLOCK, because somebody may have put a pipe there.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open the adapter %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot stat the adapter %s: %w", path, err)
	}
	own, err := isOwnProgram(info)
	if err != nil {
		return nil, err
	}
	if !own {
		if err := judge(path, info, c.SHA256); err != nil {
			return nil, err
		}
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, fmt.Errorf("cannot read the adapter %s: %w", path, err)
	}
	p := &program{file: f, name: path, digest: hex.EncodeToString(h.Sum(nil))}
	if c.SHA256 != "" && !strings.EqualFold(c.SHA256, p.digest) {
		return nil, &PinError{Path: path, Want: strings.ToLower(c.SHA256), Have: p.digest}
	}
	return p, nil
}

// PinError is a program that is not the one that was pinned.
type PinError struct{ Path, Want, Have string }

func (e *PinError) Error() string {
	return fmt.Sprintf("the adapter %s has the SHA-256 %s, but %s is pinned; if you replaced it on purpose, pin the new value", e.Path, e.Have, e.Want)
}

func isOwnProgram(info fs.FileInfo) (bool, error) {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false, fmt.Errorf("cannot look at our own program: %w", err)
	}
	return os.SameFile(self, info), nil
}

// judge refuses a third party's program that others could have changed.
func judge(path string, info fs.FileInfo, pin string) error {
	if pin == "" {
		return fmt.Errorf("the adapter %s is not pinned; set its sha256 (print it with: sha256sum %s)", path, path)
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return fmt.Errorf("the adapter's path %q must be absolute and without '.', '..' or double slashes", path)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("the adapter %s is not a regular file", path)
	}
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return fmt.Errorf("the adapter %s is setuid or setgid; remove that bit", path)
	}
	if info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("the adapter %s is not executable; run: chmod +x %s", path, path)
	}
	last, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("cannot stat the adapter %s: %w", path, err)
	}
	if last.Mode()&fs.ModeSymlink == 0 && !os.SameFile(last, info) {
		return fmt.Errorf("the adapter %s was replaced while it was opened; start again", path)
	}
	for part := path; ; part = filepath.Dir(part) {
		if err := judgePart(part); err != nil {
			return err
		}
		if part == "/" {
			return nil
		}
	}
}

// judgePart checks one component. A directory that others may write is allowed
// only with the sticky bit (/tmp), where nobody can rename what another owns.
func judgePart(part string) error {
	info, err := os.Lstat(part)
	if err != nil {
		return fmt.Errorf("cannot stat %s: %w", part, err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link; name the real path of the adapter", part)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("this system does not tell who owns a file")
	}
	if int(st.Uid) != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d; an adapter and its directories must belong to root or to the user that runs it", part, st.Uid)
	}
	sticky := info.IsDir() && info.Mode()&fs.ModeSticky != 0
	if info.Mode().Perm()&0o022 != 0 && !sticky {
		return fmt.Errorf("%s can be written by others; run: chmod go-w %s", part, part)
	}
	return nil
}

// Inspect judges a program as [Start] would, but for its pin, and returns its
// SHA-256: a regular file, not setuid, executable, and on a path that no other
// user could have changed.
func Inspect(path string) (sha256 string, err error) {
	p, err := openProgram(Command{Path: path, SHA256: anyPin})
	if err == nil {
		return p.digest, p.file.Close()
	}
	var pin *PinError
	if errors.As(err, &pin) {
		return pin.Have, nil
	}
	return "", err
}

// anyPin is well-formed and no program's: it is asked for to learn what there is.
const anyPin = "0000000000000000000000000000000000000000000000000000000000000000"
