package stage

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// detached starts a child that outlives the caller: a session of its own, and
// files in the place of pipes, which would end with the caller.
func (s *Stage) detached(name string, cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := os.Create(s.Path(name + ".out"))
	if err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	defer out.Close()
	log, err := os.OpenFile(s.Path(name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = out, log
	p := &process{cmd: cmd, log: &tail{}, out: make(chan string, 16), done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("stage: start the %s: %w", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	go p.follow(out.Name())
	return p, nil
}

// follow passes the first line of a file on, once it is whole.
func (p *process) follow(file string) {
	defer close(p.out)
	for limit := time.Now().Add(readyWithin); time.Now().Before(limit); {
		if line, err := firstLineOf(file); err == nil {
			p.out <- line
			return
		}
		select {
		case <-p.done:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func firstLineOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		return "", err
	}
	return line[:len(line)-1], nil
}
