package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
)

// defaulter is implemented by values that a table only partly overwrites.
type defaulter interface{ setDefaults() }

// nodeDecoder is implemented by values with a notation of their own.
type nodeDecoder interface {
	decodeNode(d *decoder, n *node, path []string)
}

// decoder fills Go values from the tree and collects every fault on the way.
type decoder struct{ faults *faults }

func (d *decoder) fault(at span, code Code, path []string, hint, format string, args ...any) {
	d.faults.add(Fault{Place: at.place(), Code: code, Key: strings.Join(path, "."), Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (d *decoder) wrong(n *node, path []string, want string) {
	hint := ""
	if want == "a duration" {
		hint = fmt.Sprintf(`write it in quotes with a unit, as in %s = "30s"`, path[len(path)-1])
	}
	d.fault(n.val, CodeType, path, hint, "%s must be %s, not %s", strings.Join(path, "."), want, n.kind)
}

// fields lists the keys of a struct, embedded ones included.
func fields(t reflect.Type) (names []string, index map[string][]int) {
	index = map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("toml"); name != "" {
			names = append(names, name)
			index[name] = f.Index
		}
	}
	return names, index
}

func (d *decoder) structure(n *node, v reflect.Value, path []string) {
	names, index := fields(v.Type())
	for _, name := range n.order {
		c, here := n.table[name], append(path[:len(path):len(path)], name)
		at, ok := index[name]
		if !ok {
			d.unknown(c, here, v.Type(), names)
			continue
		}
		d.value(c, v.FieldByIndex(at), here, v.Type().FieldByIndex(at).Tag.Get("oneof"))
	}
}

// unknown reports a key that nothing has, with the likeliest thing meant: a
// key of a table below, where it would be right, or one of nearly this name.
func (d *decoder) unknown(n *node, path []string, t reflect.Type, names []string) {
	name, table := path[len(path)-1], strings.Join(path[:len(path)-1], ".")
	hint := ""
	for _, f := range reflect.VisibleFields(t) {
		sub := f.Tag.Get("toml")
		if sub == "" || f.Type.Kind() != reflect.Struct {
			continue
		}
		if _, index := fields(f.Type); index[name] != nil {
			hint = fmt.Sprintf("%s belongs in [%s]", name, strings.TrimPrefix(table+"."+sub, "."))
		}
	}
	if near := nearest(name, names); hint == "" && near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	if hint == "" {
		hint = "known here: " + strings.Join(names, ", ")
	}
	where := "in [" + table + "]"
	if table == "" {
		where = "at the top level"
	}
	d.fault(n.key, CodeUnknownKey, path, hint, "unknown key %q %s", name, where)
}

func (d *decoder) value(n *node, v reflect.Value, path []string, oneof string) {
	if nd, ok := v.Addr().Interface().(nodeDecoder); ok {
		nd.decodeNode(d, n, path)
		return
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		if x, ok := d.duration(n, path); ok {
			v.SetInt(int64(x))
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		before := len(d.faults.list)
		d.value(n, p.Elem(), path, oneof)
		if len(d.faults.list) == before {
			v.Set(p)
		}
	case reflect.Struct:
		if d.is(n, kindTable, path) {
			d.structure(n, v, path)
		}
	case reflect.Map:
		if d.is(n, kindTable, path) {
			d.mapping(n, v, path)
		}
	case reflect.Slice:
		if d.is(n, kindArray, path) {
			d.list(n, v, path, oneof)
		}
	default:
		d.plain(n, v, path, oneof)
	}
}

func (d *decoder) is(n *node, k kind, path []string) bool {
	if n.kind != k {
		d.wrong(n, path, k.String())
	}
	return n.kind == k
}

func (d *decoder) mapping(n *node, v reflect.Value, path []string) {
	v.Set(reflect.MakeMap(v.Type()))
	for _, name := range n.order {
		c, here := n.table[name], append(path[:len(path):len(path)], name)
		if !validName(name) {
			d.fault(c.key, CodeValue, here, "", "%q cannot be a name in [%s]: %s", name, strings.Join(path, "."), nameRule)
			continue
		}
		item := reflect.New(v.Type().Elem().Elem())
		if def, ok := item.Interface().(defaulter); ok {
			def.setDefaults()
		}
		d.value(c, item.Elem(), here, "")
		v.SetMapIndex(reflect.ValueOf(name), item)
	}
}

func (d *decoder) list(n *node, v reflect.Value, path []string, oneof string) {
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		d.value(item, out.Index(i), append(path[:len(path):len(path)], fmt.Sprint(i)), oneof)
	}
	v.Set(out)
}

func (d *decoder) plain(n *node, v reflect.Value, path []string, oneof string) {
	switch v.Kind() {
	case reflect.String:
		if s, ok := d.str(n, path, "a string"); ok && d.oneof(n, path, s, oneof) {
			v.SetString(s)
		}
	case reflect.Bool:
		if d.is(n, kindBool, path) {
			v.SetBool(n.b)
		}
	case reflect.Int:
		if !d.is(n, kindInteger, path) {
			return
		}
		if n.i < math.MinInt32 || n.i > math.MaxInt32 {
			d.fault(n.val, CodeValue, path, "", "%s is out of range", strings.Join(path, "."))
			return
		}
		v.SetInt(n.i)
	case reflect.Float64:
		switch n.kind {
		case kindInteger:
			v.SetFloat(float64(n.i))
		case kindFloat:
			v.SetFloat(n.f)
		default:
			d.wrong(n, path, "a number")
		}
	default:
		panic("config: no decoder for " + v.Type().String())
	}
}

func (d *decoder) str(n *node, path []string, want string) (string, bool) {
	if n.kind != kindString {
		d.wrong(n, path, want)
		return "", false
	}
	return n.text, true
}

func (d *decoder) oneof(n *node, path []string, s, allowed string) bool {
	if allowed == "" {
		return true
	}
	all := strings.Split(allowed, "|")
	for _, a := range all {
		if a == s {
			return true
		}
	}
	hint := ""
	if near := nearest(s, all); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	d.fault(n.val, CodeValue, path, hint, "%s must be %s, not %q", strings.Join(path, "."), either(all), s)
	return false
}

// either writes a choice in words: "a, b or c", each in quotes.
func either(all []string) string {
	quoted := make([]string, len(all))
	for i, a := range all {
		quoted[i] = `"` + a + `"`
	}
	if len(quoted) == 1 {
		return quoted[0]
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + " or " + quoted[len(quoted)-1]
}

func (d *decoder) duration(n *node, path []string) (time.Duration, bool) {
	s, ok := d.str(n, path, "a duration")
	if !ok {
		return 0, false
	}
	x, err := ParseDuration(s)
	if err != nil {
		d.fault(n.val, CodeValue, path, "", "%s: %v", strings.Join(path, "."), err)
	}
	return x, err == nil
}

func (r *Rate) decodeNode(d *decoder, n *node, path []string) {
	parsed(d, n, path, r, `a rate such as "10/s"`, ParseRate)
}

func (t *Tokens) decodeNode(d *decoder, n *node, path []string) {
	parsed(d, n, path, t, `a token rule such as "10% + 10/m"`, ParseTokens)
}

func parsed[T any](d *decoder, n *node, path []string, into *T, want string, parse func(string) (T, error)) {
	s, ok := d.str(n, path, want)
	if !ok {
		return
	}
	x, err := parse(s)
	if err != nil {
		d.fault(n.val, CodeValue, path, "", "%s: %v", strings.Join(path, "."), err)
		return
	}
	*into = x
}

func (a *Approval) decodeNode(d *decoder, n *node, path []string) {
	switch n.kind {
	case kindString:
		if d.oneof(n, path, n.text, "none|required") {
			a.Mode, a.When = n.text, ""
		}
	case kindTable:
		var t struct {
			When string `toml:"when"`
		}
		d.structure(n, reflect.ValueOf(&t).Elem(), path)
		if t.When == "" && !d.faults.under(strings.Join(path, ".")) {
			d.fault(n.key, CodeMissing, path, `write { when = '$payload.amount > 100' }, or "required"`, "%s needs a condition", strings.Join(path, "."))
		}
		a.Mode, a.When = "when", t.When
	default:
		d.wrong(n, path, `"none", "required" or a table with when`)
	}
}

func (w *ReviewWithin) decodeNode(d *decoder, n *node, path []string) {
	if n.kind == kindString {
		if x, ok := d.duration(n, path); ok {
			*w = ReviewWithin{"low": x, "normal": x, "high": x, "critical": x}
		}
		return
	}
	if n.kind != kindTable {
		d.wrong(n, path, "a duration or a table of durations by severity")
		return
	}
	was := *w
	t := struct {
		Low      time.Duration `toml:"low"`
		Normal   time.Duration `toml:"normal"`
		High     time.Duration `toml:"high"`
		Critical time.Duration `toml:"critical"`
	}{was["low"], was["normal"], was["high"], was["critical"]}
	d.structure(n, reflect.ValueOf(&t).Elem(), path)
	*w = ReviewWithin{"low": t.Low, "normal": t.Normal, "high": t.High, "critical": t.Critical}
}

func (w *With) decodeNode(d *decoder, n *node, path []string) {
	if !d.is(n, kindTable, path) {
		return
	}
	x := d.plainJSON(n, path)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // jq programs hold < and &
	if err := e.Encode(x); err != nil {
		d.fault(n.key, CodeValue, path, "", "%s cannot be given to the adapter: %v", strings.Join(path, "."), err)
		return
	}
	w.RawMessage = bytes.TrimSpace(b.Bytes())
}

// plainJSON turns a TOML value into what encoding/json writes canonically.
func (d *decoder) plainJSON(n *node, path []string) any {
	switch n.kind {
	case kindTable:
		out := map[string]any{}
		for _, name := range n.order {
			out[name] = d.plainJSON(n.table[name], append(path[:len(path):len(path)], name))
		}
		return out
	case kindArray:
		out := make([]any, 0, len(n.items))
		for i, item := range n.items {
			out = append(out, d.plainJSON(item, append(path[:len(path):len(path)], fmt.Sprint(i))))
		}
		return out
	case kindInteger:
		return n.i
	case kindFloat:
		if math.IsInf(n.f, 0) || math.IsNaN(n.f) {
			d.fault(n.val, CodeValue, path, "", "%s: adapters get JSON, which has no %s", strings.Join(path, "."), n.text)
			return nil
		}
		return n.f
	case kindBool:
		return n.b
	default:
		return n.text
	}
}
