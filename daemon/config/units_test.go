package config_test

import (
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon/config"
)

func TestDurations(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "24h": day, "30d": 30 * day, "1d12h": 36 * time.Hour, "500ms": 500 * time.Millisecond,
		"1h30m": 90 * time.Minute, "0s": 0, "0": 0, "0d": 0, "3650d": 3650 * day, "1.5h": 90 * time.Minute,
	} {
		if got, err := config.ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "30", "-1s", "+1s", "s", "d", "1w", "1.5d", "-1d", "+1d", "1d-1h", "1d+1h", "3651d", "999999999999h", "99999d", "1d1d", "3650d1s", "1 h"} {
		if got, err := config.ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %s", text, got)
		}
	}
	for want, d := range map[string]time.Duration{"30s": 30 * time.Second, "1m": time.Minute, "1m30s": 90 * time.Second, "24h": day, "30d": 30 * day, "1h30m": 90 * time.Minute, "0s": 0, "10m": 10 * time.Minute, "1h0m5s": time.Hour + 5*time.Second} {
		if got := config.FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%d) = %s, want %s", d, got, want)
		}
	}
}

func TestRates(t *testing.T) {
	for text, want := range map[string]float64{"10/s": 10, "30/m": 0.5, "3600/h": 1, " 5 / s ": 5} {
		if got, err := config.ParseRate(text); err != nil || got.PerSecond() != want {
			t.Errorf("ParseRate(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "10", "0/s", "-1/s", "1.5/s", "10/d", "/s", "10/", "1000001/s", "10/s/s"} {
		if got, err := config.ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %v", text, got)
		}
	}
}

func TestTokens(t *testing.T) {
	for text, want := range map[string]config.Tokens{"10% + 10/m": {Share: 0.1, PerMinute: 10}, "5%": {Share: 0.05}, "1/s": {PerMinute: 60}, "60/h+0%": {PerMinute: 1}} {
		if got, err := config.ParseTokens(text); err != nil || got != want {
			t.Errorf("ParseTokens(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "10", "101%", "-1%", "NaN%", "0%", "10% + 10%", "1/m + 1/m", "10% 10/m", "10% + 10/m + 1/s"} {
		if got, err := config.ParseTokens(text); err == nil {
			t.Errorf("ParseTokens(%q) = %v", text, got)
		}
	}
}
