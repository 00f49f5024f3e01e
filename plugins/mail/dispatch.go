package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk"
)

// quitLimit bounds the courtesy of a QUIT.
const quitLimit = 2 * time.Second

// Dispatch offers one message once, or nothing.
func (a *Adapter) Dispatch(ctx context.Context, r sdk.DispatchRequest) (sdk.Response, error) {
	s := a.configured()
	if s == nil {
		return sdk.Response{Outcome: &sdk.NotExecuted{Basis: sdk.BasisNotStarted, Message: notConfigured}}, nil
	}
	if _, err := s.action(r.Operation.Action); err != nil {
		return sdk.Response{Outcome: &sdk.Rejected{Reason: sdk.ReasonUnsupported, Code: "unknown_action", Message: err.Error()}}, nil
	}
	if r.ExpectedRevision != "" {
		return sdk.Response{Outcome: &sdk.Rejected{Reason: sdk.ReasonUnsupported, Code: "revision", Message: "a mail has no revision to expect"}}, nil
	}
	m, err := s.cfg.compose(r.Operation)
	if err != nil {
		return sdk.Response{Outcome: &sdk.Rejected{Reason: sdk.ReasonValidation, Code: "payload", Message: s.text(err.Error(), 1024)}}, nil
	}
	limit := time.Now().Add(timeLimit)
	if !r.Deadline.IsZero() && r.Deadline.Before(limit) {
		limit = r.Deadline
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	d := &delivery{state: s, message: m, fields: map[string]string{"message_id": m.id, "server": s.cfg.smtp.addr}}
	outcome := d.run(ctx)
	s.redactOutcome(outcome)
	d.fields["stage"] = d.stage
	for name, value := range d.fields {
		d.fields[name] = s.text(value, 512)
	}
	evidence := sdk.Evidence{At: time.Now().UTC(), Kind: "smtp.dispatch", Summary: fmt.Sprintf("%d recipients by %s", len(m.recipients()), s.cfg.smtp.addr), Fields: d.fields}
	return sdk.Response{Outcome: outcome, ProviderRequestID: d.fields["queue_id"], Evidence: []sdk.Evidence{evidence}}, nil
}

// delivery is one attempt on a connection of its own. From the stage "end" on
// nothing but a whole reply proves anything.
type delivery struct {
	*state
	message *message
	wire    *wire
	stage   string
	refused []string          // recipients, with the server's words
	fields  map[string]string // evidence
}

func (d *delivery) run(ctx context.Context) sdk.Outcome {
	d.stage = "connect"
	raw, err := d.message.bytes(time.Now())
	if err != nil {
		return &sdk.Rejected{Reason: sdk.ReasonValidation, Code: "payload", Message: err.Error()}
	}
	conn, err := dial(ctx, d.cfg.smtp, d.tls)
	if err != nil {
		return d.notSent(err)
	}
	d.wire = newWire(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	defer func() { _ = d.wire.conn.Close() }() // the outcome is known before it
	if outcome := d.open(ctx); outcome != nil {
		return outcome
	}
	if outcome := d.envelope(); outcome != nil {
		d.quit()
		return outcome
	}
	d.stage = "content"
	if err := d.wire.content(raw); err != nil {
		return d.lost(err)
	}
	if err := ctx.Err(); err != nil {
		return d.lost(err)
	}
	return d.end(ctx)
}

// notSent is a failure before MAIL FROM: the server does not even know that
// there is a message.
func (d *delivery) notSent(err error) sdk.Outcome {
	return &sdk.NotExecuted{Basis: sdk.BasisNotSent, WholeDestination: true, Message: d.stage + ": " + err.Error()}
}

// lost is a failure before the end of the message: a server drops what does not end.
func (d *delivery) lost(err error) sdk.Outcome {
	return &sdk.NotExecuted{Basis: sdk.BasisRefused, Message: d.stage + ": " + err.Error() + "; the message was not ended"}
}

// open goes from the greeting to the login.
func (d *delivery) open(ctx context.Context) sdk.Outcome {
	d.stage = "greeting"
	if r, err := d.wire.read(); err != nil || r.code != 220 {
		return d.unopened(r, err)
	}
	d.stage = "hello"
	if r, err := d.wire.hello(d.cfg.smtp.hello); err != nil || !r.ok() {
		return d.unopened(r, err)
	}
	if d.cfg.smtp.security == securityStartTLS {
		d.stage = "starttls"
		if _, offered := d.wire.ext["STARTTLS"]; !offered {
			return &sdk.Rejected{Reason: sdk.ReasonPolicy, Code: "starttls", Message: "the server offers no STARTTLS", WholeDestination: true}
		}
		if r, err := d.wire.ask("STARTTLS"); err != nil || !r.ok() {
			return d.unopened(r, err)
		}
		if err := d.wire.startTLS(ctx, d.cfg.smtp, d.tls); err != nil {
			return d.notSent(err)
		}
		if r, err := d.wire.hello(d.cfg.smtp.hello); err != nil || !r.ok() {
			return d.unopened(r, err)
		}
	}
	if d.cfg.smtp.user == "" {
		return nil
	}
	d.stage = "login"
	if r, err := d.wire.login(d.cfg.smtp.user, d.cfg.smtp.password); err != nil || !r.ok() {
		return d.unopened(r, err)
	}
	return nil
}

// unopened is a session that did not come about.
func (d *delivery) unopened(r reply, err error) sdk.Outcome {
	switch {
	case err != nil:
		return d.notSent(err)
	case r.code >= 500 && d.stage == "login":
		return &sdk.Rejected{Reason: sdk.ReasonAuthentication, Code: strconv.Itoa(r.code), Message: "login: " + r.text(), WholeDestination: true}
	case r.code >= 500:
		return &sdk.Rejected{Reason: sdk.ReasonPolicy, Code: strconv.Itoa(r.code), Message: d.stage + ": " + r.text(), WholeDestination: true}
	}
	return &sdk.NotExecuted{Basis: sdk.BasisBusy, WholeDestination: true, Message: d.stage + ": " + r.text()}
}

// envelope names sender and recipients, up to the server's "go on" (354).
func (d *delivery) envelope() sdk.Outcome {
	d.stage = "sender"
	sender := "MAIL FROM:<" + d.message.from.Address + ">"
	if !ascii(d.message.from.Address + strings.Join(d.message.recipients(), "")) {
		if _, offered := d.wire.ext["SMTPUTF8"]; !offered {
			return &sdk.Rejected{Reason: sdk.ReasonUnsupported, Code: "smtputf8", Message: "the server takes no addresses with letters beyond ASCII"}
		}
		sender += " SMTPUTF8"
	}
	r, err := d.wire.ask(sender)
	if err != nil {
		return d.lost(err)
	}
	if !r.ok() {
		return d.refusal(r)
	}
	if outcome := d.recipients(); outcome != nil {
		return outcome
	}
	d.stage = "data"
	r, err = d.wire.ask("DATA")
	switch {
	case err != nil:
		return d.lost(err)
	case r.code != 354:
		return d.refusal(r)
	}
	return nil
}

// recipients offers each of them. One that is refused ends it for all, unless
// the operator wants the rest to have it.
func (d *delivery) recipients() sdk.Outcome {
	d.stage = "recipient"
	var worst reply
	accepted := 0
	for _, address := range d.message.recipients() {
		r, err := d.wire.ask("RCPT TO:<" + address + ">")
		if err != nil {
			return d.lost(err)
		}
		if r.ok() {
			accepted++
			continue
		}
		d.refused = append(d.refused, address+": "+r.text())
		if r.code > worst.code {
			worst = r
		}
	}
	if len(d.refused) == 0 {
		return nil
	}
	d.fields["refused"] = strings.Join(d.refused, "; ")
	if accepted > 0 && d.cfg.recipients == recipientsRest {
		return nil
	}
	outcome := d.refusal(worst)
	message := fmt.Sprintf("%d of %d recipients refused, nothing was sent to anybody: %s", len(d.refused), len(d.refused)+accepted, d.fields["refused"])
	switch o := outcome.(type) {
	case *sdk.Rejected:
		o.Message = message
	case *sdk.NotExecuted:
		o.Message = message
	}
	return outcome
}

// refusal is a whole reply that says no.
func (d *delivery) refusal(r reply) sdk.Outcome {
	message := d.stage + ": " + r.text()
	d.fields["reply"] = r.text()
	switch {
	case r.code >= 500:
		reason := sdk.ReasonValidation
		switch {
		case r.code == 530 || r.code == 535:
			reason = sdk.ReasonAuthentication
		case r.code == 552:
			reason = sdk.ReasonQuota
		case len(r.lines) > 0 && strings.HasPrefix(r.lines[0], "5.7."):
			reason = sdk.ReasonPolicy
		}
		return &sdk.Rejected{Reason: reason, Code: strconv.Itoa(r.code), Message: message}
	case r.code >= 400:
		return &sdk.NotExecuted{Basis: sdk.BasisBusy, Message: message}
	}
	// 2xx or 3xx where neither fits: before the message is ended it still is no delivery.
	return &sdk.NotExecuted{Basis: sdk.BasisRefused, Message: message + " does not fit here"}
}

// end hands the message over and reads what became of it.
func (d *delivery) end(ctx context.Context) sdk.Outcome {
	d.stage = "end"
	r, err := d.wire.ask(".")
	if err != nil {
		return d.unanswered(ctx, err)
	}
	d.stage, d.fields["reply"] = "answered", r.text()
	switch {
	case r.code >= 400:
		d.quit()
		return d.refusal(r)
	case r.code != 250:
		return &sdk.Unknown{Cause: sdk.CauseBadResponse, Message: "the end of the message was answered by " + r.text()}
	}
	if queued := regexp.MustCompile(`(?i)queued as ([A-Za-z0-9._-]{1,64})`).FindStringSubmatch(r.text()); queued != nil {
		d.fields["queue_id"] = queued[1]
	}
	d.quit()
	done := &sdk.Committed{Object: sdk.ObjectRef{Type: "mail", ID: d.message.id}, At: time.Now().UTC()}
	if len(d.refused) > 0 {
		result, err := json.Marshal(map[string]any{"refused": d.refused})
		if err == nil {
			done.Result = d.redact.Bytes(result)
		}
	}
	return done
}

func (d *delivery) unanswered(ctx context.Context, err error) sdk.Outcome {
	u := &sdk.Unknown{Cause: sdk.CauseConnectionLost, Message: "no whole reply to the end of the message: " + err.Error()}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		u.Cause = sdk.CauseCancelled
	case ctx.Err() != nil || isTimeout(err):
		u.Cause = sdk.CauseTimeout
	case errors.Is(err, errBroken):
		u.Cause = sdk.CauseBadResponse
	}
	return u
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// quit says goodbye; the outcome is known and whatever it is answered changes nothing.
func (d *delivery) quit() {
	if err := d.wire.conn.SetDeadline(time.Now().Add(quitLimit)); err == nil {
		_, _ = d.wire.ask("QUIT")
	}
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > '~' })
}

// redactOutcome removes secrets from what servers say.
func (s *state) redactOutcome(o sdk.Outcome) {
	switch o := o.(type) {
	case *sdk.Rejected:
		o.Message = s.text(o.Message, 1024)
	case *sdk.NotExecuted:
		o.Message = s.text(o.Message, 1024)
	case *sdk.Unknown:
		o.Message = s.text(o.Message, 1024)
	}
}
