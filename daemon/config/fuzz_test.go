package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/settled-dev/settled/daemon/config"
)

// Whatever a file holds: a configuration that works, or faults that can be shown.
func FuzzParse(f *testing.F) {
	paths, _ := filepath.Glob("testdata/faults/*.txtar")
	for _, p := range paths {
		if a, err := txtar.ParseFile(p); err == nil {
			f.Add(a.Files[0].Data)
		}
	}
	if data, err := os.ReadFile("testdata/example.toml"); err == nil {
		f.Add(data)
		f.Add([]byte(buildable(string(data))))
	}
	f.Add([]byte("a = 00:00\n"))
	f.Add([]byte("[[destinations]]\n[destinations.x]\n"))
	f.Add([]byte("\ufeffx = 1\r\n\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("x.toml", data, config.Options{})
		if err != nil {
			var e *config.Error
			if !errors.As(err, &e) || len(e.Faults) == 0 || c != nil {
				t.Fatalf("error %T without faults", err)
			}
			_ = err.Error()
			return
		}
		if len(c.PolicySHA256()) != 71 {
			t.Fatal("no digest")
		}
		for name, d := range c.Destinations {
			_ = d.ForOperation("create").AbsenceTime()
			_ = c.Position(name, "/operations/create/read").String()
		}
	})
}
