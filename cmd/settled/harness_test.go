package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/cutproxy"
	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/cmd/settled/internal/stage"
	"github.com/settled-dev/settled/sdk/client"
)

// rig is a stage under test: the daemon, its adapters, the desk and the git
// commands are real processes (this test binary again, see TestMain), and a
// proxy that can cut stands between the daemon and the desk.
type rig struct {
	*testing.T
	*stage.Stage
	c     *client.Client
	proxy *cutproxy.Proxy
	ctx   context.Context

	deskArgs []string
}

// rigOptions change the sample configurations and the desk.
type rigOptions struct {
	tweaks []string // pairs: text of the samples, and what takes its place
	desk   []string // flags of the desk
	git    []string // arguments of the git destination's dispatch
	extra  string   // more configuration
}

// newRig starts everything. It is taken down, and looked for leftovers, when the test ends.
func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	dir, err := os.MkdirTemp("", "settled-rig-") // t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAndLook(t, dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	st, err := stage.New(ctx, stage.Options{Dir: dir, Binary: self})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, Stage: st, ctx: ctx, c: st.Client(), deskArgs: o.desk}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", st.DaemonLog())
		}
		r.c.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	url := r.must2(st.StartDesk(ctx, o.desk...))
	r.proxy, err = cutproxy.Start(cutproxy.Config{Target: strings.TrimPrefix(url, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.proxy.Close() })
	r.must(st.Configure(r.samples(self, o)))
	r.must(st.StartDaemon(ctx))
	return r
}

// samples are the sample configurations, pointed at this rig.
func (r *rig) samples(self string, o rigOptions) string {
	r.Helper()
	var text string
	for _, name := range []string{"desk.toml", "releases.toml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		r.must(err)
		text += string(data) + "\n"
	}
	git := fmt.Sprintf("--repo\", %q, \"--state\", %q", r.Repo(), r.GitState())
	for _, a := range o.git {
		git += fmt.Sprintf(", %q", a)
	}
	pairs := append([]string{
		`"dispatch", "--repo", "/srv/git/releases.git"`, `"dispatch", "` + git,
		"http://127.0.0.1:9900", r.proxy.URL(),
		"/usr/bin/settled", self,
		"/srv/git/releases.git", r.Repo(),
	}, o.tweaks...)
	for i := 0; i+1 < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			r.Fatalf("the sample configurations do not hold %q", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return o.extra + "\n" + text
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) must2(s string, err error) string {
	r.Helper()
	r.must(err)
	return s
}

// removeAndLook removes the directory and fails the test if a process that
// belongs to it is alive.
func removeAndLook(t *testing.T, dir string) {
	for _, p := range processesOf(dir) {
		t.Errorf("left behind: %s", p)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// processesOf lists the living processes whose command line or environment names the directory.
func processesOf(dir string) (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range dirs {
		line, _ := os.ReadFile(proc + "/cmdline")
		env, _ := os.ReadFile(proc + "/environ")
		if filepath.Base(proc) != strconv.Itoa(os.Getpid()) && (bytes.Contains(line, []byte(dir)) || bytes.Contains(env, []byte(dir))) {
			found = append(found, filepath.Base(proc)+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// killAdapter ends one adapter of the daemon with SIGKILL, as a crash would, and says whether there was one.
func (r *rig) killAdapter(n int) bool {
	var pids []int
	for _, p := range processesOf(r.Path()) {
		pid, rest, _ := strings.Cut(p, " ")
		if id, err := strconv.Atoi(pid); err == nil && strings.Contains(rest, "adapter-serve") {
			pids = append(pids, id)
		}
	}
	if len(pids) == 0 {
		return false
	}
	slices.Sort(pids)
	return syscall.Kill(pids[n%len(pids)], syscall.SIGKILL) == nil
}

const ticketPayload = `{"queue":"network","subject":"Uplink of switch B3-14 flaps","body":"since 07:40","priority":2}`

// ticket submits a ticket with the faults that its first calls meet.
func (r *rig) ticket(key string, faults ...string) {
	r.Helper()
	for _, text := range faults {
		f, err := desk.ParseFault(text)
		r.must(err)
		r.must(r.Inject(r.ctx, key, f))
	}
	_, err := r.c.Submit(r.ctx, client.SubmitRequest{Destination: "desk", Operation: "create", Key: key, Payload: json.RawMessage(ticketPayload)})
	r.must(err)
}

// tag submits a release tag.
func (r *rig) tag(key string, faults ...desk.Kind) {
	r.Helper()
	r.must(r.InjectGit(key, faults...))
	payload := fmt.Sprintf(`{"tag":%q,"notes":"first"}`, strings.ReplaceAll(key, ":", "-"))
	_, err := r.c.Submit(r.ctx, client.SubmitRequest{Destination: "releases", Operation: "tag", Key: key, Payload: json.RawMessage(payload)})
	r.must(err)
}

// restWithin bounds how long one effect may take to rest in a scenario.
const restWithin = 60 * time.Second

// rests waits until the effect rests, and fails unless its phase is the one wanted.
func (r *rig) rests(key, phase string) client.Effect {
	r.Helper()
	return r.until(key, "rests", func(e client.Effect) bool { return e.Resting() }, phase)
}

// until waits for an effect that passes the test; phase "" is any.
func (r *rig) until(key, what string, test func(client.Effect) bool, phase string) client.Effect {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, restWithin)
	defer cancel()
	var e client.Effect
	var err error
	for seq := int64(0); ; seq = e.Seq {
		if e, err = r.c.Change(ctx, key, seq, 5*time.Second); err != nil {
			r.Fatalf("%s: waiting until it %s: %v; last seen: %s %q", key, what, err, e.Phase, e.Words)
		}
		if test(e) {
			break
		}
	}
	if phase != "" && e.Phase != phase {
		text, _ := json.Marshal(e)
		went, _ := r.path(key)
		r.Fatalf("%s is %s (%s, %q), want %s; it went %v: %s", key, e.Phase, e.Finding, e.Words, phase, went, text)
	}
	return e
}

// waitLedger waits until the desk's own ledger of a key passes the test.
func (r *rig) waitLedger(key, what string, test func(desk.Entry) bool) desk.Entry {
	r.Helper()
	for limit := time.Now().Add(restWithin); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		l, err := r.Ledger(r.ctx)
		r.must(err)
		if e := l.Of(key); test(e) {
			return e
		}
	}
	r.Fatalf("%s: the desk did not see %s", key, what)
	return desk.Entry{}
}

// entry is the desk's account of a key.
func (r *rig) entry(key string) desk.Entry {
	r.Helper()
	l, err := r.Ledger(r.ctx)
	r.must(err)
	return l.Of(key)
}

// truth fails unless the destination got so many calls and holds so many objects.
func (r *rig) truth(key string, calls, objects int) stage.Truth {
	r.Helper()
	all, err := r.Truth(r.ctx)
	r.must(err)
	t := all[key]
	if strings.HasPrefix(key, "release:") {
		t.Calls, err = r.GitCalls(key)
		r.must(err)
	}
	if t.Calls != calls || t.Objects != objects {
		r.Errorf("%s: the destination had %d calls and %d objects, want %d and %d", key, t.Calls, t.Objects, calls, objects)
	}
	return t
}

// path is every phase that an effect went through, by the audit chain.
func (r *rig) path(key string) (phases []string, because map[string]string) {
	r.Helper()
	because = map[string]string{}
	err := r.c.Events(r.ctx, 0, "key:"+key, false, func(e client.Event) error {
		if e.Key == key && e.To != "" && e.Kind == "transition" {
			phases = append(phases, e.To)
			because[e.To] = e.Because
		}
		return nil
	})
	r.must(err)
	return phases, because
}

// went fails unless the phases contain these, in this order.
func (r *rig) went(key string, want ...string) {
	r.Helper()
	got, _ := r.path(key)
	rest := want
	for _, p := range got {
		if len(rest) > 0 && p == rest[0] {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 {
		r.Errorf("%s went through %v, want %v in this order", key, got, want)
	}
}

// neverBlind fails if a call was made while an earlier one was unsettled.
func (r *rig) neverBlind(e client.Effect) {
	r.Helper()
	for _, fault := range blind(e) {
		r.Error(fault)
	}
	phases, _ := r.path(e.Key)
	last := ""
	for _, p := range phases {
		if (p == "dispatching" && last != "authorized") || (p == "authorized" && last != "prepared" && last != "dispatching" && last != "confirmed_absent") {
			r.Errorf("%s went from %s to %s: %v", e.Key, last, p, phases)
		}
		last = p
	}
}

// blind names every attempt that was made before the one before it was settled.
func blind(e client.Effect) (faults []string) {
	for i, a := range e.Attempts[:max(0, len(e.Attempts)-1)] {
		next := e.Attempts[i+1]
		if a.ID == next.ID {
			faults = append(faults, fmt.Sprintf("%s: two attempts share the id %s", e.Key, a.ID))
		}
		if !a.NoEffect() {
			faults = append(faults, fmt.Sprintf("%s: attempt %d was made although attempt %d is %s", e.Key, next.Number, a.Number, a.State))
		}
		if a.ClosedAt != nil && next.SentAt != nil && next.SentAt.Before(*a.ClosedAt) {
			faults = append(faults, fmt.Sprintf("%s: attempt %d was sent before attempt %d was closed", e.Key, next.Number, a.Number))
		}
	}
	return faults
}

// doneOnce is what every good end has in common: one object, which is the one
// that the record names, verified; and no blind second write.
func (r *rig) doneOnce(key string, calls int) client.Effect {
	r.Helper()
	e := r.rests(key, "succeeded")
	t := r.truth(key, calls, 1)
	if e.Standing != "committed" || e.Finding != "matches" || e.Outcome.VerifiedAt == nil || e.Unknown != nil {
		r.Errorf("%s: standing %s, finding %s, verified at %v, unknown %v", key, e.Standing, e.Finding, e.Outcome.VerifiedAt, e.Unknown)
	}
	if strings.HasPrefix(key, "ticket:") && (e.ObjectID == nil || len(t.IDs) != 1 || *e.ObjectID != t.IDs[0]) {
		r.Errorf("%s: the record names %v, the desk made %v", key, e.ObjectID, t.IDs)
	}
	if len(e.Attempts) < calls {
		r.Errorf("%s: %d calls, but %d attempts in the journal", key, calls, len(e.Attempts))
	}
	r.neverBlind(e)
	return e
}

// isUnknown waits for an effect in doubt and fails unless the record says what
// is known, what is missing and when it is looked at again.
func (r *rig) isUnknown(key string) client.Effect {
	r.Helper()
	e := r.until(key, "is unknown", func(e client.Effect) bool { return e.Unknown != nil && e.Phase == "unknown" }, "")
	u := e.Unknown
	if !u.WriteForbidden || u.NextReadAt == nil || u.ResolveBy == nil || u.Owner == "" || len(u.Missing) == 0 || u.LastTransition == "" {
		r.Errorf("%s: the doubt is not described: %+v", key, *u)
	}
	if e.Standing != "in_flight" || !strings.Contains(e.Words, "will not send again") {
		r.Errorf("%s: standing %s, words %q", key, e.Standing, e.Words)
	}
	return e
}
