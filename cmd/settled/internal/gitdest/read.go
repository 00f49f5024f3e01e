package gitdest

import (
	"context"
	"errors"
	"time"
)

// read looks up the key's ref, fetches its tag object and says what it is.
func (g *git) read(ctx context.Context, repo string, op operation) (reading, error) {
	if op.Key == "" {
		return reading{}, errors.New("the request names no key")
	}
	ref := KeyRef(op.Key)
	asked := []string{guardRef, ref}
	rel, relErr := decodeRelease(op.Payload) // without it the tag's own word is taken
	if relErr == nil {
		asked = append(asked, tagRefs+rel.Tag)
	}
	at := time.Now().UTC()
	seen, err := g.lsRemote(ctx, repo, asked...)
	if err != nil {
		return reading{}, err
	}
	answer := reading{Items: []item{}, Complete: true, Visible: seen[guardRef] != "", AsOf: at, ScannedFrom: time.Unix(0, 0).UTC()}
	object := seen[ref]
	if object == "" {
		return answer, nil
	}
	m, err := g.fetch(ctx, repo, ref, object)
	if err != nil {
		return reading{}, err
	}
	found := item{ObjectID: object, Key: m.key, Digest: m.digest, State: "tagged", Missing: []string{}}
	if !m.at.IsZero() {
		found.CreatedAt = &m.at
	}
	if relErr == nil && seen[tagRefs+rel.Tag] != object {
		found.Missing = append(found.Missing, "tag "+rel.Tag)
	}
	answer.Items = append(answer.Items, found)
	return answer, nil
}

// fetch gets the tag object and reads its mark.
func (g *git) fetch(ctx context.Context, repo, ref, object string) (mark, error) {
	dir, err := g.workspace(ctx)
	if err != nil {
		return mark{}, err
	}
	if err := g.run(ctx, dir, "", "fetch", "-q", "--no-tags", "--depth=1", "--", repo, ref).err("fetch"); err != nil {
		return mark{}, err
	}
	r := g.run(ctx, dir, "", "cat-file", "-p", object)
	return parseMark(r.out), r.err("cat-file")
}
