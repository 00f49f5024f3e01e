package adaptertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/adaptertest/faultproxy"
)

func meaningChecks() []check {
	return []check{
		{id: "12", level: L1, name: "commit once", rule: "a valid request makes one effect, and the read finds that very object", needs: needsAction | needsRead, run: commitOnce},
		{id: "13", level: L1, name: "invalid payload", rule: "an invalid payload is rejected as VALIDATION at its place, and makes no effect", needs: needsAction, run: invalidPayload},
		{id: "14", level: L1, name: "prepare", rule: "Prepare, ten times and killed, makes no effect", needs: needsAction, run: prepareHarmless},
		{id: "15", level: L1, name: "read", rule: "Read, ten times, writes nothing", needs: needsAction | needsRead, run: readHarmless},
		{id: "16", level: L1, name: "same key again", rule: "the same key ten times makes one effect and names one object", needs: needsAction | needsKey | needsEffects, run: sameKey},
		{id: "17", level: L1, name: "same key, other payload", rule: "the same key with another payload does what is declared, and never a second effect in silence", needs: needsAction | needsKey | needsEffects, run: otherPayload},
		{id: "18", level: L1, name: "same key at once", rule: "the same key from eight callers at once makes one effect", needs: needsAction | needsKey | needsEffects, run: atOnce},
		{id: "19", level: L1, name: "same key, other process", rule: "the same key after a restart and from a second process makes one effect", needs: needsAction | needsKey | needsEffects, run: otherProcess},
		{id: "20", level: L1, name: "after a rejection", rule: "after a rejection the same key is sent again: the adapter remembers nothing itself", needs: needsAction | needsProxy, run: afterRejection},
		{id: "21", level: L1, name: "look-alikes", rule: "an object that looks alike but has not our key is never taken for ours", needs: needsAction | needsRead, run: lookAlike},
		{id: "22", level: L1, name: "changed object", rule: "an object that was changed behind our back DIFFERS, with pointers", needs: needsAction | needsRead, run: changed},
		{id: "23", level: L1, name: "absence", rule: "a key that was never sent is none seen, completely, and with proof of sight", needs: needsAction | needsRead | needsAbsence, run: absence},
		{id: "24", level: L1, name: "Unicode", rule: "NFC, NFD, emoji and right-to-left text come back the same; half a surrogate and NUL are refused or come back the same", needs: needsAction | needsRead | needsText, run: unicodeText},
		{id: "25", level: L1, name: "payload limit", rule: "a payload over the declared limit is rejected unsent, one at the limit is not refused for its size", needs: needsAction | needsText, run: payloadLimit},
		{id: "26", level: L1, name: "numbers", rule: "a whole number over 2^53 arrives unchanged", needs: needsAction | needsProxy, run: bigNumber},
	}
}

func repairChecks() []check {
	return []check{
		{id: "27", level: L1, name: "precondition", rule: "a stale expected revision is rejected as PRECONDITION, and makes no effect", needs: needsAction, run: precondition},
		{id: "28", level: L1, name: "reversal", rule: "the reversal takes the effect away, and twice does no harm", needs: needsAction | needsReversal | needsEffects, run: reversal},
		{id: "29", level: L1, name: "accepted", rule: "the handle of an accepted request comes to an end by polling, also after a restart", needs: needsAction | needsRead, run: accepted},
		{id: "30", level: L1, name: "wrong credentials", rule: "wrong credentials are AUTHENTICATION and concern the whole destination", needs: needsAction, run: wrongCredentials},
		{id: "31", level: L1, name: "read-only credentials", rule: "credentials that may only read are PERMISSION", needs: needsAction, run: readOnly},
		{id: "32", level: L1, name: "clock skew", rule: "ten minutes of skew change no outcome", why: "needs a clock of the adapter's own"},
	}
}

func commitOnce(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	op := k.operation()
	done, err := k.commit(c, op)
	if err != nil {
		return err
	}
	m, err := k.found(c, op)
	if err != nil {
		return err
	}
	if done.Object.ID != "" && m.Object.ID != done.Object.ID {
		return fmt.Errorf("the answer names the object %q, the read %q", done.Object.ID, m.Object.ID)
	}
	if m.Agreement != sdk.AgreementSame && m.Agreement != sdk.AgreementNotCompared {
		return fmt.Errorf("the object is as it was meant, and the read says that it differs at %v", m.Differences)
	}
	err = k.want(op.Key, 1)
	var s *skip
	if errors.As(err, &s) {
		return nil // the read itself was checked
	}
	return err
}

func invalidPayload(k *kit) error {
	if len(k.plan.Invalid) == 0 {
		return skipped("the plan has no invalid payload")
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	for _, b := range k.plan.Invalid {
		op := k.operation()
		op = k.with(op.Key, b.Document)
		r, err := k.dispatch(c, op)
		if err != nil {
			return err
		}
		o, ok := r.Outcome.(*sdk.Rejected)
		if !ok || o.Reason != sdk.ReasonValidation {
			return fmt.Errorf("%.80s: the answer must be rejected as VALIDATION, but is %s", b.Document, tell(r.Outcome))
		}
		if b.Pointer != "" {
			if err := pointed(o.Diagnostics, b.Pointer); err != nil {
				return fmt.Errorf("%.80s is rejected, but not at %q", b.Document, b.Pointer)
			}
		}
		if err := k.unless(k.want(op.Key, 0)); err != nil {
			return err
		}
	}
	return nil
}

// unless forgets that nobody counts, where that is not the point of the check.
func (k *kit) unless(err error) error {
	var s *skip
	if errors.As(err, &s) {
		return nil
	}
	return err
}

func prepareHarmless(k *kit) error {
	if !k.configured.HasFeature(sdk.FeaturePrepare) {
		return skipped("it has no Prepare")
	}
	c, err := k.start()
	if err != nil {
		return err
	}
	defer c.kill()
	mark, op := k.mark(), k.operation()
	for range 10 {
		if _, err := c.Prepare(k.ctx, op); err != nil {
			return err
		}
	}
	time.AfterFunc(time.Millisecond, c.signalKill)
	_, _ = c.Prepare(k.ctx, op) // dies or not
	if err := k.unless(k.want(op.Key, 0)); err != nil {
		return err
	}
	return k.noWrites(mark)
}

func readHarmless(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	mark, op := k.mark(), k.operation()
	for range 10 {
		if _, err := k.read(c, op); err != nil {
			return err
		}
	}
	if err := k.unless(k.want(op.Key, 0)); err != nil {
		return err
	}
	return k.noWrites(mark)
}

func sameKey(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	op := k.operation()
	id := ""
	for i := range 10 {
		done, err := k.commit(c, op)
		if err != nil {
			return fmt.Errorf("time %d: %w", i+1, err)
		}
		if i > 0 && done.Object.ID != id {
			return fmt.Errorf("the first answer names the object %q, number %d names %q", id, i+1, done.Object.ID)
		}
		id = done.Object.ID
	}
	return k.want(op.Key, 1)
}

func otherPayload(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	op, other := k.operation(), k.operation()
	if bytes.Equal(op.Payload, other.Payload) {
		return skipped("the plan's payload has no {{n}}, so there is no other one")
	}
	if _, err := k.commit(c, op); err != nil {
		return err
	}
	r, err := k.dispatch(c, k.with(op.Key, other.Payload))
	if err != nil {
		return err
	}
	_, committed := r.Outcome.(*sdk.Committed)
	effects := 1
	switch declared := k.spec.Idempotency.SameKeyOtherPayload; {
	case declared == sdk.MismatchRejects && committed:
		return fmt.Errorf("it declares that the destination rejects it, and the answer is %s", tell(r.Outcome))
	case declared == sdk.MismatchReturnsFirst && !committed:
		return fmt.Errorf("it declares that the destination returns the first, and the answer is %s", tell(r.Outcome))
	case declared == sdk.MismatchExecutesAgain:
		effects = 2
	}
	return k.want(op.Key, effects)
}

func atOnce(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	op := k.operation()
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = k.dispatch(c, op) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return k.want(op.Key, 1)
}

func otherProcess(k *kit) error {
	first, err := k.start()
	if err != nil {
		return err
	}
	defer first.kill()
	op := k.operation()
	if _, err := k.commit(first, op); err != nil {
		return err
	}
	second, err := k.start()
	if err != nil {
		return err
	}
	defer second.kill()
	if _, err := k.commit(second, op); err != nil {
		return fmt.Errorf("from a second process: %w", err)
	}
	first.kill()
	third, err := k.start()
	if err != nil {
		return err
	}
	defer third.kill()
	if _, err := k.commit(third, op); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	return k.want(op.Key, 1)
}

func afterRejection(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	op := k.operation()
	k.proxy.Inject(faultproxy.Fault{Kind: faultproxy.Answer, Status: 422, Body: `{"error":"not today"}`, Header: jsonHeader()})
	r, err := k.dispatch(c, op)
	if err != nil {
		return err
	}
	if _, ok := r.Outcome.(*sdk.Committed); ok {
		return fmt.Errorf("a request that was answered 422 is %s", tell(r.Outcome))
	}
	if _, err := k.commit(c, op); err != nil {
		return fmt.Errorf("sent again: %w", err)
	}
	return k.unless(k.want(op.Key, 1))
}

func jsonHeader() map[string]string { return map[string]string{"Content-Type": "application/json"} }

func lookAlike(k *kit) error {
	if k.plan.Twin == "" {
		return skipped("the plan has no \"twin\"")
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	op := k.operation()
	if _, err := k.commit(c, op); err != nil {
		return err
	}
	for range 2 {
		if _, err := k.control(http.MethodPost, k.plan.Twin, op.Key); err != nil {
			return err
		}
	}
	if _, err := k.found(c, op); err != nil {
		return fmt.Errorf("beside two look-alikes: %w", err)
	}
	never := k.with(op.Key+"-never", op.Payload)
	r, err := k.read(c, never)
	if err != nil {
		return err
	}
	if f, ok := r.Finding.(*sdk.Found); ok && len(exactMatches(f)) > 0 {
		return fmt.Errorf("for a key that was never sent the read takes object %q for ours", exactMatches(f)[0].Object.ID)
	}
	return nil
}

func changed(k *kit) error {
	if k.plan.Tamper == "" {
		return skipped("the plan has no \"tamper\"")
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	op := k.operation()
	if _, err := k.commit(c, op); err != nil {
		return err
	}
	if _, err := k.control(http.MethodPost, k.plan.Tamper, op.Key); err != nil {
		return err
	}
	m, err := k.found(c, op)
	if err != nil {
		return err
	}
	if m.Agreement != sdk.AgreementDiffers && m.Agreement != sdk.AgreementPartial {
		return errors.New("the read does not notice; compare the object with the payload (sdk.Differences)")
	}
	if len(m.Differences) == 0 {
		return errors.New("the read does not say where")
	}
	return nil
}

func absence(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	r, err := k.read(c, k.operation())
	if err != nil {
		return err
	}
	if !provesAbsence(r) {
		return fmt.Errorf("the read says %s, sight proven: %v; without a complete answer and a guard nothing is ever known to be absent", tellFinding(r), r.View != nil && r.View.VisibilityProven)
	}
	if r.AsOf.IsZero() || r.AsOf.After(time.Now().Add(time.Minute)) {
		return fmt.Errorf("the read does not say of when it is (%v)", r.AsOf)
	}
	return nil
}

func unicodeText(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	for _, text := range []string{`\u00e9`, `e\u0301`, `\ud83d\ude00`, `\u202e\u05d0\u05d1`, `a\"b\\c\/d`} {
		op, err := k.replaced(k.plan.Text, `"`+text+`"`)
		if err != nil {
			return err
		}
		if _, err := k.commit(c, op); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		m, err := k.found(c, op)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		if m.Agreement == sdk.AgreementDiffers {
			return fmt.Errorf("%s does not come back the same", text)
		}
	}
	for _, text := range []string{`\ud800`, `a\u0000b`} {
		op, err := k.replaced(k.plan.Text, `"`+text+`"`)
		if err != nil {
			return err
		}
		r, err := k.dispatch(c, op)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		if _, ok := r.Outcome.(*sdk.Committed); !ok {
			continue
		}
		if text == `\ud800` && k.proxy != nil {
			return fmt.Errorf("%s is no text, and is written", text)
		}
		m, err := k.found(c, op)
		if err != nil || m.Agreement == sdk.AgreementDiffers {
			return fmt.Errorf("%s is written as something else (%v)", text, err)
		}
	}
	return nil
}

// replaced is a new operation with a raw JSON value at a top-level pointer.
func (k *kit) replaced(pointer, value string) (sdk.Operation, error) {
	op := k.operation()
	name := strings.TrimPrefix(pointer, "/")
	var m map[string]json.RawMessage
	if err := json.Unmarshal(op.Payload, &m); err != nil {
		return op, fmt.Errorf("the plan's payload is no object: %w", err)
	}
	if _, ok := m[name]; !ok {
		return op, fmt.Errorf("the plan's payload has nothing at %q", pointer)
	}
	var b strings.Builder
	for key, v := range m {
		if key == name {
			v = json.RawMessage(value)
		}
		quoted, err := json.Marshal(key)
		if err != nil {
			return op, err
		}
		b.WriteString(map[bool]string{true: "{", false: ","}[b.Len() == 0])
		b.Write(quoted)
		b.WriteByte(':')
		b.Write(v) // raw: half a surrogate must stay half
	}
	b.WriteByte('}')
	return k.with(op.Key, []byte(b.String())), nil
}

func payloadLimit(k *kit) error {
	most := int(k.spec.Limits.MaxPayload)
	if most == 0 {
		return skipped("it declares no limit of the payload")
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	for _, over := range []int{0, 1} {
		op, err := k.replaced(k.plan.Text, `""`)
		if err != nil {
			return err
		}
		if op, err = k.replaced(k.plan.Text, strconv.Quote(strings.Repeat("x", most+over-len(op.Payload)))); err != nil {
			return err
		}
		mark := k.mark()
		r, err := k.dispatch(c, op)
		if err != nil {
			return err
		}
		_, rejected := r.Outcome.(*sdk.Rejected)
		if over == 0 && rejected {
			return fmt.Errorf("%d bytes are declared, and are %s", len(op.Payload), tell(r.Outcome))
		}
		if over == 1 {
			if !rejected {
				return fmt.Errorf("%d bytes are one too many, and are %s", len(op.Payload), tell(r.Outcome))
			}
			return k.noWrites(mark)
		}
	}
	return nil
}

func bigNumber(k *kit) error {
	if k.plan.Integer == "" {
		return skipped("the plan names no whole number in the payload")
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	const n = "9007199254740993"
	op, err := k.replaced(k.plan.Integer, n)
	if err != nil {
		return err
	}
	mark := k.mark()
	if _, err := k.commit(c, op); err != nil {
		return err
	}
	for _, e := range k.proxy.Ledger()[mark:] {
		if e.Write && !bytes.Contains(e.Body, []byte(n)) {
			return fmt.Errorf("%s arrived as something else: %.120s", n, e.Body)
		}
	}
	return nil
}

func precondition(k *kit) error {
	if !k.spec.Precondition {
		return skipped("it supports no expected revision")
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	op := k.operation()
	r, err := c.Dispatch(k.ctx, sdk.DispatchRequest{Operation: op, Deadline: time.Now().Add(limit), ExpectedRevision: "zz-stale"})
	if err != nil {
		return err
	}
	if o, ok := r.Outcome.(*sdk.Rejected); !ok || o.Reason != sdk.ReasonPrecondition {
		return fmt.Errorf("the answer must be rejected as PRECONDITION, but is %s", tell(r.Outcome))
	}
	return k.unless(k.want(op.Key, 0))
}

func reversal(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	op := k.operation()
	done, err := k.commit(c, op)
	if err != nil {
		return err
	}
	undo := k.with(op.Key+"-undo", op.Payload)
	undo.Action, undo.Target = k.spec.Reversal.Action, &done.Object
	for i := range 2 {
		r, err := k.dispatch(c, undo)
		if err != nil {
			return err
		}
		if _, ok := r.Outcome.(*sdk.Committed); !ok && i == 0 {
			return fmt.Errorf("the reversal is %s", tell(r.Outcome))
		}
		if err := k.want(op.Key, 0); err != nil {
			return fmt.Errorf("after reversal number %d: %w", i+1, err)
		}
	}
	return nil
}

func accepted(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	op := k.operation()
	r, err := k.dispatch(c, op)
	if err != nil {
		return err
	}
	o, ok := r.Outcome.(*sdk.Accepted)
	if !ok {
		return skipped("it accepts nothing for later: a valid request is %s", tell(r.Outcome))
	}
	second, err := k.start()
	if err != nil {
		return err
	}
	defer second.kill()
	for _, p := range []*child{c, second} {
		if _, err := k.poll(p, op, o.Handle); err != nil {
			return err
		}
	}
	return nil
}

func wrongCredentials(k *kit) error {
	if len(k.plan.Secrets) == 0 {
		return skipped("the plan has no secrets")
	}
	wrong := map[string]string{}
	for name := range k.plan.Secrets {
		wrong[name] = "wrong-credential-of-the-kit"
	}
	o, err := k.dispatchAs(wrong)
	if err != nil || o == nil {
		return err
	}
	if o.Reason != sdk.ReasonAuthentication || !o.WholeDestination {
		return fmt.Errorf("the answer must be AUTHENTICATION for the whole destination, but is %s (whole destination: %v)", tell(o), o.WholeDestination)
	}
	return nil
}

func readOnly(k *kit) error {
	if len(k.plan.ReadOnly) == 0 {
		return skipped("the plan has no read-only credentials")
	}
	o, err := k.dispatchAs(k.plan.ReadOnly)
	if err != nil || o == nil {
		return err
	}
	if o.Reason != sdk.ReasonPermission {
		return fmt.Errorf("the answer must be PERMISSION, but is %s", tell(o))
	}
	return nil
}

// dispatchAs dispatches with other credentials; nil without error means that
// they were refused at once, which is as good.
func (k *kit) dispatchAs(secrets map[string]string) (*sdk.Rejected, error) {
	c, err := k.startWith(k.config(""), secrets)
	var no *refused
	if errors.As(err, &no) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer c.kill()
	r, err := k.dispatch(c, k.operation())
	if err != nil {
		return nil, err
	}
	o, ok := r.Outcome.(*sdk.Rejected)
	if !ok {
		return nil, fmt.Errorf("the answer must be rejected, but is %s", tell(r.Outcome))
	}
	return o, nil
}
