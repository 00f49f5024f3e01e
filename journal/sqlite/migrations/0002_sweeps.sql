-- What people decided is read again by audits, and kept longer: they are few
-- lines among many.
CREATE INDEX event_decision ON event (seq) WHERE kind = 'decision';

-- The runs of one schedule, newest first.
CREATE INDEX sweep_schedule ON sweep_run (schedule, id);

-- Messages of destinations that were taken up. A second delivery of the same
-- one changes nothing; it is kept for longer than any replay window.
CREATE TABLE webhook (
  destination TEXT NOT NULL,
  event_id    TEXT NOT NULL,
  at          INTEGER NOT NULL,  -- when it was taken up
  key         TEXT NOT NULL,     -- the effect that it was about; '' = of none of ours
  PRIMARY KEY (destination, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX webhook_at ON webhook (at);
