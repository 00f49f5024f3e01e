package gitdest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	guardRef = "refs/heads/main"
	keyRefs  = "refs/settled/"
	tagRefs  = "refs/tags/"
	identity = "settled <settled@localhost>"
)

// git runs git in a scratch directory with a configuration of its own.
type git struct {
	binary  string
	scratch string
}

// newGit makes the scratch directory inside parent, by default the temporary
// directory; close removes it.
func newGit(parent string) (*git, error) {
	binary, err := exec.LookPath("git")
	if err != nil {
		binary = "/usr/bin/git" // the environment may come without a PATH
	}
	if parent != "" {
		if err := os.MkdirAll(parent, 0o700); err != nil {
			return nil, fmt.Errorf("scratch directory: %w", err)
		}
	}
	dir, err := os.MkdirTemp(parent, "settled-git-")
	if err != nil {
		return nil, fmt.Errorf("scratch directory: %w", err)
	}
	g := &git{binary: binary, scratch: dir}
	// A file and not -c: the other side of a local push reads it as well.
	config := "[safe]\n\tdirectory = *\n[gc]\n\tauto = 0\n[init]\n\tdefaultBranch = main\n"
	if err := os.WriteFile(g.config(), []byte(config), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("scratch directory: %w", err), g.close())
	}
	return g, nil
}

func (g *git) close() error { return os.RemoveAll(g.scratch) }

func (g *git) config() string { return filepath.Join(g.scratch, "gitconfig") }

// result is what git left behind.
type result struct {
	out, diag string
	status    int // -1 = ended by a signal or never started
}

// message is the last line of what git said.
func (r result) message() string {
	lines := strings.Split(strings.TrimSpace(r.diag), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

func (r result) err(what string) error {
	if r.status == 0 {
		return nil
	}
	return fmt.Errorf("git %s: exit %d: %s", what, r.status, r.message())
}

// run runs git in dir with text on its standard input.
func (g *git) run(ctx context.Context, dir, text string, args ...string) result {
	cmd := exec.CommandContext(ctx, g.binary, args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(text)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	cmd.WaitDelay = time.Second
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	cmd.Env = []string{
		"PATH=" + path, "HOME=" + g.scratch, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + g.config(),
		"GIT_AUTHOR_NAME=settled", "GIT_AUTHOR_EMAIL=settled@localhost",
		"GIT_COMMITTER_NAME=settled", "GIT_COMMITTER_EMAIL=settled@localhost",
	}
	for _, name := range []string{"SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	err := cmd.Run()
	r := result{out: out.String(), diag: diag.String(), status: cmd.ProcessState.ExitCode()}
	if err != nil && r.diag == "" {
		r.diag = err.Error()
	}
	return r
}

// lsRemote gives the refs of the repository that match the patterns; all without any.
func (g *git) lsRemote(ctx context.Context, repo string, refs ...string) (map[string]string, error) {
	r := g.run(ctx, g.scratch, "", append([]string{"ls-remote", "--", repo}, refs...)...)
	if err := r.err("ls-remote"); err != nil {
		return nil, err
	}
	seen := map[string]string{}
	for text := range strings.Lines(r.out) {
		object, ref, ok := strings.Cut(strings.TrimSuffix(text, "\n"), "\t")
		if !ok {
			return nil, fmt.Errorf("git ls-remote: unexpected line %q", text)
		}
		seen[ref] = object
	}
	return seen, nil
}

// workspace makes an empty repository in the scratch directory.
func (g *git) workspace(ctx context.Context) (string, error) {
	dir := filepath.Join(g.scratch, "work.git")
	return dir, g.run(ctx, g.scratch, "", "init", "-q", "--bare", dir).err("init")
}
