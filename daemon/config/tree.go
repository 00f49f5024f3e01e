package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxDepth bounds nesting of tables, arrays and dotted keys.
const maxDepth = 64

type kind uint8

const (
	kindTable kind = iota
	kindArray
	kindString
	kindInteger
	kindFloat
	kindBool
	kindDate
)

func (k kind) String() string {
	return [...]string{"a table", "an array", "a string", "a whole number", "a number", "true or false", "a date"}[k]
}

// source is one file as read.
type source struct {
	name string
	data []byte
}

// span is a range of bytes in a source.
type span struct {
	src      *source
	from, to int
}

// node is one TOML value that remembers where it was written.
type node struct {
	kind  kind
	key   span // the key, or the element when it has none
	val   span // the value; the key when the parser names no range
	table map[string]*node
	order []string // keys of table as written
	items []*node
	text  string // strings and dates
	i     int64
	f     float64
	b     bool
}

func newTable(at span) *node {
	return &node{kind: kindTable, key: at, val: at, table: map[string]*node{}}
}

// child returns the named value of a table, or nil.
func (n *node) child(name string) *node {
	if n == nil || n.table == nil {
		return nil
	}
	return n.table[name]
}

func (n *node) put(name string, c *node) {
	n.table[name] = c
	n.order = append(n.order, name)
}

// find walks down as far as the path exists and reports whether it went all the way.
func (n *node) find(path ...string) (*node, bool) {
	for _, p := range path {
		switch n.kind {
		case kindTable:
			c := n.child(p)
			if c == nil {
				return n, false
			}
			n = c
		case kindArray:
			i, err := strconv.Atoi(p)
			if err != nil || i < 0 || i >= len(n.items) {
				return n, false
			}
			n = n.items[i]
		default:
			return n, false
		}
	}
	return n, true
}

// place turns a span into line, column and source line.
func (s span) place() Place {
	if s.src == nil {
		return Place{}
	}
	data := s.src.data
	from := min(max(s.from, 0), len(data))
	to := min(max(s.to, from), len(data))
	start := bytes.LastIndexByte(data[:from], '\n') + 1
	end := len(data)
	if i := bytes.IndexByte(data[start:], '\n'); i >= 0 {
		end = start + i
	}
	to = min(to, max(end, from))
	return Place{
		File:   s.src.name,
		Line:   bytes.Count(data[:start], []byte{'\n'}) + 1,
		Column: utf8.RuneCount(data[start:from]) + 1,
		Source: printable(strings.TrimSuffix(string(data[start:end]), "\r")),
		Width:  utf8.RuneCount(data[from:to]),
	}
}

// printable replaces what could disturb a terminal.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, line)
}

// parseFile checks one file's syntax and builds its tree. It reports at most
// one fault, because what follows a syntax fault cannot be trusted.
func parseFile(src *source, fs *faults) (root *node) {
	defer func() {
		// The parser is foreign code fed with whatever a file holds.
		if p := recover(); p != nil {
			fs.add(Fault{Place: Place{File: src.name}, Code: CodeSyntax, Message: fmt.Sprintf("cannot be parsed: %v", p)})
			root = nil
		}
	}()
	var whole map[string]any
	if err := toml.Unmarshal(src.data, &whole); err != nil {
		fs.add(syntaxFault(src, err))
		return nil
	}
	b := &builder{src: src, root: newTable(span{src: src})}
	b.at = b.root
	b.p.Reset(src.data)
	for b.p.NextExpression() {
		if err := b.expression(b.p.Expression()); err != nil {
			fs.add(*err)
			return nil
		}
	}
	if err := b.p.Error(); err != nil {
		fs.add(syntaxFault(src, err))
		return nil
	}
	return b.root
}

func syntaxFault(src *source, err error) Fault {
	f := Fault{Place: Place{File: src.name}, Code: CodeSyntax, Message: strings.TrimPrefix(err.Error(), "toml: ")}
	var de *toml.DecodeError
	if errors.As(err, &de) {
		row, col := de.Position()
		from := lineStart(src.data, row) + col - 1
		f.Place = span{src, from, from + 1}.place()
	}
	if strings.Contains(f.Message, "strings must be quoted") {
		f.Hint = `put the value in quotes, as in timeout = "10s"`
	}
	return f
}

func lineStart(data []byte, row int) int {
	at := 0
	for ; row > 1; row-- {
		i := bytes.IndexByte(data[at:], '\n')
		if i < 0 {
			return at
		}
		at += i + 1
	}
	return at
}

// builder turns the parser's expressions into one tree.
type builder struct {
	src  *source
	p    unstable.Parser
	root *node
	at   *node // the table of the last header
}

func (b *builder) fault(at span, format string, args ...any) *Fault {
	return &Fault{Place: at.place(), Code: CodeSyntax, Message: fmt.Sprintf(format, args...)}
}

func (b *builder) spanOf(n *unstable.Node) span {
	if n.Raw.Length == 0 {
		return span{}
	}
	return span{b.src, int(n.Raw.Offset), int(n.Raw.Offset + n.Raw.Length)}
}

func (b *builder) expression(e *unstable.Node) *Fault {
	switch e.Kind {
	case unstable.Table:
		t, _, err := b.descend(b.root, e.Key(), false)
		if err != nil {
			return err
		}
		for it := e.Key(); it.Next(); {
			t.key = b.spanOf(it.Node()) // its own header, even after one of a table below it
		}
		t.val = t.key
		b.at = t
	case unstable.ArrayTable:
		return b.arrayTable(e)
	case unstable.KeyValue:
		return b.keyValue(b.at, e, 0)
	}
	return nil
}

// descend follows a dotted key, creating tables; with short it stops before
// the last part and returns that part's name and place.
func (b *builder) descend(from *node, it unstable.Iterator, short bool) (*node, *unstable.Node, *Fault) {
	depth := 0
	for it.Next() {
		k := it.Node()
		if short && it.IsLast() {
			return from, k, nil
		}
		at := b.spanOf(k)
		if depth++; depth > maxDepth {
			return nil, nil, b.fault(at, "tables nest deeper than %d levels", maxDepth)
		}
		name := string(k.Data)
		next := from.child(name)
		if next == nil {
			next = newTable(at)
			from.put(name, next)
		}
		if next.kind == kindArray && len(next.items) > 0 {
			next = next.items[len(next.items)-1]
		}
		if next.kind != kindTable {
			return nil, nil, b.fault(at, "%q is not a table", name)
		}
		from = next
	}
	return from, nil, nil
}

func (b *builder) arrayTable(e *unstable.Node) *Fault {
	in, last, err := b.descend(b.root, e.Key(), true)
	if err != nil {
		return err
	}
	at := b.spanOf(last)
	arr := in.child(string(last.Data))
	if arr == nil {
		arr = &node{kind: kindArray, key: at, val: at}
		in.put(string(last.Data), arr)
	}
	if arr.kind != kindArray {
		return b.fault(at, "%q is not an array of tables", last.Data)
	}
	b.at = newTable(at)
	arr.items = append(arr.items, b.at)
	return nil
}

func (b *builder) keyValue(in *node, e *unstable.Node, depth int) *Fault {
	in, last, err := b.descend(in, e.Key(), true)
	if err != nil {
		return err
	}
	at := b.spanOf(last)
	if in.child(string(last.Data)) != nil {
		return b.fault(at, "%q is written twice", last.Data)
	}
	v, err := b.value(e.Value(), at, depth+1)
	if err != nil {
		return err
	}
	in.put(string(last.Data), v)
	return nil
}

func (b *builder) value(n *unstable.Node, key span, depth int) (*node, *Fault) {
	if depth > maxDepth {
		return nil, b.fault(key, "values nest deeper than %d levels", maxDepth)
	}
	v := &node{key: key, val: b.spanOf(n)}
	if v.val.src == nil {
		v.val = key
	}
	switch n.Kind {
	case unstable.Array:
		v.kind = kindArray
		for it := n.Children(); it.Next(); {
			at := b.spanOf(it.Node())
			if at.src == nil {
				at = key
			}
			item, err := b.value(it.Node(), at, depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		return v, nil
	case unstable.InlineTable:
		v.kind, v.table, v.val = kindTable, map[string]*node{}, key
		for it := n.Children(); it.Next(); {
			if err := b.keyValue(v, it.Node(), depth+1); err != nil {
				return nil, err
			}
		}
		return v, nil
	}
	return v, b.scalar(v, n)
}

func (b *builder) scalar(v *node, n *unstable.Node) *Fault {
	v.text = string(n.Data)
	digits := strings.ReplaceAll(v.text, "_", "")
	var err error
	switch n.Kind {
	case unstable.String:
		v.kind = kindString
	case unstable.Bool:
		v.kind, v.b = kindBool, v.text == "true"
	case unstable.Integer:
		v.kind = kindInteger
		v.i, err = strconv.ParseInt(digits, 0, 64)
	case unstable.Float:
		v.kind = kindFloat
		v.f, err = strconv.ParseFloat(digits, 64)
	default:
		v.kind = kindDate
	}
	if err != nil {
		return b.fault(v.val, "%s is not a number that fits 64 bits", v.text)
	}
	return nil
}

// merge adds the values of from to into. A value in both is a fault that
// names both places; tables are joined.
func merge(into, from *node, path []string, fs *faults) {
	for _, name := range from.order {
		have, add := into.child(name), from.table[name]
		here := append(path[:len(path):len(path)], name)
		switch {
		case have == nil:
			into.put(name, add)
		case have.kind == kindTable && add.kind == kindTable:
			merge(have, add, here, fs)
		default:
			first := have.key.place()
			fs.add(Fault{
				Place: add.key.place(), Code: CodeDuplicate, Key: strings.Join(here, "."),
				Message: fmt.Sprintf("%s is already set in %s", strings.Join(here, "."), first),
				Hint:    fmt.Sprintf("remove one of the two; %s has %s", first, strings.TrimSpace(first.Source)),
			})
		}
	}
}
