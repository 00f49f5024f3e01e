package config

import (
	"encoding/json"
	"path/filepath"
	"strings"
)

// scheduleWork checks the keys that belong to what a schedule does.
func (v *validator) scheduleWork(name string, s *Schedule) {
	at := func(key string) []string { return []string{"schedules", name, key} }
	switch s.Do {
	case "audit":
		v.positive(s.Window, at("window")...)
		if s.Sample <= 0 || s.Sample > 1 {
			v.fault(CodeValue, at("sample"), "write 1 for all of them, 0.1 for a tenth", "schedules.%s.sample must be above 0 and at most 1", name)
		}
	case "backup":
		if s.Directory != "" && !filepath.IsAbs(s.Directory) {
			v.fault(CodeValue, at("directory"), "write an absolute path", "schedules.%s.directory must be absolute", name)
		}
		if s.KeepCopies < 1 {
			v.fault(CodeValue, at("keep_copies"), "", "schedules.%s.keep_copies must be at least 1", name)
		}
	case "submit":
		if s.Operation == "" {
			v.fault(CodeMissing, at("operation"), "say which operation is submitted", "schedules.%s has no operation", name)
		}
		if s.Key == "" {
			v.fault(CodeMissing, at("key"), `write key = "report:daily"`, "schedules.%s has no key", name)
		}
		if !json.Valid([]byte(strings.ReplaceAll(s.Payload, "${nominal}", "2026-01-01T00:00:00Z"))) {
			v.fault(CodeValue, at("payload"), `write payload = '{"report": "daily"}'`, "schedules.%s.payload is not JSON", name)
		}
	}
}
