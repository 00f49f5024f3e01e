package adaptertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/adaptertest/faultproxy"
)

// Options say how the kit runs.
type Options struct {
	// Only are the ids to run ("35"); empty = all. The others are skipped.
	Only []string
	// Short makes the long checks short, as in every run of CI: fewer
	// dispatches, shorter deadlines.
	Short bool
	// Progress gets each result as it is known; nil = nobody.
	Progress func(Result)
}

// kit is one run. Only the goroutine of the run uses it, except where mu is named.
type kit struct {
	ctx         context.Context
	plan        Plan
	o           Options
	dir         string
	proxy       *faultproxy.Proxy
	destination string // the base URL, not through the proxy
	closeDest   func()
	children    []*child
	shared      *child
	configured  sdk.Description // with the actions in force
	spec        sdk.ActionSpec
	n           int

	mu   sync.Mutex // guards said: answers come from several goroutines
	said bytes.Buffer
}

// Test runs the kit for one adapter. The error says that it could not run;
// what it found is in the report.
func Test(ctx context.Context, p Plan, o Options) (Report, error) {
	if err := p.fault(); err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp("", "ak-")
	if err != nil {
		return Report{}, err
	}
	k := &kit{ctx: ctx, plan: p, o: o, dir: dir, closeDest: func() {}}
	defer k.close()
	r := Report{Adapter: strings.Join(p.Adapter, " ")}
	if r.SHA256, err = k.digest(); err != nil {
		return r, err
	}
	if err := k.reach(); err != nil {
		return r, err
	}
	for _, c := range checks() {
		res := k.run(c)
		r.Results = append(r.Results, res)
		if o.Progress != nil {
			o.Progress(res)
		}
	}
	r.Name, r.Version = k.configured.Name, k.configured.Version
	return r, ctx.Err()
}

// Run is [Test] as a test of Go: every check is a subtest, and what fails fails it.
func Run(t *testing.T, p Plan, o Options) Report {
	t.Helper()
	r, err := Test(t.Context(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range r.Results {
		t.Run(res.ID+" "+res.Name, func(t *testing.T) {
			switch res.Status {
			case Fail:
				t.Errorf("%s\n%s", res.Rule, res.Reason)
			case Skip, NotBuilt:
				t.Skip(res.Reason)
			}
		})
	}
	return r
}

// close ends everything that the kit started.
func (k *kit) close() {
	for _, c := range k.children {
		c.kill()
	}
	if k.proxy != nil {
		_ = k.proxy.Close()
	}
	k.closeDest()
	_ = os.RemoveAll(k.dir)
}

// digest is what the badge is bound to: the program, and the files of the plan.
func (k *kit) digest() (string, error) {
	program, err := exec.LookPath(k.plan.program())
	if err != nil {
		return "", fmt.Errorf("the adapter cannot be run: %w", err)
	}
	all := sha256.New()
	for i, file := range append([]string{program}, k.plan.Files...) {
		raw, err := os.ReadFile(k.plan.path(file))
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(raw)
		if len(k.plan.Files) == 0 {
			return hex.EncodeToString(sum[:]), nil
		}
		fmt.Fprintf(all, "%d %x\n", i, sum)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// reach starts the destination and the proxy before it.
func (k *kit) reach() error {
	k.destination = strings.TrimRight(k.plan.URL, "/")
	if len(k.plan.Destination) > 0 {
		if err := k.startDestination(); err != nil {
			return err
		}
	}
	if k.destination == "" {
		return nil
	}
	var err error
	k.proxy, err = faultproxy.Start(faultproxy.Config{Target: k.destination})
	return err
}

func (k *kit) startDestination() error {
	args := make([]string, len(k.plan.Destination))
	for i, a := range k.plan.Destination {
		args[i] = strings.ReplaceAll(a, "{{dir}}", k.plan.dir)
	}
	cmd := exec.Command(k.plan.path(args[0]), args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stderr = k.environment(), k.plan.dir, &tape{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("the destination cannot be started: %w", err)
	}
	line := make(chan string, 1)
	read := make(chan struct{})
	go func() { // ends with the destination
		defer close(read)
		line <- firstLine(out)
		_, _ = io.Copy(io.Discard, out)
	}()
	k.closeDest = func() {
		_ = in.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-read
		_ = cmd.Wait()
	}
	select {
	case base := <-line:
		k.destination = strings.TrimRight(strings.TrimSpace(base), "/")
	case <-time.After(15 * time.Second):
	}
	if u, err := url.Parse(k.destination); err != nil || u.Host == "" {
		return fmt.Errorf("the destination must print its base URL as its first line; it printed %.80q", k.destination)
	}
	return nil
}

func firstLine(r io.Reader) string {
	var line []byte
	one := make([]byte, 1)
	for len(line) < 1<<10 {
		if _, err := r.Read(one); err != nil || one[0] == '\n' {
			break
		}
		line = append(line, one[0])
	}
	return string(line)
}

// environment is what the adapter and the destination see of ours: as under the
// daemon, and how a build with the race detector is to behave.
func (k *kit) environment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "GORACE"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// config is the configuration with a URL; empty = through the proxy.
func (k *kit) config(base string) []byte {
	if base == "" && k.proxy != nil && !k.plan.TunnelProxy {
		base = k.proxy.URL()
	}
	if base == "" {
		base = k.destination
	}
	doc := string(k.plan.Config)
	if doc == "" {
		doc = "{}"
	}
	return []byte(fill(doc, map[string]string{"url": base, "dir": k.plan.dir}))
}

// operation is a new effect with a key of its own.
func (k *kit) operation() sdk.Operation {
	k.n++
	payload := string(k.plan.Payload)
	if payload == "" {
		payload = "{}"
	}
	payload = fill(payload, map[string]string{"n": strconv.Itoa(k.n), "dir": k.plan.dir})
	return k.with("kit-"+strings.ToLower(rand.Text()), []byte(payload))
}

func (k *kit) with(key string, payload []byte) sdk.Operation {
	sum := sha256.Sum256(payload)
	return sdk.Operation{
		ID: key, Attempt: 1, AttemptID: key + "-1", Action: k.spec.Name, Key: key, Marker: key, Payload: payload,
		ContentType: "application/json", PayloadSHA256: sum[:], Actor: "adaptertest",
	}
}

// limit is how long a call may take that should not take long.
const limit = 20 * time.Second

func (k *kit) dispatch(c *child, op sdk.Operation) (sdk.Response, error) {
	return k.dispatchFor(c, op, limit)
}

func (k *kit) dispatchFor(c *child, op sdk.Operation, d time.Duration) (sdk.Response, error) {
	ctx, cancel := context.WithTimeout(k.ctx, d+2*time.Second)
	defer cancel()
	return c.Dispatch(ctx, sdk.DispatchRequest{Operation: op, Deadline: time.Now().Add(d)})
}

// commit is a dispatch that must be confirmed; what is accepted is polled.
func (k *kit) commit(c *child, op sdk.Operation) (*sdk.Committed, error) {
	r, err := k.dispatch(c, op)
	if err != nil {
		return nil, err
	}
	switch o := r.Outcome.(type) {
	case *sdk.Committed:
		return o, nil
	case *sdk.Accepted:
		return k.poll(c, op, o.Handle)
	}
	return nil, fmt.Errorf("a valid request is answered %s", tell(r.Outcome))
}

func (k *kit) poll(c *child, op sdk.Operation, handle string) (*sdk.Committed, error) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(k.ctx, limit)
		r, err := c.Read(ctx, sdk.ReadRequest{Purpose: sdk.PurposePoll, Operation: op, Handle: handle})
		cancel()
		if err != nil {
			return nil, err
		}
		if f, ok := r.Finding.(*sdk.Found); ok {
			return &sdk.Committed{Object: f.Matches[0].Object}, nil
		}
		if f, ok := r.Finding.(*sdk.Failed); ok {
			return nil, fmt.Errorf("the accepted request failed: %s %s", f.Code, f.Message)
		}
	}
	return nil, errors.New("an accepted request never came to an end")
}

func (k *kit) read(c *child, op sdk.Operation) (sdk.ReadResponse, error) {
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	return c.Read(ctx, sdk.ReadRequest{
		Purpose: sdk.PurposeResolve, Operation: op, DispatchedFrom: time.Now().Add(-time.Minute), DispatchedTo: time.Now(),
	})
}

// found is a read that must find exactly one object of the effect.
func (k *kit) found(c *child, op sdk.Operation) (sdk.Match, error) {
	r, err := k.read(c, op)
	if err != nil {
		return sdk.Match{}, err
	}
	f, ok := r.Finding.(*sdk.Found)
	if !ok {
		return sdk.Match{}, fmt.Errorf("the effect is there, and the read says %s", tellFinding(r))
	}
	exact := exactMatches(f)
	if len(exact) != 1 {
		return sdk.Match{}, fmt.Errorf("the read finds %d exact matches of one effect", len(exact))
	}
	return exact[0], nil
}

func exactMatches(f *sdk.Found) []sdk.Match {
	var out []sdk.Match
	for _, m := range f.Matches {
		if m.Strength > sdk.StrengthSimilar {
			out = append(out, m)
		}
	}
	return out
}

// effects asks the destination how many effects of a key there are.
func (k *kit) effects(key string) (int, error) {
	if k.plan.EffectsOf != nil {
		return k.plan.EffectsOf(key)
	}
	if k.plan.Effects == "" {
		return 0, skipped("the plan has no \"effects\", so nobody counts what really happened")
	}
	raw, err := k.control(http.MethodGet, k.plan.Effects, key)
	if err != nil {
		return 0, err
	}
	var v struct{ Effects *int }
	if err := json.Unmarshal(raw, &v); err != nil || v.Effects == nil {
		return 0, fmt.Errorf("the destination answers %.80q to \"effects\", not {\"effects\": n}", raw)
	}
	return *v.Effects, nil
}

// want fails unless there are n effects of the key.
func (k *kit) want(key string, n int) error {
	have, err := k.effects(key)
	if err == nil && have != n {
		err = fmt.Errorf("there are %d effects, not %d", have, n)
	}
	return err
}

func (k *kit) control(method, path, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, k.destination+strings.ReplaceAll(path, "{{key}}", url.QueryEscape(key)), nil)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{DisableKeepAlives: true}
	res, err := t.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err == nil && res.StatusCode > 299 {
		err = fmt.Errorf("the destination answers %d to %s %s", res.StatusCode, method, filepath.Base(path))
	}
	return raw, err
}

// pinned is the program as the daemon wants it: an absolute path without links,
// and its digest.
func (k *kit) pinned() (path, sum string, err error) {
	if path, err = exec.LookPath(k.plan.program()); err != nil {
		return "", "", err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", "", err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", "", err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	h := sha256.Sum256(raw)
	return path, hex.EncodeToString(h[:]), nil
}
