package http

import (
	"strings"
	"testing"
)

func TestInterpolationFindsTheEndOfItsProgram(t *testing.T) {
	s := scope{"$effect": map[string]any{"key": "k:1"}, "$payload": map[string]any{"n": 5}}
	for source, want := range map[string]string{
		"plain { } $ text":                 "plain { } $ text",
		"/t/${$effect.key|@uri}/x":         "/t/k%3A1/x",
		"${$effect.key}${$payload.n}":      "k:15",
		"${ {a: {b: \"x\"}} | .a.b }":      "x",
		`${"}"}`:                           "}",
		`${"a\"}\\"}`:                      `a"}\`,
		`${"<\({a: "}"} | .a)>"}`:          "<}>",
		`${"<\("(" + ")")>"}`:              "<()>",
		"${1 # a comment with }\n + 1}":    "2",
		`${"${"}x}`:                        "${x}",
		"${true}":                          "true",
		"${1.5}":                           "1.5",
		"${if true then \"y\" else 1 end}": "y",
	} {
		tmpl, err := compileTemplate(source, varsBefore())
		if err != nil {
			t.Errorf("%q: %v", source, err)
			continue
		}
		if got, err := tmpl.render(t.Context(), s); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", source, got, err, want)
		}
	}
	for _, source := range []string{"${", "${1", "${\"}", "${{}", "${(}", "${}", "${1 # }", `${"\(}`} {
		if _, err := compileTemplate(source, varsBefore()); err == nil {
			t.Errorf("%q compiles", source)
		}
	}
}

func TestAProgramSeesNoEnvironmentFilesOrModules(t *testing.T) {
	t.Setenv("SETTLED_TEST_SECRET", "visible")
	for _, source := range []string{"env.SETTLED_TEST_SECRET", "$ENV.SETTLED_TEST_SECRET", "input", `include "x"; 1`, `import "x" as $x; $x`} {
		p, err := compileProgram(source, varsBefore())
		if err != nil {
			continue
		}
		if v, err := p.run(t.Context(), nil, scope{}); err == nil && v != nil {
			t.Errorf("%s gives %v", source, v)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"/t/${$effect.key|@uri}", `${"\("}")"}`, "${{}}", "$${", "${#\n}", `${"\\\""}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		pieces, err := splitTemplate(s)
		if err != nil {
			if !strings.Contains(s, "${") {
				t.Fatalf("%q has no interpolation and is refused", s)
			}
			return
		}
		var whole strings.Builder
		for i, piece := range pieces {
			if i%2 == 0 {
				if strings.Contains(piece, "${") {
					t.Fatalf("%q: text %q holds an interpolation", s, piece)
				}
				whole.WriteString(piece)
				continue
			}
			whole.WriteString("${" + piece + "}")
		}
		if whole.String() != s || len(pieces)%2 != 1 {
			t.Fatalf("%q is cut into %q", s, pieces)
		}
	})
}
