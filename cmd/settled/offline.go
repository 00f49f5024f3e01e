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

func (o offline) Check(ctx context.Context) (daemon.VerifyReport, error) {
	return daemon.CheckReportOf(o.db.Check(ctx))
}

func (o offline) SQL(ctx context.Context, query string, row func([]string, []any) error) error {
	return o.db.SQL(ctx, query, row)
}

// restoreJournal is `settled journal restore`.
func restoreJournal(ctx context.Context, configFile, backup string) (string, error) {
	opts, err := offlineOptions(configFile)
	if err != nil {
		return "", err
	}
	return sqlite.Restore(ctx, opts, backup)
}

// migrateJournal is `settled journal migrate`.
func migrateJournal(ctx context.Context, configFile string, dryRun bool) (cli.Migration, error) {
	opts, err := offlineOptions(configFile)
	if err != nil {
		return cli.Migration{}, err
	}
	m, err := sqlite.Migrate(ctx, opts, dryRun)
	return cli.Migration(m), err
}

func offlineOptions(configFile string) (sqlite.Options, error) {
	cfg, err := config.Open(configFile, config.FromOS())
	if err != nil {
		return sqlite.Options{}, err
	}
	return journalOptions(cfg, nil)
}

func (o offline) Close() error { return o.db.Close() }
