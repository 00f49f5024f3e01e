package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sort"
)

// maxFile bounds one configuration file, in bytes.
const maxFile = 4 << 20

// Find says which file to load: the flag, else $SETTLED_CONFIG, else
// /etc/settled/settled.toml where it exists, else "" for [Default].
func Find(flag string, o Options) string {
	if flag != "" {
		return flag
	}
	if env := o.env("SETTLED_CONFIG"); env != "" {
		return env
	}
	if _, err := os.Stat(SystemPath); !errors.Is(err, fs.ErrNotExist) {
		return SystemPath // also when it cannot be read: that must be told, not passed over
	}
	return ""
}

// Open loads what [Find] names, or gives [Default].
func Open(flag string, o Options) (*Config, error) {
	path := Find(flag, o)
	if path == "" {
		return Default(o), nil
	}
	return Load(path, o)
}

// Load reads path and then conf.d/*.toml beside it, in name order. The error
// is an [*Error] with every fault; there is no Config then.
func Load(path string, o Options) (*Config, error) {
	l := newLoader(o)
	l.read(path)
	more, err := filepath.Glob(filepath.Join(escapeGlob(filepath.Dir(path)), "conf.d", "*.toml"))
	if err != nil {
		l.faults.add(Fault{Place: Place{File: path}, Code: CodeFile, Message: fmt.Sprintf("conf.d cannot be listed: %v", err)})
	}
	sort.Strings(more)
	for _, m := range more {
		l.read(m)
	}
	return l.finish()
}

// Parse loads one text under the given name, without conf.d.
func Parse(name string, data []byte, o Options) (*Config, error) {
	l := newLoader(o)
	l.parse(&source{name, data})
	return l.finish()
}

// escapeGlob keeps a directory's own name from being read as a pattern.
func escapeGlob(dir string) string {
	out := make([]rune, 0, len(dir))
	for _, r := range dir {
		switch r {
		case '*', '?', '[', '\\':
			out = append(out, '\\')
		}
		out = append(out, r)
	}
	return string(out)
}

type loader struct {
	opts   Options
	faults *faults
	cfg    *Config
	broken bool // a file could not be read or parsed
}

func newLoader(o Options) *loader {
	c := systemDefaults(o)
	c.root = newTable(span{})
	return &loader{opts: o, cfg: c, faults: &faults{files: map[string]int{}}}
}

func (l *loader) read(path string) {
	data, err := readBounded(path)
	if err != nil {
		l.broken = true
		f := Fault{Place: Place{File: path}, Code: CodeFile, Message: err.Error()}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.Message, f.Hint = "there is no such file", "name another with --config FILE or SETTLED_CONFIG"
		case errors.Is(err, fs.ErrPermission):
			f.Message, f.Hint = "this user may not read it", fmt.Sprintf("ls -l %s; the daemon's group needs read permission", path)
		}
		l.faults.files[path] = len(l.faults.files)
		l.faults.add(f)
		return
	}
	l.parse(&source{path, data})
}

func readBounded(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if fi.Size() > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	return os.ReadFile(path)
}

func (l *loader) parse(src *source) {
	l.faults.files[src.name] = len(l.faults.files)
	l.cfg.Files = append(l.cfg.Files, src.name)
	root := parseFile(src, l.faults)
	if root == nil {
		l.broken = true
		return
	}
	merge(l.cfg.root, root, nil, l.faults)
}

// finish decodes what was merged and checks it.
func (l *loader) finish() (*Config, error) {
	c := l.cfg
	d := &decoder{l.faults}
	d.structure(c.root, reflect.ValueOf(c).Elem(), nil)
	for name, dest := range c.Destinations {
		dest.name, dest.cfg = name, c
	}
	if !l.broken {
		v := &validator{cfg: c, faults: l.faults}
		v.all()
	}
	errs, warnings := l.faults.split()
	if len(errs) > 0 {
		return nil, &Error{Faults: errs}
	}
	c.Warnings = warnings
	return c, nil
}
