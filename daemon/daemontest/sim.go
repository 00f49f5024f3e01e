package daemontest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/sdk"
)

// Sim is one simulated history: effects are submitted while the destination
// fails in every way it can, the daemon crashes again and again, and at the end
// the world heals and everything must be settled or with a person.
type Sim struct {
	Seed    uint64
	Effects int
	Crashes int
}

// The rhythm of a simulation.
const (
	simStorm = 20 * time.Minute // faults, limited views and crashes
	simCalm  = 40 * time.Hour   // longer than the reconcile budget and every review
)

// simWorld is a destination that the seed chooses. Whatever it does, it keeps what it declares.
func (s Sim) simWorld() (*World, string) {
	processing := []time.Duration{0, 10 * time.Second, time.Minute}[s.pick("processing", 0, 3)]
	spec := Spec(processing)
	lag := time.Duration(0)
	if s.pick("lagging", 0, 2) == 1 {
		lag = []time.Duration{time.Second, 30 * time.Second, 2 * time.Minute}[s.pick("lag", 0, 3)]
		spec = Lagging(processing, lag)
	}
	var features []string
	if s.pick("prepares", 0, 3) == 0 {
		features = append(features, sdk.FeaturePrepare)
	}
	w := NewWorld(spec, features...)
	w.Prepares(func(op sdk.Operation) sdk.Prepared {
		return sdk.Prepared{Ready: &sdk.Ready{Target: fmt.Sprintf("target-%d", len(op.Key)%3)}}
	})
	w.Set(func(v *View) { v.Lag = lag })
	w.Draw(func(key string, call int) Fault { return s.fault(key, call, processing) })
	extra := fmt.Sprintf("contain = { unknown = %q }\nconcurrency = %d\n", []string{"key", "target", "account"}[s.pick("contain", 0, 3)], 1+7*s.pick("slots", 0, 2))
	return w, extra + "[daemon]\nstop_budget = \"5s\"\n"
}

func (s Sim) pick(what string, n, of int) int { return int(Chance(s.Seed, what, n) * float64(of)) }

func (s Sim) span(what string, n int, most time.Duration) time.Duration {
	return time.Duration(Chance(s.Seed, what, n) * float64(most)).Truncate(time.Microsecond)
}

// fault draws what befalls one call. Late commits stay within the declared bound.
func (s Sim) fault(key string, call int, processing time.Duration) Fault {
	what := "fault/" + key
	late := s.span("late/"+key, call, processing)
	all := []func() Fault{
		Honest, Honest, Honest, AnswerLost, RequestLost, ServerError, Garbled, Unlisted, Invalid, Dies, Refused, HangEmpty, KeyDropped,
		func() Fault { return LateCommit(late) },
		func() Fault { return HangCommit(late) },
		func() Fault { return Hang(s.span("over/"+key, call, 20*time.Second)) },
		func() Fault { return Busy(s.span("busy/"+key, call, 30*time.Second)) },
		func() Fault { return Denied("403") },
		func() Fault { return AnswerLost().Staying(s.span("stay/"+key, call, 18*time.Second)) },
		func() Fault { return Honest().Staying(s.span("stay/"+key, call, 12*time.Second)) },
		func() Fault { return RequestLost().Staying(s.span("stay/"+key, call, 30*time.Second)) },
	}
	return all[s.pick(what, call, len(all))]()
}

// Run runs the simulation inside the caller's bubble and returns every breach
// of an invariant, and the history of the keys concerned.
func (s Sim) Run(t testing.TB) (breaches []string, story string) {
	w, extra := s.simWorld()
	r := NewRig(t, w, extra)
	r.Seed(s.Seed)
	begun := time.Now()
	crash := 0
	s.plan(r, crash)
	run := r.Start()
	key := func(i int) string { return fmt.Sprintf("sim:%d:create:v1", i) }
	next := 0
	for time.Since(begun) < simStorm {
		s.weather(w, int(time.Since(begun)/time.Minute))
		if next < s.Effects {
			_, _ = run.Submit(context.Background(), Request(key(next)), Client) // a source that has no answer submits again below
			next++
		}
		pause := s.span("pause", next, simStorm/time.Duration(s.Effects))
		if crash >= s.Crashes {
			time.Sleep(pause)
			continue
		}
		if !run.WaitCrash(pause) && s.pick("crash now", next, 3) == 0 {
			run.Crash()
		} else if !run.crash.happened() {
			continue
		}
		crash++
		s.plan(r, crash)
		run = r.Start()
		if run.crash.happened() { // it died while it recovered
			run.bury()
			crash++
			run = r.Start()
		}
	}
	w.Set(func(v *View) { *v = View{Lag: v.Lag} })
	run = s.survive(r, run)
	for i := range s.Effects {
		if _, err := run.Submit(context.Background(), Request(key(i)), Client); err != nil {
			breaches = append(breaches, fmt.Sprintf("submit %s again: %v", key(i), err))
		}
	}
	time.Sleep(simCalm)
	run.Ends = map[journal.Phase]int{}
	for i := range s.Effects {
		breaches = append(breaches, s.ended(run, key(i))...)
	}
	if err := run.Stop(); err != nil {
		breaches = append(breaches, "stop: "+err.Error())
	}
	w.Settle()
	s.tell(t, r, run, crash)
	breaches = append(breaches, run.Breaches...)
	if len(breaches) > 0 {
		db, err := r.Open()
		if err == nil {
			for i := range s.Effects {
				story += key(i) + "\n" + r.History(&Running{DB: db}, key(i))
			}
			_ = db.Close()
		}
	}
	return breaches, story
}

// plan plans the next crash: at a named operation of the journal, some writes from now.
func (s Sim) plan(r *Rig, n int) {
	if n >= s.Crashes {
		return
	}
	ops := []string{"batch", "op", "flush", "commit.before", "commit.after", "ack"}
	r.CrashAt(ops[s.pick("crash op", n, len(ops))], 1+s.pick("crash nth", n, 40))
}

// survive buries a daemon that died at the last moment and starts the one that lives on.
func (s Sim) survive(r *Rig, run *Running) *Running {
	for run.WaitCrash(time.Millisecond) {
		r.crash = nil
		run = r.Start()
	}
	run.crash.disarm()
	return run
}

// weather changes what the destination shows, minute by minute.
func (s Sim) weather(w *World, minute int) {
	w.Set(func(v *View) {
		*v = View{Lag: v.Lag}
		switch s.pick("weather", minute, 10) {
		case 0:
			v.Down = true
		case 1:
			v.ReadsHang = true
		case 2:
			v.Incomplete = true
		case 3:
			v.Blind = true
		case 4:
			v.Outage = true
		}
	})
}

// ended says what is wrong with the end of one effect: after a long calm it is
// settled, or a person has it.
func (s Sim) ended(run *Running, key string) (out []string) {
	e, err := run.DB.Effect(context.Background(), key)
	if err != nil {
		return []string{key + ": " + err.Error()}
	}
	run.Ends[e.Phase]++
	switch e.Phase {
	case journal.Succeeded, journal.Failed, journal.NeedsHuman:
		return nil
	}
	return []string{fmt.Sprintf("%s is still %s (%s, due %s at %s): %s (I12)", key, e.Phase, e.Finding, e.Due, e.DueAt.Format(time.RFC3339), journal.Words(e))}
}

// tell logs how eventful it was, so that a simulation in which nothing happens is seen.
func (s Sim) tell(t testing.TB, r *Rig, run *Running, crashes int) {
	befell := map[string]int{}
	for _, c := range r.World.Calls("") {
		befell[c.Fault]++
	}
	t.Logf("%d crashes, %d calls, %d reads, %d objects; ended %v; befell %v", crashes, len(r.World.Calls("")), r.World.Reads(""), len(r.World.All()), run.Ends, befell)
}
