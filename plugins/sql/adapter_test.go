package sql_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/settled-dev/settled/plugins/sql"
	"github.com/settled-dev/settled/sdk"
)

// config is destinations.NAME.with of every test; edit changes it.
func (d *database) config(addr string, edit func(map[string]any)) []byte {
	placeholder := map[string]any{
		"driver": d.driver, "dsn": d.dsn(addr), "timeouts": map[string]any{"idle": "2s", "statement": "2s"},
		"operations": map[string]any{
			"pay": map[string]any{
				"statement": "INSERT INTO payment (id, dispatch_key, payee, cents, rate, paid, state) " +
					"VALUES (:id, :effect_key, :payee, :cents, :rate, :paid, 'new') -- :no",
				"parameters": map[string]any{"id": `"P-" + $effect.key`, "payee": "/payee", "cents": "/amount/cents", "rate": ".rate", "paid": "$payload.paid"},
				"object":     "SELECT id, state FROM payment WHERE dispatch_key = :effect_key", "object_id": "$row.id",
				"postcondition": "SELECT count(*) = 1 AS ok FROM payment WHERE id = :object_id AND state = 'new'",
				"reversible":    "compensatable",
				"undo": map[string]any{
					"statement": "UPDATE payment SET state = 'voided' WHERE id = :object_id AND state = 'new'", "rows": 1,
					"verify": "SELECT state = 'voided' AS voided FROM payment WHERE id = :object_id",
				},
			},
			"close": map[string]any{
				"statement": "UPDATE payment SET state = 'closed' WHERE id = :id AND state = 'new'", "parameters": map[string]any{"id": "/id"},
				"precondition": map[string]any{"rows": 1}, "object_id": "/id", "reversible": "irreversible",
			},
		},
	}
	if edit != nil {
		edit(placeholder)
	}
	raw, err := json.Marshal(placeholder)
	if err != nil {
		panic(err)
	}
	return raw
}

func (d *database) secrets() map[string]string {
	if d.driver == "sqlite" {
		return map[string]string{}
	}
	return map[string]string{"db": d.secret}
}

func (d *database) adapter(t *testing.T, addr string, edit func(map[string]any)) *sql.Adapter {
	t.Helper()
	a := sql.New().(*sql.Adapter)
	c, err := a.Configure(context.Background(), sdk.Configuration{Destination: "shop", Config: d.config(addr, edit), Secrets: d.secrets()})
	if err != nil {
		t.Fatal(err)
	}
	for _, diagnostic := range c.Diagnostics {
		t.Fatalf("%+v", diagnostic)
	}
	return a
}

const payload = `{"payee":"o'hara; DROP TABLE payment; --","amount":{"cents":1250},"rate":1.125,"paid":true}`

func operation(action, key, body string) sdk.Operation {
	sum := sha256.Sum256([]byte(body))
	return sdk.Operation{ID: key, Attempt: 1, Action: action, Key: key, Marker: key, Payload: []byte(body), PayloadSHA256: sum[:], AttemptID: key + "-1"}
}

func dispatch(t *testing.T, a *sql.Adapter, o sdk.Operation, revision string) sdk.Response {
	t.Helper()
	r, err := a.Dispatch(context.Background(), sdk.DispatchRequest{Operation: o, Deadline: time.Now().Add(20 * time.Second), ExpectedRevision: revision})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Evidence) > 0 && strings.Contains(fmt.Sprint(r.Evidence, r.Outcome), "p@ss") {
		t.Fatalf("the credential is in the evidence: %v", r.Evidence)
	}
	return r
}

func read(t *testing.T, a *sql.Adapter, o sdk.Operation) sdk.ReadResponse {
	t.Helper()
	r, err := a.Read(context.Background(), sdk.ReadRequest{Purpose: sdk.PurposeResolve, Operation: o})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// settledRead reads until no transaction is open.
func settledRead(t *testing.T, a *sql.Adapter, o sdk.Operation) sdk.ReadResponse {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		r := read(t, a, o)
		if _, pending := r.Finding.(*sdk.Pending); !pending {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatal("the transaction stays open")
		}
	}
}

func outcome[T sdk.Outcome](t *testing.T, r sdk.Response) T {
	t.Helper()
	o, ok := r.Outcome.(T)
	if !ok {
		t.Fatalf("outcome %T %+v, evidence %+v", r.Outcome, r.Outcome, r.Evidence)
	}
	return o
}

func finding[T sdk.Finding](t *testing.T, r sdk.ReadResponse) T {
	t.Helper()
	f, ok := r.Finding.(T)
	if !ok {
		t.Fatalf("finding %T %+v, evidence %+v", r.Finding, r.Finding, r.Evidence)
	}
	return f
}

func same(t *testing.T, r sdk.ReadResponse, id string) {
	t.Helper()
	found := finding[*sdk.Found](t, r)
	if len(found.Matches) != 1 {
		t.Fatalf("%d matches", len(found.Matches))
	}
	m := found.Matches[0]
	if m.Agreement != sdk.AgreementSame || m.Strength != sdk.StrengthKey || m.Object.ID != id || m.Void {
		t.Fatalf("match %+v, want %s", m, id)
	}
	if age := time.Since(m.CreatedAt); age < -time.Second || age > 2*time.Minute {
		t.Fatalf("created %s", m.CreatedAt)
	}
	if r.Postcondition.State != sdk.PostconditionHolds && r.Postcondition.State != sdk.PostconditionUnspecified {
		t.Fatalf("postcondition %+v", r.Postcondition)
	}
}

func provesAbsence(t *testing.T, r sdk.ReadResponse) {
	t.Helper()
	finding[*sdk.NoneSeen](t, r)
	if r.Authority != sdk.Authoritative || r.Coverage != sdk.CoverageComplete || r.View == nil || !r.View.VisibilityProven {
		t.Fatalf("authority %d coverage %d view %+v", r.Authority, r.Coverage, r.View)
	}
}

func (d *database) payments(t *testing.T) int {
	t.Helper()
	return d.count(t, "SELECT count(*) FROM payment")
}

func TestPostgreSQL(t *testing.T) {
	d := startPostgres(t)
	suite(t, d)
	overTheWire(t, d)
	t.Run("the recipe works as it stands", func(t *testing.T) { recipeWorks(t, d) })
	t.Run("row-level security proves no absence", func(t *testing.T) {
		d.fresh(t)
		d.exec(t, "ALTER TABLE settled_effect ENABLE ROW LEVEL SECURITY")
		r := read(t, d.adapter(t, d.addr, nil), operation("pay", "k1", payload))
		finding[*sdk.NoneSeen](t, r)
		if r.Coverage == sdk.CoverageComplete || r.View.VisibilityProven {
			t.Fatalf("coverage %d, view %+v", r.Coverage, r.View)
		}
	})
	t.Run("a statement that may not be run is a matter of permission", func(t *testing.T) {
		d.fresh(t)
		d.exec(t, "REVOKE INSERT ON payment FROM app")
		rejected := outcome[*sdk.Rejected](t, dispatch(t, d.adapter(t, d.addr, nil), operation("pay", "k1", payload), ""))
		if rejected.Reason != sdk.ReasonPermission || rejected.Code != "42501" {
			t.Fatalf("%+v", rejected)
		}
	})
	t.Run("a statement that runs too long is ended by the server", func(t *testing.T) {
		d.fresh(t)
		a := d.adapter(t, d.addr, func(c map[string]any) {
			c["timeouts"] = map[string]any{"statement": "1s"}
			op := c["operations"].(map[string]any)["close"].(map[string]any)
			op["statement"] = "SELECT pg_sleep(30), :id"
		})
		busy := outcome[*sdk.NotExecuted](t, dispatch(t, a, operation("close", "k1", `{"id":"x"}`), ""))
		if busy.Basis != sdk.BasisBusy || !strings.Contains(busy.Message, "57014") {
			t.Fatalf("%+v", busy)
		}
		if n := d.count(t, "SELECT count(*) FROM settled_effect"); n != 0 {
			t.Fatalf("%d rows", n)
		}
	})
}

// recipe is destinations.ledger.with of the recipe, at another address.
func recipe(t *testing.T, dsn string) []byte {
	t.Helper()
	raw, err := os.ReadFile("../recipes/sql/settled.toml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Destinations map[string]struct {
			With map[string]any `toml:"with"`
		} `toml:"destinations"`
	}
	if err := toml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	with := file.Destinations["ledger"].With
	if dsn != "" {
		with["dsn"] = dsn
	}
	config, err := json.Marshal(with)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestTheRecipeIsAConfiguration(t *testing.T) {
	c, err := sql.New().Configure(context.Background(), sdk.Configuration{Config: recipe(t, ""), Secrets: map[string]string{"ledger": "another word"}})
	if err != nil || len(c.Diagnostics) != 0 || len(c.Actions) != 2 || c.Identity != "settled@db.example.org:5432/ledger" {
		t.Fatalf("%+v %v", c, err)
	}
}

func recipeWorks(t *testing.T, d *database) {
	d.fresh(t)
	d.exec(t, "DROP TABLE payment")
	d.exec(t, "CREATE TABLE payment (id serial PRIMARY KEY, dispatch_key text UNIQUE, payee text, amount_cents int, currency text, voided_at timestamptz)")
	d.exec(t, "GRANT ALL ON payment, payment_id_seq TO app")
	a := sql.New().(*sql.Adapter)
	if c, err := a.Configure(context.Background(), sdk.Configuration{Config: recipe(t, d.dsn(d.addr)), Secrets: d.secrets()}); err != nil || len(c.Diagnostics) > 0 {
		t.Fatalf("%+v %v", c, err)
	}
	if words := checkWords(t, a, sdk.HealthOK); words != "" {
		t.Fatal(words)
	}
	o := operation("pay", "k1", payload)
	done := outcome[*sdk.Committed](t, dispatch(t, a, o, ""))
	if done.Object.ID != "1" {
		t.Fatalf("%+v", done)
	}
	same(t, read(t, a, o), "1")
	undo := operation("pay.undo", "u1", payload)
	undo.Target = &done.Object
	outcome[*sdk.Committed](t, dispatch(t, a, undo, ""))
	if r := read(t, a, undo); r.Postcondition.State != sdk.PostconditionHolds {
		t.Fatalf("%+v", r)
	}
	d.exec(t, "DROP TABLE payment")
}

func TestMariaDB(t *testing.T) {
	d := startMariaDB(t)
	d.exec(t, "SET GLOBAL sql_mode = ''") // as old servers are: it must not matter
	suite(t, d)
	overTheWire(t, d)
	t.Run("check refuses a table without transactions and one that folds case", func(t *testing.T) {
		d.fresh(t)
		d.exec(t, "DROP TABLE settled_effect")
		d.exec(t, "CREATE TABLE settled_effect (`key` varchar(200) COLLATE utf8mb4_general_ci PRIMARY KEY, digest text, attempt text, at datetime(6)) ENGINE=MyISAM")
		d.exec(t, "ALTER TABLE payment ENGINE=Aria")
		words := checkWords(t, d.adapter(t, d.addr, nil), sdk.HealthDegraded)
		for _, want := range []string{"/operations/pay/statement: the table payment is of the engine Aria", "/operations/pay/undo/statement: the table payment", "only InnoDB rolls back", "make it varbinary(255)"} {
			if !strings.Contains(words, want) {
				t.Errorf("%q is not in %s", want, words)
			}
		}
	})
}

func TestSQLite(t *testing.T) {
	d := startSQLite(t)
	suite(t, d)
	t.Run("another writer makes a read pending and a dispatch wait", func(t *testing.T) {
		d.fresh(t)
		a := d.adapter(t, "", func(c map[string]any) { c["timeouts"] = map[string]any{"statement": "1s"} })
		conn, err := d.admin.Conn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		o := operation("pay", "k1", payload)
		finding[*sdk.Pending](t, read(t, a, o))
		if busy := outcome[*sdk.NotExecuted](t, dispatch(t, a, o, "")); busy.Basis != sdk.BasisBusy {
			t.Fatalf("%+v", busy)
		}
		if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		outcome[*sdk.Committed](t, dispatch(t, a, o, ""))
	})
	t.Run("a file that is not there does not come into being", func(t *testing.T) {
		a := d.adapter(t, "", func(c map[string]any) { c["dsn"] = t.TempDir() + "/none.db" })
		rejected := outcome[*sdk.Rejected](t, dispatch(t, a, operation("pay", "k1", payload), ""))
		if rejected.Reason != sdk.ReasonNotFound || !rejected.WholeDestination {
			t.Fatalf("%+v", rejected)
		}
	})
}

func checkWords(t *testing.T, a *sql.Adapter, want sdk.HealthStatus) string {
	t.Helper()
	h, err := a.Check(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, diagnostic := range h.Diagnostics {
		words = append(words, diagnostic.Pointer+": "+diagnostic.Summary)
	}
	if h.Status != want {
		t.Fatalf("status %d: %s", h.Status, strings.Join(words, "\n"))
	}
	return strings.Join(words, "\n")
}

// suite is what every database must do.
func suite(t *testing.T, d *database) {
	t.Run("a payment is made once, read back and undone", func(t *testing.T) { once(t, d) })
	t.Run("what the database refuses is not executed", func(t *testing.T) { refused(t, d) })
	t.Run("another payload under the same key is a conflict", func(t *testing.T) {
		d.fresh(t)
		a := d.adapter(t, d.addr, nil)
		outcome[*sdk.Committed](t, dispatch(t, a, operation("pay", "k1", payload), ""))
		other := operation("pay", "k1", strings.Replace(payload, "1250", "1251", 1))
		if r := outcome[*sdk.Rejected](t, dispatch(t, a, other, "")); r.Reason != sdk.ReasonKeyReused {
			t.Fatalf("%+v", r)
		}
		if m := finding[*sdk.Found](t, read(t, a, other)).Matches[0]; m.Agreement != sdk.AgreementDiffers {
			t.Fatalf("%+v", m)
		}
	})
	t.Run("an object that has gone since is partial", func(t *testing.T) {
		d.fresh(t)
		a := d.adapter(t, d.addr, nil)
		o := operation("pay", "k1", payload)
		outcome[*sdk.Committed](t, dispatch(t, a, o, ""))
		d.exec(t, "DELETE FROM payment")
		if m := finding[*sdk.Found](t, read(t, a, o)).Matches[0]; m.Agreement != sdk.AgreementPartial {
			t.Fatalf("%+v", m)
		}
	})
	t.Run("a fence keeps earlier requests out and lets the next attempt in", func(t *testing.T) { fence(t, d) })
	t.Run("check finds what is missing", func(t *testing.T) { check(t, d) })
}

func once(t *testing.T, d *database) {
	d.fresh(t)
	a := d.adapter(t, d.addr, nil)
	o := operation("pay", "k:1/ü", payload)
	provesAbsence(t, read(t, a, o))
	committed := outcome[*sdk.Committed](t, dispatch(t, a, o, ""))
	if committed.Object.ID != "P-k:1/ü" {
		t.Fatalf("%+v", committed)
	}
	same(t, read(t, a, o), "P-k:1/ü")
	var payee, rate string
	var cents int
	var paid bool
	if err := d.admin.QueryRow("SELECT payee, cents, rate, paid FROM payment").Scan(&payee, &cents, &rate, &paid); err != nil {
		t.Fatal(err)
	}
	if payee != "o'hara; DROP TABLE payment; --" || cents != 1250 || rate != "1.125" || !paid {
		t.Fatalf("%q %d %s %v", payee, cents, rate, paid)
	}
	if r := outcome[*sdk.Rejected](t, dispatch(t, a, o, "")); r.Reason != sdk.ReasonKeyReused {
		t.Fatalf("%+v", r)
	}
	undo := operation("pay.undo", "repair-1", payload)
	undo.Target = &committed.Object
	provesAbsence(t, read(t, a, undo))
	if c := outcome[*sdk.Committed](t, dispatch(t, a, undo, "")); c.Object.ID != committed.Object.ID {
		t.Fatalf("%+v", c)
	}
	r := read(t, a, undo)
	same(t, r, committed.Object.ID)
	if r.Postcondition.State != sdk.PostconditionHolds {
		t.Fatalf("%+v", r.Postcondition)
	}
	if r := read(t, a, o); r.Postcondition.State != sdk.PostconditionFails {
		t.Fatalf("the postcondition of the payment after its undo: %+v", r.Postcondition)
	}
}

func refused(t *testing.T, d *database) {
	d.fresh(t)
	a := d.adapter(t, d.addr, nil)
	for name, body := range map[string]string{
		"a check constraint":    strings.Replace(payload, "1250", "-1", 1),
		"a null":                strings.Replace(payload, "1250", "null", 1),
		"nothing at a pointer":  `{"payee":"x","amount":{}}`,
		"a payload not JSON":    `{`,
		"a missing programming": `{"payee":"x","amount":[]}`,
	} {
		if r := outcome[*sdk.Rejected](t, dispatch(t, a, operation("pay", "bad", body), "")); r.Reason != sdk.ReasonValidation {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if d.driver != "sqlite" { // which has no limits of length
		long := strings.Replace(payload, "o'hara", strings.Repeat("o'hara", 10), 1)
		if r := outcome[*sdk.Rejected](t, dispatch(t, a, operation("pay", "long", long), "")); r.Reason != sdk.ReasonValidation {
			t.Errorf("a value that is too long: %+v", r)
		}
	}
	r := outcome[*sdk.Rejected](t, dispatch(t, a, operation("close", "k1", `{"id":"nobody"}`), ""))
	if r.Reason != sdk.ReasonValidation || r.Code != "precondition" {
		t.Errorf("%+v", r)
	}
	if n := d.count(t, "SELECT count(*) FROM settled_effect"); n != 0 {
		t.Fatalf("%d rows of effects that were refused", n)
	}
	outcome[*sdk.Committed](t, dispatch(t, a, operation("pay", "k0", payload), ""))
	// A unique key of the operator's table is not the effect's key.
	clash := d.adapter(t, d.addr, func(c map[string]any) {
		c["operations"].(map[string]any)["pay"].(map[string]any)["parameters"].(map[string]any)["id"] = `"P-k0"`
	})
	if r := outcome[*sdk.Rejected](t, dispatch(t, clash, operation("pay", "k2", payload), "")); r.Reason != sdk.ReasonValidation {
		t.Errorf("%+v", r)
	}
	closed := outcome[*sdk.Committed](t, dispatch(t, a, operation("close", "k3", `{"id":"P-k0"}`), ""))
	if closed.Object.ID != "P-k0" {
		t.Errorf("%+v", closed)
	}
}

func fence(t *testing.T, d *database) {
	d.fresh(t)
	a := d.adapter(t, d.addr, nil)
	o := operation("pay", "k1", payload)
	take := func(replaces string) sdk.FenceResponse {
		t.Helper()
		r, err := a.Fence(context.Background(), sdk.FenceRequest{Operation: o, Deadline: time.Now().Add(20 * time.Second), ReplacesRevision: replaces})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := take("")
	if first.Fenced == nil {
		t.Fatalf("%+v", first)
	}
	if r := outcome[*sdk.Rejected](t, dispatch(t, a, o, "")); r.Reason != sdk.ReasonKeyReused {
		t.Fatalf("a late request met the fence: %+v", r)
	}
	if m := finding[*sdk.Found](t, read(t, a, o)).Matches[0]; !m.Void || m.Object.Revision != first.Fenced.Revision {
		t.Fatalf("%+v", m)
	}
	second := take(first.Fenced.Revision)
	if second.Fenced == nil || second.Fenced.Revision == first.Fenced.Revision {
		t.Fatalf("%+v", second)
	}
	if r := outcome[*sdk.Rejected](t, dispatch(t, a, o, first.Fenced.Revision)); r.Reason != sdk.ReasonKeyReused {
		t.Fatalf("a dispatch that counts on the old fence: %+v", r)
	}
	if r := take(first.Fenced.Revision); r.Indeterminate == nil {
		t.Fatalf("%+v", r)
	}
	outcome[*sdk.Committed](t, dispatch(t, a, o, second.Fenced.Revision))
	same(t, read(t, a, o), "P-k1")
	if met := take(second.Fenced.Revision); met.Found == nil || met.Found.Matches[0].Object.ID != "P-k1" || met.Found.Matches[0].Agreement != sdk.AgreementSame {
		t.Fatalf("%+v", met)
	}
	if n := d.payments(t); n != 1 {
		t.Fatalf("%d payments", n)
	}
}

func check(t *testing.T, d *database) {
	d.fresh(t)
	a := d.adapter(t, d.addr, nil)
	if words := checkWords(t, a, sdk.HealthOK); words != "" {
		t.Fatal(words)
	}
	misspelt := d.adapter(t, d.addr, func(c map[string]any) {
		c["operations"].(map[string]any)["close"].(map[string]any)["statement"] = "UPDATE payment SET stat = 'x' WHERE id = :id"
	})
	if words := checkWords(t, misspelt, sdk.HealthDegraded); !strings.Contains(words, "/operations/close/statement") {
		t.Fatal(words)
	}
	d.exec(t, "DROP TABLE settled_effect")
	if words := checkWords(t, a, sdk.HealthDegraded); !strings.Contains(words, "CREATE TABLE settled_effect") {
		t.Fatal(words)
	}
	finding[*sdk.Indeterminate](t, read(t, a, operation("pay", "k1", payload)))
	if n := d.payments(t); n != 0 {
		t.Fatalf("check made %d payments", n)
	}
	quote := `"key"`
	if d.driver == "mysql" {
		quote = "`key`"
	}
	d.exec(t, "CREATE TABLE settled_effect ("+quote+" varchar(20), digest varchar(80), attempt varchar(80), at varchar(80))")
	if d.driver == "postgres" {
		d.exec(t, "GRANT ALL ON settled_effect TO app")
		d.exec(t, "ALTER TABLE settled_effect ALTER at TYPE timestamptz USING NULL")
	}
	if words := checkWords(t, a, sdk.HealthDegraded); !strings.Contains(words, "is not the primary key") {
		t.Fatal(words)
	}
}
