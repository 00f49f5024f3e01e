package main

import (
	"context"
	"os"

	"github.com/settled-dev/settled/cmd/settled/internal/cli"
	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal/sqlite"
)

// openOffline opens the journal for the journal verbs while no daemon runs. It
// opens no live file for writing and refuses one that a daemon has locked.
func openOffline(ctx context.Context, configFile string) (cli.OfflineJournal, error) {
	cfg, err := config.Open(configFile, config.FromOS())
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(cfg.Journal.Path); err != nil {
		return nil, err
	}
	opts, err := journalOptions(cfg, nil)
	if err != nil {
		return nil, err
	}
	db, err := sqlite.OpenReadOnly(ctx, opts)
	if err != nil {
		return nil, err
	}
	return offline{db}, nil
}

// offline is a journal without a daemon.
type offline struct{ db *sqlite.DB }

func (o offline) Verify(ctx context.Context, expectHead string) (daemon.VerifyReport, error) {
	return daemon.ReportOf(o.db.Verify(ctx, expectHead))
}

func (o offline) Backup(ctx context.Context, file string) error { return o.db.Backup(ctx, file) }

func (o offline) Stats(ctx context.Context) (daemon.JournalStats, error) {
	return daemon.StatsOf(o.db.Stats(ctx))
}

func (o offline) Close() error { return o.db.Close() }
