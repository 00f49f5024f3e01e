package sqlite

import (
	"errors"
	"fmt"

	"github.com/mattn/go-sqlite3"
)

// The errors that callers tell apart. They are wrapped with what happened.
var (
	// ErrNotFound: no such row.
	ErrNotFound = errors.New("not found")
	// ErrStale: the effect changed since the caller looked. Nothing was written.
	ErrStale = errors.New("the effect changed meanwhile")
	// ErrPruned: the effect existed and was pruned; see [PrunedError].
	ErrPruned = errors.New("the effect was settled and pruned")
	// ErrSweepRunning: a run of this schedule is still open.
	ErrSweepRunning = errors.New("a run of this schedule is still open")
	// ErrLocked: another process holds the journal. Exit 75.
	ErrLocked = errors.New("the journal is locked by another process")
	// ErrConfig: the journal cannot be used as it is set up: wrong PRAGMA, newer schema, wrong key, no permission. Exit 78.
	ErrConfig = errors.New("the journal cannot be used as it is set up")
	// ErrFull: the disk is full; nothing of this operation was recorded. A later write may succeed.
	ErrFull = errors.New("journal full: nothing was recorded")
	// ErrIO: a read or write failed before COMMIT; nothing was recorded. The journal is closed to writes. Exit 74.
	ErrIO = errors.New("journal I/O error: nothing was recorded")
	// ErrCommitUnknown: COMMIT itself failed; whether it was recorded is known only after a restart. Exit 74.
	ErrCommitUnknown = errors.New("the outcome of COMMIT is unknown: it may be recorded")
	// ErrCorrupt: the file is damaged. Exit 65.
	ErrCorrupt = errors.New("the journal is damaged")
	// ErrBusy: another program holds a lock inside the file; nothing was recorded.
	ErrBusy = errors.New("the journal file is locked by another program")
	// ErrStopped: the journal refuses writes because of an earlier failure; nothing was recorded.
	ErrStopped = errors.New("the journal takes no more writes after an earlier failure")
	// ErrClosed: the journal was closed; nothing was recorded.
	ErrClosed = errors.New("the journal is closed")
	// ErrCouldNotVerify: verification did not run to its end; it says nothing about the chain. Exit 9.
	ErrCouldNotVerify = errors.New("could not verify")
)

// PrunedError is returned for a key whose effect was pruned and whose
// fingerprint is the one given: it happened, or did not, as remembered here.
type PrunedError struct {
	Key, Fingerprint, ObjectID string
	Phase                      string
}

func (e *PrunedError) Error() string {
	return fmt.Sprintf("key %s was used before and is %s (object %q); its record was pruned", e.Key, e.Phase, e.ObjectID)
}

// Is makes errors.Is(err, ErrPruned) true.
func (e *PrunedError) Is(target error) bool { return target == ErrPruned }

// ExitCode is the exit status of the daemon for an error of this package; 1 for any other.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrCorrupt):
		return 65
	case errors.Is(err, ErrIO), errors.Is(err, ErrCommitUnknown), errors.Is(err, ErrStopped):
		return 74
	case errors.Is(err, ErrLocked):
		return 75
	case errors.Is(err, ErrConfig):
		return 78
	}
	return 1
}

// storage is what an error says about the storage rather than about the operation.
type storage int

const (
	storageFine    storage = iota // the statement was refused; the transaction stands
	storageFull                   // not committed, go on
	storageBusy                   // not committed, go on
	storageBroken                 // I/O error
	storageCorrupt                // stop for a person
	storageRefused                // read-only, cannot open
)

// classify reads the extended code of a driver error.
func classify(err error) storage {
	var e sqlite3.Error
	if !errors.As(err, &e) {
		return storageFine
	}
	switch e.Code {
	case sqlite3.ErrFull:
		return storageFull
	case sqlite3.ErrBusy, sqlite3.ErrLocked, sqlite3.ErrProtocol, sqlite3.ErrInterrupt:
		return storageBusy
	case sqlite3.ErrIoErr, sqlite3.ErrNomem, sqlite3.ErrInternal:
		return storageBroken
	case sqlite3.ErrCorrupt, sqlite3.ErrNotADB:
		return storageCorrupt
	case sqlite3.ErrReadonly, sqlite3.ErrCantOpen, sqlite3.ErrPerm, sqlite3.ErrAuth:
		return storageRefused
	}
	return storageFine
}

// storageError names a storage failure that happened before COMMIT.
func storageError(err error) error {
	switch classify(err) {
	case storageFull:
		return fmt.Errorf("%w: %w", ErrFull, err)
	case storageBusy:
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case storageBroken:
		return fmt.Errorf("%w: %w", ErrIO, err)
	case storageCorrupt:
		return fmt.Errorf("%w: %w; run `settled journal check` and look at the last backup", ErrCorrupt, err)
	case storageRefused:
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return err
}

func conflictOf(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && e.Code == sqlite3.ErrConstraint
}
