package config

import (
	"fmt"
	"sort"
	"strings"
)

// ExitConfiguration is the exit status of a process whose configuration is at
// fault (EX_CONFIG of sysexits).
const ExitConfiguration = 78

// Code says what sort of fault it is, for programs.
type Code string

// The codes.
const (
	CodeFile       Code = "file"        // it cannot be read
	CodeSyntax     Code = "syntax"      // it is not TOML
	CodeUnknownKey Code = "unknown-key" // nothing has that name
	CodeDuplicate  Code = "duplicate"   // written twice
	CodeType       Code = "type"        // a string where a number belongs, and the like
	CodeValue      Code = "value"       // out of range or malformed
	CodeMissing    Code = "missing"     // a required key is not there
	CodeConflict   Code = "conflict"    // two values contradict each other
	CodeOverride   Code = "override"    // a safety bound is lowered without a reason
	CodeNotBuilt   Code = "not-built"   // known, but this version cannot do it
	CodeAdapter    Code = "adapter"     // the adapter's own diagnostic
)

// Place is a position in a file. Line and Column count from 1; Column counts
// characters, not bytes. The zero Place means that no line can be named.
type Place struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Source string `json:"source,omitempty"` // the line as written, control characters shown as "·"
	Width  int    `json:"-"`                // characters to underline; at least 1
}

// String is file:line:column, as far as known.
func (p Place) String() string {
	switch {
	case p.Line > 0:
		return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	default:
		return p.File
	}
}

// Fault is one thing that is wrong, where it is, and what to type next.
type Fault struct {
	Place
	Code    Code   `json:"code"`
	Key     string `json:"key,omitempty"` // dotted, as in destinations.desk.timeout
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning,omitempty"` // told, but does not refuse the configuration
}

// Error renders the fault for people: the message, the source line, a caret and the hint.
func (f Fault) Error() string {
	var b strings.Builder
	if at := f.Place.String(); at != "" {
		b.WriteString(at + ": ")
	}
	if f.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(f.Message)
	if f.Line > 0 {
		fmt.Fprintf(&b, "\n%5d | %s\n      | %s%s", f.Line, f.Source,
			caretPad(f.Source, f.Column), strings.Repeat("^", max(1, f.Width)))
	}
	if f.Hint != "" {
		b.WriteString("\n        " + strings.ReplaceAll(f.Hint, "\n", "\n        "))
	}
	return b.String()
}

// caretPad keeps tabs, so that the caret stands under its character whatever
// the width of a tab.
func caretPad(line string, column int) string {
	var b strings.Builder
	i := 1
	for _, r := range line {
		if i >= column {
			break
		}
		if r == '\t' {
			b.WriteRune('\t')
		} else {
			b.WriteByte(' ')
		}
		i++
	}
	for ; i < column; i++ {
		b.WriteByte(' ')
	}
	return b.String()
}

// Error is every fault of one configuration, in the order of the files.
type Error struct {
	Faults []Fault
}

// Error renders all faults, separated by empty lines, and a count.
func (e *Error) Error() string {
	var parts []string
	for _, f := range e.Faults {
		parts = append(parts, f.Error())
	}
	if len(e.Faults) > 1 {
		parts = append(parts, fmt.Sprintf("%d faults", len(e.Faults)))
	}
	return strings.Join(parts, "\n\n")
}

// ExitStatus is the exit status of a process that cannot go on: always 78.
func (e *Error) ExitStatus() int { return ExitConfiguration }

// OnlyNotBuilt reports whether every fault asks for something this version
// does not do yet, that is, whether the configuration is otherwise sound.
func (e *Error) OnlyNotBuilt() bool {
	for _, f := range e.Faults {
		if f.Code != CodeNotBuilt {
			return false
		}
	}
	return len(e.Faults) > 0
}

// faults collects while loading. It is used by one goroutine.
type faults struct {
	list  []Fault
	files map[string]int // order of reading, for sorting
}

func (f *faults) add(x Fault) { f.list = append(f.list, x) }

// under reports whether a fault (not a warning) was found at the dotted key or below it.
func (f *faults) under(key string) bool {
	for _, x := range f.list {
		if !x.Warning && (x.Key == key || strings.HasPrefix(x.Key, key+".")) && x.Code != CodeNotBuilt {
			return true
		}
	}
	return false
}

// split returns errors and warnings, each sorted by file, line and column.
func (f *faults) split() (errs, warnings []Fault) {
	sort.SliceStable(f.list, func(i, j int) bool {
		a, b := f.list[i], f.list[j]
		if fa, fb := f.files[a.File], f.files[b.File]; fa != fb {
			return fa < fb
		}
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Column < b.Column
	})
	for _, x := range f.list {
		if x.Warning {
			warnings = append(warnings, x)
		} else {
			errs = append(errs, x)
		}
	}
	return errs, warnings
}
