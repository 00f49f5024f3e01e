package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon/webhook"
)

func mac(key string, parts ...string) []byte {
	h := hmac.New(sha256.New, []byte(key))
	for _, p := range parts {
		h.Write([]byte(p))
	}
	return h.Sum(nil)
}

const body = `{"id":"evt_1","type":"ticket.created","data":{"id":42,"ref":"ticket:SUP-1:create:v1"}}`

// sent is one message as a destination would sign it.
func sent(scheme string, at time.Time, body string) (secret string, headers map[string]string) {
	t := fmt.Sprint(at.Unix())
	switch scheme {
	case webhook.Standard:
		sum := base64.StdEncoding.EncodeToString(mac("key", "msg_1.", t, ".", body))
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte("key")), map[string]string{
			"webhook-id": "msg_1", "webhook-timestamp": t, "webhook-signature": "v1,AAAA v1a,x v1," + sum,
		}
	case webhook.Stripe:
		return "key", map[string]string{"stripe-signature": "t=" + t + ",v1=00,v0=11,v1=" + hex.EncodeToString(mac("key", t, ".", body))}
	}
	return "key", map[string]string{"x-hub-signature-256": "sha256=" + hex.EncodeToString(mac("key", body)), "x-github-delivery": "d-1"}
}

func hook(t *testing.T, scheme string) *webhook.Hook {
	t.Helper()
	h, err := webhook.New(webhook.Config{
		Scheme: scheme, Credential: "c", Key: ".data.ref", ObjectID: ".data.id", Verdict: `if .type == "ticket.created" then "happened" else null end`,
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The example of the Standard Webhooks specification.
func TestStandardAcceptsThePublishedExample(t *testing.T) {
	h, err := webhook.New(webhook.Config{Scheme: webhook.Standard, Credential: "c", Key: ".test", Verdict: "null"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := h.Read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", map[string]string{
		"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
		"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
	}, []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0))
	if err != nil || m.EventID != "msg_p5jXN8AQM9LWM0D4loKWxJek" || m.Key != "2432232314" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestReadBelievesOnlyWhatIsSignedAndFresh(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, scheme := range []string{webhook.Standard, webhook.Stripe, webhook.GitHub} {
		t.Run(scheme, func(t *testing.T) {
			h := hook(t, scheme)
			secret, headers := sent(scheme, now, body)
			m, err := h.Read(secret, headers, []byte(body), now.Add(time.Minute))
			if err != nil || m.Key != "ticket:SUP-1:create:v1" || m.ObjectID != "42" || m.Verdict != webhook.Happened || m.EventID == "" {
				t.Fatalf("%+v, %v", m, err)
			}
			if _, err := h.Read(secret, headers, []byte(body+" "), now); !errors.Is(err, webhook.ErrSignature) {
				t.Errorf("an altered body: %v", err)
			}
			if _, err := h.Read("other", headers, []byte(body), now); !errors.Is(err, webhook.ErrSignature) {
				t.Errorf("another secret: %v", err)
			}
			if _, err := h.Read("", map[string]string{}, []byte(body), now); !errors.Is(err, webhook.ErrSignature) {
				t.Errorf("no secret and no signature: %v", err)
			}
			for _, late := range []time.Duration{6 * time.Minute, -6 * time.Minute} {
				_, err := h.Read(secret, headers, []byte(body), now.Add(late))
				if scheme != webhook.GitHub && !errors.Is(err, webhook.ErrReplay) {
					t.Errorf("%s off: %v", late, err)
				}
			}
		})
	}
}

// The id of a GitHub delivery is not signed: whoever replays a message could change it.
func TestTheEventIDIsAlwaysSigned(t *testing.T) {
	h := hook(t, webhook.GitHub)
	secret, headers := sent(webhook.GitHub, time.Now(), body)
	first, err := h.Read(secret, headers, []byte(body), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	headers["x-github-delivery"] = "d-2"
	again, err := h.Read(secret, headers, []byte(body), time.Now())
	if err != nil || again.EventID != first.EventID {
		t.Errorf("%q, then %q, %v", first.EventID, again.EventID, err)
	}
}

func TestNewListsEveryFault(t *testing.T) {
	if _, err := webhook.New(webhook.Config{Scheme: "md5", Tolerance: "2h", Key: "(", ObjectID: ".id"}); err == nil {
		t.Error("accepted")
	}
}
