package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// number maps one enumeration to another of the same order. A value that the
// target does not know (from a later version) becomes its zero value, which by
// contract is the one that promises least.
func number[To, From ~int32 | ~uint8](v, last From) To {
	if v < 0 || v > last {
		return 0
	}
	return To(v)
}

// stamp maps the zero time to an unset field.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func instant(t *timestamppb.Timestamp) time.Time {
	if t == nil || !t.IsValid() {
		return time.Time{}
	}
	return t.AsTime()
}

// span maps zero to an unset field, for the durations where both mean the same.
func span(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// length of an unset or invalid duration is 0; of one too long for Go, the longest.
func length(d *durationpb.Duration) time.Duration {
	if d == nil || !d.IsValid() {
		return 0
	}
	return d.AsDuration()
}

// optSpan keeps the difference between zero and unknown.
func optSpan(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

// optLength reads a bound. A bound that is negative or malformed is no bound.
func optLength(d *durationpb.Duration) *time.Duration {
	if d == nil || !d.IsValid() {
		return nil
	}
	v := d.AsDuration()
	return &v
}

// each maps a list, keeping nil nil.
func each[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}
