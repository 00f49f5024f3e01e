package host

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

func nopLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

var (
	_ sdk.Adapter    = (*Supervisor)(nil)
	_ sdk.Fencer     = (*Supervisor)(nil)
	_ sdk.ManyReader = (*Supervisor)(nil)
)

func supervise(t *testing.T, o Options) *Supervisor {
	t.Helper()
	if o.Command.Name == "" {
		o.Command = command(t, nil)
	}
	if o.BackoffMin == 0 {
		o.BackoffMin = 10 * time.Millisecond
	}
	s := NewSupervisor(o)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeNow(t, s) })
	return s
}

func closeNow(t *testing.T, s *Supervisor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

func acquire(t *testing.T, s *Supervisor) *Process {
	t.Helper()
	p, err := s.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestADeadProcessIsReplaced(t *testing.T) {
	s := supervise(t, Options{})
	first := acquire(t, s)
	u := unanswered(t, s, "die", 10*time.Second)
	if _, err := u.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	committed(t, s, "commit")
	if second := acquire(t, s); second == first || second.Identity().PID == first.Identity().PID {
		t.Error("the dead process is current")
	}
	if st := s.Status(); !st.Up || st.Restarts != 1 || st.Deaths != 1 {
		t.Errorf("got %+v, want up after one restart for one death", st)
	}
}

// The central promise: the overdue call's process gets no new call, its other
// call runs out, it is killed, and only then has the overdue call ended.
func TestAnOverdueCallHasItsProcessDrainedAndKilledAndEndsOnlyThen(t *testing.T) {
	s := supervise(t, Options{})
	p := acquire(t, s)
	other := make(chan sdk.Response, 1)
	go func() {
		r, err := p.Dispatch(t.Context(), request("late 1500ms", 10*time.Second))
		if err != nil {
			t.Errorf("the other call: %v", err)
		}
		other <- r
	}()
	eventually(t, "the other call runs", func() bool { return p.gate.count() == 1 })
	begun := time.Now()
	u := unanswered(t, s, "hang", 200*time.Millisecond)
	if took := time.Since(begun); took < 500*time.Millisecond || !u.Overdue || u.Cause != sdk.CauseTimeout {
		t.Errorf("after %s: %+v, want overdue after deadline and linger", took, u)
	}
	select {
	case <-u.Ended():
		t.Fatal("the call is said to have ended while another keeps its process alive")
	default:
	}
	if id := committed(t, s, "commit"); id == "" || acquire(t, s) == p {
		t.Error("a new call went to the overdue process")
	}
	r := <-other
	if _, ok := r.Outcome.(*sdk.Committed); !ok {
		t.Errorf("the other call was cut: %#v", r.Outcome)
	}
	at, err := u.Wait(t.Context())
	if err != nil || alive(p.Identity().PID) || !at.Equal(p.DiedAt()) {
		t.Errorf("ended at %v, %v; alive: %t", at, err, alive(p.Identity().PID))
	}
	eventually(t, "nothing drains", func() bool { return s.Status().Draining == 0 })
}

func TestCallsThatDoNotEndCannotHoldARetiredProcessForever(t *testing.T) {
	s := supervise(t, Options{DrainMax: 200 * time.Millisecond})
	p := acquire(t, s)
	lost := make(chan error, 1)
	go func() { _, err := p.Dispatch(t.Context(), request("hang", time.Minute)); lost <- err }()
	eventually(t, "the call runs", func() bool { return p.gate.count() == 1 })
	s.Retire(p, "test")
	s.Retire(p, "again, which does nothing")
	var u *Unanswered
	if err := <-lost; !errors.As(err, &u) {
		t.Fatalf("got %v, want an Unanswered", err)
	}
	if _, err := u.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if st := s.Status(); st.Deaths != 0 {
		t.Errorf("a retirement on purpose was counted: %+v", st)
	}
}

func TestAPanicIsUnknownAndTheProcessIsReplaced(t *testing.T) {
	s := supervise(t, Options{})
	p := acquire(t, s)
	u, ok := dispatch(t, s, "panic", 10*time.Second).(*sdk.Unknown)
	if !ok || u.Cause != sdk.CauseAdapterPanic {
		t.Errorf("got %#v, want unknown by a panic", u)
	}
	<-p.Done()
	committed(t, s, "commit")
}

func TestAnAnswerThatIsTooLargeHasItsProcessReplaced(t *testing.T) {
	s := supervise(t, Options{})
	u := unanswered(t, s, "big", 10*time.Second)
	if _, err := u.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	committed(t, s, "commit")
}

func TestAProcessThatAnswersNothingIsFoundByItsReads(t *testing.T) {
	s := supervise(t, Options{})
	p := acquire(t, s)
	must(t, syscall.Kill(p.Identity().PID, syscall.SIGSTOP))
	eventually(t, "a read finds it stopped", func() bool { // not all of its threads stop at once
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := s.Read(ctx, sdk.ReadRequest{})
		return err != nil
	})
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the stopped process is still there")
	}
	committed(t, s, "commit")
}

func TestASlowReadDoesNotCostTheProcess(t *testing.T) {
	s := supervise(t, Options{})
	p := acquire(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _ = s.Read(ctx, sdk.ReadRequest{Operation: sdk.Operation{Payload: []byte("wait")}})
	pinged(p)
	if acquire(t, s) != p {
		t.Error("the process was replaced")
	}
}

// pinged returns when the health question, if one was asked, is answered.
func pinged(p *Process) {
	p.pinging.Lock()
	defer p.pinging.Unlock()
}

func TestTooManyDeathsOpenTheCircuitUntilTheyAreOld(t *testing.T) {
	var mu sync.Mutex
	opened := false
	s := supervise(t, Options{
		CircuitMax: 3, CircuitSpan: 1500 * time.Millisecond,
		Changed: func(st Status) {
			mu.Lock()
			defer mu.Unlock()
			opened = opened || !st.CircuitOpen.IsZero()
		},
	})
	for range 3 {
		_, err := s.Dispatch(t.Context(), request("die", 10*time.Second))
		var u *Unanswered
		if !errors.As(err, &u) {
			t.Fatalf("got %v, want an Unanswered", err)
		}
		<-u.Ended()
		eventually(t, "the death is counted", func() bool { return !s.Status().Up || s.Status().Restarts > 0 })
	}
	eventually(t, "the circuit is open", func() bool { return !s.Status().CircuitOpen.IsZero() })
	begun := time.Now()
	n, ok := dispatch(t, s, "commit", 10*time.Second).(*sdk.NotExecuted)
	if !ok || n.Basis != sdk.BasisNotSent || n.RetryAfter <= 0 {
		t.Errorf("got %#v, want not executed, not sent, later", n)
	}
	if took := time.Since(begun); took > hanging {
		t.Errorf("an open circuit let a call wait for %s", took)
	}
	if _, err := s.Read(t.Context(), sdk.ReadRequest{}); !errors.Is(err, ErrDown) || !errors.Is(err, sdk.ErrNotSent) {
		t.Errorf("got %v, want ErrDown", err)
	}
	eventually(t, "it closes by itself", func() bool { return s.Status().Up })
	committed(t, s, "commit")
	mu.Lock()
	defer mu.Unlock()
	if !opened {
		t.Error("nobody was told that the circuit was open")
	}
}

func TestResetClosesTheCircuitAtOnce(t *testing.T) {
	s := supervise(t, Options{CircuitMax: 1, CircuitSpan: time.Hour})
	unanswered(t, s, "die", 10*time.Second)
	eventually(t, "the circuit is open", func() bool { return !s.Status().CircuitOpen.IsZero() })
	s.Reset()
	committed(t, s, "commit")
}

func TestAFailedFirstStartIsReportedAndTriedAgain(t *testing.T) {
	c := command(t, nil)
	c.Path, c.SHA256 = thirdParty(t)
	hidden := c.Path + ".hidden"
	must(t, os.Rename(c.Path, hidden))
	s := NewSupervisor(Options{Command: c, BackoffMin: 20 * time.Millisecond, CircuitMax: 1000})
	defer closeNow(t, s)
	var failed *StartError
	if err := s.Start(t.Context()); !errors.As(err, &failed) {
		t.Fatalf("got %v, want a StartError", err)
	}
	must(t, os.Rename(hidden, c.Path))
	eventually(t, "it is up", func() bool { return s.Status().Up })
	committed(t, s, "commit")
}

func TestAnotherConfigurationNeedsAnotherProcess(t *testing.T) {
	s := supervise(t, Options{})
	p := acquire(t, s)
	s.Reconfigure(sdk.Configuration{Config: []byte("narrow")})
	<-p.Done()
	next := acquire(t, s)
	if d, _ := next.Describe(t.Context()); len(d.Actions) != 1 {
		t.Errorf("got %+v, want the new configuration's operations", d.Actions)
	}
	if st := s.Status(); st.Deaths != 0 {
		t.Errorf("counted as a death: %+v", st)
	}
}

func TestCloseLetsRunningCallsEnd(t *testing.T) {
	s := supervise(t, Options{})
	p := acquire(t, s)
	done := make(chan sdk.Response, 1)
	go func() {
		r, _ := s.Dispatch(t.Context(), request("late 400ms", 10*time.Second))
		done <- r
	}()
	eventually(t, "the call runs", func() bool { return p.gate.count() == 1 })
	closeNow(t, s)
	if r := <-done; r.Outcome == nil {
		t.Error("the running call was cut")
	}
	if n, ok := dispatch(t, s, "commit", time.Second).(*sdk.NotExecuted); !ok || n.Basis != sdk.BasisNotSent {
		t.Error("a closed supervisor took a call")
	}
}

func TestBackoffDoublesToItsMaximumAndNeverFallsBelowItsMinimum(t *testing.T) {
	for n := range 60 {
		d := backoff(time.Second, 5*time.Minute, n)
		top := 5 * time.Minute
		if n < 9 {
			top = min(top, time.Second<<n)
		}
		if d > top || d < max(time.Second, top*3/4-1) {
			t.Errorf("pause %d is %s, want within a quarter below %s", n, d, top)
		}
	}
}
