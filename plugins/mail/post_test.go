package mail_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// adapter is configured for the real servers; smtp is where it sends to.
func (p *post) adapter(t *testing.T, smtp, security string) sdk.Adapter {
	t.Helper()
	imap := p.imap
	if security == "tls" {
		imap = p.imapTLS
	}
	return adapter(t, config(smtp, func(with map[string]any) {
		with["smtp"] = map[string]any{"addr": smtp, "security": security, "user": "archive", "password": "${$secret.mail}"}
		with["imap"] = map[string]any{
			"addr": imap, "security": security, "user": "archive", "password": "${$secret.mail}",
			"mailboxes": []string{"INBOX"}, "lag": "10m", "proves_absence": true,
		}
	}), p.ca)
}

func read(t *testing.T, a sdk.Adapter, o sdk.Operation) sdk.ReadResponse {
	t.Helper()
	r, err := a.Read(context.Background(), sdk.ReadRequest{Purpose: sdk.PurposeResolve, Operation: o})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func finding[T sdk.Finding](t *testing.T, r sdk.ReadResponse) T {
	t.Helper()
	f, ok := r.Finding.(T)
	if !ok {
		t.Fatalf("finding %T %+v", r.Finding, r.Finding)
	}
	return f
}

// arrived reads until n messages are seen.
func arrived(t *testing.T, p *post, a sdk.Adapter, o sdk.Operation, n int) []sdk.Match {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		r := read(t, a, o)
		if found, ok := r.Finding.(*sdk.Found); ok && len(found.Matches) >= n {
			if len(found.Matches) != n {
				t.Fatalf("%d messages, want %d", len(found.Matches), n)
			}
			return found.Matches
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(p.dir, "postfix.log"))
			t.Fatalf("not %d messages: %+v\n%s", n, r.Finding, log)
		}
	}
}

const single = `{"to":["ann@ops.example.test"],"subject":"Hello","text":"für dich\n.\nend"}`

func TestPostfixAndDovecot(t *testing.T) {
	p := startPost(t)
	t.Run("a mail is sent once and found by its Message-ID", func(t *testing.T) {
		for security, smtp := range map[string]string{"none": p.smtp, "starttls": p.smtp, "tls": p.smtpTLS} {
			a, o := p.adapter(t, smtp, security), operation("once-"+security, single)
			r := read(t, a, o)
			finding[*sdk.NoneSeen](t, r)
			if r.Authority != sdk.Eventual || r.Coverage != sdk.CoverageComplete || !r.View.VisibilityProven {
				t.Fatalf("%+v %+v", r, r.View)
			}
			done := outcome[*sdk.Committed](t, dispatch(t, a, o))
			m := arrived(t, p, a, o, 1)[0]
			if m.Agreement != sdk.AgreementSame || m.Strength != sdk.StrengthMarker || m.Object.ID != done.Object.ID {
				t.Fatalf("%+v", m)
			}
			finding[*sdk.NoneSeen](t, read(t, a, operation("once", single)))
		}
	})
	t.Run("the final reply is lost, and the mail is found", func(t *testing.T) {
		a, o := p.adapter(t, cutAt(t, p.smtp, "\r\n.\r\n", true), "none"), operation("lost-answer", single)
		outcome[*sdk.Unknown](t, dispatch(t, a, o))
		arrived(t, p, a, o, 1)
		t.Run("another attempt would be a second mail, and both are counted", func(t *testing.T) {
			outcome[*sdk.Committed](t, dispatch(t, a, o))
			arrived(t, p, a, o, 2)
		})
	})
	t.Run("the end never arrives, and the next attempt sends it", func(t *testing.T) {
		a, o := p.adapter(t, cutAt(t, p.smtp, "\r\n.\r\n", false), "none"), operation("never-arrived", single)
		outcome[*sdk.Unknown](t, dispatch(t, a, o))
		finding[*sdk.NoneSeen](t, read(t, a, o))
		outcome[*sdk.Committed](t, dispatch(t, a, o))
		arrived(t, p, a, o, 1)
	})
	t.Run("a mail in the queue is not seen until it arrives", func(t *testing.T) { p.deferred(t) })
	t.Run("a mail that only looks like ours is none, and one with other content differs", func(t *testing.T) {
		fake, o := startFake(t, script{}), operation("planted", single)
		id := outcome[*sdk.Committed](t, dispatch(t, p.adapter(t, fake.listener.Addr().String(), "none"), o)).Object.ID
		a := p.adapter(t, p.smtp, "none")
		p.plant(t, "Message-ID: <a@b> "+id+"\r\nX-Settled-Digest: none\r\n\r\nhello\r\n")
		finding[*sdk.NoneSeen](t, read(t, a, o))
		p.plant(t, "Message-ID: "+id+"\r\nX-Settled-Digest: none\r\n\r\nhello\r\n")
		if m := arrived(t, p, a, o, 1)[0]; m.Agreement != sdk.AgreementDiffers {
			t.Fatalf("%+v", m)
		}
	})
	t.Run("what Postfix refuses is sent to nobody", func(t *testing.T) { p.refuses(t) })
	t.Run("a wrong password pauses the destination and fails the read", func(t *testing.T) {
		raw := config(p.smtp, func(with map[string]any) {
			with["smtp"] = map[string]any{"addr": p.smtp, "security": "none", "user": "nobody", "password": "${$secret.mail}"}
			with["imap"] = map[string]any{"addr": p.imap, "security": "none", "user": "nobody", "password": "${$secret.mail}", "mailboxes": []string{"INBOX"}}
		})
		a := adapter(t, raw, nil)
		if r := outcome[*sdk.Rejected](t, dispatch(t, a, operation("k", single))); r.Reason != sdk.ReasonAuthentication || !r.WholeDestination {
			t.Fatalf("%+v", r)
		}
		finding[*sdk.Indeterminate](t, read(t, a, operation("k", single)))
		if h, err := a.Check(context.Background(), nil); err != nil || h.Status != sdk.HealthDown || len(h.Diagnostics) != 2 {
			t.Fatalf("%+v %v", h, err)
		}
	})
	t.Run("check logs in, and names a mailbox that is not there", func(t *testing.T) {
		if h, err := p.adapter(t, p.smtp, "starttls").Check(context.Background(), nil); err != nil || h.Status != sdk.HealthOK {
			t.Fatalf("%+v %v", h, err)
		}
		a := adapter(t, config(p.smtp, func(with map[string]any) {
			with["imap"] = map[string]any{"addr": p.imap, "security": "none", "user": "archive", "password": "${$secret.mail}", "mailboxes": []string{"INBOX", "Nowhere"}}
		}), p.ca)
		h, err := a.Check(context.Background(), nil)
		if err != nil || h.Status != sdk.HealthDegraded || !strings.Contains(h.Diagnostics[0].Summary, "Nowhere") {
			t.Fatalf("%+v %v", h, err)
		}
		finding[*sdk.Indeterminate](t, read(t, a, operation("k", single)))
	})
	t.Run("a certificate of another is not trusted, and nothing was sent", func(t *testing.T) {
		raw := config(p.smtp, func(with map[string]any) { with["smtp"] = map[string]any{"addr": p.smtpTLS, "security": "tls"} })
		if n := outcome[*sdk.NotExecuted](t, dispatch(t, adapter(t, raw, nil), operation("k", single))); n.Basis != sdk.BasisNotSent {
			t.Fatalf("%+v", n)
		}
	})
}

// plant puts a message into the mailbox as nobody's mail server would.
func (p *post) plant(t *testing.T, message string) {
	t.Helper()
	f, err := os.CreateTemp(filepath.Join(p.dir, "mail", "archive", "new"), "planted-")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(message); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func (p *post) deferred(t *testing.T) {
	p.setting(t, "defer_transports=virtual")
	a, o := p.adapter(t, p.smtp, "none"), operation("deferred", single)
	outcome[*sdk.Committed](t, dispatch(t, a, o))
	finding[*sdk.NoneSeen](t, read(t, a, o))
	p.setting(t, "defer_transports=")
	// Postfix may be reading its settings still; it is asked until it tries.
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(300 * time.Millisecond) {
		if out, err := exec.Command("/usr/sbin/postqueue", "-c", filepath.Join(p.dir, "postfix"), "-f").CombinedOutput(); err != nil {
			t.Logf("postqueue: %v: %s", err, out)
		}
		if _, pending := read(t, a, o).Finding.(*sdk.NoneSeen); !pending {
			break
		}
	}
	arrived(t, p, a, o, 1)
}

func (p *post) refuses(t *testing.T) {
	a := p.adapter(t, p.smtp, "none")
	mixed := func(other string) sdk.Operation {
		return operation("mixed-"+other, strings.Replace(single, `"ann@`, `"`+other+`@ops.example.test","ann@`, 1))
	}
	if r := outcome[*sdk.Rejected](t, dispatch(t, a, mixed("no"))); r.Reason != sdk.ReasonPolicy || r.Code != "550" {
		t.Fatalf("%+v", r)
	}
	if n := outcome[*sdk.NotExecuted](t, dispatch(t, a, mixed("busy"))); n.Basis != sdk.BasisBusy {
		t.Fatalf("%+v", n)
	}
	big := operation("big", strings.Replace(single, "end", strings.Repeat("much ", 9000), 1))
	if r := outcome[*sdk.Rejected](t, dispatch(t, a, big)); r.Reason != sdk.ReasonQuota {
		t.Fatalf("%+v", r)
	}
	for _, o := range []sdk.Operation{mixed("no"), mixed("busy"), big} {
		finding[*sdk.NoneSeen](t, read(t, a, o))
	}
}

// cutAt is a proxy that resets the first connection whose caller sends word:
// after the server's answer to it, or before the server gets it.
func cutAt(t *testing.T, server, word string, forward bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	var once sync.Once
	t.Cleanup(func() { _ = l.Close(); wait.Wait() })
	wait.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			lost := make(chan struct{})
			wait.Go(func() {
				defer upstream.Close()
				var tail []byte
				buf := make([]byte, 64<<10)
				for {
					n, err := client.Read(buf)
					if err != nil {
						return
					}
					tail = append(tail[max(0, len(tail)-8):], buf[:n]...)
					if bytes.Contains(tail, []byte(word)) {
						cut := false
						once.Do(func() { cut = true; close(lost) })
						if cut && !forward {
							_ = client.Close()
							return
						}
						if cut {
							// Half-open: the answer is waited for and not passed on.
							_, _ = upstream.Write(buf[:n])
							_, _ = client.Read(buf)
							return
						}
					}
					if _, err := upstream.Write(buf[:n]); err != nil {
						return
					}
				}
			})
			wait.Go(func() {
				defer client.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := upstream.Read(buf)
					if err != nil {
						return
					}
					select {
					case <-lost:
						return
					default:
					}
					if _, err := client.Write(buf[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}
