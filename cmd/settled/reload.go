package main

import (
	"context"
	"errors"
	"strings"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk/client"
)

// reload reads the configuration again from where it came. Everything is checked
// before anything changes; on a fault the configuration that runs is kept, and
// log, metric and answer say so.
func (s *server) reload(ctx context.Context, by journal.By) (client.ReloadReport, error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	rep, err := s.tryReload(ctx, by)
	if err != nil {
		s.daemon.ReloadFailed()
		s.log.Error("reload refused; the configuration that runs is kept", "err", err)
		return rep, err
	}
	s.log.Info("reloaded", "changed", strings.Join(rep.Changed, " "), "needs_restart", strings.Join(rep.NeedsRestart, " "))
	return rep, nil
}

func (s *server) tryReload(ctx context.Context, by journal.By) (rep client.ReloadReport, err error) {
	next, err := config.Open(s.configFile, config.FromOS())
	if err != nil {
		return rep, kept(err)
	}
	merged, changed, restart := s.daemon.Settings().Reloaded(next)
	overrides, err := s.declared(ctx, merged)
	if err != nil {
		return rep, kept(err)
	}
	rep = client.ReloadReport{
		Files: append([]string{}, merged.Files...), Changed: append([]string{}, changed...),
		NeedsRestart: append([]string{}, restart...), Warnings: []string{}, PolicySHA256: merged.PolicySHA256(),
	}
	for _, w := range merged.Warnings {
		rep.Warnings = append(rep.Warnings, w.Error())
	}
	if len(changed) == 0 {
		return rep, nil
	}
	if err := s.noteOverrides(ctx, merged, overrides); err != nil {
		return rep, err
	}
	return rep, s.daemon.Reload(ctx, merged, changed, by)
}

// kept makes faults of a configuration an answer for the person who asked.
func kept(err error) error {
	var all *config.Error
	if !errors.As(err, &all) {
		return &daemon.InvalidError{Faults: []string{err.Error()}}
	}
	out := &daemon.InvalidError{}
	for _, f := range all.Faults {
		out.Faults = append(out.Faults, f.Error())
	}
	return out
}
