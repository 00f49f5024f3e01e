package http

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	nethttp "net/http"

	"github.com/settled-dev/settled/plugins/internal/card"
	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// undoSuffix makes the name of the action that takes an operation back.
const undoSuffix = ".undo"

// configuration is the compiled destinations.NAME.with.
type configuration struct {
	base       *url.URL
	operations map[string]*operation
	names      []string // of operations, sorted
}

// compiler turns configuration into programs and collects every fault.
type compiler struct {
	faults  *decode.Faults
	headers *decode.Object // with.headers
	secrets map[string]string
}

// compile reads the whole configuration. The result is usable only when faults
// holds no error.
func compile(raw []byte, secrets map[string]string, faults *decode.Faults) *configuration {
	with := decode.Parse(raw, faults)
	c := &compiler{faults: faults, secrets: secrets}
	cfg := &configuration{operations: map[string]*operation{}, base: c.baseURL(with)}
	c.headers = with.Object("headers")
	c.headerList(nil) // faults of the shared headers are reported once, even without operations
	operations := with.Object("operations")
	cfg.names = operations.Keys()
	if len(cfg.names) == 0 && !faults.Failed() {
		faults.Errorf("/operations", "at least one operation is needed")
	}
	for _, name := range cfg.names {
		if strings.HasSuffix(name, undoSuffix) {
			faults.Errorf(operations.Pointer(name), "a name may not end with %q: it is the name of an undo", undoSuffix)
		}
		if o := operations.Object(name); o != nil {
			cfg.operations[name] = c.operation(name, o)
		}
	}
	with.Done()
	return cfg
}

func (c *compiler) baseURL(with *decode.Object) *url.URL {
	text := with.String("base_url")
	if text == "" {
		if !with.Has("base_url") {
			c.faults.Errorf("/base_url", "is required")
		}
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		c.faults.Errorf("/base_url", "must be an absolute http or https URL")
		return nil
	case u.User != nil:
		c.faults.Errorf("/base_url", "must hold no user or password; put them into headers as a credential")
		return nil
	case u.RawQuery != "" || u.Fragment != "" || strings.Contains(text, "#"):
		c.faults.Errorf("/base_url", "must have no query and no fragment")
		return nil
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	return u
}

func (c *compiler) operation(name string, o *decode.Object) *operation {
	op := &operation{name: name, summary: o.String("summary")}
	if d := o.Object("dispatch"); d != nil {
		op.dispatch = c.write(d, true)
	} else {
		op.dispatch = &write{}
		if !o.Has("dispatch") {
			c.faults.Errorf(o.Pointer("dispatch"), "is required: what does %s send?", name)
		}
	}
	op.read = c.read(o.Object("read"))
	if u := o.Object("undo"); u != nil {
		op.verify = c.test(u, "verify")
		op.undo = c.write(u, false)
	}
	op.handle = c.program(o, "handle", varsAfter())
	op.poll = c.poll(o.Object("poll"))
	op.snapshot = c.snapshot(o.Object("snapshot"))
	op.postcondition = c.test(o, "postcondition")
	op.precondition = c.precondition(o.Object("precondition"))
	op.dedupe = card.ParseDedupe(o.Object("dedupe"))
	op.reversal = card.ParseReversal(o)
	op.consequences = card.ParseConsequences(o)
	op.sensitive = o.Strings("sensitive")
	op.humanOnly = o.Bool("human_only")
	c.webhook(o.Object("webhook"))
	c.crossCheck(o, op)
	o.Done()
	return op
}

// crossCheck finds what no single key can get wrong.
func (c *compiler) crossCheck(o *decode.Object, op *operation) {
	if op.read == nil {
		c.faults.Warnf(o.Pointer("read"), "without a read an unknown outcome can only be settled by a person")
	}
	if op.dispatch.accepted != nil && op.handle == nil {
		c.faults.Warnf(o.Pointer("handle"), "accepted without handle: an accepted answer is followed by the object id or the key")
	}
	if op.dispatch.accepted != nil && op.poll == nil && op.read == nil {
		c.faults.Errorf(o.Pointer("poll"), "accepted needs a poll or a read, else its end is never seen")
	}
	switch {
	case op.reversal == sdk.Reversible && op.undo == nil:
		c.faults.Errorf(o.Pointer("undo"), "reversible needs an undo, or say irreversible")
	case op.reversal == sdk.Compensatable && op.undo == nil:
		c.faults.Warnf(o.Pointer("undo"), "compensatable without an undo: a person compensates")
	case op.reversal <= sdk.Irreversible && op.undo != nil:
		c.faults.Warnf(o.Pointer("reversible"), "there is an undo, but the operation is not called reversible or compensatable; the undo is not offered")
	}
	if op.undo != nil && op.verify == nil {
		c.faults.Warnf(o.Pointer("undo", "verify"), "without verify an undo is believed on the answer alone and an unanswered one goes to a person")
	}
}

// write compiles dispatch (full) or undo. An undo is done by any 2xx but 202
// when it does not say otherwise, because its verify decides.
func (c *compiler) write(o *decode.Object, full bool) *write {
	w := &write{}
	w.request = c.request(o, "", true, "GET", "HEAD", "OPTIONS", "TRACE", "CONNECT")
	w.done = c.program(o, "done", varsAfter())
	if full {
		w.target = c.program(o, "target", varsBefore())
		w.accepted = c.program(o, "accepted", varsAfter())
		w.objectID = c.program(o, "object_id", varsAfter())
		if !o.Has("done") {
			c.faults.Errorf(o.Pointer("done"), "is required: which answer says that it is done?")
		}
	}
	w.requestID = c.program(o, "request_id", varsAfter())
	w.retryable = c.statuses(o, "not_executed_retryable", []int{429})
	w.final = c.statuses(o, "not_executed_final", []int{400, 401, 403, 404, 422})
	for _, code := range w.retryable {
		if slices.Contains(w.final, code) {
			c.faults.Errorf(o.Pointer("not_executed_final"), "%d is in both lists", code)
		}
	}
	o.Done()
	return w
}

// statuses reads a list of refusing answers. 409 and 412 always mean "read now".
func (c *compiler) statuses(o *decode.Object, key string, byDefault []int) []int {
	list, present := o.Ints(key, 300, 599)
	if !present {
		return byDefault
	}
	return slices.DeleteFunc(list, func(code int) bool {
		if code != 409 && code != 412 {
			return false
		}
		c.faults.Warnf(o.Pointer(key), "%d always means \"read now\" and is ignored here", code)
		return true
	})
}

func (c *compiler) read(o *decode.Object) *read {
	if o == nil {
		return nil
	}
	r := &read{request: c.request(o, "GET", true, notRead()...)}
	r.identify = identify(o.Enum("identify", string(byMarker), string(byNatural), string(bySnapshot)))
	if r.identify == "" {
		r.identify = byMarker
	}
	for key, to := range map[string]**program{
		"items": &r.items, "next": &r.next, "none": &r.none, "complete": &r.complete, "marker": &r.marker,
		"digest": &r.digest, "match": &r.match, "object_id": &r.objectID, "state": &r.state,
		"account": &r.account, "created_at": &r.createdAt, "partial": &r.partial,
	} {
		*to = c.program(o, key, varsAfter())
	}
	r.guard = c.test(o, "guard")
	r.terms = card.ParseReadTerms(o)
	c.checkRead(o, r)
	o.Done()
	return r
}

func (c *compiler) checkRead(o *decode.Object, r *read) {
	if !o.Has("items") {
		c.faults.Errorf(o.Pointer("items"), "is required: which part of the answer is the list? (for one object: '[$response.body]')")
	}
	if r.identify == byMarker && !o.Has("marker") {
		c.faults.Errorf(o.Pointer("marker"), "identify = \"marker\" needs it: where does an object carry the effect key?")
	}
	if r.identify == bySnapshot && !o.Has("object_id") {
		c.faults.Errorf(o.Pointer("object_id"), "identify = \"snapshot\" needs it: which objects are new?")
	}
	if r.terms.ProvesAbsence && r.guard == nil {
		c.faults.Warnf(o.Pointer("guard"), "no guard: that the credentials may see every object is assumed")
	}
	if r.digest == nil && r.match == nil && !o.Has("digest") && !o.Has("match") {
		c.faults.Warnf(o.Pointer("digest"), "neither digest nor match: the content of a found object is not compared")
	}
}

func (c *compiler) test(parent *decode.Object, key string) *test {
	o := parent.Object(key)
	if o == nil {
		return nil
	}
	t := &test{request: c.request(o, "GET", true, notRead()...)}
	t.when = c.program(o, "when", varsAfter())
	if !o.Has("when") {
		c.faults.Errorf(o.Pointer("when"), "is required")
	}
	o.Done()
	return t
}

func (c *compiler) poll(o *decode.Object) *poll {
	if o == nil {
		return nil
	}
	p := &poll{request: c.request(o, "GET", false, notRead()...)}
	p.done = c.program(o, "done", varsAfter())
	p.failed = c.program(o, "failed", varsAfter())
	if !o.Has("done") {
		c.faults.Errorf(o.Pointer("done"), "is required")
	}
	o.Done()
	return p
}

func (c *compiler) snapshot(o *decode.Object) *snapshot {
	if o == nil {
		return nil
	}
	s := &snapshot{request: c.request(o, "GET", false, notRead()...)}
	s.items = c.program(o, "items", varsAfter())
	s.none = c.program(o, "none", varsAfter())
	o.Done()
	return s
}

func (c *compiler) precondition(o *decode.Object) *precondition {
	if o == nil {
		return nil
	}
	p := &precondition{request: c.request(o, "GET", false, notRead()...)}
	p.value = c.program(o, "value", varsAfter())
	p.etag = c.program(o, "etag", varsAfter())
	if !o.Has("value") && !o.Has("etag") {
		c.faults.Errorf(o.Pointer("value"), "is required: what must still hold?")
	}
	o.Done()
	return p
}

// request compiles method, path, headers and body. With an empty byDefault the
// method is required. A method in refused does not belong there.
func (c *compiler) request(o *decode.Object, byDefault string, body bool, refused ...string) request {
	r := request{method: strings.ToUpper(o.String("method"))}
	switch {
	case r.method == "" && byDefault != "":
		r.method = byDefault
	case r.method == "":
		c.faults.Errorf(o.Pointer("method"), "is required")
	case !isToken(r.method):
		c.faults.Errorf(o.Pointer("method"), "%q is not an HTTP method", r.method)
	case slices.Contains(refused, r.method):
		c.faults.Errorf(o.Pointer("method"), "%s does not fit here", r.method)
	}
	r.path = c.template(o, "path", varsBefore())
	if !o.Has("path") {
		c.faults.Errorf(o.Pointer("path"), "is required")
	} else if r.path != nil && r.path.parts[0].program == nil && !strings.HasPrefix(r.path.parts[0].text, "/") {
		c.faults.Errorf(o.Pointer("path"), "must begin with \"/\"; it is added to base_url")
	}
	r.headers = c.headerList(o.Object("headers"))
	if body {
		r.body = c.program(o, "body", varsBefore())
	}
	return r
}

// headerList merges with.headers and the request's own, which win.
func (c *compiler) headerList(own *decode.Object) []header {
	merged := map[string]*template{}
	for _, o := range []*decode.Object{c.headers, own} {
		for _, name := range o.Keys() {
			canonical := nethttp.CanonicalHeaderKey(name)
			if !isToken(name) || slices.Contains([]string{"Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Upgrade", "Te", "Expect"}, canonical) {
				c.faults.Errorf(o.Pointer(name), "%q cannot be set as a header", name)
				continue
			}
			if t := c.template(o, name, varsBefore()); t != nil {
				merged[canonical] = t
			}
		}
	}
	names := make([]string, 0, len(merged))
	for name := range merged {
		names = append(names, name)
	}
	slices.Sort(names)
	list := make([]header, 0, len(names))
	for _, name := range names {
		list = append(list, header{name: name, value: merged[name]})
	}
	return list
}

func (c *compiler) program(o *decode.Object, key string, vars []string) *program {
	source := o.String(key)
	if source == "" {
		return nil
	}
	p, err := compileProgram(source, vars)
	if err != nil {
		c.faults.Errorf(o.Pointer(key), "not a jq program that can run here (variables: %s): %v", strings.Join(vars, ", "), err)
		return nil
	}
	c.checkSecrets(o.Pointer(key), source)
	return p
}

func (c *compiler) template(o *decode.Object, key string, vars []string) *template {
	source := o.String(key)
	if source == "" {
		return nil
	}
	t, err := compileTemplate(source, vars)
	if err != nil {
		c.faults.Errorf(o.Pointer(key), "%v", err)
		return nil
	}
	for _, p := range t.parts {
		if p.program != nil {
			c.checkSecrets(o.Pointer(key), p.program.source)
		} else if strings.ContainsFunc(p.text, isControl) {
			c.faults.Errorf(o.Pointer(key), "holds a control character")
		}
	}
	return t
}

// checkSecrets finds credentials that were never given, so that a missing one is
// a fault now and not a rejected effect later.
func (c *compiler) checkSecrets(pointer, source string) {
	for _, found := range regexp.MustCompile(`\$secret\s*\.\s*([A-Za-z_]\w*)|\$secret\s*\.?\s*\[\s*"([^"\\]+)"\s*\]`).FindAllStringSubmatch(source, -1) {
		name := found[1] + found[2]
		if _, ok := c.secrets[name]; ok {
			continue
		}
		summary := "no credential \"" + name + "\" was given; add it to the destination's credentials"
		c.faults.Add(sdk.Diagnostic{Pointer: pointer, Summary: summary, Warning: c.secrets == nil})
	}
}

// notRead are the methods that a read may not use; POST may, for searches.
func notRead() []string { return []string{"PUT", "PATCH", "DELETE", "CONNECT", "TRACE"} }

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("()<>@,;:\\\"/[]?={}", r)
	})
}
