package sql

import (
	"slices"
	"strings"
	"testing"
)

func TestParametersAreFoundOnlyWhereTheyAreCode(t *testing.T) {
	for _, c := range []struct{ driver, source, want string }{
		{driverPostgres, `INSERT INTO a VALUES (:x, ':no', "b:no", :x::text, 'it''s :no', E'\':no', $q$ :no $q$, $$:no$$) /* :no /* :no */ :no */ -- :no`, "x x"},
		{driverMySQL, "INSERT INTO a VALUES (:x, 'a\\':no', \"b\\\":no\", `c:no`, @a := 1) # :no\n, :y /* :no */;", "x y"},
		{driverSQLite, `UPDATE "t:no" SET a = :a_1 WHERE b=:b AND c = ':no' ; `, "a_1 b"},
		{driverPostgres, "SELECT a[1:2], b::int, 12:30 FROM t WHERE c=:c", "c"},
		{driverPostgres, `SELECT '\' , :x`, "x"}, // no escape without E
	} {
		st, err := parseStatement(c.source, c.driver, false)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		if got := strings.Join(st.names, " "); got != c.want {
			t.Errorf("%s: parameters %q, want %q", c.source, got, c.want)
		}
		if n := strings.Count(st.render(func(int) string { return "\x01" }), "\x01"); n != len(st.names) {
			t.Errorf("%s: %d placeholders for %d parameters", c.source, n, len(st.names))
		}
	}
}

func TestStatementsThatCouldEndTheTransactionAreRefused(t *testing.T) {
	for driver, sources := range map[string][]string{
		driverPostgres: {
			"COMMIT", "DELETE FROM a; COMMIT", "/* x */ BEGIN", "SELECT 'a", "SELECT $1", "SELECT /* x", "SELECT $a$ x", "", "SET x = 1", "CREATE TABLE a (b int)", "; SELECT 1",
		},
		driverMySQL:  {"CALL p()", "ALTER TABLE a ADD b int", "INSERT INTO a VALUES (?)", "DELETE FROM a; DELETE FROM b", "SELECT \"a", "TRUNCATE a"},
		driverSQLite: {"PRAGMA x", "ATTACH 'a' AS b", "VACUUM", "SELECT `a", "SELECT ?1"},
	} {
		for _, source := range sources {
			if _, err := parseStatement(source, driver, false); err == nil {
				t.Errorf("%s: %q was taken", driver, source)
			}
		}
		if _, err := parseStatement("DELETE FROM a", driver, true); err == nil {
			t.Errorf("%s: a query that writes was taken", driver)
		}
		if !slices.Contains(verbs(driver, true), "SELECT") {
			t.Error(driver)
		}
	}
}
