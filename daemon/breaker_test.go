package daemon

import (
	"testing"
	"time"
)

func TestTheBreakerOpensHalfOpensByAReadAndClosesByAnAnswer(t *testing.T) {
	b, at := newBreaker(2), time.Unix(1000, 0)
	if b.failed(at) || !b.failed(at) || !b.open() {
		t.Fatal("two failures in a row must open it, one must not")
	}
	if b.begin() {
		t.Error("a write began while it is open")
	}
	if b.read(true, at.Add(time.Second)) {
		t.Error("half-open before the pause is over")
	}
	if !b.read(true, at.Add(probeFirst)) || !b.begin() {
		t.Fatal("a read after the pause must let one write try")
	}
	if b.begin() {
		t.Error("a second write began while the first tries")
	}
	b.notSent()
	if !b.begin() {
		t.Error("a trial that led to no call was not given back")
	}
	b.answered()
	if state, _ := b.show(); state != breakerClosed {
		t.Errorf("%s after an answer", state)
	}
}

func TestAnAnswerOfAnEarlierCallDoesNotCloseAnOpenBreaker(t *testing.T) {
	b, at := newBreaker(5), time.Unix(1000, 0)
	b.force(at)
	b.answered()
	if !b.open() {
		t.Error("a finding opened it; the answer to a call that left before closed it")
	}
}

func TestReadsThatFailEarlyDoNotLengthenThePause(t *testing.T) {
	b, at := newBreaker(1), time.Unix(1000, 0)
	b.failed(at)
	for range 20 {
		b.read(false, at.Add(time.Second))
	}
	if wait, _ := b.wantsProbe(at); wait > probeFirst {
		t.Errorf("the next probe is in %s", wait)
	}
	if !b.read(true, at.Add(probeFirst)) {
		t.Error("the pause was lengthened by reads that were no probes")
	}
}

func TestAnOpenBreakerIsNotAskedAllTheTimeWhileAProbeRuns(t *testing.T) {
	b, at := newBreaker(1), time.Unix(1000, 0)
	b.failed(at)
	if _, probe := b.wantsProbe(at.Add(probeFirst)); !probe {
		t.Fatal("no probe is due")
	}
	if wait, _ := b.allows(at.Add(probeFirst)); wait < time.Second {
		t.Errorf("asked again after %s", wait)
	}
}

func TestRetryTokensFillByTheMinuteAndByFirstAttempts(t *testing.T) {
	k, at := newTokens(0.1, 2), time.Unix(1000, 0)
	for range 2 {
		if _, ok := k.take(at); !ok {
			t.Fatal("the floor is not there at the start")
		}
	}
	wait, ok := k.take(at)
	if ok || wait != 30*time.Second {
		t.Errorf("an empty bucket: %v, next in %s", ok, wait)
	}
	for range 11 {
		k.first(at)
	}
	if _, ok := k.take(at); !ok {
		t.Error("eleven first attempts at 10 % give no token")
	}
	if n := k.left(at.Add(24 * time.Hour)); n > k.capacity() {
		t.Errorf("%g tokens saved up", n)
	}
}
