package exec

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxStdout = 4 << 20         // a longer answer is no answer
	maxStderr = 8 << 10         // the end of it is kept as evidence
	maxPayout = 2 * time.Second // how long after its death a command's output is waited for
	killBound = 5 * time.Second // how long a killed group may take to die
)

// result is what became of a process.
type result struct {
	stdout, stderr []byte
	overflow       bool // stdout had more than maxStdout
	exit           int  // status; -1 when it ended otherwise
	signal         string
	limit          error // the context's error that ended it
	undead         bool  // the group could not be proven dead
}

// run starts argv and waits until it and its whole process group are dead. The
// error is non-nil only when nothing was started.
func run(ctx context.Context, argv, env []string, dir string, stdin []byte) (result, error) {
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	path, err := osexec.LookPath(argv[0])
	if err != nil {
		return result{}, err
	}
	pipes, err := openPipes()
	if err != nil {
		return result{}, err
	}
	cmd := &osexec.Cmd{
		Path: path, Args: argv, Env: env, Dir: dir,
		Stdin: pipes.stdin.r, Stdout: pipes.stdout.w, Stderr: pipes.stderr.w,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := cmd.Start(); err != nil {
		pipes.closeAll()
		return result{}, err
	}
	pipes.closeTheirs()
	var output sync.WaitGroup
	stdout, stderr := &head{limit: maxStdout}, &tail{limit: maxStderr}
	output.Go(func() { _, _ = io.Copy(stdout, pipes.stdout.r) })
	output.Go(func() { _, _ = io.Copy(stderr, pipes.stderr.r) })
	output.Go(func() {
		_, _ = pipes.stdin.w.Write(stdin) // a command may end without reading it
		_ = pipes.stdin.w.Close()
	})
	r := await(ctx, cmd)
	r.await(&output, pipes)
	r.stdout, r.overflow, r.stderr = stdout.kept.Bytes(), stdout.overflow, stderr.kept
	return r, nil
}

// await lets the leader end or the context end it, kills what is left of the
// group and only then reaps the leader: until it is reaped its group's number
// cannot be taken by strangers.
func await(ctx context.Context, cmd *osexec.Cmd) result {
	pid := cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	var r result
	select {
	case <-ended:
	case <-ctx.Done():
		r.limit = ctx.Err()
	}
	r.undead = !killGroup(pid)
	<-ended
	_ = cmd.Wait()
	r.exit = cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.signal = status.Signal().String()
	}
	return r
}

// killGroup kills a process group and reports whether it is known to be dead.
func killGroup(pgid int) bool {
	deadline := time.Now().Add(killBound)
	for {
		_ = syscall.Kill(-pgid, syscall.SIGKILL)
		if !groupAlive(pgid) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
}

// groupAlive looks for members that can still act. The kernel's own answer to
// kill(-pgid, 0) counts zombies, of which the unreaped leader is one.
func groupAlive(pgid int) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // gone meanwhile
		}
		// pid (comm) state ppid pgrp …; comm may hold anything, so cut after the last ")".
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(pgid) && fields[0] != "Z" && fields[0] != "X" {
			return true
		}
	}
	return false
}

// await waits for the output. Whoever left the group may hold the pipes open for
// ever, so after a while our ends are closed.
func (r *result) await(output *sync.WaitGroup, p *pipes) {
	finished := make(chan struct{})
	go func() { output.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(maxPayout):
	}
	p.closeOurs()
	<-finished
}

// pipe is one pipe; ours and theirs depend on its direction.
type pipe struct{ r, w *os.File }

type pipes struct{ stdin, stdout, stderr pipe }

func openPipes() (*pipes, error) {
	p := &pipes{}
	for _, one := range []*pipe{&p.stdin, &p.stdout, &p.stderr} {
		var err error
		if one.r, one.w, err = os.Pipe(); err != nil {
			p.closeAll()
			return nil, err
		}
	}
	return p, nil
}

func (p *pipes) closeTheirs() { closeFiles(p.stdin.r, p.stdout.w, p.stderr.w) }
func (p *pipes) closeOurs()   { closeFiles(p.stdin.w, p.stdout.r, p.stderr.r) }
func (p *pipes) closeAll()    { p.closeTheirs(); p.closeOurs() }

func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // a second close is harmless
		}
	}
}

// head keeps the first limit bytes and swallows the rest.
type head struct {
	limit    int
	kept     bytes.Buffer
	overflow bool
}

func (h *head) Write(b []byte) (int, error) {
	room := h.limit - h.kept.Len()
	if len(b) > room {
		h.overflow = true
	}
	h.kept.Write(b[:min(len(b), room)])
	return len(b), nil
}

// tail keeps the last limit bytes.
type tail struct {
	limit int
	kept  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	if len(t.kept) > t.limit {
		t.kept = append([]byte(nil), t.kept[len(t.kept)-t.limit:]...)
	}
	return len(b), nil
}
