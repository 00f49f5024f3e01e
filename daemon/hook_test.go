package daemon_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/settled-dev/settled/daemon"
	"github.com/settled-dev/settled/daemon/daemontest"
	"github.com/settled-dev/settled/journal"
)

func hooked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "desk_hook"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`
credentials = ["desk_hook"]
[destinations.desk.with.operations.create.webhook]
scheme = "stripe"
credential = "desk_hook"
event_id = ".id"
key = ".ref"
object_id = ".object"
verdict = ".says"
[credentials]
dir = %q
`, dir)
}

// message is one webhook, signed at a time.
func message(id, says string, at time.Time) (map[string]string, []byte) {
	body := fmt.Sprintf(`{"id":%q,"ref":%q,"object":"obj-1","says":%q}`, id, key, says)
	h := hmac.New(sha256.New, []byte("secret"))
	fmt.Fprintf(h, "%d.%s", at.Unix(), body)
	return map[string]string{"stripe-signature": fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(h.Sum(nil)))}, []byte(body)
}

func TestScenario42_a_webhook_settles_what_was_accepted(t *testing.T) {
	story(t, hooked(t), func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.Accepted(20*time.Minute))
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Acknowledged)

		headers, body := message("evt-0", "happened", time.Now())
		headers["stripe-signature"] += "0" // forged
		if _, err := run.Hook(t.Context(), "desk", headers, body); !errors.Is(err, daemon.ErrHookRefused) {
			t.Errorf("forged: %v", err)
		}
		headers, body = message("evt-0", "happened", time.Now().Add(-10*time.Minute)) // replayed
		if _, err := run.Hook(t.Context(), "desk", headers, body); !errors.Is(err, daemon.ErrHookRefused) {
			t.Errorf("replayed: %v", err)
		}
		if e := run.Effect(key); e.Phase != journal.Acknowledged {
			t.Fatalf("a message that was not believed made it %s", e.Phase)
		}

		time.Sleep(21 * time.Minute) // it is done by now, whether a poll has told us or not
		headers, body = message("evt-1", "happened", time.Now())
		out, err := run.Hook(t.Context(), "desk", headers, body)
		if err != nil || out.Key != key || out.Seen {
			t.Fatalf("%+v, %v", out, err)
		}
		e := run.Until(key, time.Minute, journal.Succeeded)
		if out, err = run.Hook(t.Context(), "desk", headers, body); err != nil || !out.Seen {
			t.Errorf("the second delivery: %+v, %v", out, err)
		}
		if after := run.Effect(key); after.Seq != e.Seq {
			t.Error("the second delivery changed the effect")
		}
		// An old report of no effect comes last: it was about an earlier time.
		headers, body = message("evt-2", "ended", time.Now())
		if _, err := run.Hook(t.Context(), "desk", headers, body); err != nil {
			t.Error(err)
		}
		if after := run.Effect(key); after.Phase != journal.Succeeded {
			t.Errorf("out of order: %s", after.Phase)
		}
		run.Once(key)
	})
}

func TestScenario42_without_its_webhook_it_is_unknown_at_the_deadline(t *testing.T) {
	story(t, hooked(t), func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.Accepted(200*time.Hour))
		run := r.Start()
		defer stop(t, run)
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Acknowledged)
		run.Until(key, 61*time.Minute, journal.Unknown)
		calls(t, r, key, 1)
	})
}

func TestScenario42_the_evidence_is_on_disk_before_the_answer(t *testing.T) {
	story(t, hooked(t), func(t *testing.T, r *daemontest.Rig) {
		r.World.Script(key, daemontest.Accepted(0))
		run := r.Start()
		run.Ticket(key)
		run.Until(key, time.Minute, journal.Acknowledged)
		headers, body := message("evt-1", "happened", time.Now())
		if _, err := run.Hook(t.Context(), "desk", headers, body); err != nil {
			t.Fatal(err)
		}
		run.Crash()
		run = r.Start()
		defer stop(t, run)
		if out, err := run.Hook(t.Context(), "desk", headers, body); err != nil || !out.Seen {
			t.Errorf("after the crash: %+v, %v", out, err)
		}
		d, err := run.DB.Evidence(t.Context(), key)
		found := false
		for _, x := range d {
			found = found || x.Source == journal.FromWebhook
		}
		if err != nil || !found {
			t.Errorf("evidence %+v, %v", d, err)
		}
		run.Until(key, time.Minute, journal.Succeeded)
		run.Once(key)
	})
}

func TestHookOfNobodyIsNotFound(t *testing.T) {
	story(t, "", func(t *testing.T, r *daemontest.Rig) {
		run := r.Start()
		defer stop(t, run)
		headers, body := message("evt-1", "happened", time.Now())
		for _, name := range []string{"desk", "nobody"} {
			if _, err := run.Hook(t.Context(), name, headers, body); !errors.Is(err, daemon.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
