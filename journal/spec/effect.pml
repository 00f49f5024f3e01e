/* One effect with its two attempts, one destination, a daemon that may die at
 * any moment, a wire that may lose, hold and deliver late, a view that lags, and
 * a backup that may be restored once. Time is not counted: what the grace stands
 * for is said by what it promises, that no request is under way and the view
 * shows all that was committed.
 *
 * Checked: no second object (I11), no call without its row on disk (I2), one
 * open attempt (I1), only authorized sends (I9), no send after evidence (I13),
 * and that doubt ends (I12). Each rule has a twin with one guard broken, which
 * spin must find: compile with -DNO_GRACE, -DUNKNOWN_TO_AUTHORIZED,
 * -DORPHAN_NOT_KILLED, -DSENT_AFTER_CALL, -DONE_READ, -DNO_RECOVERY, -DBLIND_RESTORE, -DNO_READS.
 *
 * The moves are those of journal.Transitions: a test compares every MOVE here
 * with that table. Run: spin -a effect.pml && cc -O2 -o pan pan.c && ./pan -a
 */

mtype = { prepared, authorized, dispatching, verifying, unknown, reconciling,
          confirmed_absent, needs_human, succeeded, failed }
mtype = { none, sent, committed, timed_out, lost, not_executed, rejected, settled_absent, settled_present }

#define ATTEMPTS 2

/* --- on disk: survives a crash, may be taken back to a backup --- */
mtype phase = prepared
mtype attempt[ATTEMPTS] = none
byte  attempts = 0          /* rows written */
bool  first_absent = false  /* the first of two agreeing reads */
bool  positive = false      /* unrebutted evidence that it happened */

/* --- a backup of the disk, and whether one was restored --- */
mtype b_phase; mtype b_attempt[ATTEMPTS]; byte b_attempts; bool b_positive
bool  backed_up = false, restored = false

/* --- the process: lost by a crash --- */
bool  up = true
bool  calling = false       /* an adapter process holds a call that has not left yet */
bool  orphan = false        /* such a process outlived its daemon */

/* --- the world: knows nothing of our crashes --- */
byte  flying = 0            /* requests on the wire or being processed */
byte  objects = 0           /* committed, the truth */
byte  seen = 0              /* what the lagging view shows */
bool  answered = false      /* an answer is on its way back */
mtype answer
byte  calls = 0             /* requests that ever left */
byte  crashes = 0

/* The daemon cannot see an orphan: it counts on having proved it dead. */
#define quiet   (flying == 0 && !calling && seen == objects)
#ifdef NO_GRACE
#define grace_over  true
#else
#define grace_over  quiet
#endif
#define open_sent   ((attempt[0] == sent) + (attempt[1] == sent))
#define unsettled(s) (s == sent || s == timed_out || s == lost)
#define all_settled  (!unsettled(attempt[0]) && !unsettled(attempt[1]))

#define MOVE(n, from, to)  assert(phase == from); phase = to

inline close_as(s) {
  if
  :: attempts > 0 && unsettled(attempt[attempts-1]) -> attempt[attempts-1] = s
  :: else
  fi;
  if
  :: attempts > 1 && unsettled(attempt[0]) -> attempt[0] = s
  :: else
  fi
}

inline leave() { /* the call leaves for the wire */
  calling = false; flying++; calls++;
#ifndef SENT_AFTER_CALL
  assert(attempts >= calls || restored)          /* I2: a row for every call */
#endif
}

active proctype daemon()
{
end_settled:
  do
  :: atomic { up && phase == prepared ->
       MOVE(2, prepared, authorized) }

  /* the write gate: everything before is settled, no evidence stands */
#define gate_open (up && phase == authorized && attempts < ATTEMPTS && all_settled && !positive)
#ifdef SENT_AFTER_CALL
  :: atomic { gate_open -> flying++; calls++ };
     atomic {
       if
       :: up && phase == authorized ->
          MOVE(4, authorized, dispatching); attempt[attempts] = sent; attempts++
       :: else
       fi }
#else
  :: atomic { gate_open && !calling ->
       assert(all_settled);                        /* I4 */
       MOVE(4, authorized, dispatching);
       attempt[attempts] = sent; attempts++;
       assert(open_sent == 1);                     /* I1 */
       calling = true }
#endif
  :: atomic { up && calling && phase == dispatching -> leave() }
  :: atomic { up && phase == authorized && attempts == ATTEMPTS -> MOVE(6, authorized, failed) }

  /* an answer arrives, or none does */
  :: atomic { up && phase == dispatching && answered && !calling ->
       answered = false;
       if
       :: answer == committed ->
          attempt[attempts-1] = committed; positive = true; MOVE(10, dispatching, verifying)
       :: answer == not_executed && attempts < ATTEMPTS ->
          attempt[attempts-1] = not_executed; MOVE(7, dispatching, authorized)
       :: answer == not_executed && attempts == ATTEMPTS ->
          attempt[attempts-1] = not_executed; MOVE(8, dispatching, failed)
       :: answer == rejected ->
          attempt[attempts-1] = rejected; MOVE(8, dispatching, failed)
       fi }
  :: atomic { up && phase == dispatching && !calling ->
       attempt[attempts-1] = timed_out; first_absent = false; MOVE(11, dispatching, unknown) }

  /* an authoritative read: one lease, one verdict */
#ifndef NO_READS
  :: atomic { up && phase == unknown -> MOVE(18, unknown, reconciling) }
#endif
  :: atomic { up && phase == reconciling ->
       if
       :: seen == 1 -> positive = true; MOVE(20, reconciling, verifying)
       :: seen > 1  -> MOVE(22, reconciling, needs_human)
       :: seen == 0 && grace_over && positive -> MOVE(22, reconciling, needs_human)
#ifdef ONE_READ
       :: seen == 0 && !positive -> close_as(settled_absent); MOVE(21, reconciling, confirmed_absent)
#else
       :: seen == 0 && grace_over && !positive && first_absent ->
          close_as(settled_absent); MOVE(21, reconciling, confirmed_absent)
       :: seen == 0 && grace_over && !positive && !first_absent ->
          first_absent = true; MOVE(19, reconciling, unknown)
       :: seen == 0 && !grace_over -> first_absent = false; MOVE(19, reconciling, unknown)
#endif
       :: MOVE(19, reconciling, unknown)           /* the read failed: no evidence */
       fi }
#ifdef UNKNOWN_TO_AUTHORIZED
  :: atomic { up && phase == unknown && attempts < ATTEMPTS -> close_as(settled_absent); phase = authorized }
#endif
  :: atomic { up && phase == confirmed_absent && attempts < ATTEMPTS -> MOVE(24, confirmed_absent, authorized) }
  :: atomic { up && phase == confirmed_absent && attempts == ATTEMPTS -> MOVE(25, confirmed_absent, failed) }

  :: atomic { up && phase == verifying ->
       if
       :: seen == 1 -> close_as(settled_present); MOVE(15, verifying, succeeded)
       :: seen > 1  -> MOVE(17, verifying, needs_human)
       :: seen == 0 && grace_over -> first_absent = false; MOVE(16, verifying, unknown)
       fi }

  /* the journal is copied, and the copy put back once */
  :: atomic { up && !backed_up && !restored ->
       backed_up = true; b_phase = phase; b_attempts = attempts; b_positive = positive;
       b_attempt[0] = attempt[0]; b_attempt[1] = attempt[1] }
  :: atomic { !up && backed_up && !restored && !calling && !orphan ->
       restored = true; phase = b_phase; attempts = b_attempts; positive = b_positive;
       attempt[0] = b_attempt[0]; attempt[1] = b_attempt[1]; first_absent = false; answered = false;
#ifndef BLIND_RESTORE
       if
       :: phase == prepared   -> MOVE(41, prepared, unknown)
       :: phase == authorized -> MOVE(41, authorized, unknown)
       :: phase == dispatching -> MOVE(41, dispatching, unknown)
       :: phase == verifying  -> MOVE(41, verifying, unknown)
       :: phase == reconciling -> MOVE(41, reconciling, unknown)
       :: phase == confirmed_absent -> MOVE(41, confirmed_absent, unknown)
       :: else
       fi;
       if
       :: phase == unknown && attempts == 0 -> attempt[0] = lost; attempts = 1
       :: phase == unknown && attempts > 0 -> attempt[attempts-1] = lost
       :: else
       fi;
#endif
       skip }

  /* a start that first proves the old adapter dead */
  :: atomic { !up ->
#ifndef ORPHAN_NOT_KILLED
       orphan = false;
#endif
#ifndef NO_RECOVERY
       if
       :: phase == dispatching -> attempt[attempts-1] = lost; first_absent = false; MOVE(11, dispatching, unknown)
       :: phase == reconciling -> MOVE(19, reconciling, unknown)
       :: else
       fi;
#else
       if
       :: phase == dispatching -> attempt[attempts-1] = not_executed; MOVE(7, dispatching, authorized)
       :: phase == reconciling -> MOVE(19, reconciling, unknown)
       :: else
       fi;
#endif
       up = true }

  :: atomic { up && (phase == succeeded || phase == failed || phase == needs_human) && flying == 0 && !orphan && seen == objects -> break }
  od
}

/* kill -9, between any two steps. */
active proctype killer()
{
end_killer:
  do
  :: atomic { up && crashes < 2 ->
       crashes++; up = false; answered = false;
       if
       :: calling -> calling = false; orphan = true
       :: else
       fi }
  od
}

/* The destination and the wire. A request commits, is refused, or is lost; its
 * answer may be lost; an orphan may still send; the view follows in its own time. */
active proctype world()
{
end_world:
  do
  :: atomic { flying > 0 -> flying--; objects++; assert(objects <= 1);            /* I11 */
       if
       :: up && phase == dispatching && !answered -> answered = true; answer = committed
       :: true                                     /* the answer is lost */
       fi }
  :: atomic { flying > 0 && objects == 0 -> flying--;
       if
       :: up && phase == dispatching && !answered -> answered = true; answer = not_executed
       :: up && phase == dispatching && !answered -> answered = true; answer = rejected
       :: true                                     /* request or answer is lost */
       fi }
  :: atomic { orphan && flying == 0 -> orphan = false; flying++; calls++ }
  :: atomic { seen < objects -> seen = objects }
  od
}

/* I9 and I13: nothing is sent except from authorized, or on unrebutted evidence. */
ltl no_blind_send { [] (calling -> (phase == dispatching && !positive)) }
/* I12: with a wire that becomes quiet and reads that come back, doubt ends. */
ltl doubt_ends { [] ((phase == unknown) -> <> (phase != unknown)) }
