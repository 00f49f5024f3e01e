package config

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxDuration bounds every duration, so that sums of several cannot overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

// ParseDuration reads "30s", "1h30m", "500ms" or "30d" (a day is 24 h). It
// refuses negative values, values without a unit and more than ten years.
func ParseDuration(s string) (time.Duration, error) {
	rest, days := s, int64(0)
	if i := strings.IndexByte(s, 'd'); i > 0 {
		n, err := strconv.ParseInt(s[:i], 10, 32)
		if err != nil || n < 0 || s[0] == '+' {
			return 0, durationError(s)
		}
		days, rest = n, s[i+1:]
	}
	total := time.Duration(0)
	if rest != "" || days == 0 && !strings.Contains(s, "d") {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || rest[0] == '+' || rest[0] == '-' {
			return 0, durationError(s)
		}
		total = d
	}
	if days > int64(maxDuration/(24*time.Hour)) || total > maxDuration {
		return 0, fmt.Errorf("%q is longer than ten years", s)
	}
	if total += time.Duration(days) * 24 * time.Hour; total > maxDuration {
		return 0, fmt.Errorf("%q is longer than ten years", s)
	}
	return total, nil
}

func durationError(s string) error {
	return fmt.Errorf("%q is not a duration; write one as in \"30s\", \"15m\", \"24h\" or \"30d\"", s)
}

// FormatDuration writes a duration as the configuration would: "24h", "1m30s", "30d".
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Rate is a number of dispatches in a unit of time, written "10/s", "10/m" or "10/h".
type Rate struct {
	Count int           `json:"count"` // at least 1
	Per   time.Duration `json:"per"`   // one second, minute or hour
}

// PerSecond is the rate as a token bucket wants it.
func (r Rate) PerSecond() float64 { return float64(r.Count) / r.Per.Seconds() }

// String writes the rate as the configuration does.
func (r Rate) String() string {
	unit := map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h"}[r.Per]
	return fmt.Sprintf("%d/%s", r.Count, unit)
}

// ParseRate reads "10/s", "10/m" or "10/h".
func ParseRate(s string) (Rate, error) {
	count, unit, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	per, known := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[strings.TrimSpace(unit)]
	if !ok || err != nil || !known || n < 1 || n > 1_000_000 {
		return Rate{}, fmt.Errorf("%q is not a rate; write a whole number of at least 1 and a unit, as in \"10/s\", \"10/m\" or \"10/h\"", s)
	}
	return Rate{Count: n, Per: per}, nil
}

// Tokens is the refill of a retry-token bucket: a share of first attempts and
// a floor that flows whatever the traffic, written "10% + 10/m".
type Tokens struct {
	Share     float64 `json:"share"`      // 0 to 1: 0.1 means one retry token for ten first attempts
	PerMinute float64 `json:"per_minute"` // the floor; 0 = none
}

// String writes the tokens as the configuration does.
func (t Tokens) String() string {
	return fmt.Sprintf("%s%% + %s/m", trimFloat(t.Share*100), trimFloat(t.PerMinute))
}

func trimFloat(f float64) string { return strconv.FormatFloat(f, 'g', 10, 64) }

// ParseTokens reads "10% + 10/m"; either half may stand alone.
func ParseTokens(s string) (Tokens, error) {
	bad := fmt.Errorf("%q is not a token rule; write a share and a floor, as in \"10%% + 10/m\"", s)
	var t Tokens
	var share, floor bool
	for _, part := range strings.Split(s, "+") {
		part = strings.TrimSpace(part)
		if percent, ok := strings.CutSuffix(part, "%"); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(percent), 64)
			if err != nil || !(f >= 0 && f <= 100) || share {
				return Tokens{}, bad
			}
			t.Share, share = f/100, true
			continue
		}
		r, err := ParseRate(part)
		if err != nil || floor {
			return Tokens{}, bad
		}
		t.PerMinute, floor = r.PerSecond()*60, true
	}
	if t.Share == 0 && t.PerMinute == 0 {
		return Tokens{}, errors.Join(bad, errors.New("it would never allow a retry"))
	}
	return t, nil
}

// validName reports whether s may name an owner, a destination, an adapter, a
// schedule or a credential. Such names end up in paths, labels and filters.
func validName(s string) bool {
	ok, _ := regexp.MatchString(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`, s)
	return ok
}

const nameRule = "letters, digits, \".\", \"_\" and \"-\", at most 64, beginning with a letter or digit"
