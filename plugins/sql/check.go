package sql

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// Check connects, verifies the table with its key and privileges, and lets the
// server plan every statement of the given actions (all of them when none are
// given) without running it. It only reads.
func (a *Adapter) Check(ctx context.Context, actions []string) (sdk.Health, error) {
	s := a.configured()
	if s == nil {
		return sdk.Health{Status: sdk.HealthDown, Diagnostics: []sdk.Diagnostic{{Summary: notConfigured}}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	faults := &decode.Faults{}
	on, err := s.db.open(ctx)
	if err != nil {
		faults.Errorf("/dsn", "no connection: %s", s.text(s.db.classify(err).message, 512))
		return sdk.Health{Status: sdk.HealthDown, Diagnostics: faults.List}, nil
	}
	defer on.close()
	health := sdk.Health{Status: sdk.HealthOK}
	if s.checkTable(ctx, on, faults) {
		health.Permissions = []string{"select on " + strings.Join(s.cfg.table, ".")}
	}
	if !faults.Failed() {
		s.checkStatements(ctx, on, actions, faults)
	}
	if faults.Failed() {
		health.Status = sdk.HealthDegraded
	}
	health.Diagnostics, health.ClockSkew = faults.List, nil
	for i := range health.Diagnostics {
		health.Diagnostics[i].Summary = s.text(health.Diagnostics[i].Summary, 1024)
	}
	return health, nil
}

// checkTable reports whether every row can be seen.
func (s *state) checkTable(ctx context.Context, on *session, faults *decode.Faults) bool {
	fail := func(err error) bool {
		faults.Errorf("/table", "%s; it must be: %s", s.db.classify(err).message, tableDefinition(s.cfg.driver, strings.Join(s.cfg.table, ".")))
		return false
	}
	seen, err := s.db.guard(ctx, on)
	if err != nil {
		return fail(err)
	}
	if !seen.complete {
		faults.Errorf("/table", "an absence cannot be proved: %s", seen.how)
	}
	if _, _, err := on.object(ctx, s.queries.columns, nil); err != nil {
		return fail(err)
	}
	if err := s.db.examine(ctx, on, faults); err != nil {
		return fail(err)
	}
	// Planning the adapter's own statements needs the privileges that they need.
	now := s.db.moment(time.Now())
	if _, _, err := on.object(ctx, "EXPLAIN "+s.queries.insert, []any{"", "", "", now}); err != nil {
		return fail(err)
	}
	return seen.complete
}

// checkStatements plans the operator's statements with NULL for every value.
func (s *state) checkStatements(ctx context.Context, on *session, actions []string, faults *decode.Faults) {
	for _, name := range s.cfg.names {
		if len(actions) > 0 && !slices.Contains(actions, name) && !slices.Contains(actions, name+undoSuffix) {
			continue
		}
		op, at := s.cfg.operations[name], "/operations/"+name
		s.plan(ctx, on, op.do.statement, at+"/statement", faults)
		s.plan(ctx, on, op.do.holds, at+"/postcondition", faults)
		s.plan(ctx, on, op.object, at+"/object", faults)
		if op.undo != nil {
			s.plan(ctx, on, op.undo.statement, at+"/undo/statement", faults)
			s.plan(ctx, on, op.undo.holds, at+"/undo/verify", faults)
		}
	}
}

func (s *state) plan(ctx context.Context, on *session, st *statement, pointer string, faults *decode.Faults) {
	if st == nil || strings.HasPrefix(strings.ToUpper(strings.TrimSpace(st.source)), "CALL") {
		return // a procedure has no plan
	}
	if _, _, err := on.object(ctx, "EXPLAIN "+st.render(s.db.placeholder), make([]any, len(st.names))); err != nil {
		faults.Errorf(pointer, "the database would refuse it: %s", s.db.classify(err).message)
	}
}

// tableDefinition is what to create when the table is not as it must be.
func tableDefinition(driver, table string) string {
	switch driver {
	case driverPostgres:
		return "CREATE TABLE " + table + " (key varchar(255) PRIMARY KEY, digest varchar(80) NOT NULL, attempt varchar(255) NOT NULL, at timestamptz NOT NULL)"
	case driverMySQL:
		return "CREATE TABLE " + table + " (`key` varbinary(255) PRIMARY KEY, digest varchar(80) NOT NULL, attempt varbinary(255) NOT NULL, at datetime(6) NOT NULL) ENGINE=InnoDB"
	}
	return "CREATE TABLE " + table + " (key TEXT PRIMARY KEY NOT NULL, digest TEXT NOT NULL, attempt TEXT NOT NULL, at TEXT NOT NULL)"
}
