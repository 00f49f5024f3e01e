package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/adaptertest/faultproxy"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

const wired = needsAction | needsProxy

func faultChecks() []check {
	return []check{
		{id: "33", level: L2, name: "never connected", rule: "a refused connection, an unknown host and a failed TLS handshake are NOT_SENT", needs: wired, run: neverConnected},
		{id: "34", level: L2, name: "cut request", rule: "a connection that is lost before the request is complete is unknown", needs: wired, run: cutRequest},
		{id: "35", level: L2, name: "lost answer", rule: "an answer that is lost after the commit is unknown, the read finds the effect, and there is one", needs: wired | needsRead, run: lostAnswer},
		{id: "36", level: L2, name: "error after commit", rule: "500, 502 and 504 after the commit are unknown", needs: wired, run: errorAfterCommit},
		{id: "37", level: L2, name: "refused for now", rule: "429 is not executed and keeps Retry-After; 503 is that or unknown; neither makes an effect", needs: wired, run: refusedForNow},
		{id: "38", level: L2, name: "broken answer", rule: "a truncated, garbled or mistyped success is unknown", needs: wired, run: brokenAnswer},
		{id: "39", level: L2, name: "hang", rule: "when the destination hangs it answers unknown (TIMEOUT) before its deadline", needs: wired, run: hang},
		{id: "40", level: L2, name: "cancel", rule: "a cancelled call leaves nothing running, and the process serves on", needs: wired, run: cancelled},
	}
}

func crashChecks() []check {
	return []check{
		{id: "41", level: L2, name: "late arrival", rule: "a request that arrives after the deadline is found as soon as it is there", needs: wired | needsRead, run: lateArrival},
		{id: "42", level: L2, name: "killed before forwarding", rule: "killed when the request had left and had not arrived: a new process sees nothing, and sending again makes one effect", needs: wired | needsRead, run: killedBefore},
		{id: "43", level: L2, name: "killed after commit", rule: "killed after the commit: a new process finds the effect", needs: wired | needsRead, run: killedAfter},
	}
}

func neverConnected(k *kit) error {
	if k.plan.TunnelProxy {
		return skipped("behind a forward proxy it is the proxy that cannot connect")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	closed := "http://" + free.Addr().String()
	_ = free.Close()
	for what, base := range map[string]string{
		"a refused connection": closed, "an unknown host": "http://settled-no-such-host.invalid",
		"a failed TLS handshake": strings.Replace(k.proxy.URL(), "http://", "https://", 1),
	} {
		c, err := k.startWith(k.config(base), k.plan.Secrets)
		var no *refused
		if errors.As(err, &no) {
			continue // it looked at once, and said so
		}
		if err != nil {
			return err
		}
		r, err := k.dispatch(c, k.operation())
		c.kill()
		if err != nil {
			return err
		}
		if o, ok := r.Outcome.(*sdk.NotExecuted); !ok || o.Basis != sdk.BasisNotSent {
			return fmt.Errorf("%s must be not executed, NOT_SENT, but is %s", what, tell(r.Outcome))
		}
	}
	return nil
}

// underFault dispatches a new effect while one fault waits for it.
func (k *kit) underFault(f faultproxy.Fault) (sdk.Operation, sdk.Response, error) {
	c, err := k.live()
	if err != nil {
		return sdk.Operation{}, sdk.Response{}, err
	}
	k.proxy.Inject(f)
	op := k.operation()
	mark := k.mark()
	r, err := k.dispatch(c, op)
	if err == nil && writes(k.proxy.Ledger()[mark:]) == 0 {
		err = errors.New("no request came by the proxy; does the adapter use the URL of its configuration?")
	}
	return op, r, err
}

func cutRequest(k *kit) error {
	op, r, err := k.underFault(faultproxy.Fault{Kind: faultproxy.ResetEarly})
	if err != nil {
		return err
	}
	if err := unknown(r.Outcome); err != nil {
		return err
	}
	return k.unless(k.want(op.Key, 0))
}

func lostAnswer(k *kit) error {
	op, r, err := k.underFault(faultproxy.Fault{Kind: faultproxy.LoseAnswer})
	if err != nil {
		return err
	}
	if err := unknown(r.Outcome); err != nil {
		return err
	}
	if err := k.finds(op); err != nil {
		return err
	}
	return k.unless(k.want(op.Key, 1))
}

// finds reads until the effect is seen, or the declared lag is over.
func (k *kit) finds(op sdk.Operation) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	end := time.Now()
	if k.spec.Read.MaxLag != nil {
		end = end.Add(*k.spec.Read.MaxLag)
	}
	for {
		_, err := k.found(c, op)
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func errorAfterCommit(k *kit) error {
	for _, status := range []int{500, 502, 504} {
		_, r, err := k.underFault(faultproxy.Fault{Kind: faultproxy.Replace, Status: status, Body: "<html>sorry</html>"})
		if err != nil {
			return err
		}
		if err := unknown(r.Outcome); err != nil {
			return fmt.Errorf("%d: %w", status, err)
		}
	}
	return nil
}

func refusedForNow(k *kit) error {
	op, r, err := k.underFault(faultproxy.Fault{Kind: faultproxy.Answer, Status: 429, Header: map[string]string{"Retry-After": "7"}, Body: "slowly"})
	if err != nil {
		return err
	}
	o, ok := r.Outcome.(*sdk.NotExecuted)
	if !ok || o.Basis != sdk.BasisRefused && o.Basis != sdk.BasisBusy {
		return fmt.Errorf("429 must be not executed, REFUSED, but is %s", tell(r.Outcome))
	}
	if o.RetryAfter != 7*time.Second {
		return fmt.Errorf("Retry-After: 7 became %s", o.RetryAfter)
	}
	if err := k.unless(k.want(op.Key, 0)); err != nil {
		return err
	}
	_, r, err = k.underFault(faultproxy.Fault{Kind: faultproxy.Answer, Status: 503, Header: map[string]string{"Retry-After": "7"}, Body: "closed"})
	if err != nil {
		return err
	}
	switch o := r.Outcome.(type) {
	case *sdk.Unknown:
	case *sdk.NotExecuted:
		if o.RetryAfter != 7*time.Second {
			return fmt.Errorf("503 is trusted, but its Retry-After: 7 became %s", o.RetryAfter)
		}
	default:
		return fmt.Errorf("503 is %s", tell(r.Outcome))
	}
	return nil
}

func brokenAnswer(k *kit) error {
	for _, f := range []faultproxy.Fault{
		{Kind: faultproxy.Truncate},
		{Kind: faultproxy.Replace, Status: 201, Body: "<html>welcome to the hotel</html>", Header: map[string]string{"Content-Type": "text/html"}},
		{Kind: faultproxy.Replace, Status: 201, Body: "", Header: jsonHeader()},
		{Kind: faultproxy.Replace, Status: 201, Body: `[]`, Header: jsonHeader()},
		{Kind: faultproxy.Replace, Status: 201, Body: `{}`, Header: jsonHeader()},
		{Kind: faultproxy.Replace, Status: 200, Body: `{"id":{"deep":[1]}}`, Header: jsonHeader()},
	} {
		_, r, err := k.underFault(f)
		if err != nil {
			return err
		}
		if err := unknown(r.Outcome); err != nil {
			return fmt.Errorf("%s %d %q: %w", f.Kind, f.Status, f.Body, err)
		}
	}
	return nil
}

// pace is a deadline for calls that must run into it.
func (k *kit) pace() time.Duration {
	if k.o.Short {
		return time.Second
	}
	return 3 * time.Second
}

func hang(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	k.proxy.Inject(faultproxy.Fault{Kind: faultproxy.Hang})
	begun := time.Now()
	r, err := k.dispatchFor(c, k.operation(), k.pace())
	took := time.Since(begun)
	if err != nil {
		return fmt.Errorf("it has no answer: %w", err)
	}
	o, ok := r.Outcome.(*sdk.Unknown)
	if !ok {
		return unknown(r.Outcome)
	}
	if took > k.pace() {
		return fmt.Errorf("it answers %s after its deadline", took-k.pace())
	}
	if o.Cause != sdk.CauseTimeout {
		return fmt.Errorf("it answers unknown, but not TIMEOUT: %s", tell(o))
	}
	return nil
}

func cancelled(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	k.proxy.Inject(faultproxy.Fault{Kind: faultproxy.Hang})
	mark, op := k.mark(), k.operation()
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.Dispatch(ctx, sdk.DispatchRequest{Operation: op, Deadline: time.Now().Add(limit)})
	}()
	arrived := k.seen(mark, limit, func(e faultproxy.Entry) bool { return e.Write && e.Forwarded > 0 })
	cancel()
	<-ended
	if !arrived {
		return errors.New("the request never arrived")
	}
	if !k.seen(mark, 5*time.Second, func(e faultproxy.Entry) bool { return e.CallerGone }) {
		return errors.New("5 s after the cancel its connection to the destination is still open")
	}
	ctx, cancel = context.WithTimeout(k.ctx, limit)
	defer cancel()
	_, err = c.raw.Describe(ctx, &pb.DescribeRequest{})
	return err
}

func lateArrival(k *kit) error {
	c, err := k.live()
	if err != nil {
		return err
	}
	k.proxy.Inject(faultproxy.Fault{Kind: faultproxy.Hold})
	mark, op := k.mark(), k.operation()
	r, err := k.dispatchFor(c, op, k.pace())
	if err != nil {
		return fmt.Errorf("it has no answer: %w", err)
	}
	if err := unknown(r.Outcome); err != nil {
		return err
	}
	if before, err := k.read(c, op); err != nil {
		return err
	} else if f, ok := before.Finding.(*sdk.Found); ok && len(exactMatches(f)) > 0 {
		return errors.New("the read finds what is not there yet")
	}
	k.proxy.Release()
	if !k.seen(mark, limit, func(e faultproxy.Entry) bool { return e.Write && e.Status > 0 }) {
		return errors.New("the late request never arrived")
	}
	if err := k.finds(op); err != nil {
		return err
	}
	return k.unless(k.want(op.Key, 1))
}

// killedAt dispatches and kills the process at the moment of the fault.
func (k *kit) killedAt(kind faultproxy.Kind) (sdk.Operation, error) {
	c, err := k.start()
	if err != nil {
		return sdk.Operation{}, err
	}
	defer c.kill()
	k.proxy.Inject(faultproxy.Fault{Kind: kind, Hook: c.signalKill})
	op := k.operation()
	r, err := k.dispatch(c, op)
	if err == nil {
		return op, fmt.Errorf("it was killed, and answers %s", tell(r.Outcome))
	}
	if !c.within(limit) {
		return op, errors.New("it does not die of SIGKILL")
	}
	return op, nil
}

func killedBefore(k *kit) error {
	op, err := k.killedAt(faultproxy.LoseRequest)
	if err != nil {
		return err
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	r, err := k.read(c, op)
	if err != nil {
		return err
	}
	if f, ok := r.Finding.(*sdk.Found); ok && len(exactMatches(f)) > 0 {
		return errors.New("the read finds what never arrived")
	}
	if _, err := k.commit(c, op); err != nil {
		return fmt.Errorf("sent again: %w", err)
	}
	return k.unless(k.want(op.Key, 1))
}

func killedAfter(k *kit) error {
	op, err := k.killedAt(faultproxy.LoseAnswer)
	if err != nil {
		return err
	}
	if err := k.finds(op); err != nil {
		return err
	}
	return k.unless(k.want(op.Key, 1))
}
