// Package journal is the pure core of settled: what is known about one intended
// change in a system that settled does not own, and what may happen next. A
// missing answer is not a failure; it is an unknown outcome, and an unknown
// outcome forbids another write until evidence settles it.
//
// The package has no clock, no goroutine, no file and no socket. [Apply] takes an
// effect, an event and an [Env] (the time, one random number, who acts, the policy
// in force) and returns the next state, or an error that names phase and event and
// leaves everything as it was. [Decide] says what is owed now. [Check] says whether
// a history keeps the invariants.
//
// # What is guaranteed, in which order
//
//  1. Intent before authority, authority before a send: only an authorized effect
//     can pass [Gate], which names every clause that does not hold.
//  2. The attempt is recorded as `sent` before the call (transition 4). The caller
//     makes the call only after COMMIT of that change has returned.
//  3. What came of the call is recorded, or it is unknown. Nothing is ever inferred
//     to be not sent.
//  4. While it is unknown there is no way back to authorized. Reads go on by a
//     timetable; an empty read is believed only under [ProveAbsence], after
//     [SettleNotBefore], twice, with every call closed and no positive evidence.
//  5. Absence, proved and fresh, allows one more attempt inside the budget.
//  6. Success is a matching read and a true postcondition, or the declared waiver,
//     and is one change with its checkpoint.
//  7. What contradicts goes to one person with one review; the effect keeps its key.
//     What failed has an owner, unless a person cancelled or rejected it.
//
// Each change is one transaction, guarded by the sequence number that the effect
// had before; every transition in it has exactly one [Entry].
//
// # What a crash leaves behind
//
//	crash before or after                  restart finds            then
//	the intake commit                      nothing / prepared       the source submits again / go on
//	authorize, snapshot                    prepared, authorized     go on; the gate is asked again
//	transition 4 not committed             authorized               nothing was called
//	transition 4 committed, no answer yet  dispatching + sent       [Lost] (11): read, never resend
//	a replay begun, no answer yet          reconciling + sent       [Lost] (40): read
//	an overdue call                        unknown, call open       [CallEnded] when its process is dead
//	a read done, not recorded              verifying, or a lease    [LeaseEnd] (19); read again
//	a fence begun, not answered            reconciling, intended    [LeaseEnd] (19); read before it is sent again
//	success with its checkpoint            both or neither          one change
//	a decision with its repair             both or neither          one change
//	a journal restored from a backup       phases older than now    [Restore] (41), [Submit] restored (42)
//
// # The state machine
//
// The numbers are those of [Transitions]. An arrow into a word at the margin
// ends in the box of that name.
//
//	            submit                                submit, restored
//	              | 1                                       | 42
//	              v                                         v
//	+------------------------------+                     unknown
//	|           prepared           |--- 3, 6, 36 ---> failed
//	+------------------------------+--- 26, 41 -----> unknown
//	   | 2      ^ 5         ^ 37   |--- 27 ---------> verifying
//	   v        |           |
//	+--------------+      failed
//	|  authorized  |--- 6, 36 ---> failed
//	|              |--- 26, 41 --> unknown
//	|              |--- 27 ------> verifying
//	+--------------+--- 38 ------> needs_human
//	   | 4   ^ 7  ^ 24
//	   |     |    +----------------------------------------------+
//	   v     |                                                   |
//	+--------------+--- 8 --------> failed                       |
//	| dispatching  |--- 11, 41 ---> unknown                      |
//	+--------------+                                             |
//	   | 10     | 9                                              |
//	   |        v                                                |
//	   |  +--------------+--- 14 -------> failed                 |
//	   |  | acknowledged |--- 13, 41 ---> unknown                |
//	   |  +--------------+                                       |
//	   |        | 12                                             |
//	   v        v                                                |
//	+--------------+--- 14 -------> failed                       |
//	|  verifying   |--- 16, 41 ---> unknown                      |
//	+--------------+--- 17 -------> needs_human                  |
//	   | 15    ^ 20, 27, 30, 39, 40                              |
//	   v       |                                                 |
//	+-----------+   +---------------+--- 14 ----> failed         |
//	| succeeded |   |    unknown    |--- 23 ----> needs_human    |
//	+-----------+   +---------------+--- 27 ----> verifying      |
//	                  | 18      ^ 19, 40, 41                     |
//	                  | 39, 40  |                                |
//	                  v         |                                |
//	                +---------------+--- 14 --------------> failed
//	                |  reconciling  |--- 20, 27, 39, 40 --> verifying
//	                +---------------+--- 22 --------------> needs_human
//	                  | 21, 39  ^ 28                             |
//	                  v         | needs_human                    |
//	                +------------------+---- 24 -----------------+
//	                | confirmed_absent |--- 25 -----> failed
//	                |                  |--- 26, 41 -> unknown
//	                +------------------+--- 27 -----> verifying
//	                  ^ 29
//	                  |
//	                +---------------+--- 28 ------> reconciling
//	                |  needs_human  |--- 27, 30 --> verifying
//	                +---------------+--- 34 ------> +-----------+
//	                  | 31      ^ 33                | abandoned |
//	                  v         |                   +-----------+
//	                +---------------+--- 32 --> +-------------+
//	                |   repairing   |--- 32 --> | rolled_back |
//	                +---------------+     |     +-------------+
//	                  | 32                +---> | compensated |
//	                  v                         +-------------+
//	              succeeded
//
//	succeeded, failed, rolled_back, compensated, abandoned --- 35 --> needs_human
//
// The same as a list, which a test holds against [Transitions]:
//
//	 1  new -> prepared
//	 2  prepared -> authorized
//	 3  prepared -> failed
//	 4  authorized -> dispatching
//	 5  authorized -> prepared
//	 6  prepared, authorized -> failed
//	 7  dispatching -> authorized
//	 8  dispatching -> failed
//	 9  dispatching -> acknowledged
//	10  dispatching -> verifying
//	11  dispatching -> unknown
//	12  acknowledged -> verifying
//	13  acknowledged -> unknown
//	14  acknowledged, verifying, unknown, reconciling -> failed
//	15  verifying -> succeeded
//	16  verifying -> unknown
//	17  verifying -> needs_human
//	18  unknown -> reconciling
//	19  reconciling -> unknown
//	20  reconciling -> verifying
//	21  reconciling -> confirmed_absent
//	22  reconciling -> needs_human
//	23  unknown -> needs_human
//	24  confirmed_absent -> authorized
//	25  confirmed_absent -> failed
//	26  confirmed_absent, prepared, authorized -> unknown
//	27  unknown, reconciling, confirmed_absent, prepared, authorized, needs_human -> verifying
//	28  needs_human -> reconciling
//	29  needs_human -> confirmed_absent
//	30  needs_human -> verifying
//	31  needs_human -> repairing
//	32  repairing -> succeeded, rolled_back, compensated
//	33  repairing -> needs_human
//	34  needs_human -> abandoned
//	35  succeeded, failed, rolled_back, compensated, abandoned -> needs_human
//	36  prepared, authorized -> failed
//	37  failed -> prepared
//	38  authorized -> needs_human
//	39  unknown -> reconciling
//	39  reconciling -> confirmed_absent, verifying
//	40  unknown -> reconciling
//	40  reconciling -> verifying, unknown
//	41  prepared, authorized, dispatching, acknowledged, verifying, reconciling, confirmed_absent -> unknown
//	42  new -> unknown
package journal
