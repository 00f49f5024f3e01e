package sqlite

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/settled-dev/settled/journal"
)

// fillAll sets every field of a value to something that is not zero, so that a
// field that the mapping forgets comes back as zero and is seen.
func fillAll(v reflect.Value, n *int64) {
	*n++
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.UnixMicro(1_700_000_000_000_000 + *n).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("s" + string(rune('a'+*n%26)) + string(rune('a'+*n/26%26)))
	case reflect.Int, reflect.Int64:
		v.SetInt(*n)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*n % 250))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillAll(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fillAll(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
	case reflect.Struct:
		for i := range v.NumField() {
			fillAll(v.Field(i), n)
		}
	default:
		panic("no filling for " + v.Kind().String())
	}
}

func TestEveryFieldOfAnEffectComesBack(t *testing.T) {
	db := openTest(t)
	var e journal.Effect
	n := int64(0)
	fillAll(reflect.ValueOf(&e).Elem(), &n)
	e.ID, e.Phase, e.Finding, e.SettledAt = 0, journal.NeedsHuman, journal.FindingUnknown, time.Time{}
	e.Review.State, e.Attempts[0].State, e.Attempts[1].State = journal.ReviewOpen, journal.AttemptLost, journal.AttemptSent
	rec := journal.Reconciliation{}
	fillAll(reflect.ValueOf(&rec).Elem(), &n)
	rec.Key = e.Key
	ch := journal.Change{
		Effect: e, Attempts: e.Attempts, Reconciliations: []journal.Reconciliation{rec},
		Entries: []journal.Entry{
			{At: epochStart(), Kind: "transition", Transition: 42, Key: e.Key, To: journal.Unknown},
			{At: epochStart(), Kind: "transition", Transition: 23, Key: e.Key, From: journal.Unknown, To: journal.NeedsHuman},
		},
	}
	must(t, db.Write(context.Background(), func(tx *Tx) error { return tx.keep(&ch, true) }))
	got, err := db.Effect(context.Background(), e.Key)
	must(t, err)
	want := ch.Effect
	if !reflect.DeepEqual(got, want) {
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		t.Errorf("came back\n%s\nwas\n%s", a, b)
	}
	recs, err := db.Reconciliations(context.Background(), e.Key)
	must(t, err)
	if len(recs) != 1 || !reflect.DeepEqual(recs[0], rec) {
		t.Errorf("reconciliation came back %+v, was %+v", recs, rec)
	}
	reviews, err := db.Reviews(context.Background(), journal.Filter{}, 0)
	must(t, err)
	if len(reviews) != 1 || !reflect.DeepEqual(&reviews[0].Review, e.Review) {
		t.Errorf("review came back %+v", reviews)
	}
}

func TestPackedDigestsComeBack(t *testing.T) {
	hex := "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, s := range []string{"", "x", "sha256:" + hex, hex, "sha256:ABC", "sha256:" + hex[:63] + "F", "attestation:sha256:" + hex} {
		if got := unpack(pack(s)); got != s {
			t.Errorf("%q came back as %q", s, got)
		}
	}
	if n := len(pack("sha256:" + hex)); n != 33 {
		t.Errorf("a digest takes %d bytes", n)
	}
}
