package author

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/plugins/host"
	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/adaptertest"
	"github.com/settled-dev/settled/sdk/docs"
)

const describeLimit = 20 * time.Second

// describe asks a program what it is; it is started once, unconfigured.
func describe(path string) (sdk.Description, error) {
	ctx, cancel := context.WithTimeout(context.Background(), describeLimit)
	defer cancel()
	return adaptertest.Describe(ctx, path)
}

// docsMain is `settled adapter docs NAME`.
func (a App) docsMain(args []string) int {
	f := a.flags("docs", "NAME")
	if code, ok := parse(f, args, a.Stderr); !ok {
		return code
	}
	if f.NArg() != 1 {
		return a.usage("docs", "name one adapter, built in or installed, or the file of one")
	}
	d, err := a.description(f.Arg(0))
	if err != nil {
		return a.fail(err, "settled adapter list")
	}
	_, _ = a.Stdout.Write(docs.Markdown(d))
	return 0
}

func (a App) description(name string) (sdk.Description, error) {
	if make := a.BuiltIn[name]; make != nil {
		return make().Describe(context.Background())
	}
	path := name
	if !strings.Contains(name, "/") {
		dir, err := a.Dir()
		if err != nil {
			return sdk.Description{}, err
		}
		path = filepath.Join(dir, name)
	}
	if _, err := os.Stat(path); err != nil {
		return sdk.Description{}, fmt.Errorf("there is no adapter %q: %w", name, err)
	}
	return describe(path)
}

// listMain is `settled adapter list`.
func (a App) listMain(args []string) int {
	f := a.flags("list", "[--json]")
	asJSON := f.Bool("json", false, "one JSON object a line")
	if code, ok := parse(f, args, a.Stderr); !ok {
		return code
	}
	dir, err := a.Dir()
	if err != nil {
		return a.fail(err, "settled check")
	}
	type row struct {
		Name    string `json:"name"`
		BuiltIn bool   `json:"built_in"`
		SHA256  string `json:"sha256,omitempty"`
		Fault   string `json:"fault,omitempty"`
	}
	var rows []row
	for name := range a.BuiltIn {
		rows = append(rows, row{Name: name, BuiltIn: true})
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return a.fail(err, "")
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		r := row{Name: e.Name()}
		if r.SHA256, err = host.Inspect(filepath.Join(dir, e.Name())); err != nil {
			r.Fault = err.Error()
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(x, y row) int { return strings.Compare(x.Name, y.Name) })
	for _, r := range rows {
		switch {
		case *asJSON:
			_ = json.NewEncoder(a.Stdout).Encode(r) // a broken pipe ends us anyway
		case r.BuiltIn:
			fmt.Fprintf(a.Stdout, "%-20s built in\n", r.Name)
		case r.Fault != "":
			fmt.Fprintf(a.Stdout, "%-20s refused: %s\n", r.Name, r.Fault)
		default:
			fmt.Fprintf(a.Stdout, "%-20s sha256 %s\n", r.Name, r.SHA256)
		}
	}
	return 0
}

// installMain is `settled adapter install FILE`.
func (a App) installMain(args []string) int {
	f := a.flags("install", "FILE [--name NAME] [--sha256 HEX] [--accept]")
	name := f.String("name", "", "install it as `NAME`; default: what it calls itself")
	pin := f.String("sha256", "", "refuse the file unless it has this digest")
	accept := f.Bool("accept", false, "accept that it may do more than the one it replaces")
	if code, ok := parse(f, args, a.Stderr); !ok {
		return code
	}
	if f.NArg() != 1 {
		return a.usage("install", "name the file of one adapter")
	}
	dir, err := a.Dir()
	if err != nil {
		return a.fail(err, "settled check")
	}
	if err := a.install(f.Arg(0), dir, *name, *pin, *accept); err != nil {
		return a.fail(err, "settled adapter install --help")
	}
	return 0
}

// install copies, judges the copy, asks it what it is, and only then puts it in
// its place: what was described is what is installed.
func (a App) install(file, dir, name, pin string, accept bool) (err error) {
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", file)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("adapters belong to root; install as root: %w", err)
	}
	tmp, sum, err := copyIn(file, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreMissing(os.Remove(tmp))) }()
	if pin != "" && !strings.EqualFold(pin, sum) {
		return fmt.Errorf("%s has the SHA-256 %s, not %s", file, sum, pin)
	}
	if _, err := host.Inspect(tmp); err != nil {
		return err
	}
	d, err := describe(tmp)
	if err != nil {
		return err
	}
	if name == "" {
		name = d.Name
	}
	if !projectName.MatchString(name) || a.BuiltIn[name] != nil {
		return fmt.Errorf("the name %q is built in, or is not lower-case letters, digits and dashes; choose another with --name", name)
	}
	place := filepath.Join(dir, name)
	a.show(d, sum)
	if wider := a.wider(place, d); len(wider) > 0 && !accept {
		return fmt.Errorf("it may do more than the one that is installed: %s; if that is meant, add --accept", strings.Join(wider, ", "))
	}
	if err := os.Rename(tmp, place); err != nil {
		return err
	}
	fmt.Fprintf(a.Stdout, "\ninstalled %s\nnow write under [destinations.…]:\n  adapter = %q\n  sha256 = %q\n", place, name, sum)
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func copyIn(file, dir string) (path, sum string, err error) {
	from, err := os.Open(file)
	if err != nil {
		return "", "", err
	}
	defer from.Close()
	to, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return "", "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(to.Name()))
		}
	}()
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(to, h), from)
	err = errors.Join(err, to.Chmod(0o755), to.Sync(), to.Close())
	return to.Name(), hex.EncodeToString(h.Sum(nil)), err
}

// powers is what an adapter may do, as words that can be compared.
func powers(d sdk.Description) []string {
	var out []string
	for _, e := range d.Egress {
		out = append(out, "connects to "+e)
	}
	if len(d.Egress) == 0 {
		out = append(out, "connects to anything (it declares no egress)")
	}
	for _, s := range secretNames(d.ConfigSchema) {
		out = append(out, "is given the credential of "+s)
	}
	words := [...]string{"acts", "writes", "publishes", "sends", "charges", "deletes", "triggers"}
	for _, act := range d.Actions {
		for _, c := range act.Consequences {
			out = append(out, act.Name+" "+words[min(c, sdk.ConsequenceTrigger)])
		}
		if len(act.Consequences) == 0 {
			out = append(out, act.Name+" acts")
		}
	}
	return out
}

func secretNames(schema []byte) []string {
	var s struct {
		Properties map[string]struct {
			WriteOnly bool `json:"writeOnly"`
		}
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	var out []string
	for name, p := range s.Properties {
		if p.WriteOnly {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (a App) show(d sdk.Description, sum string) {
	fmt.Fprintf(a.Stdout, "%s %s, sha256 %s\nit\n", d.Name, d.Version, sum)
	for _, p := range powers(d) {
		fmt.Fprintln(a.Stdout, "  "+p)
	}
}

// wider is what the new one may do and the installed one may not.
func (a App) wider(place string, d sdk.Description) []string {
	if _, err := os.Stat(place); err != nil {
		return nil
	}
	old, err := describe(place)
	if err != nil {
		return []string{"the installed one cannot be compared: " + err.Error()}
	}
	var out []string
	have := powers(old)
	for _, p := range powers(d) {
		if !slices.Contains(have, p) {
			out = append(out, p)
		}
	}
	return out
}
