package config

import (
	"slices"
	"strconv"
	"strings"
)

// feature is a value that is part of the contract and that this version
// refuses, so that nobody believes to be protected by it.
type feature struct {
	path  string           // "*" stands for any name
	asked func(*node) bool // whether the value there asks for it
	hint  string           // what works now
}

// notBuilt is the one list of what is known and refused. When a feature is
// built, its line goes.
func notBuilt() []feature {
	return []feature{
		{"listen.http", except(""), "use the socket, also from afar: ssh -L 7117:/run/settled.sock HOST"},
		{"owners.*.notify", notEmpty, "leave notify out; `settled review` lists what waits"},
		{"destinations.*.approval", except("none"), `write approval = "none"`},
		{"destinations.*.operations.*.approval", except("none"), `write approval = "none"`},
		{"destinations.*.separate_duties", isTrue, "leave it out"},
		{"destinations.*.on_outage", oneOf("manual"), `write "wait" or "refuse"`},
	}
}

func oneOf(values ...string) func(*node) bool {
	return func(n *node) bool { return n.kind == kindString && slices.Contains(values, n.text) }
}

func except(built string) func(*node) bool {
	return func(n *node) bool { return n.kind != kindString || n.text != built }
}

func notEmpty(n *node) bool { return len(n.items) > 0 }
func isTrue(n *node) bool   { return n.kind == kindBool && n.b }

// refuseNotBuilt reports every value that asks for such a feature.
func refuseNotBuilt(root *node, fs *faults) {
	for _, f := range notBuilt() {
		walk(root, strings.Split(f.path, "."), nil, func(n *node, path string) {
			if !f.asked(n) || fs.under(path) {
				return // a value that is no value at all has its own fault
			}
			what := path
			if n.kind == kindString {
				what += " = " + strconv.Quote(n.text)
			}
			fs.add(Fault{Place: n.val.place(), Code: CodeNotBuilt, Key: path, Hint: f.hint, Message: what + " is not built yet"})
		})
	}
}

// walk calls visit for every value whose path matches the pattern, in the order written.
func walk(n *node, pattern, path []string, visit func(*node, string)) {
	if len(pattern) == 0 {
		visit(n, strings.Join(path, "."))
		return
	}
	for _, name := range n.order {
		if pattern[0] == "*" || pattern[0] == name {
			walk(n.table[name], pattern[1:], append(path[:len(path):len(path)], name), visit)
		}
	}
}
