package gitdest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
)

// loss is what goes wrong around the one push of a dispatch.
type loss struct{ kind desk.Kind }

// before loses the request, or hangs until the caller ends the process.
func (l loss) before(ctx context.Context) error {
	switch l.kind {
	case desk.LostRequest:
		return die()
	case desk.Hang:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// after loses the answer to a push that is over.
func (l loss) after(ctx context.Context) error {
	switch l.kind {
	case desk.LostAnswer:
		return die()
	case desk.HangCommit:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// die ends the process as a crash would: by a signal, without an answer.
func die() error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("end by signal: %w", err)
	}
	select {} // the signal is on its way
}

// faults chooses the loss of a dispatch: the next one injected for its key,
// else the plan's. Without a directory there are none.
type faults struct {
	dir  string
	plan desk.Plan
}

func usable(k desk.Kind) bool {
	switch k {
	case desk.None, desk.LostAnswer, desk.LostRequest, desk.Hang, desk.HangCommit:
		return true
	}
	return false
}

// Inject queues losses for the next dispatches of a key, one each, in the
// directory that --state names. The kinds are lost-answer, lost-request, hang,
// hang-commit and none.
func Inject(state, key string, kinds ...desk.Kind) error {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("faults: %w", err)
	}
	f, err := os.OpenFile(faultFile(state, key), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("faults: %w", err)
	}
	for _, k := range kinds {
		if !usable(k) {
			err = errors.Join(err, fmt.Errorf("faults: git cannot do %q", k))
			continue
		}
		_, werr := fmt.Fprintln(f, desk.Fault{Kind: k})
		err = errors.Join(err, werr)
	}
	return errors.Join(err, f.Close())
}

func faultFile(state, key string) string {
	return filepath.Join(state, filepath.Base(KeyRef(key))+".faults")
}

// next counts the dispatch and takes its loss. One key is never dispatched
// twice at once, so there is no lock.
func (f faults) next(key string) (loss, error) {
	if f.dir == "" {
		return loss{}, nil
	}
	n, err := f.count(key)
	if err != nil {
		return loss{}, err
	}
	path := faultFile(f.dir, key)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return loss{}, fmt.Errorf("faults: %w", err)
	}
	first, rest, ok := strings.Cut(string(data), "\n")
	if !ok {
		return loss{f.plan.Choose(key, n).Kind}, nil
	}
	if err := os.WriteFile(path, []byte(rest), 0o600); err != nil {
		return loss{}, fmt.Errorf("faults: %w", err)
	}
	fault, err := desk.ParseFault(first)
	return loss{fault.Kind}, err
}

// count keeps a byte per dispatch of the key.
func (f faults) count(key string) (int, error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return 0, fmt.Errorf("faults: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(f.dir, filepath.Base(KeyRef(key))+".count"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("faults: %w", err)
	}
	_, err = file.WriteString(".")
	info, serr := file.Stat()
	if err := errors.Join(err, serr, file.Close()); err != nil {
		return 0, fmt.Errorf("faults: %w", err)
	}
	return int(info.Size()), nil
}

// Dispatches is how often a key was dispatched, by the directory that --state names.
func Dispatches(state, key string) (int, error) {
	info, err := os.Stat(filepath.Join(state, filepath.Base(KeyRef(key))+".count"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("faults: %w", err)
	}
	return int(info.Size()), nil
}
