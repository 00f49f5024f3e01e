package daemon_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/settled-dev/settled"

// importRule says what a package may import, besides the standard library and
// what stands below it in its own folder. The reason is printed when it is
// broken: loosen a rule only for a better reason.
type importRule struct {
	pkg    string   // the package, or the folder with /...
	may    []string // prefixes of import paths outside the standard library
	never  []string // of the standard library too
	reason string
}

// importRules is the lattice of the tree, from the bottom up.
func importRules() []importRule {
	pure := []string{"os", "net", "net/...", "database/sql", "context", "sync", "os/...", "io/ioutil", "math/rand", "math/rand/v2"}
	return []importRule{
		{"journal", []string{"github.com/gowebpki/jcs", module + "/journal/mutant"}, pure, "the core is values in, values out: no clock, no disk, no goroutine"},
		{"schedules", []string{"github.com/robfig/cron/v3"}, pure, "schedules are pure: the clock comes in as a value"},
		{"journal/sqlite", []string{module + "/journal", "github.com/mattn/go-sqlite3", "golang.org/x/sys"}, nil, "the only package that knows SQL knows nothing of daemons or adapters"},
		{"sdk", nil, nil, "authors of adapters get the standard library and nothing else"},
		{"sdk/client", nil, nil, "a client needs the standard library only"},
		{"sdk/adaptertest", []string{module + "/sdk", module + "/plugins/host", "google.golang.org/"}, nil, "the kit starts adapters as the daemon does, and knows nothing else of it"},
		{"sdk/...", []string{module + "/sdk", "github.com/hashicorp/", "google.golang.org/", "golang.org/x/sys"}, nil, "go-plugin and gRPC stay behind serve and wire"},
		{"plugins/host", []string{module + "/sdk", "github.com/hashicorp/", "google.golang.org/", "golang.org/x/sys"}, nil, "the only package that starts processes"},
		{"plugins/...", []string{
			module + "/sdk", module + "/plugins/internal", "github.com/itchyny/gojq", "golang.org/x/sys",
			"github.com/jackc/pgx/", "github.com/go-sql-driver/mysql", "github.com/mattn/go-sqlite3", "github.com/wneessen/go-mail", "github.com/emersion/",
		}, nil, "built-in adapters prove that the public SDK suffices"},
		{"daemon/config", []string{module + "/schedules", "github.com/pelletier/go-toml/v2"}, nil, "configuration is a value that knows no daemon"},
		{"daemon/webhook", []string{"github.com/itchyny/gojq"}, []string{"os", "net", "net/http"}, "a message and a secret in, a verdict out"},
		{"daemon/api", []string{module + "/daemon", module + "/journal", module + "/schedules", module + "/sdk/client", "golang.org/x/sys"}, nil, "the API serves the daemon and holds no rule"},
		{"daemon", []string{
			module + "/daemon/config", module + "/journal", module + "/schedules", module + "/sdk",
			"github.com/oklog/ulid/v2", "golang.org/x/time/rate",
		}, []string{module + "/plugins/..."}, "adapters arrive as values: the daemon starts no process"},
	}
}

// listed is what `go list` says of a package.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	Imports         []string
}

func TestImportsFollowThePolicy(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		rule, ok := ruleFor(name)
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, module+"/cmd/") && !strings.HasPrefix(name, "cmd/") {
				t.Errorf("%s imports %s: nobody imports cmd", name, imp)
			}
			if ok {
				checkImport(t, name, imp, rule)
			}
		}
	}
}

func checkImport(t *testing.T, name, imp string, rule importRule) {
	t.Helper()
	for _, n := range rule.never {
		if covers(n, imp) {
			t.Errorf("%s imports %s: %s", name, imp, rule.reason)
		}
	}
	if !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") || strings.HasPrefix(imp, module+"/"+strings.TrimSuffix(rule.pkg, "/...")+"/") {
		return // the standard library, or its own folder
	}
	for _, m := range rule.may {
		if strings.HasPrefix(imp, m) {
			return
		}
	}
	t.Errorf("%s imports %s: %s", name, imp, rule.reason)
}

// ruleFor finds the most particular rule of a package.
func ruleFor(name string) (importRule, bool) {
	var best importRule
	for _, r := range importRules() {
		if covers(r.pkg, name) && len(r.pkg) > len(best.pkg) {
			best = r
		}
		if r.pkg == name {
			return r, true
		}
	}
	return best, best.pkg != ""
}

func covers(pattern, name string) bool {
	if folder, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == folder || strings.HasPrefix(name, folder+"/")
	}
	return pattern == name
}

func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list names %d packages only", len(all))
	}
	return all
}

// TestThePureCoreReadsNoClockAndStartsNothing parses the core: imports alone do not show time.Now.
func TestThePureCoreReadsNoClockAndStartsNothing(t *testing.T) {
	for _, dir := range []string{"../journal", "../schedules"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			tree, err := parser.ParseFile(set, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				switch v := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s starts a goroutine", set.Position(v.Pos()))
				case *ast.SelectorExpr:
					if x, ok := v.X.(*ast.Ident); ok && x.Name == "time" {
						switch v.Sel.Name {
						case "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick":
							t.Errorf("%s: time.%s in the pure core", set.Position(v.Pos()), v.Sel.Name)
						}
					}
				}
				return true
			})
		}
	}
}

// TestEveryPackageSaysWhatItGuarantees asks for a package comment of more than a line.
func TestEveryPackageSaysWhatItGuarantees(t *testing.T) {
	for _, p := range listPackages(t) {
		longest := 0
		for _, f := range p.GoFiles {
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			longest = max(longest, len(tree.Doc.Text()))
		}
		if longest < 80 {
			t.Errorf("%s: its package comment has %d characters; say what it guarantees and what a crash leaves behind", p.ImportPath, longest)
		}
	}
}
