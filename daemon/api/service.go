package api

import (
	"context"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/journal"
)

// Service is what the API asks of the daemon. Errors that clients tell apart
// are those of package daemon and *journal.ConflictError, *journal.KeyError,
// *journal.PayloadError and *journal.IllegalError; any other is internal.
type Service interface {
	Effects
	Reviewer
	Operator
	Keeper
	Receiver
}

// Receiver takes messages that destinations send of themselves.
type Receiver interface {
	// Hook returns once the message's evidence is on disk, or daemon.ErrHookRefused.
	Hook(ctx context.Context, destination string, headers map[string]string, body []byte) (daemon.HookResult, error)
}

// Effects takes and shows effects.
type Effects interface {
	// Submit returns once the intent is on disk.
	Submit(ctx context.Context, req daemon.SubmitRequest, by journal.By) (daemon.SubmitResult, error)
	// Effect returns everything known, or daemon.ErrNotFound.
	Effect(ctx context.Context, key string) (daemon.EffectDetail, error)
	// List returns a page and the cursor of the next one; "" = there is none.
	List(ctx context.Context, filter, cursor string, limit int) ([]journal.Effect, string, error)
	// WaitChange returns when the effect's Seq is above after, or with ctx's error when that ends first.
	WaitChange(ctx context.Context, key string, after int64) (journal.Effect, error)
	// Cancel ends an effect of which nothing is unsettled.
	Cancel(ctx context.Context, key string, by journal.By) (journal.Effect, error)
}

// Reviewer serves people who decide.
type Reviewer interface {
	Decide(ctx context.Context, key string, req daemon.DecideRequest, by journal.By) (journal.Effect, error)
	// Reviews returns the effects with a live review.
	Reviews(ctx context.Context, filter string) ([]journal.Effect, error)
}

// Operator serves people who run the daemon.
type Operator interface {
	Holds(ctx context.Context) ([]journal.Hold, error)
	Hold(ctx context.Context, scope string, by journal.By) error
	// Release lifts a hold and returns how many held effects may go on.
	Release(ctx context.Context, scope string, by journal.By) (int, error)
	// Sweep runs a schedule now. It calls progress from one goroutine at a time and not after it has returned.
	Sweep(ctx context.Context, name string, progress func(daemon.SweepReport)) (daemon.SweepReport, error)
	Schedules(ctx context.Context) ([]daemon.ScheduleStatus, error)
	Destinations(ctx context.Context) ([]daemon.DestinationStatus, error)
	Destination(ctx context.Context, name string) (daemon.DestinationStatus, error)
	PauseDestination(ctx context.Context, name string, pause bool, by journal.By) error
	Status(ctx context.Context) (daemon.Status, error)
	Drain(ctx context.Context, by journal.By) error
	// Healthy says why the daemon should be restarted, Ready why it should get no work.
	Healthy(ctx context.Context) error
	Ready(ctx context.Context) error
}

// Keeper serves the journal itself.
type Keeper interface {
	// Events returns up to limit entries after seq that the filter selects, oldest first.
	Events(ctx context.Context, after int64, filter string, limit int) ([]journal.Entry, error)
	// WaitEvents returns when the chain's head is above after, or with ctx's error.
	WaitEvents(ctx context.Context, after int64) error
	Verify(ctx context.Context, expectHead string) (daemon.VerifyReport, error)
	// Backup writes to a file that does not exist yet.
	Backup(ctx context.Context, file string) error
	Stats(ctx context.Context) (daemon.JournalStats, error)
	// Prune applies the retention rules now.
	Prune(ctx context.Context) (daemon.PruneReport, error)
	// CheckJournal reads the whole journal once; damage is in the report.
	CheckJournal(ctx context.Context) (daemon.VerifyReport, error)
	// ConfirmRestore takes a person's word for when the old daemon was surely dead, and enables dispatch.
	ConfirmRestore(ctx context.Context, deadAt time.Time, by journal.By) error
}
