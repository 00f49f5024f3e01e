package author

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/settled-dev/settled/sdk/adaptertest"
)

//go:embed templates
var templates embed.FS

// scripts are the languages of the exec form: the file and how it is started.
var scripts = map[string]struct {
	file    string
	command string
	exact   bool // carries numbers beyond 2^53
}{
	"python": {"adapter.py", "python3", true},
	"shell":  {"adapter.sh", "sh", false},
	"node":   {"adapter.mjs", "node", false},
}

var projectName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// project is what the templates see.
type project struct {
	Name, Lang, Script, SDK              string
	AdapterJSON, ConfigJSON, InvalidJSON string
	CommandTOML                          string
	Exact, Docs                          bool
}

// create writes a new project into a directory that must not exist. It is
// written beside its place and moved there whole; a crash leaves only the former.
func create(dir, lang, sdk string) (files []string, err error) {
	name := filepath.Base(dir)
	if !projectName.MatchString(name) {
		return nil, fmt.Errorf("the name %q must be lower-case letters, digits and dashes, and begin with a letter", name)
	}
	if _, err := os.Lstat(dir); err == nil {
		return nil, fmt.Errorf("%s exists already", dir)
	}
	p, err := newProject(name, lang, sdk)
	if err != nil {
		return nil, err
	}
	content, err := p.files()
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "."+name+"-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	for _, f := range content {
		mode := os.FileMode(0o644)
		if bytes.HasPrefix(f.text, []byte("#!")) {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(tmp, f.name), f.text, mode); err != nil {
			return nil, err
		}
		files = append(files, filepath.Join(dir, f.name))
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return nil, err
	}
	return files, os.Rename(tmp, dir)
}

func newProject(name, lang, sdk string) (project, error) {
	p := project{Name: name, Lang: lang, SDK: sdk, Exact: true}
	if lang == "go" {
		p.AdapterJSON = `["./` + name + `"]`
		p.ConfigJSON = `{"url": "{{url}}"}`
		p.InvalidJSON = `[{"document": {"customer": "Ada", "cents": 0}, "pointer": "/cents"}, {"document": {"cents": 1}, "pointer": "/customer"}]`
		return p, nil
	}
	s, ok := scripts[lang]
	if !ok {
		return p, fmt.Errorf("there is no template for the language %q; there are: go, python, shell, node", lang)
	}
	p.Script, p.Exact = s.file, s.exact
	command := []string{s.command, "{{dir}}/" + s.file}
	config, err := json.MarshalIndent(map[string]any{
		"dispatch": command, "read": command, "check": command, "config": map[string]any{"url": "{{url}}"},
		"operations": map[string]any{"create-invoice": map[string]any{
			"summary": "creates an invoice", "reversible": "irreversible",
			"read":   map[string]any{"consistency": "strong", "proves_absence": true},
			"dedupe": map[string]any{"window": "24h", "mismatch": "rejects"},
		}},
	}, "  ", "  ")
	p.AdapterJSON, p.ConfigJSON = `["settled:exec"]`, string(config)
	p.InvalidJSON = `[{"document": {"customer": "Ada", "cents": 0}}]`
	p.CommandTOML = fmt.Sprintf("[%q, %q]", s.command, "/usr/lib/settled/scripts/"+name+"/"+s.file)
	return p, err
}

type generated struct {
	name string
	text []byte
}

func (p project) files() ([]generated, error) {
	var out []generated
	add := func(name, from string, asTemplate bool) error {
		raw, err := templates.ReadFile("templates/" + from)
		if err != nil {
			return err
		}
		if !asTemplate {
			out = append(out, generated{name, bytes.ReplaceAll(raw, []byte("{{name}}"), []byte(p.Name))})
			return nil
		}
		t, err := template.New(name).Parse(string(raw))
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, p); err != nil {
			return err
		}
		out = append(out, generated{name, b.Bytes()})
		return nil
	}
	err := errors.Join(
		add("destination.py", "destination.py", false),
		add(adaptertest.PlanName, "plan.json.tmpl", true),
		add("README.md", "README.md.tmpl", true),
	)
	if p.Lang != "go" {
		return out, errors.Join(err, add(p.Script, p.Lang+"/"+p.Script, false))
	}
	mod := "module " + p.Name + "\n\ngo 1.26\n"
	if p.SDK != "" {
		mod += "\nrequire github.com/settled-dev/settled v0.0.0\n\nreplace github.com/settled-dev/settled => " + p.SDK + "\n"
	}
	out = append(out, generated{"go.mod", []byte(mod)}, generated{".gitignore", []byte("/" + p.Name + "\n")})
	return out, errors.Join(err, add("main.go", "go/main.go.txt", false), add("main_test.go", "go/main_test.go.txt", false))
}

// initMain is `settled adapter init NAME`.
func (a App) initMain(args []string) int {
	f := a.flags("init", "NAME --lang go|python|shell|node")
	lang := f.String("lang", "go", "the language: go, python, shell or node")
	sdk := f.String("sdk", "", "use the SDK of a checkout in `DIR` (go)")
	if code, ok := parse(f, args, a.Stderr); !ok {
		return code
	}
	if f.NArg() != 1 {
		return a.usage("init", "name one new adapter")
	}
	if *sdk != "" {
		abs, err := filepath.Abs(*sdk)
		if err != nil {
			return a.fail(err, "")
		}
		*sdk = abs
	}
	files, err := create(filepath.Clean(f.Arg(0)), *lang, *sdk)
	if err != nil {
		return a.fail(err, "settled adapter init --help")
	}
	for _, name := range files {
		fmt.Fprintln(a.Stdout, name)
	}
	next := "settled adapter test " + f.Arg(0)
	if *lang == "go" {
		next = strings.Join([]string{"cd " + f.Arg(0), "go mod tidy", "go build", "settled adapter test ."}, " && ")
	}
	fmt.Fprintf(a.Stderr, "next: %s\n", next)
	return 0
}
