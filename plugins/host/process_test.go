package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
)

// logged collects records as text.
type logged struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), s)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func dispatch(t *testing.T, a sdk.Adapter, payload string, d time.Duration) sdk.Outcome {
	t.Helper()
	r, err := a.Dispatch(t.Context(), request(payload, d))
	if err != nil {
		t.Fatalf("dispatch of %q: %v", payload, err)
	}
	return r.Outcome
}

func committed(t *testing.T, a sdk.Adapter, payload string) string {
	t.Helper()
	o, ok := dispatch(t, a, payload, 10*time.Second).(*sdk.Committed)
	if !ok {
		t.Fatalf("dispatch of %q: not committed", payload)
	}
	return o.Object.ID
}

func unanswered(t *testing.T, a sdk.Adapter, payload string, d time.Duration) *Unanswered {
	t.Helper()
	r, err := a.Dispatch(t.Context(), request(payload, d))
	var u *Unanswered
	if !errors.As(err, &u) {
		t.Fatalf("dispatch of %q: got %#v and %v, want an Unanswered", payload, r.Outcome, err)
	}
	if errors.Is(err, sdk.ErrNotSent) {
		t.Errorf("a lost answer must not prove that nothing was sent: %v", err)
	}
	return u
}

// hanging tells what is bounded from what hangs. It is far above every bound that the
// package promises, because a busy machine is no fault; the bounds themselves are
// constants of the code.
const hanging = 15 * time.Second

func TestAnAdapterStartsAndAnswers(t *testing.T) {
	p := start(t, command(t, nil))
	committed(t, p, "commit")
	read, err := p.Read(t.Context(), sdk.ReadRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := read.Finding.(*sdk.NoneSeen); !ok || read.Authority != sdk.Authoritative {
		t.Fatalf("got %#v, want none seen, authoritative", read)
	}
	id := p.Identity()
	if id.Adapter != "rogue" || id.Version != "1.2.3" || len(id.SHA256) != 64 || id.Account != "acct_1" || id.PID == 0 || id.BootID == "" {
		t.Errorf("incomplete identity: %+v", id)
	}
}

func TestAnAdapterWorksInAProcessGroupAloneToo(t *testing.T) {
	c := command(t, nil)
	c.NoCgroup = true
	p := start(t, c)
	committed(t, p, "commit")
	if p.run.group != nil {
		t.Error("a cgroup was made although none was wanted")
	}
}

func TestALateAnswerWithinTheLingerIsTheAnswer(t *testing.T) {
	c := command(t, nil)
	c.Linger = 5 * time.Second
	p := start(t, c)
	begun := time.Now()
	o, ok := dispatch(t, p, "late 400ms", 200*time.Millisecond).(*sdk.Committed)
	if !ok || o.Object.ID == "" {
		t.Fatalf("got %#v, want the late commit", o)
	}
	if took := time.Since(begun); took < 400*time.Millisecond {
		t.Errorf("answered after %s, before the adapter could", took)
	}
}

func TestTheAdaptersContextEndsBeforeTheDeadlineSoThatItAnswersAClass(t *testing.T) {
	p := start(t, command(t, nil))
	deadline := time.Now().Add(time.Second)
	r, err := p.Dispatch(t.Context(), sdk.DispatchRequest{Operation: sdk.Operation{Payload: []byte("obey")}, Deadline: deadline})
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := r.Outcome.(*sdk.Unknown); !ok || u.Cause != sdk.CauseTimeout {
		t.Errorf("got %#v, want unknown by timeout", r.Outcome)
	}
	if !time.Now().Before(deadline) {
		t.Error("the class came after the deadline")
	}
}

func TestTheDeadlineOfTheContextDoesNotCutTheLingerShort(t *testing.T) {
	c := command(t, nil)
	c.Linger = 5 * time.Second
	p := start(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r, err := p.Dispatch(ctx, sdk.DispatchRequest{Operation: sdk.Operation{Payload: []byte("late 300ms")}})
	if _, ok := r.Outcome.(*sdk.Committed); !ok || err != nil {
		t.Fatalf("got %#v and %v, want the late commit", r.Outcome, err)
	}
}

func TestCancellingStopsTheWaitingAndNotTheEffect(t *testing.T) {
	p := start(t, command(t, nil))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := p.Dispatch(ctx, request("late 400ms", 10*time.Second))
	var u *Unanswered
	if !errors.As(err, &u) || u.Cause != sdk.CauseCancelled || u.Overdue {
		t.Fatalf("got %v, want unanswered because cancelled", err)
	}
	if !u.EndedAt().IsZero() {
		t.Error("the call is said to have ended while the adapter works")
	}
	if _, err := u.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	committed(t, p, "commit") // the process was not punished
}

func TestACallThatCannotBeginIsNotExecuted(t *testing.T) {
	p := start(t, command(t, nil))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	notSent := func(what string, ctx context.Context, r sdk.DispatchRequest) {
		t.Helper()
		got, err := p.Dispatch(ctx, r)
		n, ok := got.Outcome.(*sdk.NotExecuted)
		if err != nil || !ok || n.Basis != sdk.BasisNotSent {
			t.Errorf("%s: got %#v and %v, want not executed, not sent", what, got.Outcome, err)
		}
	}
	notSent("a context that is over", over, request("commit", time.Minute))
	notSent("a deadline that passed", t.Context(), request("commit", -time.Second))
	notSent("a payload over the limit", t.Context(), request(strings.Repeat("x", sdk.MaxMessage), time.Minute))
	if err := p.Kill("test"); err != nil {
		t.Fatal(err)
	}
	notSent("a process that is dead", t.Context(), request("commit", time.Minute))
}

func TestProofThatNothingWasSentCrossesTheWire(t *testing.T) {
	p := start(t, command(t, nil))
	n, ok := dispatch(t, p, "notsent", 10*time.Second).(*sdk.NotExecuted)
	if !ok || n.Basis != sdk.BasisNotSent {
		t.Errorf("got %#v, want not executed, not sent", n)
	}
}

func TestDeathInTheMiddleOfADispatchIsUnknownAndEnded(t *testing.T) {
	for _, how := range []string{"die", "crash"} {
		t.Run(how, func(t *testing.T) {
			var log logged
			p := start(t, command(t, log.logger()))
			before := time.Now()
			u := unanswered(t, p, how, 10*time.Second)
			at, err := u.Wait(t.Context())
			if err != nil || at.Before(before) || !at.Equal(p.DiedAt()) {
				t.Errorf("ended at %v, %v; the process died at %v", at, err, p.DiedAt())
			}
			if u.Overdue || u.Cause != sdk.CauseConnectionLost {
				t.Errorf("got %+v, want a lost connection", u)
			}
			if how == "crash" {
				eventually(t, "the panic is logged as an error", func() bool { return log.has(`level=ERROR msg="panic: nil map"`) })
			}
		})
	}
}

func TestAnAnswerThatIsTooLargeIsUnknown(t *testing.T) {
	p := start(t, command(t, nil))
	u := unanswered(t, p, "big", 10*time.Second)
	if u.Cause != sdk.CauseBadResponse {
		t.Errorf("cause %v, want bad response: %v", u.Cause, u)
	}
	select {
	case <-u.Ended():
		t.Error("the call is said to have ended while its process lives")
	default:
	}
}

func TestKillingTakesTheGrandchildThatHoldsOurPipes(t *testing.T) {
	for _, c := range []struct{ how, group string }{
		{"fork", "in the group"},
		{"escape", "out of the group, found by its mark"},
	} {
		for _, noCgroup := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/cgroup=%t", c.group, !noCgroup), func(t *testing.T) {
				cmd := command(t, nil)
				cmd.NoCgroup = noCgroup
				p := start(t, cmd)
				grandchild, err := strconv.Atoi(committed(t, p, c.how))
				if err != nil || !alive(grandchild) {
					t.Fatalf("no grandchild %d: %v", grandchild, err)
				}
				begun := time.Now()
				if err := p.Kill("test"); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took > hanging {
					t.Errorf("killing took %s", took)
				}
				if alive(grandchild) || alive(p.Identity().PID) {
					t.Error("something is alive after the proof of death")
				}
			})
		}
	}
}

func TestADeadLeaderIsNotDeadWhileItsGrandchildLives(t *testing.T) {
	c := command(t, nil)
	c.NoCgroup = true
	p := start(t, c)
	grandchild, err := strconv.Atoi(committed(t, p, "escape"))
	if err != nil {
		t.Fatal(err)
	}
	unanswered(t, p, "die", 10*time.Second)
	<-p.Done()
	if alive(grandchild) {
		t.Error("Done is closed while a process of the run can still send")
	}
}

func TestAStoppedAdapterIsKilledWithinABound(t *testing.T) {
	p := start(t, command(t, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _, _ = p.Dispatch(ctx, request("stop", time.Minute)) }()
	eventually(t, "the adapter is stopped", func() bool { s, err := readStat(p.Identity().PID); return err == nil && s.state == 'T' })
	cancel()
	<-done
	begun := time.Now()
	if err := p.Kill("test"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > hanging {
		t.Errorf("killing took %s", took)
	}
}

func TestSIGTERMDoesNotCutACall(t *testing.T) {
	p := start(t, command(t, nil))
	done := make(chan error, 1)
	go func() {
		r, err := p.Dispatch(t.Context(), request("late 500ms", 10*time.Second))
		if _, ok := r.Outcome.(*sdk.Committed); !ok {
			err = errors.Join(err, fmt.Errorf("got %#v", r.Outcome))
		}
		done <- err
	}()
	eventually(t, "the call runs", func() bool { return p.gate.count() == 1 })
	for range 5 {
		if err := syscall.Kill(p.Identity().PID, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestClosingEndsTheAdapterByItsStandardInputWithinASecond(t *testing.T) {
	p := start(t, command(t, nil))
	begun := time.Now()
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > hanging {
		t.Errorf("closing took %s", took)
	}
	if _, exit := p.run.death(); exit != "exit status 0" {
		t.Errorf("the adapter ended with %q, want by itself", exit)
	}
}

func TestTheEndOfStandardInputEndsAnAdapterWithACallThatIsDeafToItsContext(t *testing.T) {
	p := start(t, command(t, nil))
	lost := make(chan error, 1)
	go func() { _, err := p.Dispatch(t.Context(), request("hang", time.Minute)); lost <- err }()
	eventually(t, "the call runs", func() bool { return p.gate.count() == 1 })
	begun := time.Now()
	p.run.leave()
	<-p.Done()
	if took := time.Since(begun); took > hanging {
		t.Errorf("it took %s", took)
	}
	var u *Unanswered
	if err := <-lost; !errors.As(err, &u) {
		t.Errorf("got %v, want an Unanswered", err)
	}
}

func TestWhateverAnAdapterLogsTheHostLives(t *testing.T) {
	var log logged
	p := start(t, command(t, log.logger()))
	for _, line := range []string{
		`{"@message":5}`, `{"@level":[],"@message":{}}`, `{`, "\x00\xff\xfe", strings.Repeat("{", 100_000),
		`{"msg":null,"level":1}`, `{"time":"x","level":"WARN","msg":"from slog","effect":"e1"}`,
		`{"@level":"error","@message":"from hclog","@timestamp":"x"}`, "[WARN] plain warning",
	} {
		committed(t, p, "log "+line)
	}
	for _, want := range []string{
		`level=WARN msg="from slog" adapter=shop adapter.effect=e1`, `level=ERROR msg="from hclog"`,
		`level=WARN msg="plain warning"`, `{\"@message\":5}`,
	} {
		eventually(t, "the log has "+want, func() bool { return log.has(want) })
	}
}

func TestAFloodOfLogsDoesNotBlockTheAdapterAndIsBounded(t *testing.T) {
	var log logged
	p := start(t, command(t, log.logger()))
	committed(t, p, "flood")
	committed(t, p, "commit")
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !log.has("lines were dropped") {
		t.Error("nobody says that lines were dropped")
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if n := strings.Count(log.buf.String(), "a line of a flood"); n > 30*linesPerSecond {
		t.Errorf("%d lines of the flood reached the log", n)
	}
}

func TestAStrayPrintHurtsNobody(t *testing.T) {
	var log logged
	p := start(t, command(t, log.logger()))
	committed(t, p, "print")
	committed(t, p, "print")
	eventually(t, "the print is logged", func() bool { return log.has("a stray print") })
}

func TestSecretsDoNotReachTheLog(t *testing.T) {
	var log logged
	p, err := Start(t.Context(), command(t, log.logger()), sdk.Configuration{Secrets: map[string]string{"token": "hunter2-hunter2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	committed(t, p, "log my token is hunter2-hunter2, sorry")
	eventually(t, "the line is logged", func() bool { return log.has("my token is [redacted], sorry") })
	if log.has("hunter2") {
		t.Error("the secret is in the log")
	}
}

func TestTheAdapterSeesOnlyTheAllowedEnvironment(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "/run/credentials/settled")
	t.Setenv("NOTIFY_SOCKET", "/run/notify")
	t.Setenv("TZ", "Europe/Zurich")
	c := command(t, nil)
	c.Env = []string{"GREETING=hello"}
	env := committed(t, start(t, c), "env")
	for _, want := range []string{"TZ=Europe/Zurich", "GREETING=hello", "PLUGIN_UNIX_SOCKET_DIR=" + c.RuntimeDir} {
		if !strings.Contains(env, want) {
			t.Errorf("%s is missing in %q", want, env)
		}
	}
	for _, not := range []string{"CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET"} {
		if strings.Contains(env, not) {
			t.Errorf("%s reached the adapter", not)
		}
	}
}

func TestAFailedStartSaysWhatToChange(t *testing.T) {
	for _, c := range []struct {
		name, mode, config string
		want               []string
	}{
		{"garbage before the handshake", "garbage", "", []string{`printed "Welcome to acme adapter"`, "standard error only"}},
		{"an early end", "quitter", "", []string{"ended before the handshake (exit status 3)", "cannot open shop: no key"}},
		{"no handshake", "mute", "", []string{"no handshake within 500ms", "waiting for a database"}},
		{"a refused configuration", "adapter", "refuse", []string{"/url: must be https"}},
		{"wider than described", "adapter", "widen", []string{`operation "more"`, "only narrow"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(t, nil)
			cmd.Args = []string{"mode=" + c.mode}
			if c.mode == "mute" {
				cmd.Timeout = 500 * time.Millisecond
			}
			p, err := Start(t.Context(), cmd, sdk.Configuration{Config: []byte(c.config)})
			if err == nil {
				_ = p.Kill("test")
				t.Fatal("it started")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			var refused *ConfigError
			if errors.As(err, &refused) != (c.config == "refuse") {
				t.Errorf("ConfigError: got %t for %v", !(c.config == "refuse"), err)
			}
		})
	}
}

// go-plugin forgets its connection when the child ends while it connects; goleak would see it.
func TestAnEndRightAfterTheHandshakeLeaksNoConnection(t *testing.T) {
	c := command(t, nil)
	c.Args = []string{"mode=vanish"}
	failed := make(chan error, 1)
	go func() { _, err := Start(t.Context(), c, sdk.Configuration{}); failed <- err }()
	var dir []string
	eventually(t, "there is a directory for the socket", func() bool {
		dir, _ = filepath.Glob(filepath.Join(c.RuntimeDir, "plugin-dir*"))
		return len(dir) == 1
	})
	l, err := net.Listen("unix", filepath.Join(dir[0], "mute")) // held by us, so it outlives the child
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "ended right after the handshake (exit status 5)") {
		t.Errorf("got %v", err)
	}
}

func TestAStartIsGivenUpWhenItsContextEnds(t *testing.T) {
	cmd := command(t, nil)
	cmd.Args = []string{"mode=mute"}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := Start(ctx, cmd, sdk.Configuration{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begun); took > hanging {
		t.Errorf("giving up took %s", took)
	}
}

// Whatever the moment, the directory is empty and no goroutine is left afterwards.
func TestAStartGivenUpAtAnyMomentLeavesNothing(t *testing.T) {
	c := command(t, nil)
	for after := time.Duration(0); after < 80*time.Millisecond; after += 4 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		p, err := Start(ctx, c, sdk.Configuration{})
		cancel()
		if err != nil {
			continue
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestConfigurationNarrowsTheDescription(t *testing.T) {
	p, err := Start(t.Context(), command(t, nil), sdk.Configuration{Config: []byte("narrow")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	d, _ := p.Describe(t.Context())
	if len(d.Actions) != 1 || d.Actions[0].Name != "do" {
		t.Errorf("got %+v, want the operation that the configuration left", d.Actions)
	}
}

func TestARuntimeDirectoryWhoseSocketsWouldNotFitIsRefused(t *testing.T) {
	_, err := Start(t.Context(), Command{Name: "x", RuntimeDir: "/tmp/" + strings.Repeat("d", 80)}, sdk.Configuration{})
	if err == nil || !strings.Contains(err.Error(), "at most 69") {
		t.Errorf("got %v", err)
	}
}

// killedHost starts another host process with an adapter and kills it the hard way.
func killedHost(t *testing.T, dir string, args ...string) (adapter, grandchild int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"mode=host", dir}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, scan := fmt.Sscan(strings.TrimPrefix(line, "pids"), &adapter, &grandchild); err != nil || adapter == 0 {
		t.Fatalf("the host said %q, %v, %v", line, err, scan)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return adapter, grandchild
}

func TestAKilledHostTakesItsAdapterAlong(t *testing.T) {
	dir := command(t, nil).RuntimeDir
	adapter, _ := killedHost(t, dir, "deaf") // so that only the kernel tells it
	eventually(t, "the adapter is gone", func() bool { return !alive(adapter) })
	if killed, err := ReapOrphans(dir); err != nil || len(killed) != 0 {
		t.Errorf("got %v, %v, want nobody left", killed, err)
	}
}

func TestTheNextStartProvesDeadWhatAKilledHostLeft(t *testing.T) {
	dir := command(t, nil).RuntimeDir
	_, grandchild := killedHost(t, dir, "adapter", "escape")
	if !alive(grandchild) {
		t.Fatal("the grandchild did not survive, so there is nothing to prove")
	}
	killed, err := ReapOrphans(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(killed) == 0 || killed[0].Name != "doomed" || alive(grandchild) {
		t.Errorf("got %v; grandchild alive: %t", killed, alive(grandchild))
	}
}

func TestReapingLeavesStrangersAlone(t *testing.T) {
	dir := command(t, nil).RuntimeDir
	stranger := exec.Command("/proc/self/exe", "mode=sleeper")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
	f := newRunFile(dir, "shop", newMark())
	s, err := readStat(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	f.PID, f.Start = stranger.Process.Pid, s.start+1 // the number was given again
	if err := f.write(); err != nil {
		t.Fatal(err)
	}
	if killed, err := ReapOrphans(dir); err != nil || len(killed) != 0 || !alive(stranger.Process.Pid) {
		t.Errorf("got %v, %v; stranger alive: %t", killed, err, alive(stranger.Process.Pid))
	}
	f.Start, f.BootID = s.start, "an earlier boot"
	if err := f.write(); err != nil {
		t.Fatal(err)
	}
	if killed, err := ReapOrphans(dir); err != nil || len(killed) != 0 || !alive(stranger.Process.Pid) {
		t.Errorf("another boot: got %v, %v; stranger alive: %t", killed, err, alive(stranger.Process.Pid))
	}
}

func TestADamagedRunFileStopsTheStart(t *testing.T) {
	dir := command(t, nil).RuntimeDir
	path := filepath.Join(dir, runPrefix+"x"+runSuffix)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReapOrphans(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("got %v", err)
	}
	_ = os.Remove(path)
}
