package exec

import (
	osexec "os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// A release tag in a bare repository, written by a create-only push and read by
// ls-remote: a destination in twenty lines of shell.
const (
	gitDispatch = `
ref=refs/tags/$(printf %s "$SETTLED_KEY" | tr ':' '/')
object=$(printf %s "$SETTLED_DIGEST" | git hash-object -w --stdin) || exit 69
out=$(git push --porcelain --force-with-lease="$ref:" "$REMOTE" "$object:$ref" 2>&1) || exit 1
printf '{"outcome":"done","object_id":"%s"}\n' "$object"`
	gitRead = `
ref=refs/tags/$(printf %s "$SETTLED_KEY" | tr ':' '/')
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
object=$(printf %s "$SETTLED_DIGEST" | git hash-object --stdin)
line=$(git ls-remote --exit-code "$REMOTE" "$ref"); rc=$?
case $rc in
0) d=sha256:other; [ "${line%%	*}" = "$object" ] && d=$SETTLED_DIGEST
   items="{\"object_id\":\"${line%%	*}\",\"key\":\"$SETTLED_KEY\",\"digest\":\"$d\"}";;
2) items=;;
*) exit 1;;
esac
printf '{"items":[%s],"complete":true,"visible":true,"as_of":"%s","scanned_from":0}\n' "$items" "$now"`
)

func TestAGitRepositoryIsADestination(t *testing.T) {
	dir := t.TempDir()
	remote, work := filepath.Join(dir, "remote.git"), filepath.Join(dir, "work")
	for _, args := range [][]string{{"init", "-q", "--bare", remote}, {"init", "-q", work}} {
		if out, err := osexec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	prefix := "export REMOTE='" + remote + "' GIT_DIR='" + work + "/.git' GIT_CONFIG_GLOBAL=/dev/null;"
	a := open(t, map[string]any{"dispatch": prefix + gitDispatch, "read": prefix + gitRead})

	if _, none := readBack(t, a, operation1("tag")).Finding.(*sdk.NoneSeen); !none {
		t.Fatal("an empty repository holds something")
	}
	c, ok := send(t, a, operation1("tag"), 20*time.Second).Outcome.(*sdk.Committed)
	if !ok {
		t.Fatal("the push was not done")
	}
	f, ok := readBack(t, a, operation1("tag")).Finding.(*sdk.Found)
	if !ok || len(f.Matches) != 1 || f.Matches[0].Object.ID != c.Object.ID || f.Matches[0].Agreement != sdk.AgreementSame {
		t.Fatalf("found %+v", f)
	}
	other := operation1("tag")
	other.PayloadSHA256 = make([]byte, 32)
	if got := class(send(t, a, other, 20*time.Second).Outcome); got != "unknown" {
		t.Fatalf("a push on a taken ref is %s, want unknown: read now", got)
	}
	f, ok = readBack(t, a, other).Finding.(*sdk.Found)
	if !ok || f.Matches[0].Agreement != sdk.AgreementDiffers {
		t.Fatalf("another's ref is taken for ours: %+v", f)
	}
	gone := open(t, map[string]any{"read": "export REMOTE=/nonexistent;" + gitRead})
	if _, failed := readBack(t, gone, operation1("tag")).Finding.(*sdk.Indeterminate); !failed {
		t.Fatal("an unreachable repository reads as empty")
	}
}
