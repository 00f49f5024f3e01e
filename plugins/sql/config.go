package sql

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/plugins/internal/card"
	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// undoSuffix makes the name of the action that takes an operation back.
const undoSuffix = ".undo"

// The drivers, as configured.
const (
	driverPostgres = "postgres"
	driverMySQL    = "mysql"
	driverSQLite   = "sqlite"
)

// defaultTable is where the rows of effects are.
const defaultTable = "settled_effect"

// defaultTimeout bounds each of the server's waits: for COMMIT, and for a statement.
const defaultTimeout = 10 * time.Second

// verifiedOn is when the tests last saw a key refused twice, by PostgreSQL 15,
// MariaDB 10.11 and SQLite 3; Check verifies the key's index each time.
const verifiedOn = "2026-12-01"

// anyRows is a precondition that is not configured.
const anyRows = -1

// configuration is destinations.NAME.with.
type configuration struct {
	driver, dsn     string
	table           []string      // schema and name, or only the name
	statementWait   time.Duration // on the server: one statement
	idleWait        time.Duration // on the server: between two statements
	names           []string      // of operations, sorted
	operations      map[string]*operation
	secretsInDSN    []string // names, in order
	dsnPlaceholders string   // dsn with a token for each credential
}

// write is one statement with what must be true of it.
type write struct {
	statement *statement
	rows      int        // how many it must affect; anyRows = not tested
	holds     *statement // postcondition or verify: one row with a true value; nil = none
}

type operation struct {
	name, summary string
	do, undo      *write
	params        map[string]*value
	object        *statement // gives $row; nil = none
	objectID      *value     // nil = first column of object, else the key
	reversal      sdk.ReversalKind
	consequences  []sdk.Consequence
	sensitive     []string
	humanOnly     bool
}

// builtinParams are the parameters that every statement may use.
func builtinParams() []string {
	return []string{"effect_key", "effect_digest", "effect_attempt", "effect_account", "object_id"}
}

type compiler struct {
	faults *decode.Faults
	driver string
}

func parse(raw []byte, secrets map[string]string, faults *decode.Faults) *configuration {
	with := decode.Parse(raw, faults)
	c := &configuration{
		driver: with.Enum("driver", driverPostgres, driverMySQL, driverSQLite), dsn: with.String("dsn"),
		operations: map[string]*operation{}, statementWait: defaultTimeout, idleWait: defaultTimeout,
	}
	for key, what := range map[string]string{"driver": "postgres, mysql (also MariaDB) or sqlite", "dsn": "where is the database?"} {
		if !with.Has(key) {
			faults.Errorf("/"+key, "is required: %s", what)
		}
	}
	c.parseDSN(secrets, faults)
	c.parseTable(with)
	c.parseTimeouts(with.Object("timeouts"))
	operations := with.Object("operations")
	c.names = operations.Keys()
	if len(c.names) == 0 && !faults.Failed() {
		faults.Errorf("/operations", "at least one operation is needed")
	}
	compile := &compiler{faults: faults, driver: c.driver}
	for _, name := range c.names {
		if strings.HasSuffix(name, undoSuffix) {
			faults.Errorf(operations.Pointer(name), "a name may not end with %q: it is the name of an undo", undoSuffix)
		}
		if o := operations.Object(name); o != nil {
			c.operations[name] = compile.operation(name, o)
		}
	}
	with.Done()
	return c
}

// parseDSN replaces each ${$secret.NAME} by a token. Tokens are exchanged for
// values only in the parsed form, so that no value needs escaping.
func (c *configuration) parseDSN(secrets map[string]string, faults *decode.Faults) {
	reference := regexp.MustCompile(`\$\{\s*\$secret\.([A-Za-z_][A-Za-z0-9_-]*)\s*\}`)
	c.dsnPlaceholders = reference.ReplaceAllStringFunc(c.dsn, func(found string) string {
		name := reference.FindStringSubmatch(found)[1]
		if _, ok := secrets[name]; !ok {
			faults.Add(sdk.Diagnostic{Pointer: "/dsn", Summary: "no credential \"" + name + "\" was given; add it to the destination's credentials", Warning: secrets == nil})
		}
		c.secretsInDSN = append(c.secretsInDSN, name)
		return token(len(c.secretsInDSN) - 1)
	})
	if strings.Contains(c.dsnPlaceholders, "${") {
		faults.Errorf("/dsn", "only ${$secret.NAME} may stand between braces")
	}
	for name, secret := range secrets {
		if len(secret) >= 4 && strings.Contains(c.dsnPlaceholders, secret) {
			faults.Errorf("/dsn", "holds the credential %q itself; write ${$secret.%s}", name, name)
		}
	}
}

func (c *configuration) parseTable(with *decode.Object) {
	table := with.String("table")
	if table == "" {
		table = defaultTable
	}
	c.table = strings.Split(table, ".")
	plainName := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
	if len(c.table) > 2 || slices.ContainsFunc(c.table, func(s string) bool { return !plainName.MatchString(s) }) {
		with.Faults().Errorf("/table", "must be a name, or schema.name, of letters, digits and _")
	}
	if len(c.table) > 1 && c.driver == driverSQLite {
		with.Faults().Errorf("/table", "has no schema in SQLite")
	}
}

func (c *configuration) parseTimeouts(o *decode.Object) {
	for key, to := range map[string]*time.Duration{"statement": &c.statementWait, "idle": &c.idleWait} {
		if d := o.Duration(key); d != nil {
			*to = *d
			if *d < time.Second || *d > 10*time.Minute {
				o.Faults().Errorf(o.Pointer(key), "must be from 1s to 10m; it bounds how late an unanswered commit can land")
			}
		}
	}
	o.Done()
}

// lateBound is how long after the last connection is gone a COMMIT that was on
// its way can still land: it must arrive within idle and end within statement.
func (c *configuration) lateBound() time.Duration {
	if c.driver == driverSQLite {
		return 0 // a transaction ends with the process
	}
	return c.idleWait + c.statementWait
}

func (c *compiler) operation(name string, o *decode.Object) *operation {
	op := &operation{name: name, summary: o.String("summary"), params: map[string]*value{}}
	params := o.Object("parameters")
	for _, key := range params.Keys() {
		op.params[key] = c.value(params, key)
		if slices.Contains(builtinParams(), key) {
			c.faults.Errorf(params.Pointer(key), ":%s is given by settled and cannot be another value", key)
		}
	}
	if !o.Has("statement") {
		c.faults.Errorf(o.Pointer("statement"), "is required: what does %s write?", name)
	}
	op.do = &write{statement: c.statement(o, "statement", false, op), rows: anyRows}
	if p := o.Object("precondition"); p != nil {
		op.do.rows = c.rows(p)
		p.Done()
	}
	op.do.holds = c.statement(o, "postcondition", true, op)
	op.object = c.statement(o, "object", true, op)
	op.objectID = c.value(o, "object_id")
	if u := o.Object("undo"); u != nil {
		op.undo = c.undo(u, op)
	}
	op.reversal = card.ParseReversal(o)
	op.consequences = card.ParseConsequences(o)
	op.sensitive = o.Strings("sensitive")
	op.humanOnly = o.Bool("human_only")
	c.crossCheck(o, params, op)
	o.Done()
	return op
}

func (c *compiler) undo(u *decode.Object, op *operation) *write {
	if !u.Has("statement") {
		c.faults.Errorf(u.Pointer("statement"), "is required: what takes %s back?", op.name)
	}
	w := &write{statement: c.statement(u, "statement", false, op), rows: anyRows}
	if u.Has("rows") {
		w.rows = c.rows(u)
	}
	w.holds = c.statement(u, "verify", true, op)
	if !u.Has("verify") {
		c.faults.Warnf(u.Pointer("verify"), "without verify an undo is believed when its row is there")
	}
	u.Done()
	return w
}

// rows reads how many rows a statement must affect.
func (c *compiler) rows(o *decode.Object) int {
	if !o.Has("rows") {
		c.faults.Errorf(o.Pointer("rows"), "is required: how many rows must the statement affect?")
		return anyRows
	}
	return o.Int("rows", 0, 1<<30)
}

func (c *compiler) statement(o *decode.Object, key string, query bool, op *operation) *statement {
	source := o.String(key)
	if source == "" {
		return nil
	}
	st, err := parseStatement(source, c.driver, query)
	if err != nil {
		c.faults.Errorf(o.Pointer(key), "%v", err)
		return nil
	}
	known := builtinParams()
	for name := range op.params {
		known = append(known, name)
	}
	slices.Sort(known)
	for _, name := range st.names {
		if !slices.Contains(known, name) {
			c.faults.Errorf(o.Pointer(key), "parameters gives no value for :%s%s", name, decode.Suggestion(name, known))
		}
	}
	return st
}

func (c *compiler) value(o *decode.Object, key string) *value {
	source := o.String(key)
	if source == "" {
		return nil
	}
	v, err := parseValue(source)
	if err != nil {
		c.faults.Errorf(o.Pointer(key), "neither a JSON pointer nor a jq program (variables: %s): %v", strings.Join(variables(), ", "), err)
		return nil
	}
	return v
}

// crossCheck finds what no single key can get wrong.
func (c *compiler) crossCheck(o, params *decode.Object, op *operation) {
	used := map[string]bool{}
	statements := []*statement{op.do.statement, op.do.holds, op.object}
	if op.undo != nil {
		statements = append(statements, op.undo.statement, op.undo.holds)
	}
	for _, st := range statements {
		if st != nil {
			for _, name := range st.names {
				used[name] = true
			}
		}
	}
	for name, v := range op.params {
		if !used[name] {
			c.faults.Warnf(params.Pointer(name), "no statement uses :%s", name)
		}
		if v != nil && v.code != nil && strings.Contains(v.source, "$row") {
			c.faults.Errorf(params.Pointer(name), "$row is known only to object_id")
		}
	}
	if op.objectID != nil && strings.Contains(op.objectID.source, "$row") && op.object == nil {
		c.faults.Errorf(o.Pointer("object"), "object_id uses $row, which object gives: a SELECT of the object by :effect_key")
	}
	switch {
	case op.reversal == sdk.Reversible && op.undo == nil:
		c.faults.Errorf(o.Pointer("undo"), "reversible needs an undo, or say irreversible")
	case op.reversal == sdk.Compensatable && op.undo == nil:
		c.faults.Warnf(o.Pointer("undo"), "compensatable without an undo: a person compensates")
	case op.reversal <= sdk.Irreversible && op.undo != nil:
		c.faults.Warnf(o.Pointer("reversible"), "there is an undo, but the operation is not called reversible or compensatable; the undo is not offered")
	}
}

// actions are the capability cards of every operation and every undo.
func (c *configuration) actions() []sdk.ActionSpec {
	var list []sdk.ActionSpec
	for _, name := range c.names {
		op := c.operations[name]
		spec := c.spec(name, op.do)
		spec.Summary, spec.Sensitive, spec.HumanOnly = op.summary, op.sensitive, op.humanOnly
		if spec.Summary == "" {
			spec.Summary = op.do.statement.source
		}
		spec.Reversal.Kind = op.reversal
		if op.reversal == sdk.ReversalUnspecified {
			spec.Reversal.Kind = sdk.Irreversible
		}
		if op.undo != nil && spec.Reversal.Kind != sdk.Irreversible {
			spec.Reversal.Action = name + undoSuffix
		}
		if len(op.consequences) > 0 {
			spec.Consequences = op.consequences
		}
		list = append(list, spec)
		if op.undo != nil {
			undo := c.spec(name+undoSuffix, op.undo)
			undo.Summary, undo.Reversal.Kind = "takes "+name+" back: "+op.undo.statement.source, sdk.Irreversible
			list = append(list, undo)
		}
	}
	return list
}

func (c *configuration) spec(name string, w *write) sdk.ActionSpec {
	bound := c.lateBound()
	spec := sdk.ActionSpec{
		Name: name,
		Idempotency: sdk.Idempotency{
			Mode: sdk.IdempotencyKey, SameKeyOtherPayload: sdk.MismatchRejects, KeyMaxBytes: 255,
			KeyScope: "the table " + strings.Join(c.table, "."), Covers: []string{"record"}, VerifiedOn: verifiedOn,
		},
		Read: sdk.ReadSpec{
			Lookup: sdk.LookupByKey, Authority: sdk.Authoritative, ProvesAbsence: true, View: strings.Join(c.table, "."),
			Permissions: []string{"select on " + strings.Join(c.table, ".")},
		},
		LateEffectBound: &bound, Outcomes: outcomes(c.driver), Consequences: []sdk.Consequence{sdk.ConsequenceWrite},
	}
	if w.holds != nil {
		spec.Postcondition = w.holds.source
	}
	return spec
}
