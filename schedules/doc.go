// Package schedules says when repeated work is due. It is pure: times and the
// host's name come in as values, no clock is read and nothing is kept, so a
// crash leaves nothing behind. The caller stores the last nominal time, in the
// transaction of the run it belongs to, and asks [Schedule.Due] with it.
//
// A nominal time is what the schedule says; the run starts a stable jitter
// later, the same on every day of the same host and schedule.
//
// What it guarantees when clocks change:
//
//   - a job with fixed hours ("30 2 * * *") whose time is skipped by a change
//     to summer time runs once, right after the gap;
//   - a job with fixed hours runs once where the hour is doubled, the first time;
//   - a job whose hours begin with "*" runs by elapsed time: every doubled hour
//     counts twice and nothing stands in for a skipped one;
//   - "@every 90m" counts from the Unix epoch, so it survives restarts and
//     knows no time zone.
//
// Parse never panics, whatever it is given, and what it accepts fires within
// nine years of any moment.
package schedules
