package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon/config"
)

const minimal = `
[owners.ops]
[owners.other]
[destinations.desk]
adapter = "http"
owner = "ops"
`

func TestDefaultsOfADestination(t *testing.T) {
	got := mustParse(t, minimal).Destinations["desk"].ForOperation("anything")
	want := config.Effective{
		Destination: "desk", Operation: "anything", Adapter: "http", Owner: "ops", RepairOwner: "ops",
		Severity:     "normal",
		ReviewWithin: map[string]time.Duration{"low": 72 * time.Hour, "normal": 4 * time.Hour, "high": time.Hour, "critical": 15 * time.Minute},
		ApprovalMode: "none", Proof: "read", OnOutage: "wait", Settle: "read",
		Timeout: 10 * time.Second, RecordReserve: 30 * time.Second, Deadline: 24 * time.Hour, MaxAge: 30 * time.Second,
		Attempts: 3, Elapsed: 90 * time.Second, BackoffInitial: time.Second, BackoffMax: 30 * time.Second, BackoffFactor: 2,
		TokensShare: 0.1, TokensPerMinute: 10, AfterAbsence: 15 * time.Minute,
		Skew: 5 * time.Second, Safety: 10 * time.Second, Linger: 5 * time.Second, AbsenceValid: 10 * time.Minute,
		Reads:           []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour},
		ReconcileBudget: 24 * time.Hour, AckDeadline: time.Hour, VerifyDeadline: 10 * time.Minute,
		Contain: map[string]string{
			"unknown": "key", "partial": "key", "duplicate": "account", "conflicts": "target", "postcondition_failed": "target",
		},
		TripBreaker: []string{"duplicate"}, OpenAfter: 5, Concurrency: 4, RatePerSecond: 10, QueueLimit: 10000,
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestAnOperationOverridesItsDestination(t *testing.T) {
	c := mustParse(t, minimal+`
severity = "low"
[destinations.desk.contain]
duplicate = "destination"
[destinations.desk.operations.create]
owner = "other"
proof = "ack"
severity = "critical"
[destinations.desk.operations.create.contain]
unknown = "run"
trip_breaker = []
`)
	create, rest := c.Destinations["desk"].ForOperation("create"), c.Destinations["desk"].ForOperation("delete")
	if create.Owner != "other" || create.RepairOwner != "other" || create.Proof != "ack" || create.Severity != "critical" {
		t.Errorf("create: %+v", create)
	}
	if create.Contain["unknown"] != "run" || create.Contain["duplicate"] != "destination" || len(create.TripBreaker) != 0 {
		t.Errorf("create contains %v, trips %v", create.Contain, create.TripBreaker)
	}
	if rest.Owner != "ops" || rest.Proof != "read" || rest.Severity != "low" || rest.Contain["unknown"] != "key" || len(rest.TripBreaker) != 1 {
		t.Errorf("delete: %+v", rest)
	}
	if create.ReviewTime() != 15*time.Minute || rest.ReviewTime() != 72*time.Hour {
		t.Errorf("review times %s and %s", create.ReviewTime(), rest.ReviewTime())
	}
}

func TestTheDocumentedDefaultsGive127Seconds(t *testing.T) {
	c := mustParse(t, minimal+"[destinations.desk.grace]\nmax_processing = \"60s\"\nlag = \"2s\"\n")
	if got := c.Destinations["desk"].ForOperation("x").AbsenceTime(); got != 127*time.Second {
		t.Fatalf("absence time %s", got)
	}
}

func TestSafetyFollowsTheLag(t *testing.T) {
	c := mustParse(t, minimal+"[destinations.desk.grace]\nlag = \"1m\"\n")
	if got := c.Destinations["desk"].ForOperation("x").Safety; got != 30*time.Second {
		t.Fatalf("safety %s, want half the lag", got)
	}
}

func ptr(d time.Duration) *time.Duration { return &d }

func TestTheLongerOfConfiguredAndDeclaredCounts(t *testing.T) {
	for _, c := range []struct {
		story, grace     string
		declared         config.Declared
		processing, lag  *time.Duration
		safety           time.Duration
		overrides, warns int
	}{
		{"nobody declares", ``, config.Declared{}, nil, nil, 10 * time.Second, 0, 0},
		{"only the adapter", ``, config.Declared{MaxProcessing: ptr(time.Minute), Lag: ptr(time.Minute)}, ptr(time.Minute), ptr(time.Minute), 30 * time.Second, 0, 0},
		{"only the operator", "max_processing = \"60s\"\nlag = \"2s\"", config.Declared{}, ptr(time.Minute), ptr(2 * time.Second), 10 * time.Second, 0, 0},
		{"the operator lengthens", "max_processing = \"60s\"", config.Declared{MaxProcessing: ptr(time.Second)}, ptr(time.Minute), nil, 10 * time.Second, 0, 0},
		{"the operator is shorter without a reason", "max_processing = \"60s\"", config.Declared{MaxProcessing: ptr(2 * time.Minute)}, ptr(2 * time.Minute), nil, 10 * time.Second, 0, 1},
		{"the operator is shorter with a reason", "max_processing = \"60s\"\noverride_reason = \"measured\"", config.Declared{MaxProcessing: ptr(2 * time.Minute)}, ptr(time.Minute), nil, 10 * time.Second, 1, 0},
		{"a strong view has no lag", ``, config.Declared{Lag: ptr(0)}, nil, ptr(0), 10 * time.Second, 0, 0},
	} {
		t.Run(c.story, func(t *testing.T) {
			cfg := mustParse(t, minimal+"[destinations.desk.grace]\n"+c.grace+"\n")
			e := cfg.Destinations["desk"].ForOperation("create").WithDeclared(c.declared)
			if !reflect.DeepEqual(e.MaxProcessing, c.processing) || !reflect.DeepEqual(e.Lag, c.lag) || e.Safety != c.safety {
				t.Errorf("max_processing %v lag %v safety %s", e.MaxProcessing, e.Lag, e.Safety)
			}
			faults, overrides := cfg.CheckDeclared("desk", "create", c.declared)
			if len(overrides) != c.overrides || len(faults) != c.warns {
				t.Errorf("faults %v overrides %v", faults, overrides)
			}
			for _, f := range faults {
				if !f.Warning {
					t.Errorf("refused: %v", f)
				}
			}
		})
	}
}

func TestDeclarationsCanRefuse(t *testing.T) {
	for _, c := range []struct {
		story, text string
		declared    config.Declared
		says        string
		line        int
	}{
		{"an acknowledgement is no proof where nothing can be undone", minimal + "proof = \"ack\"\n", config.Declared{Irreversible: true}, "irreversible", 7},
		{"also when written for the operation", minimal + "[destinations.desk.operations.create]\nproof = \"ack\"\n", config.Declared{Irreversible: true}, "irreversible", 8},
		{"grace outlasts the retry", minimal, config.Declared{MaxProcessing: ptr(15 * time.Minute)}, "leaves no room", 4},
		{"safety below half the declared lag", minimal + "[destinations.desk.grace]\nsafety = \"10s\"\n", config.Declared{Lag: ptr(time.Minute)}, "shorter than 30s", 8},
	} {
		t.Run(c.story, func(t *testing.T) {
			faults, _ := mustParse(t, c.text).CheckDeclared("desk", "create", c.declared)
			if len(faults) != 1 || faults[0].Warning || !strings.Contains(faults[0].Message, c.says) || faults[0].Line != c.line {
				t.Fatalf("faults %v", faults)
			}
		})
	}
	if faults, _ := mustParse(t, minimal+"proof = \"ack\"\n").CheckDeclared("desk", "create", config.Declared{}); len(faults) != 0 {
		t.Fatalf("ack of a reversible operation: %v", faults)
	}
	if faults, _ := mustParse(t, minimal).CheckDeclared("dsek", "create", config.Declared{}); len(faults) != 1 {
		t.Fatalf("unknown destination: %v", faults)
	}
}

func TestALoweredBoundIsRecordedWithItsReason(t *testing.T) {
	c := mustParse(t, minimal+"[destinations.desk.grace]\nskew = \"1s\"\nsafety = \"2s\"\noverride_reason = \"one machine\"\n")
	if len(c.Overrides) != 2 {
		t.Fatalf("overrides %v", c.Overrides)
	}
	want := config.Override{Destination: "desk", Key: "destinations.desk.grace.skew", Value: time.Second, Floor: 5 * time.Second, Reason: "one machine"}
	if c.Overrides[0] != want {
		t.Fatalf("got %+v", c.Overrides[0])
	}
}
