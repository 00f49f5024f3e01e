package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/adaptertest/faultproxy"
)

func readFaultChecks() []check {
	return []check{
		{id: "44", level: L2, name: "slow replica", rule: "a read that lags says so, and says of when it is", needs: needsAction | needsRead, run: slowReplica},
		{id: "45", level: L2, name: "cut list", rule: "a list that has more pages, or never ends, is no absence", needs: wired | needsRead, run: cutList},
		{id: "46", level: L2, name: "hidden objects", rule: "401, 403, 404, 500, a redirect or garbage in answer to a read, and objects that are hidden, are no absence", needs: wired | needsRead, run: hidden},
		{id: "47", level: L2, name: "doubled by the network", rule: "a request that the network doubles makes one effect", needs: wired | needsKey | needsEffects, run: doubled},
		{id: "48", level: L2, name: "redirect", rule: "a redirect of a write is not followed", needs: wired, run: redirect},
		{id: "49", level: L2, name: "one send", rule: "one dispatch sends at most once, whatever happens to it", needs: wired, run: oneSend},
		{id: "50", level: L2, name: "closed connection", rule: "a kept connection that the destination closes is no reason to send twice", needs: wired, run: closedConnection},
	}
}

func slowReplica(k *kit) error {
	if k.spec.Read.Authority != sdk.Eventual {
		return skipped("the read does not declare a lag")
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	r, err := k.read(c, k.operation())
	if err != nil {
		return err
	}
	if r.Authority == sdk.Authoritative {
		return errors.New("it declares EVENTUAL, and answers AUTHORITATIVE")
	}
	if r.AsOf.IsZero() || r.AsOf.After(time.Now()) {
		return fmt.Errorf("its as_of is %v", r.AsOf)
	}
	return nil
}

func anyRead(r faultproxy.Request) bool { return !r.Write }

// readUnder reads a new key while every read of the destination has the fault.
func (k *kit) readUnder(f faultproxy.Fault) (sdk.ReadResponse, bool, error) {
	c, err := k.live()
	if err != nil {
		return sdk.ReadResponse{}, false, err
	}
	f.Match, f.Times = anyRead, -1
	k.proxy.Inject(f)
	defer k.proxy.Clear()
	mark := k.mark()
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	r, err := c.Read(ctx, sdk.ReadRequest{
		Purpose: sdk.PurposeResolve, Operation: k.operation(), DispatchedFrom: time.Now().Add(-time.Minute), DispatchedTo: time.Now(),
	})
	if err == nil && k.mark() == mark {
		err = errors.New("the read asks nothing of the destination")
	}
	return r, err == nil, err
}

func cutList(k *kit) error {
	if len(k.plan.MorePage) == 0 {
		return skipped("the plan has no \"more_page\"")
	}
	r, answered, err := k.readUnder(faultproxy.Fault{Kind: faultproxy.Answer, Status: 200, Body: string(k.plan.MorePage), Header: jsonHeader()})
	if err != nil {
		return fmt.Errorf("a list without an end: %w", err)
	}
	if answered && provesAbsence(r) {
		return errors.New("the list says that there is more, and the read says complete")
	}
	return nil
}

func hidden(k *kit) error {
	for _, f := range []faultproxy.Fault{
		{Status: 401},
		{Status: 403},
		{Status: 404},
		{Status: 500},
		{Status: 302, Header: map[string]string{"Location": "/login"}},
		{Status: 200, Body: "<html>please log in</html>", Header: map[string]string{"Content-Type": "text/html"}},
		{Status: 200, Body: "", Header: jsonHeader()},
		{Status: 200, Body: "null", Header: jsonHeader()},
		{Status: 200, Body: `{"error":"internal"}`, Header: jsonHeader()},
	} {
		f.Kind = faultproxy.Answer
		r, answered, err := k.readUnder(f)
		if err != nil {
			return err
		}
		if answered && provesAbsence(r) {
			return fmt.Errorf("%d %q in answer to the read is taken for an absence", f.Status, f.Body)
		}
	}
	if k.plan.Hide == "" || k.plan.Show == "" {
		return nil
	}
	if _, err := k.control(http.MethodPost, k.plan.Hide, ""); err != nil {
		return err
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	r, err := k.read(c, k.operation())
	if _, back := k.control(http.MethodPost, k.plan.Show, ""); back != nil {
		return back
	}
	if err == nil && provesAbsence(r) {
		return errors.New("the reader may see nothing, and the read proves an absence; it needs a guard that fails then")
	}
	return err
}

func doubled(k *kit) error {
	op, _, err := k.underFault(faultproxy.Fault{Kind: faultproxy.Double})
	if err != nil {
		return err
	}
	return k.want(op.Key, 1)
}

func redirect(k *kit) error {
	for _, status := range []int{302, 307, 308} {
		c, err := k.live()
		if err != nil {
			return err
		}
		k.proxy.Inject(faultproxy.Fault{Kind: faultproxy.Answer, Status: status, Header: map[string]string{"Location": k.proxy.URL() + "/elsewhere"}})
		mark := k.mark()
		r, err := k.dispatch(c, k.operation())
		if err != nil {
			return err
		}
		if n := len(k.proxy.Ledger()[mark:]); n != 1 {
			return fmt.Errorf("%d: %d requests instead of one; it was followed", status, n)
		}
		if _, ok := r.Outcome.(*sdk.Committed); ok {
			return fmt.Errorf("%d: the answer is %s", status, tell(r.Outcome))
		}
	}
	return nil
}

func oneSend(k *kit) error {
	for _, f := range []faultproxy.Fault{
		{Kind: faultproxy.Pass},
		{Kind: faultproxy.ResetEarly},
		{Kind: faultproxy.LoseRequest},
		{Kind: faultproxy.LoseAnswer},
		{Kind: faultproxy.Answer, Status: 500},
		{Kind: faultproxy.Answer, Status: 503},
		{Kind: faultproxy.Answer, Status: 429},
	} {
		mark := k.mark()
		if _, _, err := k.underFault(f); err != nil {
			return err
		}
		if n := writes(k.proxy.Ledger()[mark:]); n != 1 {
			return fmt.Errorf("after %s %d there are %d sends of one dispatch", f.Kind, f.Status, n)
		}
	}
	return nil
}

func closedConnection(k *kit) error {
	c, err := k.start()
	if err != nil {
		return err
	}
	defer c.kill()
	if _, err := k.commit(c, k.operation()); err != nil { // may leave a connection
		return err
	}
	k.proxy.Inject(faultproxy.Fault{Kind: faultproxy.LoseAnswer})
	mark, op := k.mark(), k.operation()
	if _, err := k.dispatch(c, op); err != nil {
		return err
	}
	if n := writes(k.proxy.Ledger()[mark:]); n != 1 {
		return fmt.Errorf("%d sends of one dispatch; the HTTP library repeats on a reused connection", n)
	}
	return nil
}
