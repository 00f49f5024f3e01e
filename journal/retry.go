package journal

import (
	"math"
	"time"
)

// Backoff is the wait before attempt n+1 with full jitter: a random share of
// initial × factor^(n−1), capped at max. jitter is in [0,1).
func Backoff(r Retry, n int, jitter float64) time.Duration {
	if n < 1 {
		n = 1
	}
	factor := r.Factor
	if factor < 1 {
		factor = 2
	}
	ceiling := float64(r.BackoffInitial) * math.Pow(factor, float64(n-1))
	if m := float64(r.BackoffMax); m > 0 && ceiling > m {
		ceiling = m
	}
	return time.Duration(jitter * ceiling)
}

// spent says why no further attempt is allowed, or "".
func spent(e Effect, env Env) string {
	p, now := env.Policy, env.Now
	switch {
	case p.Retry.Attempts > 0 && e.Budget.Attempts >= p.Retry.Attempts:
		return "attempts spent"
	case p.Retry.Elapsed > 0 && e.Budget.Elapsed(now)-e.waited(now) >= p.Retry.Elapsed:
		return "retry time spent"
	case !e.Deadline.IsZero() && !now.Add(p.Timeout+p.RecordReserve).Before(e.Deadline):
		return "deadline passed"
	}
	return ""
}

// absenceSpent says why a confirmed absence no longer allows another attempt, or "".
func absenceSpent(e Effect, env Env) string {
	p, now := env.Policy, env.Now
	if p.Retry.Attempts > 0 && e.Budget.Attempts >= p.Retry.Attempts {
		return "attempts spent"
	}
	if last := e.lastSettled(); last != nil && p.Retry.AfterAbsence > 0 {
		used := now.Sub(absenceFrom(e, *last))
		if e.Absence != nil {
			used -= e.Absence.Paused
		}
		if used > p.Retry.AfterAbsence {
			return "absence was confirmed too long after the send (after_absence)"
		}
	}
	if p.DedupeWindow != nil && p.ReplaysFirst {
		if first := e.FirstSent(); !first.IsZero() && !now.Add(p.Timeout+p.Grace.Skew).Before(first.Add(*p.DedupeWindow)) {
			return "the destination's dedupe window has ended"
		}
	}
	if !e.Deadline.IsZero() && !now.Add(p.Timeout+p.RecordReserve).Before(e.Deadline) {
		return "deadline passed"
	}
	if !authorityHolds(e, env) {
		return "authority expired"
	}
	return ""
}

// absenceFrom is when after_absence begins to count: at the sending of the
// settled attempt; for a presumed one at the death of the old daemon; and not
// before the authority in force was given, because a person who retries gives a new budget.
func absenceFrom(e Effect, settled Attempt) time.Time {
	from := settled.SentAt
	if settled.Presumed() {
		from = later(from, settled.ClosedAt)
	}
	if e.Authority != nil {
		from = later(from, e.Authority.GrantedAt)
	}
	return from
}

// authorityHolds reports whether the authority lasts for one call from now.
func authorityHolds(e Effect, env Env) bool {
	return e.Authority != nil && e.Authority.ExpiresAt.After(env.Now.Add(env.Policy.Timeout))
}

func (e Effect) lastSettled() *Attempt {
	for i := len(e.Attempts) - 1; i >= 0; i-- {
		if e.Attempts[i].State == AttemptSettledAbsent {
			return &e.Attempts[i]
		}
	}
	return nil
}

// waited is how long an authorized effect has been kept back past the moment it
// might have been sent: by a hold, the breaker, the rate or a missing slot. That
// time does not count against the retry budget.
func (e Effect) waited(now time.Time) time.Duration {
	due := later(e.NextSend, e.NotBefore)
	if e.Phase != Authorized || due.IsZero() || e.Budget.ElapsedFrom.IsZero() {
		return 0
	}
	return max(0, now.Sub(due))
}
