package gitdest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// dispatch makes the tag object and pushes it under both refs, or neither. The
// fault, if any, decides what is lost around the one push.
func (g *git) dispatch(ctx context.Context, repo string, op operation, lose loss) (outcome, error) {
	if op.Key == "" {
		return outcome{Outcome: "rejected", Message: "the request names no key"}, nil
	}
	rel, err := decodeRelease(op.Payload)
	if err != nil {
		return outcome{Outcome: "rejected", Message: err.Error()}, nil
	}
	if r := g.run(ctx, g.scratch, "", "check-ref-format", tagRefs+rel.Tag); r.status == 1 {
		return outcome{Outcome: "rejected", Message: fmt.Sprintf("%q is no valid tag name", rel.Tag)}, nil
	}
	dir, object, err := g.build(ctx, op, rel)
	if err != nil {
		// Nothing has left this machine: the push was not started.
		return outcome{Outcome: "not_executed", Message: err.Error()}, nil
	}
	if err := lose.before(ctx); err != nil {
		return outcome{}, err
	}
	refs := []string{KeyRef(op.Key), tagRefs + rel.Tag}
	args := []string{"push", "--porcelain", "--atomic", "--no-follow-tags"}
	for _, ref := range refs {
		args = append(args, "--force-with-lease="+ref+":") // create only
	}
	args = append(args, "--", repo)
	for _, ref := range refs {
		args = append(args, object+":"+ref)
	}
	pushed := g.run(ctx, dir, "", args...)
	if err := lose.after(ctx); err != nil {
		return outcome{}, err
	}
	if pushed.status == 0 {
		return outcome{Outcome: "done", ObjectID: object, Evidence: map[string]string{"push": strings.TrimSpace(pushed.out)}}, nil
	}
	return g.refused(ctx, repo, refs, pushed), nil
}

// build writes the release and its tag object into a scratch repository.
func (g *git) build(ctx context.Context, op operation, rel release) (dir, object string, err error) {
	dir, err = g.workspace(ctx)
	if err != nil {
		return "", "", err
	}
	now := time.Now()
	m := mark{key: op.Key, digest: op.Digest, attempt: op.AttemptID, tag: rel.Tag, at: now}
	message := m.message(rel.Notes)
	subject := fmt.Sprintf("Release %s of %s\n\nSource: %s\n", rel.Tag, rel.Repo, rel.Commit)
	stamp := fmt.Sprintf("%s %d +0000", identity, now.Unix())
	stream := fmt.Sprintf("commit refs/heads/release\nmark :1\ncommitter %s\ndata %d\n%s\nM 100644 inline release.json\ndata %d\n%s\n"+
		"tag release\nfrom :1\ntagger %s\ndata %d\n%s\n",
		stamp, len(subject), subject, len(op.Payload), op.Payload, stamp, len(message), message)
	if err := g.run(ctx, dir, stream, "fast-import", "--quiet").err("fast-import"); err != nil {
		return "", "", err
	}
	r := g.run(ctx, dir, "", "rev-parse", tagRefs+"release")
	return dir, strings.TrimSpace(r.out), r.err("rev-parse")
}

// refused says what a push that failed proves. A ref that exists may be an
// earlier push of ours: only when the tag is held and the key is free is it
// certain that this request did not and will not happen.
func (g *git) refused(ctx context.Context, repo string, refs []string, pushed result) outcome {
	evidence := map[string]string{"push": strings.TrimSpace(pushed.out), "git": pushed.message()}
	stale := strings.Contains(pushed.out, "(stale info)") || strings.Contains(pushed.out, "already exists")
	if pushed.status == 1 && strings.Contains(pushed.out, "hook declined)") && !stale {
		return outcome{Outcome: "rejected", Message: "the repository's hook declined the push", Evidence: evidence}
	}
	if pushed.status == 1 && stale {
		held, err := g.lsRemote(ctx, repo, append([]string{guardRef}, refs...)...)
		if err == nil && held[guardRef] != "" && held[refs[0]] == "" && held[refs[1]] != "" {
			return outcome{Outcome: "rejected", Message: filepath.Base(refs[1]) + " exists already and belongs to another effect", Evidence: evidence}
		}
		return outcome{Outcome: "unknown", Message: "a ref of this key exists already; read it", Evidence: evidence}
	}
	return outcome{Outcome: "unknown", Message: fmt.Sprintf("git push ended with %d: %s", pushed.status, pushed.message()), Evidence: evidence}
}

// undo deletes every ref of the tag object, on condition that it still has it.
func (g *git) undo(ctx context.Context, repo string, op operation) (outcome, error) {
	if op.ObjectID == "" {
		return outcome{Outcome: "rejected", Message: "undo needs the object_id of the tag object"}, nil
	}
	seen, err := g.lsRemote(ctx, repo)
	if err != nil {
		return outcome{Outcome: "not_executed", Message: err.Error()}, nil
	}
	var leases, deletes []string
	for ref, object := range seen {
		// "^{}" is what a tag points to, not a ref.
		if object == op.ObjectID && !strings.HasSuffix(ref, "^{}") && (strings.HasPrefix(ref, keyRefs) || strings.HasPrefix(ref, tagRefs)) {
			leases = append(leases, "--force-with-lease="+ref+":"+object)
			deletes = append(deletes, ":"+ref)
		}
	}
	if len(deletes) == 0 {
		return outcome{Outcome: "done", ObjectID: op.ObjectID, Message: "no ref holds the object any more"}, nil
	}
	dir, err := g.workspace(ctx)
	if err != nil {
		return outcome{Outcome: "not_executed", Message: err.Error()}, nil
	}
	args := append([]string{"push", "--porcelain", "--atomic"}, leases...)
	pushed := g.run(ctx, dir, "", append(append(args, "--", repo), deletes...)...)
	if pushed.status != 0 {
		return outcome{Outcome: "unknown", Message: pushed.message()}, nil
	}
	return outcome{Outcome: "done", ObjectID: op.ObjectID}, nil
}
