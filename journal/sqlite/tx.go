package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settled-dev/settled/journal"
)

// Tx is the transaction of one operation. It is valid only inside the function
// given to [DB.Write], on that goroutine.
//
// Changes of effects are kept until the function returns and are then written
// once: several events on one effect cost one row. Reads through Tx see them.
type Tx struct {
	db      *DB
	before  own
	began   bool // the savepoint stands
	bare    bool // it wrote without a savepoint
	terms   bool // it made a new term
	lines   []line
	storage error // the first storage error; the batch cannot go on
	holds   bool
	delta   map[counterKey]int64

	order []*record
	byKey map[string]*record
	notes []journal.Entry // lines that belong to no change
	facts []journal.Entry // lines that are kept even when the operation fails
	noted []string        // keys whose rows such lines have touched
}

// record is an effect as this operation knows it.
type record struct {
	e         journal.Effect
	lastEvent int64
	stored    int // attempts on disk
	inserted  bool
	changed   bool
	phase     journal.Phase // on disk
	review    *journal.Review
	repairs   []journal.Repair
	path      []step // phases passed on the way
	entries   []journal.Entry
	touched   map[string]bool // attempts by id
	reads     []journal.Reconciliation
}

type step struct {
	to      journal.Phase
	settled any
}

// call runs fn; a panic becomes this operation's error and nobody else's.
func (tx *Tx) call(fn func(*Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("journal operation panicked: %v", p)
		}
	}()
	return fn(tx)
}

// begin opens the operation's savepoint before its first write.
func (tx *Tx) begin() error {
	if tx.began {
		return nil
	}
	if _, err := tx.db.w.exec("SAVEPOINT op"); err != nil {
		return tx.seen(err)
	}
	tx.began = true
	return nil
}

// seen remembers a storage error, so that an operation cannot go on after it unnoticed.
func (tx *Tx) seen(err error) error {
	if err != nil && tx.storage == nil && classify(err) != storageFine {
		tx.storage = err
	}
	return err
}

// undo rolls the operation back and keeps only its facts.
func (tx *Tx) undo() error {
	if tx.began {
		if _, err := tx.db.w.exec("ROLLBACK TO op"); err != nil {
			return err
		}
	}
	tx.db.putBack(tx.before)
	tx.delta, tx.lines = nil, nil
	tx.order, tx.byKey, tx.notes = nil, nil, nil // nothing of it is in the file, so nothing may be kept at hand
	if tx.terms {
		if err := tx.db.reloadTerms(context.Background()); err != nil {
			return err
		}
	}
	if tx.holds {
		if err := tx.db.reloadHolds(context.Background()); err != nil {
			return err
		}
		tx.holds = false
	}
	if len(tx.facts) == 0 {
		return nil
	}
	if err := tx.begin(); err != nil {
		return err
	}
	return tx.flushNotes(tx.facts)
}

// Now is the journal's clock, in the resolution that it stores.
func (tx *Tx) Now() time.Time { return stored(tx.db.opts.Now()) }

// stored is a time as it comes back from the file.
func stored(t time.Time) time.Time { return us(t).time() }

// Effect returns the effect of a key with its payload and attempts, or [ErrNotFound].
func (tx *Tx) Effect(key string) (journal.Effect, error) {
	r, err := tx.load(key)
	if err != nil {
		return journal.Effect{}, err
	}
	return r.e, nil
}

func (tx *Tx) load(key string) (*record, error) {
	if r, ok := tx.byKey[key]; ok {
		return r, nil
	}
	w, ok := tx.db.warm[key]
	e, last := w.e, w.lastEvent
	if !ok {
		var err error
		if e, last, err = readEffect(context.Background(), tx.db.w, key); err != nil {
			return nil, tx.seen(err)
		}
	}
	r := &record{e: e, lastEvent: last, stored: len(e.Attempts), phase: e.Phase, review: e.Review, repairs: e.Repairs}
	tx.remember(r)
	return r, nil
}

func (tx *Tx) remember(r *record) {
	if tx.byKey == nil {
		tx.byKey = map[string]*record{}
	}
	tx.byKey[r.e.Key] = r
	tx.order = append(tx.order, r)
}

// Submit records an intent, or finds that it was recorded before.
//
//   - new key: the effect is prepared (or unknown, when restored says that the
//     journal may have forgotten the key); created is true.
//   - same key and fingerprint: the effect as it is; nothing is written.
//   - same key, other fingerprint: *[journal.ConflictError]. The conflict is
//     recorded even though the operation fails with it.
//   - a pruned key: [*PrunedError] or *[journal.ConflictError], from the ledger.
func (tx *Tx) Submit(in journal.Intent, env journal.Env, restored bool) (e journal.Effect, created bool, err error) {
	r, err := tx.load(in.Key)
	switch {
	case err == nil && r.e.Fingerprint == in.Fingerprint:
		return r.e, false, nil
	case err == nil:
		return r.e, false, tx.conflict(in, env, r.e.Fingerprint)
	case !errors.Is(err, ErrNotFound):
		return e, false, err
	}
	if err := tx.fromLedger(in, env); err != nil {
		return e, false, err
	}
	in.SubmittedAt, in.NotBefore, in.Deadline = stored(in.SubmittedAt), stored(in.NotBefore), stored(in.Deadline)
	ev := journal.Submit{Intent: in, Restored: restored}
	if restored { // the policy's grant, so that a proved absence may be sent
		ev.Authority = &journal.Authority{
			Ref: "policy:" + env.Policy.SHA256, GrantedAt: env.Now, ExpiresAt: in.Deadline,
			PolicySHA256: env.Policy.SHA256, ContractSHA256: env.Policy.Contract,
		}
	}
	e, err = tx.Apply(journal.Effect{}, ev, env)
	return e, err == nil, err
}

// conflict notes that a key was used for something else, and returns the error that says so.
func (tx *Tx) conflict(in journal.Intent, env journal.Env, bound string) error {
	tx.facts = append(tx.facts, journal.Entry{
		At: stored(env.Now), Kind: "conflict", Key: in.Key, Run: in.Run, Actor: env.By.Actor, ActorKind: env.By.Kind,
		Origin: env.By.Origin, Because: "given fingerprint " + in.Fingerprint, PolicySHA256: env.Policy.SHA256,
	})
	return &journal.ConflictError{Key: in.Key, Bound: bound, Given: in.Fingerprint}
}

// fromLedger looks for a key whose effect was pruned.
func (tx *Tx) fromLedger(in journal.Intent, env journal.Env) error {
	if tx.db.ledger == 0 {
		return nil
	}
	r, err := tx.db.w.one(context.Background(), "SELECT fingerprint, object_id, phase FROM key_ledger WHERE key=?", in.Key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return tx.seen(err)
	}
	if bound := unpack(r.blob(0)); bound != in.Fingerprint {
		return tx.conflict(in, env, bound)
	}
	return &PrunedError{Key: in.Key, Fingerprint: in.Fingerprint, ObjectID: r.str(1), Phase: r.str(2)}
}

// Apply applies an event to an effect and keeps the change. e must be as the
// journal has it now: another sequence number is [ErrStale]. Other errors are
// those of [journal.Apply], and then nothing has changed.
func (tx *Tx) Apply(e journal.Effect, ev journal.Event, env journal.Env) (journal.Effect, error) {
	ch, err := tx.Change(e, ev, env)
	if err != nil {
		return e, err
	}
	return ch.Effect, nil
}

// Change is [Tx.Apply] for callers that need to know what else follows, such as a breaker to trip.
func (tx *Tx) Change(e journal.Effect, ev journal.Event, env journal.Env) (journal.Change, error) {
	env.Now = stored(env.Now)
	ch, err := journal.Apply(e, ev, env)
	if err != nil {
		return ch, err
	}
	if err := tx.keep(&ch, e.ID == 0); err != nil {
		return journal.Change{}, err
	}
	return ch, nil
}

// keep takes a change up into the operation.
func (tx *Tx) keep(ch *journal.Change, fresh bool) error {
	r, err := tx.current(ch, fresh)
	if err != nil {
		return err
	}
	tx.count(r.e.Destination, string(r.e.Phase), -1)
	tx.countReview(r.e.Destination, r.e.Review, -1)
	if fresh {
		ch.Effect.ID = r.e.ID
	}
	r.e, r.changed = ch.Effect, true
	tx.count(r.e.Destination, string(r.e.Phase), 1)
	tx.countReview(r.e.Destination, r.e.Review, 1)
	r.entries = append(r.entries, ch.Entries...)
	for _, x := range ch.Entries {
		if x.To == "" || x.To == x.From {
			continue
		}
		var settled any
		if x.To.Closed() {
			settled = us(x.At)
		}
		r.path = append(r.path, step{x.To, settled})
	}
	for _, a := range ch.Attempts {
		if r.touched == nil {
			r.touched = map[string]bool{}
		}
		r.touched[a.ID] = true
	}
	r.reads = append(r.reads, ch.Reconciliations...)
	if err := tx.keepCheckpoint(ch.Checkpoint); err != nil {
		return err
	}
	return tx.keepHold(ch)
}

// current finds the record that the change is made from and checks its sequence number.
func (tx *Tx) current(ch *journal.Change, fresh bool) (*record, error) {
	if !fresh {
		r, err := tx.load(ch.Effect.Key)
		if err == nil && r.e.Seq != ch.Before {
			err = fmt.Errorf("%w: %s has seq %d, the change was made from %d", ErrStale, ch.Effect.Key, r.e.Seq, ch.Before)
		}
		return r, err
	}
	if _, ok := tx.byKey[ch.Effect.Key]; ok {
		return nil, fmt.Errorf("%w: %s exists", ErrStale, ch.Effect.Key)
	}
	r := &record{inserted: true}
	r.e.ID, r.e.Key, r.e.Destination = tx.db.nextID, ch.Effect.Key, ch.Effect.Destination
	tx.db.nextID++
	tx.remember(r)
	return r, nil
}

func (tx *Tx) count(destination, name string, by int64) {
	if name == "" {
		return // an effect that was not there before
	}
	if tx.delta == nil {
		tx.delta = map[counterKey]int64{}
	}
	tx.delta[counterKey{destination, name}] += by
}

func (tx *Tx) countReview(destination string, r *journal.Review, by int64) {
	if !r.Live() {
		return
	}
	tx.count(destination, counterReviews, by)
	if r.Overdue {
		tx.count(destination, counterOverdue, by)
	}
}

const (
	counterReviews = "review"
	counterOverdue = "review_overdue"
)

func (tx *Tx) keepCheckpoint(c *journal.Checkpoint) error {
	if c == nil || c.Run == "" {
		return nil
	}
	if err := tx.begin(); err != nil {
		return err
	}
	_, err := tx.db.w.exec("INSERT INTO checkpoint (run, step, key, evidence, result, at) VALUES (?,?,?,?,?,?)",
		c.Run, c.Step, c.Key, pack(c.Evidence), c.Result, us(c.At))
	return tx.seen(err)
}

// Note adds a line to the chain for a human act or a fact without a transition.
// A zero At is now.
func (tx *Tx) Note(x journal.Entry) error {
	x.At = stored(x.At)
	if x.At.IsZero() {
		x.At = tx.Now()
	}
	tx.notes = append(tx.notes, x)
	return nil
}

// flush writes what the operation kept, in one order: effects, then their
// attempts and reads, then the chain.
func (tx *Tx) flush() error {
	if !slices.ContainsFunc(tx.order, func(r *record) bool { return r.changed }) && len(tx.notes) == 0 && len(tx.facts) == 0 {
		return nil
	}
	if tx.db.careful || tx.began || len(tx.notes)+len(tx.facts) > 0 {
		if err := tx.begin(); err != nil {
			return err
		}
	}
	tx.bare = !tx.began
	if err := tx.db.fault("flush"); err != nil {
		return tx.seen(err)
	}
	for _, r := range tx.order {
		if !r.changed {
			continue
		}
		if err := tx.write(r); err != nil {
			return tx.seen(fmt.Errorf("record %s: %w", r.e.Key, err))
		}
	}
	return tx.seen(tx.flushNotes(append(tx.notes, tx.facts...)))
}

// flushNotes writes lines that belong to no change, each tied to the effect that it names.
func (tx *Tx) flushNotes(notes []journal.Entry) error {
	for _, x := range notes {
		of := map[string]about{}
		if x.Key != "" {
			r, err := tx.db.w.one(context.Background(), "SELECT id, last_event FROM effect WHERE key=?", x.Key)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			if err == nil {
				of[x.Key] = about{r.int(0), r.int(1)}
			}
		}
		tx.append([]journal.Entry{x}, of)
		tx.noted = append(tx.noted, x.Key)
		if a := of[x.Key]; a.id != 0 {
			if _, err := tx.db.w.exec("UPDATE effect SET last_event=? WHERE id=?", a.last, a.id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (tx *Tx) write(r *record) error {
	of := map[string]about{r.e.Key: {r.e.ID, r.lastEvent}}
	tx.append(r.entries, of)
	r.lastEvent = of[r.e.Key].last
	if err := tx.writeEffect(r); err != nil {
		return err
	}
	if err := tx.writeAttempts(r); err != nil {
		return err
	}
	for i := range r.reads {
		if err := tx.writeRead(r, &r.reads[i], r.e.Reads-len(r.reads)+i+1); err != nil {
			return err
		}
	}
	if err := tx.writeReview(r); err != nil {
		return err
	}
	return tx.writeRepairs(r)
}

const (
	sqlInsertEffect = `INSERT INTO effect (id, key, fingerprint, destination, account, operation, submitted_at, phase, finding, seq, owner,
 due_at, due_kind, settled_at, attention, doubt_at, object_id, last_event, state) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	sqlUpdateEffect = `UPDATE effect SET phase=?, finding=?, seq=?, owner=?, due_at=?, due_kind=?, settled_at=?, attention=?, doubt_at=?,
 object_id=?, last_event=?, state=? WHERE id=?`
	sqlPassPhase = "UPDATE effect SET phase=?, settled_at=? WHERE id=?"
)

// answerRoom is kept free behind the state of an effect that is being sent, for
// what its answer adds: a row that grows splits its page, which leaves pages
// half empty for good. White space after JSON means nothing.
const (
	room16     = "                "
	answerRoom = room16 + room16 + room16 + room16 + room16 + room16 + room16
)

// writeEffect writes the row. Phases passed on the way are written one by one,
// so that the database checks every single move.
func (tx *Tx) writeEffect(r *record) error {
	e := &r.e
	w := encoder{tx: tx}
	state, err := encode(stateOf(&w, e))
	if err = errors.Join(err, w.err); err != nil {
		return err
	}
	if e.Phase == journal.Dispatching {
		state += answerRoom
	}
	path := r.path
	if r.inserted {
		if len(path) == 0 {
			return fmt.Errorf("effect %s begins without a transition", e.Key)
		}
		if err := tx.insertEffect(r, path[0], state); err != nil {
			return err
		}
		path = path[1:]
		if len(path) == 0 && r.path[0].to == e.Phase {
			return nil
		}
	}
	for _, p := range path[:max(0, len(path)-1)] {
		if _, err := tx.db.w.exec(sqlPassPhase, string(p.to), p.settled, e.ID); err != nil {
			return err
		}
	}
	n, err := tx.db.w.exec(sqlUpdateEffect, string(e.Phase), string(e.Finding), e.Seq, e.Owner, us(e.DueAt).null(), nullStr(string(e.Due)),
		us(e.SettledAt).null(), attention(e.Phase), doubtAt(e), nullStr(e.Outcome.ObjectID), r.lastEvent, state, e.ID)
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: row %d is gone", ErrStale, e.ID)
	}
	return err
}

// insertEffect writes the first row of an effect, in the phase it began in, and its intent.
func (tx *Tx) insertEffect(r *record, first step, state string) error {
	e := &r.e
	var dueAt, dueKind, att any
	if first.to == e.Phase {
		dueAt, dueKind, att = us(e.DueAt).null(), nullStr(string(e.Due)), attention(e.Phase)
	}
	_, err := tx.db.w.exec(sqlInsertEffect, e.ID, e.Key, pack(e.Fingerprint), e.Destination, e.Account, e.Operation, us(e.SubmittedAt),
		string(first.to), string(e.Finding), e.Seq, e.Owner, dueAt, dueKind, first.settled, att, doubtAt(e),
		nullStr(e.Outcome.ObjectID), r.lastEvent, state)
	if err != nil {
		return err
	}
	w := encoder{tx: tx}
	body, err := encode(intentOf(&w, &e.Intent))
	if err = errors.Join(err, w.err); err != nil {
		return err
	}
	payload := e.Payload
	if payload == nil {
		payload = []byte{}
	}
	_, err = tx.db.w.exec("INSERT INTO intent (effect, digest, body, payload) VALUES (?,?,?,?)", e.ID, pack(e.PayloadDigest), body, payload)
	return err
}

// perEffect is the room for attempts, and for reads, in the numbering of one effect.
const perEffect = 1 << 20

func (tx *Tx) writeAttempts(r *record) error {
	for i := range r.e.Attempts {
		a, n := &r.e.Attempts[i], i+1
		isNew := i >= r.stored
		if !isNew && !r.touched[a.ID] {
			continue
		}
		w := encoder{tx: tx}
		body, err := encode(attemptOf(&w, &r.e, a, n))
		via := viaOf(&w, a)
		if err = errors.Join(err, w.err); err != nil {
			return err
		}
		id := r.e.ID*perEffect + int64(n)
		if a.State == journal.AttemptSent {
			body += room16
		}
		if isNew {
			_, err = tx.db.w.exec(`INSERT INTO attempt (id, effect, n, attempt_id, state, epoch, sent_at, closed_at, slot, via, body, baseline)
				VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`, id, r.e.ID, n, a.ID, string(a.State), a.Epoch, us(a.SentAt).null(),
				us(a.ClosedAt).null(), slot(a, n), via.column(), body, a.Baseline)
		} else {
			_, err = tx.db.w.exec("UPDATE attempt SET state=?, sent_at=?, closed_at=?, slot=?, body=? WHERE id=?",
				string(a.State), us(a.SentAt).null(), us(a.ClosedAt).null(), slot(a, n), body, id)
		}
		if err != nil {
			return fmt.Errorf("attempt %d: %w", n, err)
		}
	}
	return nil
}

func (tx *Tx) writeRead(r *record, rec *journal.Reconciliation, n int) error {
	body, err := encode(reconciliationOf(rec))
	if err != nil {
		return err
	}
	_, err = tx.db.w.exec("INSERT INTO reconciliation (id, effect, n, verdict, body) VALUES (?,?,?,?,?)",
		r.e.ID*perEffect+int64(n), r.e.ID, n, string(rec.Verdict), body)
	return err
}

func (tx *Tx) writeReview(r *record) error {
	now := r.e.Review
	if !now.Live() {
		if !r.review.Live() {
			return nil
		}
		_, err := tx.db.w.exec("DELETE FROM review WHERE effect=?", r.e.ID)
		return err
	}
	body, err := encode(reviewOf(*now))
	if err != nil {
		return err
	}
	_, err = tx.db.w.exec(`INSERT INTO review (effect, key, destination, owner, kind, severity, state, due_at, overdue, body)
		VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10) ON CONFLICT DO UPDATE SET owner=?4, kind=?5, severity=?6, state=?7, due_at=?8,
		overdue=?9, body=?10`, r.e.ID, r.e.Key, r.e.Destination, now.Owner, string(now.Kind), string(now.Severity), string(now.State),
		us(now.DueAt), now.Overdue, body)
	return err
}

func (tx *Tx) writeRepairs(r *record) error {
	for i, p := range r.e.Repairs {
		if i < len(r.repairs) && r.repairs[i].State == p.State {
			continue
		}
		body, err := encode(repairOf(p))
		if err != nil {
			return err
		}
		if _, err := tx.db.w.exec(`INSERT INTO repair (id, effect, state, body) VALUES (?1,?2,?3,?4)
			ON CONFLICT DO UPDATE SET state=?3, body=?4`, p.ID, r.e.ID, string(p.State), body); err != nil {
			return err
		}
	}
	return nil
}
