package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settled-dev/settled/sdk"
)

// thirdParty copies the test program to where it is no longer our own.
func thirdParty(t *testing.T) (path, digest string) {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(dir, "shop-adapter")
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, h), in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return path, hex.EncodeToString(h.Sum(nil))
}

func TestAPinnedProgramOfAThirdPartyRuns(t *testing.T) {
	c := command(t, nil)
	c.Path, c.SHA256 = thirdParty(t)
	p := start(t, c)
	committed(t, p, "commit")
	if p.Identity().SHA256 != c.SHA256 {
		t.Errorf("the identity names %s, pinned is %s", p.Identity().SHA256, c.SHA256)
	}
}

func TestAProgramReplacedOnDiskIsRefused(t *testing.T) {
	c := command(t, nil)
	c.Path, c.SHA256 = thirdParty(t)
	f, err := os.OpenFile(c.Path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString("one more line")
	_ = f.Close()
	_, err = Start(t.Context(), c, sdk.Configuration{})
	var pin *PinError
	if !errors.As(err, &pin) || pin.Want != c.SHA256 || pin.Have == pin.Want {
		t.Errorf("got %v, want a pin error", err)
	}
}

func TestWhatRunsIsWhatWasHashedAlsoWhenThePathChangesMeanwhile(t *testing.T) {
	c := command(t, nil)
	c.Path, c.SHA256 = thirdParty(t)
	prog, err := openProgram(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(c.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Path, []byte("#!/bin/false\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRunner(c, prog, newMark(), newLineLog(nopLog(), nil))
	r.args = []string{"mode=sleeper"}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Readlink("/proc/" + r.ID() + "/exe")
	if err != nil || !strings.HasSuffix(exe, "(deleted)") {
		t.Errorf("runs %q, %v; want the file that was hashed", exe, err)
	}
	if err := r.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-r.drained
}

func TestAProgramThatOthersCouldHaveChangedIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(t *testing.T, c *Command)
	}{
		{"unpinned", "not pinned", func(_ *testing.T, c *Command) { c.SHA256 = "" }},
		{"writable file", "chmod go-w", func(t *testing.T, c *Command) { must(t, os.Chmod(c.Path, 0o775)) }},
		{"writable directory", "chmod go-w", func(t *testing.T, c *Command) { must(t, os.Chmod(filepath.Dir(c.Path), 0o777)) }},
		{"setuid", "setuid", func(t *testing.T, c *Command) { must(t, os.Chmod(c.Path, 0o755|os.ModeSetuid)) }},
		{"not executable", "chmod +x", func(t *testing.T, c *Command) { must(t, os.Chmod(c.Path, 0o644)) }},
		{"a symbolic link", "symbolic link", func(t *testing.T, c *Command) {
			link := filepath.Join(filepath.Dir(c.Path), "link")
			must(t, os.Symlink(c.Path, link))
			c.Path = link
		}},
		{"a linked directory", "symbolic link", func(t *testing.T, c *Command) {
			link := filepath.Join(filepath.Dir(filepath.Dir(c.Path)), "linked")
			must(t, os.Symlink(filepath.Dir(c.Path), link))
			c.Path = filepath.Join(link, filepath.Base(c.Path))
		}},
		{"another owner", "belongs to user 12345", func(t *testing.T, c *Command) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			must(t, os.Chown(filepath.Dir(c.Path), 12345, -1))
		}},
		{"a way around", "without '.', '..'", func(_ *testing.T, c *Command) {
			c.Path = filepath.Dir(c.Path) + "/../" + filepath.Base(filepath.Dir(c.Path)) + "/" + filepath.Base(c.Path)
		}},
		{"a directory", "not a regular file", func(_ *testing.T, c *Command) { c.Path = filepath.Dir(c.Path) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(t, nil)
			cmd.Path, cmd.SHA256 = thirdParty(t)
			c.spoil(t, &cmd)
			p, err := Start(t.Context(), cmd, sdk.Configuration{})
			if err == nil {
				_ = p.Kill("test")
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not say %q", err, c.want)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
