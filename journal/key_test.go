package journal

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestKeysThatPass(t *testing.T) {
	for _, k := range []string{
		"ticket:SUP-4182:assign:v1", "ticket-4421:eng-handoff:v2", "deploy-42", "a", "order:2026-03-04:ship:v1", "x~y/z+w=_.-",
		"call:+1234567:v1", "id:4111111111111112:v1", "n:123456789012:v1", "n:41111111111111111111:v1", "build:20260304120000:v1",
		strings.Repeat("k", MaxKey),
	} {
		if err := CheckKey(k, KeyRules{}); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
}

func TestScenario17_KeysWithPersonalDataAreRefusedWithTheReason(t *testing.T) {
	for key, want := range map[string]string{
		"": "empty", strings.Repeat("k", MaxKey+1): "limit",
		"user:ada@example.org:v1": "e-mail", "ada@localhost": "e-mail",
		"call:+4930123456:v1": "phone", "call:+12345678:v1": "phone", "x+123456789012345": "phone",
		"pay:4111111111111111:v1": "card", "pay:4111-1111-1111-1111:v1": "card", "pay:378282246310005:v1": "card", "4222222222222": "card",
		"pay:6304000000000000000:v1": "card",
		"a b:v1":                     "white space", "a\tb": "white space", "a\u00a0b": "white space", "a\n": "white space",
		"ä:v1": "byte 1", "a%b": "byte 2", "a\x00b": "byte 2", "a::b": "empty part", ":a": "empty part", "a:": "empty part",
	} {
		err := CheckKey(key, KeyRules{})
		var k *KeyError
		if !errors.As(err, &k) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want a refusal that names %q", key, err, want)
		}
		for _, secret := range []string{"ada@example.org", "4111111111111111", "+4930123456"} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the refusal of %q repeats it: %v", key, err)
			}
		}
	}
}

func TestKeyPatterns(t *testing.T) {
	rules := KeyRules{Allow: []*regexp.Regexp{regexp.MustCompile(`^sku:\d{16}:v\d+$`)}, Deny: []*regexp.Regexp{regexp.MustCompile(`^secret:`)}}
	for key, ok := range map[string]bool{
		"sku:4111111111111111:v1": true, "pay:4111111111111111:v1": false, "secret:x:v1": false, "fine:x:v1": true, "sku:4111111111111111:ä": false,
	} {
		if err := CheckKey(key, rules); (err == nil) != ok {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestPayloadDigestIsCanonical(t *testing.T) {
	same := [][]string{
		{`{"b":1,"a":[true,null]}`, "{ \"a\" : [ true, null ], \"b\": 1.0 }", `{"b":1e0,"a":[true,null]}`},
		{`{"x":"é"}`, `{"x":"\u00e9"}`},
		{`0`, ` -0 `, `0e5`, `0.0`},
		{`"a"`, ` "a"`, `"\u0061"`},
		{`{"n":0.1}`, `{"n":1e-1}`, `{"n":0.10}`},
		{`{"n":1e21}`, `{"n":1000000000000000000000}`},
		{`{"n":9007199254740992}`, `{"n":9007199254740992.0}`},
	}
	seen := map[string]int{}
	for i, group := range same {
		for _, p := range group {
			d, err := PayloadDigest([]byte(p), "application/json")
			if err != nil {
				t.Errorf("%s: %v", p, err)
			}
			if j, ok := seen[d]; ok && j != i {
				t.Errorf("%s has the digest of %s", p, same[j][0])
			}
			seen[d] = i
		}
	}
	if len(seen) != len(same) {
		t.Errorf("%d digests for %d payloads", len(seen), len(same))
	}
	array, _ := PayloadDigest([]byte(`[1]`), "")
	scalar, _ := PayloadDigest([]byte(`1`), "")
	if array == scalar {
		t.Error("1 and [1] have one digest")
	}
}

func TestPayloadsThatAreRefused(t *testing.T) {
	for payload, want := range map[string]string{
		`{"n":9007199254740993}`: "/n", `[1,9007199254740993]`: "/1", `1e400`: "range", `{"n":-1e400}`: "range", `1e-400`: "64-bit", `1e999999999`: "range",
		`1e-999999999`: "64-bit", `0.1000000000000000055511151231257827`: "64-bit",
		`{"a":1,"a":2}`: "twice", `{"a":1,"\u0061":2}`: "twice", `{"o":{"x":1,"x":1}}`: "/o/x",
		"": "empty", "  ": "empty", `{`: "not JSON", `{} {}`: "not JSON", `nul`: "not JSON",
		"\"\xff\"": "UTF-8", "{\"\xff\":1}": "UTF-8", `"\ud800"`: "surrogate", `"\udc00\ud800"`: "surrogate", `"\ud800\u0041"`: "surrogate", `{"\udfff":1}`: "surrogate",
	} {
		_, err := PayloadDigest([]byte(payload), "application/json")
		var p *PayloadError
		if !errors.As(err, &p) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want a refusal that names %q", payload, err, want)
		}
	}
	if _, err := PayloadDigest([]byte(`"\ud83d\ude00 \\ud800"`), ""); err != nil {
		t.Errorf("a pair of surrogates and an escaped backslash are fine: %v", err)
	}
}

func TestHostilePayloadsAreBounded(t *testing.T) {
	start := time.Now()
	for _, p := range []string{
		strings.Repeat("[", 1<<20), strings.Repeat("[", 200000) + strings.Repeat("]", 200000), strings.Repeat(`{"a":`, 100000),
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000), `{"a":` + strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3001),
		"[" + strings.Repeat("1e308,", 20000) + "1]", "[" + strings.Repeat("1e-999999999,", 20000) + "1]", strings.Repeat("9", 1<<20), "0." + strings.Repeat("1", 1<<20),
	} {
		_, _ = PayloadDigest([]byte(p), "")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %s", d)
	}
	if _, err := PayloadDigest([]byte(strings.Repeat("[", 5000)+strings.Repeat("]", 5000)), ""); err == nil {
		t.Error("5000 levels are accepted")
	}
}

func TestPayloadThatIsNotJSON(t *testing.T) {
	a, err := PayloadDigest([]byte("{not json"), "text/plain")
	b, _ := PayloadDigest([]byte("{not json"), "text/html")
	if err != nil || a == b {
		t.Errorf("%v; the content type does not count", err)
	}
	for _, ct := range []string{"", "application/json; charset=utf-8", "Application/JSON", "application/problem+json"} {
		if _, err := PayloadDigest([]byte("{"), ct); err == nil {
			t.Errorf("%q is not taken as JSON", ct)
		}
	}
}

func TestFingerprintDependsOnEveryPart(t *testing.T) {
	seen := map[string]bool{Fingerprint("d", "a", "o", "u", "p"): true}
	for _, p := range [][5]string{{"d2", "a", "o", "u", "p"}, {"d", "b", "o", "u", "p"}, {"d", "a", "q", "u", "p"}, {"d", "a", "o", "v", "p"}, {"d", "a", "o", "u", "q"}, {"da", "", "o", "u", "p"}, {"", "da", "o", "u", "p"}, {"d", "a", "ou", "", "p"}} {
		f := Fingerprint(p[0], p[1], p[2], p[3], p[4])
		if seen[f] {
			t.Errorf("%v has the fingerprint of another", p)
		}
		seen[f] = true
	}
}

func FuzzCheckKey(f *testing.F) {
	for _, s := range []string{"a:b:v1", "+12345678", "4111-1111-1111-1111", "a@b", "", "a::", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if err := CheckKey(key, KeyRules{}); err != nil {
			return
		}
		if key == "" || len(key) > MaxKey || strings.ContainsAny(key, "@ \t\n%?#\\") || strings.Contains(key, "::") {
			t.Errorf("%q was accepted", key)
		}
	})
}

func FuzzPayloadDigest(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[1.5,"x"]}`, `[1e9]`, `"\ud83d\ude00"`, `{"a":{"a":1}}`, `-0`, `{"\u20ac":1,"\r":2,"1":3}`, `[[[]]]`, "\"\xff\"", `1E+2`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		d, err := PayloadDigest(payload, "application/json")
		if err != nil {
			return
		}
		var v any
		dec := json.NewDecoder(strings.NewReader(string(payload)))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("accepted what is not JSON: %q", payload)
		}
		again, err := json.Marshal(v) // members sorted by bytes, no white space
		if err != nil {
			t.Fatal(err)
		}
		d2, err := PayloadDigest(again, "application/json")
		if err != nil || d2 != d {
			t.Fatalf("%q has digest %s, the same value written as %q has %s (%v)", payload, d, again, d2, err)
		}
	})
}
