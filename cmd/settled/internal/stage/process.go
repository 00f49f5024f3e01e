package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one child with its end and the tail of what it wrote.
type process struct {
	cmd  *exec.Cmd
	log  *tail
	out  chan string // lines of standard output; closed at its end
	done chan struct{}
	err  error // of Wait; read it after done
}

// start starts this stage's program. The child has a process group of its own,
// so that a Ctrl-C meant for the caller lets the caller decide.
func (s *Stage) start(name string, args []string) (*process, error) {
	cmd := exec.Command(s.o.Binary, args...)
	cmd.Dir = s.o.Dir
	cmd.Env = append(environment(), "RUNTIME_DIRECTORY="+s.Path("run"), "TMPDIR="+s.Path("tmp"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if s.o.Outlive {
		return s.detached(name, cmd)
	}
	p := &process{cmd: cmd, log: &tail{}, out: make(chan string, 16), done: make(chan struct{})}
	cmd.Stderr = p.log
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("stage: start the %s: %w", name, err)
	}
	go func() {
		p.lines(bufio.NewScanner(pipe))
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// environment is the caller's, without what would lead the daemon elsewhere.
func environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if (!strings.HasPrefix(name, "SETTLED_") || name == "SETTLED_MUTANT") && name != "CREDENTIALS_DIRECTORY" {
			env = append(env, kv)
		}
	}
	return env
}

// lines passes standard output on; what nobody takes is dropped.
func (p *process) lines(r *bufio.Scanner) {
	defer close(p.out)
	for r.Scan() {
		select {
		case p.out <- r.Text():
		default:
		}
	}
}

// firstLine waits for the line that says that the process is ready, and returns what follows the prefix.
func (p *process) firstLine(ctx context.Context, prefix string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	select {
	case line := <-p.out:
		rest, ok := strings.CutPrefix(line, prefix)
		if !ok {
			return "", fmt.Errorf("stage: it says %q instead of %q…\n%s", line, prefix, p.log.String())
		}
		return rest, nil
	case <-ctx.Done():
		return "", fmt.Errorf("stage: it is not ready: %w\n%s", ctx.Err(), p.log.String())
	}
}

// kill ends the process with SIGKILL and reaps it.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stage: kill: %w", err)
	}
	<-p.done
	return nil
}

// stop asks the process to end, and kills it after the limit.
func (p *process) stop(limit time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stage: stop: %w", err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
		return errors.Join(fmt.Errorf("stage: it did not end within %v", limit), p.kill())
	}
}

// status is the exit status, or -1 after a signal. Call it after the end.
func (p *process) status() int { return p.cmd.ProcessState.ExitCode() }

// maxTail bounds what is kept of a log.
const maxTail = 1 << 20

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - maxTail; over > 0 {
		t.buf = append([]byte(nil), t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
