package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Reloaded compares a running configuration with the next one. merged is next
// with everything that needs a restart put back to what runs; it is what a
// daemon may go on with at once. changed names what is different in merged,
// restart what was put back, each in the words of the file.
//
// A restart is needed where a process, a lock, a socket or a queue of the old
// configuration stays: journal, listen, credentials, adapters, the set of
// destinations, and of each destination what its adapter process was started with.
func (c *Config) Reloaded(next *Config) (merged *Config, changed, restart []string) {
	m := *next
	for _, part := range []struct {
		name     string
		now, new any
		back     func()
	}{
		{"journal", c.Journal, next.Journal, func() { m.Journal = c.Journal }},
		{"listen", c.Listen, next.Listen, func() { m.Listen = c.Listen }},
		{"credentials", c.Credentials, next.Credentials, func() { m.Credentials = c.Credentials }},
		{"adapters", c.Adapters, next.Adapters, func() { m.Adapters = c.Adapters }},
	} {
		if names := differing(part.name, part.now, part.new); names != nil {
			restart = append(restart, names...)
			part.back()
		}
	}
	changed = append(changed, differing("daemon", c.Daemon, next.Daemon)...)
	changed = append(changed, differing("keys", c.Keys, next.Keys)...)
	m.Destinations = map[string]*Destination{}
	for _, name := range names(c.Destinations, next.Destinations) {
		old, new := c.Destinations[name], next.Destinations[name]
		path := "destinations." + name
		switch {
		case old == nil, new == nil:
			restart = append(restart, path)
			if old != nil {
				m.Destinations[name] = old.of(&m)
			}
			continue
		}
		d := new.of(&m)
		for _, key := range differing(path, old, new) {
			if back := processBound(strings.TrimPrefix(key, path+".")); back == nil {
				changed = append(changed, key)
			} else {
				restart = append(restart, key)
				back(d, old)
			}
		}
		m.Destinations[name] = d
	}
	m.keepOwners(c)
	changed = append(changed, differing("owners", c.Owners, m.Owners)...)
	m.Schedules = map[string]*Schedule{}
	for _, name := range names(c.Schedules, next.Schedules) {
		new := next.Schedules[name]
		if new != nil && new.Destination != "" && m.Destinations[new.Destination] == nil {
			restart = append(restart, "schedules."+name) // its destination waits for the restart
			continue
		}
		if new != nil {
			m.Schedules[name] = new
		}
		changed = append(changed, differing("schedules."+name, c.Schedules[name], new)...)
	}
	return &m, changed, restart
}

// keepOwners puts back the owners that a destination still needs which only
// leaves with a restart.
func (c *Config) keepOwners(old *Config) {
	c.Owners = maps.Clone(c.Owners)
	for _, d := range c.Destinations {
		for who := d.Owner; who != "" && c.Owners[who] == nil && old.Owners[who] != nil; who = old.Owners[who].Second {
			c.Owners[who] = old.Owners[who]
		}
	}
}

// of returns a copy that belongs to another configuration.
func (d *Destination) of(c *Config) *Destination {
	own := *d
	own.cfg = c
	return &own
}

// processBound says how a setting of a destination is put back; nil: it may
// change while the destination works.
func processBound(key string) func(d, old *Destination) {
	switch key {
	case "adapter":
		return func(d, old *Destination) { d.Adapter = old.Adapter }
	case "sha256":
		return func(d, old *Destination) { d.SHA256 = old.SHA256 }
	case "account":
		return func(d, old *Destination) { d.Account = old.Account }
	case "credentials":
		return func(d, old *Destination) { d.Credentials = old.Credentials }
	case "with":
		return func(d, old *Destination) { d.With = old.With }
	case "concurrency":
		return func(d, old *Destination) { d.Concurrency = old.Concurrency }
	case "breaker":
		return func(d, old *Destination) { d.Breaker = old.Breaker }
	case "retry": // its tokens are counted in memory
		return func(d, old *Destination) { d.Retry = old.Retry }
	case "grace": // linger is given to the adapter's process when it starts
		return func(d, old *Destination) { d.Grace = old.Grace }
	}
	return nil
}

// differing names the keys in which two tables differ, prefix and all; nil when
// there is none.
func differing(prefix string, a, b any) []string {
	ta, tb := table(a), table(b)
	var out []string
	for _, key := range names(ta, tb) {
		if !bytes.Equal(ta[key], tb[key]) {
			out = append(out, prefix+"."+key)
		}
	}
	return out
}

// table is a value as its keys; a value that is not there has none.
func table(v any) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		panic("config: cannot compare: " + err.Error()) // plain data, encoded by ourselves
	}
	return out
}

func names[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
