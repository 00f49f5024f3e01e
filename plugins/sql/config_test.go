package sql

import (
	"context"
	"strings"
	"testing"

	"github.com/settled-dev/settled/sdk"
)

func configure(t *testing.T, config string, secrets map[string]string) (*Adapter, string) {
	t.Helper()
	a := &Adapter{}
	c, err := a.Configure(context.Background(), sdk.Configuration{Destination: "shop", Config: []byte(config), Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, d := range c.Diagnostics {
		kind := "error "
		if d.Warning {
			kind = "warning "
		}
		words = append(words, kind+d.Pointer+": "+d.Summary)
	}
	return a, strings.Join(words, "\n")
}

func TestEveryFaultOfAConfigurationIsNamedWithItsPlace(t *testing.T) {
	_, words := configure(t, `{"driver":"postgres","dsn":"postgres://app:${$secret.nope}@h/d","tabel":"x","table":"a b","timeouts":{"idle":"1ms"},
		"operations":{"a":{"statement":"INSERT INTO t VALUES (:pyee, :effect_key)","parameters":{"payee":"/payee","bad":"|","effect_key":"/x","r":"$row.id"},"object_id":"$row.id","precondition":{}},
		"b.undo":{"statement":"DELETE FROM t"},"c":{"reversible":"reversible"},"d":{"statement":"COMMIT"},"e":{"statement":"DELETE FROM t","postcondition":"DELETE FROM t"}}}`,
		map[string]string{"db": "secret"})
	for _, want := range []string{
		`error /dsn: no credential "nope"`, `error /tabel: unknown key "tabel"; did you mean "table"?`, "error /table: must be a name", "error /timeouts/idle: must be from 1s",
		`error /operations/a/statement: parameters gives no value for :pyee; did you mean "payee"?`, "warning /operations/a/parameters/payee: no statement uses :payee",
		"error /operations/a/parameters/bad: neither", "error /operations/a/parameters/effect_key", "error /operations/a/parameters/r: $row is known only to object_id",
		"error /operations/a/object: object_id uses $row", "error /operations/a/precondition/rows: is required", "error /operations/b.undo: a name may not end",
		"error /operations/c/statement: is required", "error /operations/c/undo: reversible needs", "error /operations/d/statement: begins with", "error /operations/e/postcondition: begins with",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not in\n%s", want, words)
		}
	}
}

func TestAPasswordIsACredentialAndStandsNowhereElse(t *testing.T) {
	op := `,"operations":{"a":{"statement":"DELETE FROM t"}}}`
	secrets := map[string]string{"db": "s:e@c/r?e't"}
	for config, want := range map[string]string{
		`{"driver":"postgres","dsn":"postgres://app:plain@h/d"` + op:                        "holds a password",
		`{"driver":"postgres","dsn":"postgres://app:${$secret.db}@h/${$secret.db}"` + op:    "only for the user or the password",
		`{"driver":"mysql","dsn":"app:plain@tcp(h:1)/d"` + op:                               "holds a password",
		`{"driver":"mysql","dsn":"app:s:e@c/r?e't@tcp(h:1)/d"` + op:                         "holds the credential \"db\" itself",
		`{"driver":"mysql","dsn":"app:${$secret.db}@tcp(${$secret.db})/d"` + op:             "only for the user or the password",
		`{"driver":"sqlite","dsn":"/a/${$secret.db}"` + op:                                  "has no credentials",
		`{"driver":"sqlite","dsn":"a.db"` + op:                                              "must be the absolute path",
		`{"driver":"postgres","dsn":"host=h user=app password=${$secret.db} dbname=d"` + op: "",
		`{"driver":"postgres","dsn":"postgres://app:${$secret.db}@h/d"` + op:                "",
		`{"driver":"mysql","dsn":"app:${$secret.db}@tcp(h:1)/d"` + op:                       "",
	} {
		a, words := configure(t, config, secrets)
		if (want == "") != (words == "") || !strings.Contains(words, want) {
			t.Errorf("%s: %q, want %q", config, words, want)
		}
		if strings.Contains(words, "r?e't") {
			t.Errorf("the credential is in %q", words)
		}
		if want != "" {
			continue
		}
		password := ""
		switch d := a.state.db.(type) {
		case *postgres:
			password = d.conn.Password
		case *mariadb:
			password = d.conn.Passwd
		}
		if password != secrets["db"] {
			t.Errorf("%s: password %q", config, password)
		}
	}
}

func TestTheCardSaysHowLateACommitCanLand(t *testing.T) {
	for driver, want := range map[string]string{"postgres": "20s", "mysql": "20s", "sqlite": "0s"} {
		dsn := map[string]string{"postgres": "postgres://app@h/d", "mysql": "app@tcp(h:1)/d", "sqlite": "/x/y.db"}[driver]
		a, words := configure(t, `{"driver":"`+driver+`","dsn":"`+dsn+`","operations":{"a":{"statement":"DELETE FROM t","reversible":"compensatable","undo":{"statement":"SELECT 1","verify":"SELECT 1"}}}}`, nil)
		if words != "" {
			t.Fatal(words)
		}
		d, err := a.Describe(context.Background())
		if err != nil || len(d.Actions) != 2 || !d.HasFeature(sdk.FeatureFence) {
			t.Fatalf("%+v %v", d, err)
		}
		for _, spec := range d.Actions {
			if spec.LateEffectBound == nil || spec.LateEffectBound.String() != want || spec.Read.Lookup != sdk.LookupByKey || !spec.Read.ProvesAbsence {
				t.Errorf("%s: %+v", driver, spec)
			}
		}
		if d.Actions[0].Reversal.Action != "a.undo" || d.Actions[1].Name != "a.undo" {
			t.Errorf("%+v", d.Actions)
		}
	}
}
