-- The journal, first form. Times are integer microseconds UTC, durations
-- nanoseconds inside JSON, digests blobs (one tag byte, then 32 bytes). Words
-- that many rows share are kept once, in the table term: where a column is ANY,
-- and in JSON, a number is the id of a term and a text is the word itself.
-- Rows that are only appended lie in the order of their integer key, and no
-- index covers a finished effect: a commit pays for pages, not for bytes.

CREATE TABLE setting (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE term (
  id    INTEGER PRIMARY KEY,
  value TEXT NOT NULL UNIQUE
) STRICT;
CREATE TRIGGER term_upd BEFORE UPDATE ON term BEGIN SELECT RAISE(ABORT, 'a term never changes'); END;
CREATE TRIGGER term_del BEFORE DELETE ON term BEGIN SELECT RAISE(ABORT, 'a term is kept for ever'); END;

-- The legal moves. The trigger effect_phase refuses every other.
CREATE TABLE transition (
  from_phase TEXT NOT NULL,
  to_phase   TEXT NOT NULL,
  PRIMARY KEY (from_phase, to_phase)
) STRICT, WITHOUT ROWID;

CREATE TABLE effect (
  id           INTEGER PRIMARY KEY,
  key          TEXT NOT NULL UNIQUE CHECK (key <> ''),
  fingerprint  BLOB NOT NULL,
  destination  TEXT NOT NULL,
  account      TEXT NOT NULL,
  operation    TEXT NOT NULL,
  phase        TEXT NOT NULL CHECK (phase IN ('prepared','authorized','dispatching','acknowledged','verifying','unknown',
               'reconciling','confirmed_absent','needs_human','repairing','succeeded','failed','rolled_back','compensated','abandoned')),
  finding      TEXT NOT NULL CHECK (finding IN ('none','not_sent','rejected','accepted','matches','partial','duplicate',
               'conflicts','postcondition_failed','absent','unknown')),
  seq          INTEGER NOT NULL CHECK (seq > 0),
  owner        TEXT NOT NULL,
  due_at       INTEGER,
  due_kind     TEXT,
  submitted_at INTEGER NOT NULL,
  settled_at   INTEGER,
  attention    TEXT,     -- the phase, unless it is one that every good effect passes through
  doubt_at     INTEGER,  -- since when nothing proves either way
  object_id    TEXT,
  last_event   INTEGER NOT NULL,  -- newest line of the chain about this effect
  state        TEXT NOT NULL,     -- the rest, as JSON
  CHECK ((due_at IS NULL) = (due_kind IS NULL)),
  CHECK ((settled_at IS NOT NULL) = (phase IN ('succeeded','failed','rolled_back','compensated','abandoned')))
) STRICT;
CREATE INDEX effect_due ON effect (destination, due_kind, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX effect_attention ON effect (attention, id) WHERE attention IS NOT NULL;
CREATE INDEX effect_doubt ON effect (doubt_at) WHERE doubt_at IS NOT NULL;

CREATE TRIGGER effect_phase BEFORE UPDATE OF phase ON effect
WHEN OLD.phase IS NOT NEW.phase
 AND NOT EXISTS (SELECT 1 FROM transition WHERE from_phase = OLD.phase AND to_phase = NEW.phase)
BEGIN SELECT RAISE(ABORT, 'illegal transition of effect.phase'); END;
CREATE TRIGGER effect_first BEFORE INSERT ON effect
WHEN NOT EXISTS (SELECT 1 FROM transition WHERE from_phase = '' AND to_phase = NEW.phase)
BEGIN SELECT RAISE(ABORT, 'an effect cannot begin in this phase'); END;
CREATE TRIGGER effect_key BEFORE UPDATE OF id, key, fingerprint, destination, account, operation, submitted_at ON effect
WHEN OLD.id IS NOT NEW.id OR OLD.key IS NOT NEW.key OR OLD.fingerprint IS NOT NEW.fingerprint OR OLD.destination IS NOT NEW.destination
  OR OLD.account IS NOT NEW.account OR OLD.operation IS NOT NEW.operation OR OLD.submitted_at IS NOT NEW.submitted_at
BEGIN SELECT RAISE(ABORT, 'what a key means never changes'); END;

-- The binding of a key outlives the effect.
CREATE TABLE key_ledger (
  id          INTEGER PRIMARY KEY,  -- the effect's
  key         TEXT NOT NULL UNIQUE,
  fingerprint BLOB NOT NULL,
  object_id   TEXT,
  phase       TEXT NOT NULL,
  settled_at  INTEGER
) STRICT;
CREATE TRIGGER ledger_upd BEFORE UPDATE ON key_ledger BEGIN SELECT RAISE(ABORT, 'the key ledger never changes'); END;
CREATE TRIGGER ledger_del BEFORE DELETE ON key_ledger BEGIN SELECT RAISE(ABORT, 'the key ledger is kept for ever'); END;
CREATE TRIGGER effect_burned BEFORE INSERT ON effect WHEN EXISTS (SELECT 1 FROM key_ledger WHERE key = NEW.key)
BEGIN SELECT RAISE(ABORT, 'this key was used before'); END;

-- What was asked for: written once, so that a change of the effect never rewrites a payload.
CREATE TABLE intent (
  effect  INTEGER PRIMARY KEY REFERENCES effect (id) DEFERRABLE INITIALLY DEFERRED,
  digest  BLOB NOT NULL,   -- of the canonical payload
  body    TEXT NOT NULL,
  payload BLOB             -- NULL once pruned
) STRICT;
CREATE TRIGGER intent_upd BEFORE UPDATE ON intent
WHEN OLD.effect IS NOT NEW.effect OR OLD.digest IS NOT NEW.digest OR OLD.body IS NOT NEW.body OR (NEW.payload IS NOT NULL AND NEW.payload IS NOT OLD.payload)
BEGIN SELECT RAISE(ABORT, 'an intent never changes'); END;

-- id = effect * 1048576 + n, so that the attempts of an effect lie together.
CREATE TABLE attempt (
  id         INTEGER PRIMARY KEY CHECK (id = effect * 1048576 + n AND n > 0 AND n < 1048576),
  effect     INTEGER NOT NULL,
  n          INTEGER NOT NULL,
  attempt_id TEXT NOT NULL,
  state      TEXT NOT NULL CHECK (state IN ('scheduled','sent','committed','accepted','rejected','not_executed','timed_out',
             'lost','not_sent','settled_absent','settled_present')),
  epoch      INTEGER NOT NULL,
  sent_at    INTEGER,
  closed_at  INTEGER,
  slot       INTEGER,   -- 0 = sent, n = answered but still open on our side, NULL = closed
  via        ANY,       -- term: the adapter and its process
  body       TEXT NOT NULL,
  baseline   BLOB,
  CHECK ((state = 'sent') = (slot IS 0))
) STRICT;
-- At most one attempt of an effect is sent and open; and the way in for recovery.
CREATE UNIQUE INDEX attempt_open ON attempt (effect, slot) WHERE slot IS NOT NULL;

CREATE TABLE reconciliation (
  id      INTEGER PRIMARY KEY CHECK (id = effect * 1048576 + n AND n > 0 AND n < 1048576),
  effect  INTEGER NOT NULL,
  n       INTEGER NOT NULL,
  verdict TEXT NOT NULL,
  body    TEXT NOT NULL
) STRICT;
CREATE TRIGGER reconciliation_upd BEFORE UPDATE ON reconciliation BEGIN SELECT RAISE(ABORT, 'a reconciliation never changes'); END;

CREATE TABLE evidence (
  id          INTEGER PRIMARY KEY CHECK (id = effect * 1048576 + n AND n > 0 AND n < 1048576),
  effect      INTEGER NOT NULL,
  n           INTEGER NOT NULL,
  digest      BLOB NOT NULL,
  at          INTEGER NOT NULL,
  source      TEXT NOT NULL,
  kind        TEXT NOT NULL,
  summary     TEXT NOT NULL,
  attempt     TEXT NOT NULL,
  body        BLOB,     -- NULL once pruned
  body_sha256 BLOB,     -- of the whole body, when only its beginning is kept
  body_bytes  INTEGER NOT NULL
) STRICT;
CREATE TRIGGER evidence_upd BEFORE UPDATE ON evidence
WHEN OLD.id IS NOT NEW.id OR OLD.digest IS NOT NEW.digest OR OLD.at IS NOT NEW.at OR OLD.source IS NOT NEW.source
  OR OLD.kind IS NOT NEW.kind OR OLD.summary IS NOT NEW.summary OR OLD.attempt IS NOT NEW.attempt
  OR OLD.body_sha256 IS NOT NEW.body_sha256 OR OLD.body_bytes IS NOT NEW.body_bytes OR NEW.body IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'evidence never changes'); END;

CREATE TABLE review (
  effect   INTEGER PRIMARY KEY,
  key      TEXT NOT NULL,
  destination TEXT NOT NULL,
  owner    TEXT NOT NULL CHECK (owner <> ''),
  kind     TEXT NOT NULL,
  severity TEXT NOT NULL,
  state    TEXT NOT NULL CHECK (state IN ('open','claimed')),
  due_at   INTEGER NOT NULL,
  overdue  INTEGER NOT NULL,
  body     TEXT NOT NULL
) STRICT;
CREATE INDEX review_owner ON review (owner, due_at);

CREATE TABLE hold (
  scope     TEXT NOT NULL,
  raised_by TEXT NOT NULL,
  finding   TEXT NOT NULL,
  by        TEXT NOT NULL,
  because   TEXT NOT NULL,
  at        INTEGER NOT NULL,
  PRIMARY KEY (scope, raised_by)
) STRICT, WITHOUT ROWID;

CREATE TABLE counter (
  destination TEXT NOT NULL,
  name        TEXT NOT NULL,
  value       INTEGER NOT NULL CHECK (value >= 0),
  PRIMARY KEY (destination, name)
) STRICT, WITHOUT ROWID;

-- The audit chain. hash = HMAC over the line and the hash before it.
CREATE TABLE event (
  seq      INTEGER PRIMARY KEY,
  at       INTEGER NOT NULL,
  effect   INTEGER,   -- what the line is about
  key      TEXT,      -- the same, only where the journal has no such effect
  move     INTEGER,   -- transition * 10000 + from * 100 + to, see the view events
  kind     TEXT,      -- NULL = transition
  run      TEXT,
  attempt  TEXT,
  who      ANY,       -- term: actor, kind of actor and origin
  because  ANY,       -- term or text
  evidence BLOB,
  policy   ANY,       -- term
  back     INTEGER,   -- the line before this one about the same effect
  hash     BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;
-- Sealed beginnings of the chain: archived, then pruned.
CREATE TABLE audit_seal (
  last_seq INTEGER PRIMARY KEY,
  hash     BLOB NOT NULL,
  at       INTEGER NOT NULL,
  archive  TEXT NOT NULL
) STRICT;
CREATE TRIGGER event_ins BEFORE INSERT ON event
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), (SELECT coalesce(max(last_seq), 0) FROM audit_seal)) + 1 FROM event)
BEGIN SELECT RAISE(ABORT, 'event.seq must be next'); END;
CREATE TRIGGER event_upd BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'event is append-only'); END;
CREATE TRIGGER event_del BEFORE DELETE ON event WHEN OLD.seq > (SELECT coalesce(max(last_seq), 0) FROM audit_seal)
BEGIN SELECT RAISE(ABORT, 'event is append-only: not sealed'); END;
CREATE TRIGGER seal_upd BEFORE UPDATE ON audit_seal BEGIN SELECT RAISE(ABORT, 'audit_seal is append-only'); END;
CREATE TRIGGER seal_del BEFORE DELETE ON audit_seal BEGIN SELECT RAISE(ABORT, 'audit_seal is append-only'); END;

CREATE TABLE schedule (
  name         TEXT PRIMARY KEY,
  last_nominal INTEGER,
  last_started INTEGER,
  last_ok      INTEGER,
  last_result  TEXT NOT NULL,
  missed       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE sweep_run (
  id          INTEGER PRIMARY KEY,
  schedule    TEXT NOT NULL,
  epoch       INTEGER NOT NULL,
  nominal     INTEGER,
  started_at  INTEGER NOT NULL,
  finished_at INTEGER,
  result      TEXT NOT NULL,
  progress    TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX sweep_open ON sweep_run (schedule) WHERE finished_at IS NULL;

-- Records of people and runs, kept whole.
CREATE TABLE approval (
  id          TEXT PRIMARY KEY,
  fingerprint BLOB NOT NULL,
  state       TEXT NOT NULL,
  body        TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX approval_fingerprint ON approval (fingerprint);
CREATE TABLE repair (
  id     TEXT PRIMARY KEY,
  effect INTEGER NOT NULL,
  state  TEXT NOT NULL,
  body   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX repair_open ON repair (effect) WHERE state = 'open';
CREATE TABLE checkpoint (
  run      TEXT NOT NULL,
  step     TEXT NOT NULL,
  key      TEXT NOT NULL,
  evidence BLOB NOT NULL,
  result   BLOB,
  at       INTEGER NOT NULL,
  PRIMARY KEY (run, step)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER checkpoint_upd BEFORE UPDATE ON checkpoint BEGIN SELECT RAISE(ABORT, 'a checkpoint never changes'); END;
CREATE TABLE run (
  id    TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  at    INTEGER NOT NULL,
  body  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE incident (
  id    TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  body  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Only a settled effect without an open review can go. Its key stays.
CREATE TRIGGER effect_keep BEFORE DELETE ON effect
WHEN OLD.settled_at IS NULL OR EXISTS (SELECT 1 FROM review WHERE effect = OLD.id)
BEGIN SELECT RAISE(ABORT, 'an effect that is not settled cannot be deleted'); END;
CREATE TRIGGER effect_gone AFTER DELETE ON effect BEGIN
  INSERT INTO key_ledger (id, key, fingerprint, object_id, phase, settled_at)
    VALUES (OLD.id, OLD.key, OLD.fingerprint, OLD.object_id, OLD.phase, OLD.settled_at);
  UPDATE counter SET value = value - 1 WHERE destination = OLD.destination AND name = OLD.phase;
  DELETE FROM intent WHERE effect = OLD.id;
  DELETE FROM attempt WHERE id BETWEEN OLD.id * 1048576 AND OLD.id * 1048576 + 1048575;
  DELETE FROM evidence WHERE id BETWEEN OLD.id * 1048576 AND OLD.id * 1048576 + 1048575;
  DELETE FROM reconciliation WHERE id BETWEEN OLD.id * 1048576 AND OLD.id * 1048576 + 1048575;
END;

-- For people with a shell.
CREATE VIEW effects AS
  SELECT key, destination, operation, phase, finding, seq, owner, due_kind, object_id,
         strftime('%Y-%m-%d %H:%M:%f', submitted_at / 1e6, 'unixepoch') AS submitted_at,
         strftime('%Y-%m-%d %H:%M:%f', due_at / 1e6, 'unixepoch') AS due_at,
         strftime('%Y-%m-%d %H:%M:%f', settled_at / 1e6, 'unixepoch') AS settled_at
  FROM effect;
CREATE TABLE phase_number (n INTEGER PRIMARY KEY, phase TEXT NOT NULL) STRICT;
CREATE VIEW events AS
  SELECT seq, strftime('%Y-%m-%d %H:%M:%f', at / 1e6, 'unixepoch') AS at, coalesce(kind, 'transition') AS kind, move / 10000 AS transition,
         coalesce(event.key, (SELECT key FROM effect WHERE id = effect), (SELECT key FROM key_ledger WHERE id = effect)) AS key, attempt,
         (SELECT phase FROM phase_number WHERE n = move / 100 % 100) AS from_phase, (SELECT phase FROM phase_number WHERE n = move % 100) AS to_phase,
         coalesce((SELECT value FROM term WHERE id = who), who) AS who, coalesce((SELECT value FROM term WHERE id = because), because) AS because,
         lower(hex(hash)) AS hash
  FROM event;
