package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/settled-dev/settled/sdk/serve"
)

// killBound is how long we wait for a killed child to be gone. A kernel that
// takes longer holds the process in a device or a file system.
const killBound = 3 * time.Second

// runner is one child process, from before it exists until it is proven dead.
// It implements go-plugin's runner.Runner, which sees of it one handshake line
// and the end: both outputs of the child are read here, because go-plugin's own
// reading can panic on a line, stop at a long one and hang on a grandchild.
type runner struct {
	prog      *program
	args      []string
	extraEnv  []string
	mark      string
	log       *lineLog
	file      *runFile
	group     *cgroup // nil = none
	socketDir string  // set before start

	stdoutR, stderrR *os.File
	stdin            *os.File // our end; closing it tells the adapter to leave
	line             *io.PipeReader
	lineW            *io.PipeWriter
	readers          sync.WaitGroup // the two goroutines that read the outputs

	done    chan struct{}   // closed when proven dead
	life    context.Context // ends when done is closed
	die     context.CancelFunc
	drained chan struct{} // closed when also the outputs are read to their end

	mu      sync.Mutex // guards below
	env     []string
	pid     int // 0 = never started
	start   uint64
	aborted bool
	refused error // why the handshake was not taken
	diedAt  time.Time
	exit    string // "exit status 2"
}

func newRunner(c Command, prog *program, mark string, log *lineLog) *runner {
	r := &runner{
		prog: prog, args: c.Args, extraEnv: c.Env, mark: mark, log: log, done: make(chan struct{}),
		drained: make(chan struct{}),
		file:    newRunFile(c.RuntimeDir, c.Name, mark),
	}
	r.line, r.lineW = io.Pipe()
	r.life, r.die = context.WithCancel(context.Background())
	if !c.NoCgroup {
		r.group = newCgroup(mark)
		if r.group != nil {
			r.file.Cgroup = r.group.path
		}
	}
	return r
}

// adopt takes over what go-plugin wants the child to see.
func (r *runner) adopt(handshake []string, socketDir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env = childEnv(r.extraEnv, handshake, r.mark)
	r.socketDir = socketDir
}

// Start makes the child. The goroutine that makes it stays on its thread until
// the child is dead, because PDEATHSIG fires when that thread ends.
func (r *runner) Start(context.Context) error {
	started := make(chan error)
	go r.live(started)
	return <-started
}

func (r *runner) live(started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, after the child
	cmd, ends, err := r.spawn()
	closeAll(ends)
	if err != nil {
		r.bury("it never started", time.Now())
		started <- err
		return
	}
	r.readers.Go(func() { r.readStdout(r.stdoutR) })
	r.readers.Go(func() { r.log.copyLines(r.stderrR, "stderr") })
	started <- nil

	awaitExit(cmd.Process.Pid)
	// The leader is dead but not reaped, so the number of its group is still ours.
	r.signal()
	_ = cmd.Wait()
	at := r.proveEmpty(cmd.Process.Pid)
	r.bury(cmd.ProcessState.String(), at)
}

// spawn starts the process; the ends it returns belong to the child and are closed by the caller in any case.
func (r *runner) spawn() (cmd *exec.Cmd, ends []*os.File, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.aborted {
		return nil, nil, errors.New("the start was aborted")
	}
	stdinR, stdin, err1 := os.Pipe()
	stdoutR, stdoutW, err2 := os.Pipe()
	stderrR, stderrW, err3 := os.Pipe()
	r.stdin, r.stdoutR, r.stderrR = stdin, stdoutR, stderrR
	ends = []*os.File{stdinR, stdoutW, stderrW}
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, ends, fmt.Errorf("cannot make pipes: %w", err)
	}
	if err := r.file.write(); err != nil { // before the child exists
		return nil, ends, err
	}
	for {
		cmd = r.command(stdinR, stdoutW, stderrW)
		if err = cmd.Start(); err == nil || r.group == nil {
			break
		}
		r.group.remove() // not every sandbox lets a process be born in a group
		r.group = nil
	}
	if err != nil {
		return nil, ends, fmt.Errorf("cannot execute %s: %w", r.prog.name, err)
	}
	r.pid = cmd.Process.Pid
	s, err := readStat(r.pid)
	if err == nil {
		r.start = s.start
		r.file.PID, r.file.Start = r.pid, s.start
		err = r.file.write()
	}
	if err != nil { // it will be found by its mark
		r.log.log.Warn("cannot record the adapter's process", "error", err)
	}
	return cmd, ends, nil
}

func (r *runner) command(stdin, stdout, stderr *os.File) *exec.Cmd {
	cmd := &exec.Cmd{
		// In the child descriptor 3 is the file that was hashed.
		Path: "/proc/self/fd/3", Args: append([]string{r.prog.name}, r.args...), Env: r.env, Dir: "/",
		Stdin: stdin, Stdout: stdout, Stderr: stderr, ExtraFiles: []*os.File{r.prog.file},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if r.group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, r.group.fd
	}
	return cmd
}

// awaitExit waits until the leader is dead and leaves it unreaped.
func awaitExit(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// signal kills the group as a whole. Only while the leader is not reaped is its number surely ours.
func (r *runner) signal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pid > 0 && r.diedAt.IsZero() {
		if s, err := readStat(r.pid); err == nil && s.start == r.start {
			_ = unix.Kill(-r.pid, unix.SIGKILL)
		}
	}
	r.group.kill()
}

// proveEmpty returns once nothing of the run is alive, however long that takes, with the time of the proof.
func (r *runner) proveEmpty(pid int) time.Time {
	h := newHunt(pid, r.mark)
	for pause := time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		r.group.kill()
		if pids, err := h.kill(); err == nil && len(pids) == 0 && r.group.empty() {
			return time.Now()
		}
		time.Sleep(pause)
	}
}

// bury notes the death, lets the readers finish what is in the pipes, and releases everything.
func (r *runner) bury(exit string, at time.Time) {
	r.mu.Lock()
	r.diedAt, r.exit = at, exit
	r.mu.Unlock()
	closeAll([]*os.File{r.stdin})
	_ = r.lineW.Close()
	close(r.done)
	r.die()
	// All writers are dead, so the readers meet the end of the pipes; should a
	// descriptor have been passed to a stranger, they are cut off.
	cutOff := time.AfterFunc(500*time.Millisecond, func() { closeAll([]*os.File{r.stdoutR, r.stderrR}) })
	r.readers.Wait()
	cutOff.Stop()
	closeAll([]*os.File{r.stdoutR, r.stderrR, r.prog.file})
	r.group.remove()
	r.file.remove()
	if r.socketDir != "" {
		_ = os.RemoveAll(r.socketDir)
	}
	close(r.drained)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// readStdout passes one valid handshake line on and logs everything after it.
func (r *runner) readStdout(f io.Reader) {
	in := bufio.NewReaderSize(f, maxLine)
	line, err := readLine(in)
	if err == nil || len(line) > 0 {
		if why := r.judgeHandshake(string(line)); why != nil {
			r.mu.Lock()
			r.refused = why
			r.mu.Unlock()
		} else {
			_, _ = r.lineW.Write(append(line, '\n'))
		}
	}
	_ = r.lineW.Close()
	r.log.copyLines(in, "stdout")
}

// judgeHandshake tells an author what is wrong with the first line of standard output.
func (r *runner) judgeHandshake(line string) error {
	f := strings.Split(line, "|")
	if _, err := strconv.Atoi(f[0]); err != nil || len(f) < 4 {
		return fmt.Errorf("it printed %q on standard output before the handshake; print to standard error only", cut(r.log.redact.String(line), 200))
	}
	switch {
	case f[0] != "1":
		return fmt.Errorf("it speaks go-plugin's core protocol %s; build it with a go-plugin that speaks 1", f[0])
	case f[1] != strconv.Itoa(serve.ProtocolVersion):
		return fmt.Errorf("it speaks version %s of the adapter contract, we speak %d; build it with a matching SDK", f[1], serve.ProtocolVersion)
	case f[2] != "unix" || filepath.Dir(f[3]) != r.socketDir:
		return fmt.Errorf("it listens on %s %s; listen on a unix socket in $PLUGIN_UNIX_SOCKET_DIR", f[2], f[3])
	case len(f) < 5 || f[4] != "grpc":
		return errors.New("it does not offer gRPC; name grpc in the fifth field of the handshake")
	case len(f) < 6 || len(f[5]) <= 50:
		return errors.New("it offers no certificate; take $PLUGIN_CLIENT_CERT as client CA and name your own certificate in the sixth field of the handshake")
	}
	return nil
}

// abort ends a start that nobody wants any more.
func (r *runner) abort() {
	r.mu.Lock()
	r.aborted = true
	r.mu.Unlock()
	r.signal()
}

// Wait waits until the child is proven dead.
func (r *runner) Wait(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill kills the whole group and waits, at most killBound, for the proof.
func (r *runner) Kill(ctx context.Context) error {
	r.mu.Lock()
	r.aborted = true
	started := r.pid > 0
	r.mu.Unlock()
	if !started {
		return nil
	}
	r.signal()
	ctx, cancel := context.WithTimeout(ctx, killBound)
	defer cancel()
	if err := r.Wait(ctx); err != nil {
		return fmt.Errorf("process %d was killed but is not proven dead after %s: %w", r.pid, killBound, err)
	}
	return nil
}

// leave asks the child to end itself, by the end of its standard input.
func (r *runner) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	closeAll([]*os.File{r.stdin})
}

// death is when and how the child ended; the zero time while it is not proven.
func (r *runner) death() (time.Time, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.diedAt, r.exit
}

// Stdout gives go-plugin the handshake line and then the end.
func (r *runner) Stdout() io.ReadCloser { return r.line }

// Stderr gives go-plugin nothing.
func (r *runner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name names the program for go-plugin's errors.
func (r *runner) Name() string { return r.prog.name }

// ID is the process id, empty before there is one.
func (r *runner) ID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pid == 0 {
		return ""
	}
	return strconv.Itoa(r.pid)
}

// Diagnose is not used: our own errors say more.
func (r *runner) Diagnose(context.Context) string { return "" }

// PluginToHost and HostToPlugin: both sides see the same file system.
func (r *runner) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin is the identity, like PluginToHost.
func (r *runner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// refusal is why the handshake was not taken; nil if it was, or never came.
func (r *runner) refusal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// abandon releases a runner whose Start was never called.
func (r *runner) abandon() {
	select {
	case <-r.done: // Start was called and failed, and released everything
	default:
		r.bury("it never started", time.Now())
	}
}
