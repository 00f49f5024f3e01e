package adaptertest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/docs"
)

func hygieneChecks() []check {
	return []check{
		{id: "51", level: L3, name: "secrets", rule: "no secret is in any answer, in what it prints, in its command line or environment", needs: needsAction, run: secrets},
		{id: "52", level: L3, name: "leaks", rule: "a thousand dispatches leave descriptors and memory flat", needs: needsAction, run: leaks},
		{id: "53", level: L3, name: "declared rate", rule: "the declared rate and concurrency hold", why: "the host enforces them; the kit calls without a host"},
		{id: "54", level: L3, name: "egress", rule: "it connects to declared hosts only", why: "needs a network namespace"},
		{id: "55", level: L3, name: "sandbox", rule: "it works under the sandbox", why: "there is no sandbox yet"},
		{id: "56", level: L3, name: "upgrade", rule: "what an earlier release wrote is still read", needs: needsAction | needsRead, run: upgrade},
		{id: "57", level: L3, name: "documentation", rule: "the committed documentation is what the program generates", run: documentation},
	}
}

func secrets(k *kit) error {
	if len(k.plan.Secrets) == 0 {
		return skipped("the plan has no secrets")
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	places := map[string][]byte{}
	for _, file := range []string{"cmdline", "environ"} {
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/" + file)
		if err != nil {
			return err
		}
		places["its "+file] = raw
	}
	k.mu.Lock()
	places["an answer"] = bytes.Clone(k.said.Bytes())
	k.mu.Unlock()
	for _, c := range k.children {
		places["its standard error"] = append(places["its standard error"], c.stderr.String()...)
		places["its standard output"] = append(places["its standard output"], c.stdout.String()...)
	}
	for name, value := range k.plan.Secrets {
		for _, form := range forms(value) {
			for place, text := range places {
				if bytes.Contains(text, []byte(form)) {
					return fmt.Errorf("the secret %q is in %s", name, place)
				}
			}
		}
	}
	return nil
}

// forms are the ways in which a secret usually escapes.
func forms(value string) []string {
	out := []string{value, url.QueryEscape(value), base64.StdEncoding.EncodeToString([]byte(value))}
	if quoted, err := json.Marshal(value); err == nil {
		out = append(out, strings.Trim(string(quoted), `"`))
	}
	return out
}

func leaks(k *kit) error {
	n := 1000
	if k.o.Short {
		n = 60
	}
	c, err := k.start()
	if err != nil {
		return err
	}
	defer c.kill()
	round := func(times int) error {
		for range times {
			if _, err := k.dispatch(c, k.operation()); err != nil {
				return err
			}
		}
		return nil
	}
	if err := round(n / 5); err != nil { // buffers and pools fill first
		return err
	}
	files, memory, err := usage(c.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := round(n); err != nil {
		return err
	}
	filesAfter, memoryAfter, err := usage(c.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if filesAfter > files+max(5, n/20) {
		return fmt.Errorf("%d dispatches: from %d to %d open descriptors", n, files, filesAfter)
	}
	if memoryAfter > memory+memory/2+(32<<20) {
		return fmt.Errorf("%d dispatches: from %d to %d MiB", n, memory>>20, memoryAfter>>20)
	}
	return nil
}

// usage counts descriptors and resident bytes of a process.
func usage(pid int) (files, memory int, err error) {
	base := "/proc/" + strconv.Itoa(pid)
	list, err := os.ReadDir(base + "/fd")
	if err != nil {
		return 0, 0, err
	}
	raw, err := os.ReadFile(base + "/statm")
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0, 0, fmt.Errorf("%s/statm is %q", base, raw)
	}
	pages, err := strconv.Atoi(fields[1])
	return len(list), pages * os.Getpagesize(), err
}

func upgrade(k *kit) error {
	if len(k.plan.Old) == 0 {
		return skipped("the plan has no \"old\" payloads")
	}
	c, err := k.live()
	if err != nil {
		return err
	}
	for _, old := range k.plan.Old {
		r, err := k.read(c, k.with(old.Key, old.Payload))
		if err != nil {
			return err
		}
		if _, ok := r.Finding.(*sdk.Indeterminate); ok || r.Finding == nil {
			return fmt.Errorf("the payload %.80s of an earlier release: the read says %s", old.Payload, tellFinding(r))
		}
	}
	return nil
}

func documentation(k *kit) error {
	if k.plan.Docs == "" {
		return skipped("the plan names no committed documentation")
	}
	committed, err := os.ReadFile(k.plan.path("./" + k.plan.Docs))
	if err != nil {
		return err
	}
	c, err := k.spawn()
	if err != nil {
		return err
	}
	defer c.kill()
	d, err := c.Describe(k.ctx)
	if err != nil {
		return err
	}
	if !bytes.Equal(committed, docs.Markdown(d)) {
		return fmt.Errorf("%s is not what the program prints; run: %s docs > %s", k.plan.Docs, k.plan.Adapter[0], k.plan.Docs)
	}
	return nil
}
