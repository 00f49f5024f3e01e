package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/settled-dev/settled/journal"
)

// Records of people and runs are stored whole, as JSON of their stored form.

type approvalRow struct {
	Destination string `json:"destination"`
	Action      string `json:"action"`
	By          string `json:"by,omitempty"`
	Scope       string `json:"scope,omitempty"`
	GrantedAt   micros `json:"granted_at,omitempty"`
	ExpiresAt   micros `json:"expires_at,omitempty"`
	Uses        int    `json:"uses,omitempty"`
	Used        int    `json:"used,omitempty"`
}

// PutApproval stores an approval. A fingerprint never changes under an id.
func (tx *Tx) PutApproval(a journal.Approval) error {
	body, err := encode(approvalRow{a.Destination, a.Action, a.By, a.Scope, us(a.GrantedAt), us(a.ExpiresAt), a.Uses, a.Used})
	if err != nil {
		return err
	}
	if err := tx.begin(); err != nil {
		return err
	}
	n, err := tx.db.w.exec(`INSERT INTO approval (id, fingerprint, state, body) VALUES (?1,?2,?3,?4)
		ON CONFLICT DO UPDATE SET state=?3, body=?4 WHERE fingerprint=?2`, a.ID, pack(a.Fingerprint), string(a.State), body)
	if err == nil && n == 0 {
		err = fmt.Errorf("approval %s is bound to another fingerprint", a.ID)
	}
	return tx.seen(err)
}

func approvalFrom(r row) (journal.Approval, error) {
	var b approvalRow
	if err := json.Unmarshal([]byte(r.str(3)), &b); err != nil {
		return journal.Approval{}, fmt.Errorf("approval %s: %w: %w", r.str(0), ErrCorrupt, err)
	}
	return journal.Approval{
		ID: r.str(0), Fingerprint: unpack(r.blob(1)), State: journal.ApprovalState(r.str(2)), Destination: b.Destination,
		Action: b.Action, By: b.By, Scope: b.Scope, GrantedAt: b.GrantedAt.time(), ExpiresAt: b.ExpiresAt.time(), Uses: b.Uses, Used: b.Used,
	}, nil
}

const sqlApproval = "SELECT id, fingerprint, state, body FROM approval"

// Approval returns an approval, or [ErrNotFound].
func (tx *Tx) Approval(id string) (journal.Approval, error) {
	r, err := tx.db.w.one(context.Background(), sqlApproval+" WHERE id=?", id)
	if err != nil {
		return journal.Approval{}, tx.seen(err)
	}
	return approvalFrom(r)
}

// Approvals lists the approvals of a fingerprint.
func (db *DB) Approvals(ctx context.Context, fingerprint string) (out []journal.Approval, err error) {
	err = db.read(ctx, func(c *conn) error {
		return c.each(ctx, sqlApproval+" WHERE fingerprint=? ORDER BY id", []any{pack(fingerprint)}, func(r row) error {
			a, err := approvalFrom(r)
			out = append(out, a)
			return err
		})
	})
	return out, err
}

type runRow struct {
	Trigger  string   `json:"trigger,omitempty"`
	Workflow string   `json:"workflow,omitempty"`
	Version  string   `json:"version,omitempty"`
	Why      string   `json:"why,omitempty"`
	Steps    []string `json:"steps,omitempty"`
}

// PutRun stores a run.
func (tx *Tx) PutRun(r journal.Run) error {
	body, err := encode(runRow{r.Trigger, r.Workflow, r.Version, r.Why, r.Steps})
	if err != nil {
		return err
	}
	return tx.putRecord(`INSERT INTO run (id, state, at, body) VALUES (?1,?2,?3,?4) ON CONFLICT DO UPDATE SET state=?2, body=?4`,
		r.ID, string(r.State), us(r.At), body)
}

// Runs lists runs, newest first, at most limit (0 = 100). An id selects one.
func (db *DB) Runs(ctx context.Context, id string, limit int) (out []journal.Run, err error) {
	if limit <= 0 {
		limit = 100
	}
	w := where{}
	if id != "" {
		w.add("id = ?", id)
	}
	err = db.read(ctx, func(c *conn) error {
		return c.each(ctx, "SELECT id, state, at, body FROM run"+w.sql()+" ORDER BY at DESC, id LIMIT ?", append(w.vals, limit), func(r row) error {
			var b runRow
			err := json.Unmarshal([]byte(r.str(3)), &b)
			out = append(out, journal.Run{
				ID: r.str(0), State: journal.RunState(r.str(1)), At: micros(r.int(2)).time(), Trigger: b.Trigger, Workflow: b.Workflow,
				Version: b.Version, Why: b.Why, Steps: b.Steps,
			})
			return err
		})
	})
	return out, err
}

// Checkpoints lists the verified steps of a run, in the order of their time.
func (db *DB) Checkpoints(ctx context.Context, run string) (out []journal.Checkpoint, err error) {
	err = db.read(ctx, func(c *conn) error {
		return c.each(ctx, "SELECT step, key, evidence, result, at FROM checkpoint WHERE run=? ORDER BY at, step", []any{run}, func(r row) error {
			out = append(out, journal.Checkpoint{
				Run: run, Step: r.str(0), Key: r.str(1), Evidence: unpack(r.blob(2)), Result: r.blob(3), At: micros(r.int(4)).time(),
			})
			return nil
		})
	})
	return out, err
}

type incidentRow struct {
	Owner       string   `json:"owner,omitempty"`
	Severity    string   `json:"severity,omitempty"`
	Effects     []string `json:"effects,omitempty"`
	ContainedAt micros   `json:"contained_at,omitempty"`
	Cause       string   `json:"cause,omitempty"`
	Decision    string   `json:"decision,omitempty"`
	Fix         string   `json:"fix,omitempty"`
	FixOwner    string   `json:"fix_owner,omitempty"`
	FixDue      micros   `json:"fix_due,omitempty"`
	Case        string   `json:"case,omitempty"`
}

// PutIncident stores an incident.
func (tx *Tx) PutIncident(i journal.Incident) error {
	body, err := encode(incidentRow{
		i.Owner, string(i.Severity), i.Effects, us(i.ContainedAt), i.Cause, i.Decision, i.Fix, i.FixOwner, us(i.FixDue), i.Case,
	})
	if err != nil {
		return err
	}
	return tx.putRecord("INSERT INTO incident (id, state, body) VALUES (?1,?2,?3) ON CONFLICT DO UPDATE SET state=?2, body=?3",
		i.ID, string(i.State), body)
}

func (tx *Tx) putRecord(query string, vals ...any) error {
	if err := tx.begin(); err != nil {
		return err
	}
	_, err := tx.db.w.exec(query, vals...)
	return tx.seen(err)
}

func incidentFrom(r row) (journal.Incident, error) {
	var b incidentRow
	if err := json.Unmarshal([]byte(r.str(2)), &b); err != nil {
		return journal.Incident{}, fmt.Errorf("incident %s: %w: %w", r.str(0), ErrCorrupt, err)
	}
	return journal.Incident{
		ID: r.str(0), State: journal.IncidentState(r.str(1)), Owner: b.Owner, Severity: journal.Severity(b.Severity), Effects: b.Effects,
		ContainedAt: b.ContainedAt.time(), Cause: b.Cause, Decision: b.Decision, Fix: b.Fix, FixOwner: b.FixOwner,
		FixDue: b.FixDue.time(), Case: b.Case,
	}, nil
}

const sqlIncident = "SELECT id, state, body FROM incident"

// Incident returns an incident, or [ErrNotFound].
func (tx *Tx) Incident(id string) (journal.Incident, error) {
	r, err := tx.db.w.one(context.Background(), sqlIncident+" WHERE id=?", id)
	if err != nil {
		return journal.Incident{}, tx.seen(err)
	}
	return incidentFrom(r)
}

// Incidents lists incidents by id, newest first where ids grow with time, at most limit (0 = 100).
func (db *DB) Incidents(ctx context.Context, limit int) (out []journal.Incident, err error) {
	if limit <= 0 {
		limit = 100
	}
	err = db.read(ctx, func(c *conn) error {
		return c.each(ctx, sqlIncident+" ORDER BY id DESC LIMIT ?", []any{limit}, func(r row) error {
			i, err := incidentFrom(r)
			out = append(out, i)
			return err
		})
	})
	return out, err
}
