package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
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

func TestOffsetsComeBack(t *testing.T) {
	base := us(epochStart())
	for _, m := range []micros{0, base, base + 1, base - 1, base - 2, base + 86_400_000_000, 1} {
		if got := m.from(base).after(base); got != m {
			t.Errorf("%d from %d came back as %d", m, base, got)
		}
		if got := m.from(0).after(0); got != m {
			t.Errorf("%d from zero came back as %d", m, got)
		}
	}
}

func TestTermsAreStoredOnceAndUndoneWithTheirOperation(t *testing.T) {
	db := openTest(t)
	ctx, now := context.Background(), epochStart()
	count := func() (n int) {
		must(t, db.SQL(ctx, "SELECT count(*) FROM term", func(_ []string, v []any) error { n = int(v[0].(int64)); return nil }))
		return n
	}
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "a:1:v1", now) })
	first := count()
	write(t, db, func(tx *Tx) (journal.Effect, error) { return submitSent(tx, "b:1:v1", now) })
	if n := count(); n != first {
		t.Errorf("a second effect of the same policy made %d terms", n-first)
	}
	err := db.Write(ctx, func(tx *Tx) error {
		in := testIntent("c:1:v1", now)
		in.ContentType = "application/vnd.undone+json"
		e, _, err := tx.Submit(in, testEnv(now), false)
		if err != nil {
			return err
		}
		e.Finding = "no such finding"
		tx.byKey[e.Key].e = e
		return nil
	})
	if !conflictOf(err) {
		t.Fatalf("error: %v", err)
	}
	in := testIntent("d:1:v1", now)
	in.ContentType = "application/vnd.other+json"
	write(t, db, func(tx *Tx) (journal.Effect, error) {
		e, _, err := tx.Submit(in, testEnv(now), false)
		return e, err
	})
	if n := count(); n != first+1 {
		t.Errorf("%d terms, want %d", n, first+1)
	}
	e, err := db.Effect(ctx, "d:1:v1")
	must(t, err)
	if e.ContentType != in.ContentType {
		t.Errorf("content type came back as %q", e.ContentType)
	}
	verifies(t, db)
}

// The project's limit is 120 MiB for a hundred thousand effects.
func TestAnEffectTakesAtMostThirteenHundredBytes(t *testing.T) {
	db := openTest(t)
	ctx := context.Background()
	const n = 2000
	empty, err := db.Stats(ctx)
	must(t, err)
	for i := range n / 100 {
		for _, step := range []func(*Tx, string) error{
			func(tx *Tx, key string) error { _, err := submitSent(tx, key, epochStart()); return err },
			func(tx *Tx, key string) error { _, err := answer(tx, key, epochStart()); return err },
		} {
			must(t, db.Write(ctx, func(tx *Tx) error {
				for j := range 100 {
					if err := step(tx, fmt.Sprintf("bench:%09d:create:v1", i*100+j)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	st, err := db.Stats(ctx)
	must(t, err)
	if per := (st.Pages - empty.Pages) * st.PageBytes / n; per > 1300 {
		t.Errorf("%d bytes per effect", per)
	} else {
		t.Logf("%d bytes per effect, %d pages", per, st.Pages)
	}
}
