package config

import (
	"fmt"
	"time"
)

// Declared is what an adapter says of one operation, as far as the
// configuration must agree with it.
type Declared struct {
	MaxProcessing *time.Duration // late-effect bound; nil = none known
	Lag           *time.Duration // of its reads; nil = undeclared, zero for a strong view
	Irreversible  bool
}

// Override is a safety bound that the operator lowered on purpose.
type Override struct {
	Destination string        `json:"destination"`
	Operation   string        `json:"operation,omitempty"` // "" = all
	Key         string        `json:"key"`                 // destinations.desk.grace.safety
	Value       time.Duration `json:"value"`               // what is used
	Floor       time.Duration `json:"floor"`               // the default or declaration it goes below
	Declared    bool          `json:"declared"`            // the floor is the adapter's declaration
	Reason      string        `json:"reason"`
}

// WithDeclared joins the adapter's declarations: the longer of max_processing
// and lag counts, and safety follows the lag. Only an override_reason lets a
// shorter configured value stand; CheckDeclared records that.
func (e Effective) WithDeclared(d Declared) Effective {
	e.MaxProcessing = joinBound(e.MaxProcessing, d.MaxProcessing, e.OverrideReason)
	e.Lag = joinBound(e.Lag, d.Lag, e.OverrideReason)
	e.setSafety()
	return e
}

func joinBound(own, declared *time.Duration, reason string) *time.Duration {
	switch {
	case declared == nil:
		return own
	case own == nil || *own < *declared && reason == "":
		return declared
	}
	return own
}

// CheckDeclared checks one operation against what its adapter declares. A
// fault that is no warning refuses the destination. The overrides belong in
// the audit chain, as do [Config.Overrides].
func (c *Config) CheckDeclared(destination, operation string, d Declared) ([]Fault, []Override) {
	dest := c.Destinations[destination]
	if dest == nil {
		return []Fault{{Code: CodeValue, Message: fmt.Sprintf("there is no destination %q", destination)}}, nil
	}
	fs := &faults{}
	v := &validator{cfg: c, faults: fs}
	base := []string{"destinations", destination}
	own := dest.ForOperation(operation)
	over := v.declaredFloor(base, operation, "max_processing", own.MaxProcessing, d.MaxProcessing, own.OverrideReason)
	over = append(over, v.declaredFloor(base, operation, "lag", own.Lag, d.Lag, own.OverrideReason)...)
	e := own.WithDeclared(d)
	if own.safety != nil {
		if floor, before := minSafety(e.Lag), minSafety(own.Lag); floor > before && *own.safety < floor {
			over = append(over, v.floor(base, operation, "safety", *own.safety, floor, own.OverrideReason, true)...)
		}
	}
	if own.Proof == "ack" && d.Irreversible {
		v.proofPlace(base, operation)
	}
	v.absenceFits(base, e, " (with what the adapter declares for "+operation+")")
	return fs.list, over
}

// proofPlace reports proof = "ack" of an irreversible operation where it is written.
func (v *validator) proofPlace(base []string, operation string) {
	path := append(base[:len(base):len(base)], "operations", operation, "proof")
	if _, ok := v.cfg.root.find(path...); !ok {
		path = append(base[:len(base):len(base)], "proof")
	}
	v.fault(CodeConflict, path, `write proof = "read"`,
		`proof = "ack" is refused for %s, which is irreversible: nobody would notice an acknowledged effect that is not there`, operation)
}

// declaredFloor handles a configured bound shorter than the declared one.
func (v *validator) declaredFloor(base []string, op, key string, own, declared *time.Duration, reason string) []Override {
	if own == nil || declared == nil || *own >= *declared {
		return nil
	}
	if reason != "" {
		return v.floor(base, op, key, *own, *declared, reason, true)
	}
	path := append(base[:len(base):len(base)], "grace", key)
	v.warn(path, "write a grace.override_reason to use the shorter one",
		"%s is shorter than the %s that the adapter declares for %s; the longer counts", FormatDuration(*own), FormatDuration(*declared), op)
	return nil
}
