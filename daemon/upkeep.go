package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// Prune removes what the retention rules let go: payloads first, then evidence,
// then rows. Never anything open or in review, nor what a person acted on
// within the same time; keys stay in the ledger for ever.
func (d *Daemon) Prune(ctx context.Context) (PruneReport, error) {
	at, keep := now(), d.settings.Load().Journal
	r, err := d.db.Prune(ctx, at.Add(-keep.Keep), at.Add(-keep.KeepPayload))
	return PruneReport(r), err
}

func (j *job) prune(ctx context.Context) error {
	r, err := j.d.Prune(ctx)
	j.detail("removed %d effects and %d payloads; their keys and digests stay", r.Effects, r.Payloads)
	return err
}

// verify recomputes the chain and compares it with the effects, then asks the
// database whether its file is whole.
func (j *job) verify(ctx context.Context) error {
	r, err := j.d.db.Verify(ctx, "")
	if err != nil {
		return err
	}
	j.detail("checked %d lines of the chain and %d effects up to %s", r.Checked, r.Effects, r.Head)
	if err := r.Err(); err != nil {
		j.d.log.Error("the journal does not verify", "schedule", j.item.name, "err", err)
		return err
	}
	return j.d.db.QuickCheck(ctx)
}

// backup writes a verified copy named by the nominal time, so that a run which
// is taken up again makes no second one, and removes the oldest beyond keep_copies.
func (j *job) backup(ctx context.Context) error {
	dir := j.item.conf.Directory
	if dir == "" {
		dir = filepath.Join(filepath.Dir(j.d.db.Path()), "backups")
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	prefix := j.item.name + "-"
	file := filepath.Join(dir, prefix+j.moment().Format(compactTime)+".db")
	if _, err := os.Lstat(file); errors.Is(err, os.ErrNotExist) { // a copy gets its name when it is whole
		if err := j.d.db.Backup(ctx, file); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	gone, err := rotate(dir, prefix, j.item.conf.KeepCopies)
	j.detail("verified copy %s; %d older removed", file, gone)
	return err
}

// compactTime spells a nominal time in names and keys.
const compactTime = "20060102T150405Z"

// moment is the nominal time of the run; for one that somebody asked for, when it began.
func (j *job) moment() time.Time {
	if j.nominal.IsZero() {
		return j.report.StartedAt.UTC().Truncate(time.Second)
	}
	return j.nominal.UTC()
}

// rotate removes the oldest copies of a schedule beyond keep. It touches only
// names that a backup of this schedule gives.
func rotate(dir, prefix string, keep int) (gone int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("rotate backups: %w", err)
	}
	var names []string
	for _, e := range entries {
		middle, ok := strings.CutPrefix(e.Name(), prefix)
		middle, db := strings.CutSuffix(middle, ".db")
		if _, err := time.Parse(compactTime, middle); ok && db && err == nil && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names) // the names are times
	for _, name := range names[:max(0, len(names)-keep)] {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return gone, fmt.Errorf("rotate backups: %w", err)
		}
		gone++
	}
	return gone, nil
}

// submit submits the schedule's effect. Its key is made of the nominal time:
// whatever is caught up, taken up or asked for twice is one effect.
func (j *job) submit(ctx context.Context) error {
	c := j.item.conf
	at := j.moment().Format(compactTime)
	req := SubmitRequest{
		Destination: c.Destination, Operation: c.Operation, Key: scheduledKey(c.Key, at),
		Payload: []byte(strings.ReplaceAll(c.Payload, nominalMark, j.moment().Format(time.RFC3339))),
		Actor:   "schedule:" + j.item.name,
	}
	out, err := j.d.Submit(ctx, req, journal.By{Actor: "settled", Kind: journal.System, Origin: "schedule", Because: "schedule " + j.item.name})
	var pruned *sqlite.PrunedError
	if errors.As(err, &pruned) {
		j.detail("%s was submitted before and is pruned", req.Key)
		return nil
	}
	if err != nil {
		return fmt.Errorf("submit %s: %w", req.Key, err)
	}
	word := "recorded"
	if !out.Created {
		word = "was recorded before as"
	}
	j.detail("%s %s (%s)", word, req.Key, out.Effect.Phase)
	return nil
}

// nominalMark stands for the nominal time in a schedule's key and payload.
const nominalMark = "${nominal}"

// scheduledKey puts the nominal time into the key: where the mark stands, else
// as a part of its own before the version.
func scheduledKey(key, at string) string {
	if strings.Contains(key, nominalMark) {
		return strings.ReplaceAll(key, nominalMark, at)
	}
	return key + ":" + at + ":v1"
}
