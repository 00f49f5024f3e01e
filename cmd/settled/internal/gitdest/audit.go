package gitdest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// auditLog is where the repository's own hook writes every update of a ref.
const auditLog = "settled-audit"

// hook needs no command but the shell's own.
const hook = `#!/bin/sh
while read -r old new ref; do
	printf '%s %s %s\n' "$old" "$new" "$ref"
done >>` + auditLog + `
`

// Init makes a bare repository with the guard branch and the audit hook. One
// that exists is left as it is.
func Init(ctx context.Context, repo string) (err error) {
	if _, err := os.Stat(filepath.Join(repo, "HEAD")); err == nil {
		return nil
	}
	g, err := newGit("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.run(ctx, g.scratch, "", "init", "-q", "--bare", "--template=", "--initial-branch=main", "--", repo).err("init"); err != nil {
		return err
	}
	const stream = "commit refs/heads/main\ncommitter " + identity + " 1700000000 +0000\ndata 15\nStart the repo\n\n"
	if err := g.run(ctx, repo, stream, "fast-import", "--quiet").err("fast-import"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(repo, "hooks"), 0o755); err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	if err := os.WriteFile(filepath.Join(repo, "hooks", "post-receive"), []byte(hook), 0o755); err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	return nil
}

// Tag is one tag of the repository that carries a key.
type Tag struct {
	Name    string `json:"name"`
	Object  string `json:"object"`
	Digest  string `json:"digest"`
	Attempt string `json:"attempt"`
}

// Record is the truth about one key.
type Record struct {
	Key     string `json:"key"`
	Tags    []Tag  `json:"tags"`    // there now; more than one is a duplicate
	Created int    `json:"created"` // how often the key's ref came into being, by the repository's own log
	Removed int    `json:"removed"`
}

// Audit reads the repository itself, not through a push or fetch: every key
// that has or had a tag, sorted.
func Audit(ctx context.Context, repo string) (records []Record, err error) {
	g, err := newGit("")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	r := g.run(ctx, repo, "", "for-each-ref", "--format=%(refname)%00%(objectname)%00%(contents)%00", tagRefs)
	if err := r.err("for-each-ref"); err != nil {
		return nil, err
	}
	byKey := map[string]*Record{}
	of := func(key string) *Record {
		if byKey[key] == nil {
			byKey[key] = &Record{Key: key, Tags: []Tag{}}
		}
		return byKey[key]
	}
	refOwner := map[string]string{}
	parts := strings.Split(r.out, "\x00")
	for i := 0; i+2 < len(parts); i += 3 {
		m := parseMark(parts[i+2])
		if m.key == "" {
			continue
		}
		refOwner[KeyRef(m.key)] = m.key
		rec := of(m.key)
		name := strings.TrimPrefix(strings.TrimPrefix(parts[i], "\n"), tagRefs)
		rec.Tags = append(rec.Tags, Tag{Name: name, Object: parts[i+1], Digest: m.digest, Attempt: m.attempt})
	}
	if err := history(repo, refOwner, of); err != nil {
		return nil, err
	}
	for _, rec := range byKey {
		records = append(records, *rec)
	}
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Key, b.Key) })
	return records, nil
}

// history counts what the hook wrote down.
func history(repo string, owner map[string]string, of func(string) *Record) error {
	data, err := os.ReadFile(filepath.Join(repo, auditLog))
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing was ever pushed
	}
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for text := range strings.Lines(string(data)) {
		f := strings.Fields(text)
		if len(f) != 3 {
			return fmt.Errorf("audit: unexpected line %q", text)
		}
		if !strings.HasPrefix(f[2], keyRefs) {
			continue
		}
		key, ok := owner[f[2]]
		if !ok {
			key = keyOf(f[2])
		}
		if strings.Trim(f[0], "0") == "" {
			of(key).Created++
		}
		if strings.Trim(f[1], "0") == "" {
			of(key).Removed++
		}
	}
	return nil
}
