package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/cutproxy"
	"github.com/settled-dev/settled/sdk/client"
)

// The long form of the chaos tests, as in
//
//	SETTLED_CHAOS_SECONDS=600 SETTLED_CHAOS_SEED=7 go test ./cmd/settled -run 'RealInput|Scenario44' -v -timeout 30m
//
// runs for that long; without them it takes less than a minute with a seed of the day.
const (
	chaosSeconds = "SETTLED_CHAOS_SECONDS"
	chaosSeed    = "SETTLED_CHAOS_SEED"
)

// chaosTime is how long to kill, and the seed that chooses what and when.
func chaosTime(t *testing.T, short time.Duration) (time.Duration, uint64) {
	t.Helper()
	d, seed := short, uint64(time.Now().Unix()/86400)
	if text := os.Getenv(chaosSeconds); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q is no number of seconds", chaosSeconds, text)
		}
		d = time.Duration(n) * time.Second
	}
	if text := os.Getenv(chaosSeed); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s=%q is no number", chaosSeed, text)
		}
		seed = n
	}
	t.Logf("killing at random for %v with %s=%d", d, chaosSeed, seed)
	return d, seed
}

// chaosRig loses and delays at every place at once: the desk and the git
// commands by plan, the proxy between daemon and desk on top of it.
func chaosRig(t *testing.T, seed uint64) *rig {
	r := newRig(t, rigOptions{
		desk: []string{
			"--lag", "250ms", "--seed", fmt.Sprint(seed),
			"--plan", "none=10,lost-answer=2,lost-request=2,late-commit:600ms=2,error-500=1,error-502=1,truncated=1,garbled=1,busy=1,hang:400ms=1,hang-commit=1,times=2",
		},
		git: []string{"--seed", fmt.Sprint(seed), "--plan", "none=8,lost-answer=1,lost-request=1,times=2"},
		tweaks: []string{
			"attempts      = 5", "attempts      = 20",
			`tokens        = "100% + 600/m"`, `tokens        = "100% + 6000/m"`,
			"open_after = 50", "open_after = 1000",
			"concurrency    = 2", "concurrency    = 4",
			`max_processing   = "1s" `, `max_processing   = "1500ms" `, // two late parties: the desk and the proxy
		},
	})
	r.proxy.SetPlan(cutproxy.Seeded(
		seed, nil,
		cutproxy.Share{Weight: 16},
		cutproxy.Share{Action: cutproxy.Action{Kind: cutproxy.BeforeForward}, Weight: 1},
		cutproxy.Share{Action: cutproxy.Action{Kind: cutproxy.AfterForward}, Weight: 1},
		cutproxy.Share{Action: cutproxy.Action{Kind: cutproxy.MidAnswer}, Weight: 1},
		cutproxy.Share{Action: cutproxy.Action{Kind: cutproxy.LateForward, Delay: 500 * time.Millisecond}, Weight: 1},
		cutproxy.Share{Action: cutproxy.Action{Kind: cutproxy.DelayRequest, Delay: 200 * time.Millisecond}, Weight: 1},
		cutproxy.Share{Action: cutproxy.Action{Kind: cutproxy.DelayAnswer, Delay: 300 * time.Millisecond}, Weight: 1},
	))
	return r
}

// kills counts what was killed.
type kills struct{ daemon, desk, adapter int }

// killAtRandom kills the daemon, the desk and adapters until ctx ends. When it
// returns everything runs again.
func (r *rig) killAtRandom(ctx context.Context, random *rand.Rand) (k kills, err error) {
	for {
		pause := 300*time.Millisecond + time.Duration(random.IntN(1500))*time.Millisecond
		if sleep(ctx, pause) != nil {
			return k, nil
		}
		switch n := random.IntN(10); {
		case n < 3:
			k.daemon++
			if err = r.KillDaemon(); err == nil {
				err = r.StartDaemon(r.ctx)
			}
		case n < 5:
			k.desk++
			if err = r.KillDesk(); err == nil {
				err = r.restartDesk()
			}
		default:
			if r.killAdapter(random.IntN(8)) {
				k.adapter++
			}
		}
		if err != nil {
			return k, err
		}
	}
}

// restartDesk starts the desk again with the flags that it had.
func (r *rig) restartDesk() error {
	_, err := r.StartDesk(r.ctx, r.deskArgs...)
	return err
}

// submitUntilAnswered sends lines again and again until each was answered; the
// daemon may die in between.
func (r *rig) submitUntilAnswered(ctx context.Context, lines []byte) (answers []client.LineResult, err error) {
	for {
		answers = answers[:0]
		_, err = r.c.SubmitLines(ctx, lines, false, func(l client.LineResult) error {
			answers = append(answers, l)
			return nil
		})
		if err == nil {
			return answers, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		_ = sleep(ctx, 100*time.Millisecond)
	}
}

// allRest waits until every effect rests, and names those that do not in time.
func (r *rig) allRest(within time.Duration) (effects []client.Effect) {
	r.Helper()
	limit := time.Now().Add(within)
	for {
		effects, err := listAll(r.ctx, r.c)
		r.must(err)
		var open []string
		for _, e := range effects {
			if !e.Resting() {
				open = append(open, e.Key+" "+e.Phase)
			}
		}
		if len(open) == 0 {
			return effects
		}
		if time.Now().After(limit) {
			r.Errorf("in limbo after %v: %s", within, strings.Join(open, ", "))
			return effects
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// chaos submits lines while everything is killed at random, then looks at the truth.
func (r *rig) chaos(lines []byte, d time.Duration, seed uint64) {
	r.Helper()
	random := rand.New(rand.NewPCG(seed, 44))
	killing, stop := context.WithTimeout(r.ctx, d)
	defer stop()
	var k kills
	var killErr error
	var killer sync.WaitGroup
	killer.Go(func() { k, killErr = r.killAtRandom(killing, random) })
	want := map[string]bool{}
	// In portions, so that there is always something under way when something dies.
	all := bytes.SplitAfter(lines, []byte("\n"))
	portion := max(1, len(all)/max(1, int(d/(500*time.Millisecond))))
	for at := 0; at < len(all); at += portion {
		answers, err := r.submitUntilAnswered(r.ctx, bytes.Join(all[at:min(at+portion, len(all))], nil))
		r.must(err)
		for _, a := range answers {
			if a.Error != nil {
				r.Fatalf("line %d of a portion: %s", a.Line, a.Error.Detail)
			}
			want[a.Key] = true
		}
		_ = sleep(killing, 300*time.Millisecond)
	}
	killer.Wait()
	r.must(killErr)
	r.Logf("killed: daemon %d, desk %d, adapters %d times; proxy: %v", k.daemon, k.desk, k.adapter, r.proxy.Counts().By)
	if k.daemon == 0 || k.desk == 0 || k.adapter == 0 {
		r.Errorf("not everything was killed: %+v", k)
	}
	r.judge(want, r.allRest(3*time.Minute))
}

// judge compares what the destinations hold with what was asked and with what the journal says.
func (r *rig) judge(want map[string]bool, effects []client.Effect) {
	r.Helper()
	truth, err := r.Truth(r.ctx)
	r.must(err)
	var calls, attempts, unknown int
	for _, e := range effects {
		if !want[e.Key] {
			r.Errorf("%s is in the journal, but nobody submitted it", e.Key)
		}
		e, err = r.c.Effect(r.ctx, e.Key)
		r.must(err)
		t := truth[e.Key]
		if e.Destination == "releases" {
			t.Calls, err = r.GitCalls(e.Key)
			r.must(err)
		}
		calls, attempts = calls+t.Calls, attempts+len(e.Attempts)
		if wasUnknown(e) {
			unknown++
		}
		if e.Phase != "succeeded" || t.Objects != 1 || t.Calls > len(e.Attempts) {
			text, _ := json.Marshal(e)
			r.Errorf("%s is %s (%s) with %d objects, %d calls, %d attempts: %s", e.Key, e.Phase, e.Words, t.Objects, t.Calls, len(e.Attempts), text)
		}
		for _, fault := range blind(e) {
			r.Error(fault)
		}
	}
	for key, t := range truth {
		if !want[key] || t.Objects != 1 {
			r.Errorf("the destination holds %d objects of %s, submitted: %t", t.Objects, key, want[key])
		}
	}
	if len(effects) != len(want) || len(truth) != len(want) {
		r.Errorf("%d submitted, %d in the journal, %d at the destinations", len(want), len(effects), len(truth))
	}
	v, err := r.c.Verify(r.ctx, "")
	r.must(err)
	if !v.OK {
		r.Errorf("the audit chain: %v %s", v.Problems, v.CouldNotRun)
	}
	r.Logf("%d effects, %d calls, %d attempts, %d unknown for a time, one object each; %d events verified", len(effects), calls, attempts, unknown, v.Checked)
}

// TestScenario44EverythingKilledAtRandom has a small load and many kills.
func TestScenario44EverythingKilledAtRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	d, seed := chaosTime(t, 20*time.Second)
	r := chaosRig(t, seed)
	var lines bytes.Buffer
	n := max(40, int(d/time.Second)*3)
	for i := range n {
		fmt.Fprintf(&lines, `{"destination":"desk","operation":"create","key":"ticket:CHAOS-%d:create:v1","payload":{"queue":"q%d","subject":"subject %d","body":"b"}}`+"\n", i, i%7, i)
		if i%5 == 0 {
			fmt.Fprintf(&lines, `{"destination":"releases","operation":"tag","key":"release:chaos-%d:tag:v1","payload":{"tag":"chaos/%d","notes":"n"}}`+"\n", i, i)
		}
	}
	r.chaos(lines.Bytes(), d, seed)
}

// TestRealInput is what a user can repeat: 246 realistic effects go to a bare
// repository and to the desk while everything is killed, then the malformed
// file is answered line by line.
func TestRealInput(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	d, seed := chaosTime(t, 20*time.Second)
	r := chaosRig(t, seed)
	r.chaos(demoEffects, d, seed)
}

// TestRealInputMalformed submits a file in which almost every line is wrong.
func TestRealInputMalformed(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	lines, err := os.ReadFile("testdata/malformed.jsonl")
	r.must(err)
	expect, err := os.ReadFile("testdata/malformed.expect")
	r.must(err)
	got := map[int]client.LineResult{}
	_, err = r.c.SubmitLines(r.ctx, lines, false, func(l client.LineResult) error {
		got[l.Line] = l
		return nil
	})
	r.must(err)
	recorded := map[string]bool{}
	for text := range strings.Lines(string(expect)) {
		number, words, _ := strings.Cut(strings.TrimSpace(text), "\t")
		n, err := strconv.Atoi(number)
		r.must(err)
		answer, answered := got[n]
		delete(got, n)
		kind, why, _ := strings.Cut(words, " ")
		if is := kindOf(answer, answered); is != kind {
			t.Errorf("line %d is %s, want %s: %+v", n, is, words, answer.Error)
		}
		if kind == "refused" {
			saysWhy(t, n, why, answer)
		}
		if kind == "recorded" {
			recorded[answer.Key] = true
		}
	}
	for n := range got {
		t.Errorf("line %d was answered, but is not expected", n)
	}
	r.judge(recorded, r.allRest(time.Minute))
}

// kindOf is what became of a line, in the words of malformed.expect.
func kindOf(l client.LineResult, answered bool) string {
	switch {
	case !answered:
		return "skipped"
	case l.Error != nil && l.Error.Code == client.CodeKeyConflict:
		return "conflict"
	case l.Error != nil:
		return "refused"
	case l.Created:
		return "recorded"
	}
	return "repeated"
}

// reasons are the words of malformed.expect where the answer uses others.
func reasons() map[string]string {
	return map[string]string{
		"key missing": "it is empty", "unknown field": "unknown member", "key alphabet": "byte 9 is not allowed",
		"key too long": "the limit is 255", "unknown destination": "is not configured", "unknown operation": "has no operation",
		"not an object": "a JSON object is expected", "too large": "more than 1048576 bytes", "context too large": "the limit is 4096",
	}
}

// saysWhy fails unless the refusal names the reason that is expected.
func saysWhy(t *testing.T, n int, why string, l client.LineResult) {
	if l.Error == nil || n == 30 { // two objects in one line are called what they are
		return
	}
	words := strings.Fields(why)
	if other := reasons()[why]; other != "" {
		words = []string{other}
	}
	for _, word := range words {
		if !strings.Contains(strings.ToLower(l.Error.Detail), strings.ToLower(word)) {
			t.Errorf("line %d: expected a reason like %q, got %q (%s)", n, why, l.Error.Detail, l.Error.Code)
			return
		}
	}
}
