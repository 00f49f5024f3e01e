package adaptertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// PlanName is the file that the kit looks for beside an adapter.
const PlanName = "adapter-test.json"

// Plan is what the kit must know of one adapter and of a destination for tests.
// As a file it is JSON. In every text of it these words are replaced:
//
//	{{url}}  the destination, through the kit's proxy
//	{{dir}}  the directory of the plan
//	{{n}}    a number that is new for every effect (in payloads)
//	{{key}}  the idempotency key (in the paths of control requests)
//
// Paths of control requests are asked of the destination itself, not through
// the proxy. They make a destination a destination for tests; what is left out
// skips the checks that need it, and the report says so.
type Plan struct {
	// Adapter is the program and its arguments; a path is relative to the plan.
	Adapter []string `json:"adapter"`
	// Files are further files that the badge is bound to, such as scripts.
	Files []string `json:"files,omitempty"`
	// Destination is a command that prints its base URL as its first line and
	// ends with its standard input; or URL is one that runs already.
	Destination []string `json:"destination,omitempty"`
	URL         string   `json:"url,omitempty"`
	// TunnelProxy hands the proxy to the adapter as its forward proxy, with the
	// certificate of its authority, and leaves {{url}} the destination's own.
	TunnelProxy bool `json:"tunnel_proxy,omitempty"`

	Config    json.RawMessage   `json:"config"`
	Secrets   map[string]string `json:"secrets,omitempty"`   // credential name -> value, at least 8 characters
	ReadOnly  map[string]string `json:"read_only,omitempty"` // credentials that may read and not write
	BadConfig []Bad             `json:"bad_config,omitempty"`

	Action  string          `json:"action"`            // the operation that is tried
	Payload json.RawMessage `json:"payload,omitempty"` // a valid one, with {{n}} somewhere
	Invalid []Bad           `json:"invalid,omitempty"`
	Old     []Old           `json:"old,omitempty"`     // payloads that earlier releases wrote
	Text    string          `json:"text,omitempty"`    // JSON pointer of a free text in the payload
	Integer string          `json:"integer,omitempty"` // JSON pointer of a 64-bit number in the payload

	Effects string `json:"effects,omitempty"` // GET: how many effects there are of a key, as {"effects": n}
	Tamper  string `json:"tamper,omitempty"`  // POST: change the object of a key behind our back
	Twin    string `json:"twin,omitempty"`    // POST: make an object like that of a key, but without the key
	Hide    string `json:"hide,omitempty"`    // POST: the reader may see nothing from now on
	Show    string `json:"show,omitempty"`    // POST: the reader may see everything again

	MorePage json.RawMessage `json:"more_page,omitempty"` // an empty answer to the list that says that there is more

	Docs string            `json:"docs,omitempty"` // the committed documentation
	Skip map[string]string `json:"skip,omitempty"` // id -> why the check cannot apply

	// EffectsOf is Effects for tests in Go.
	EffectsOf func(key string) (int, error) `json:"-"`

	dir string
}

// Bad is a document that must be refused, and the pointer that must be named
// (empty = any place will do).
type Bad struct {
	Document json.RawMessage `json:"document"`
	Pointer  string          `json:"pointer,omitempty"`
}

// Old is a payload of an earlier release, with its key.
type Old struct {
	Key     string          `json:"key"`
	Payload json.RawMessage `json:"payload"`
}

// LoadPlan reads a plan strictly: a word that it does not know is an error.
func LoadPlan(file string) (Plan, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return Plan{}, err
	}
	var p Plan
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Plan{}, fmt.Errorf("%s: %w", file, err)
	}
	abs, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return Plan{}, err
	}
	p.dir = abs
	return p, p.fault()
}

func (p Plan) fault() error {
	if len(p.Adapter) == 0 {
		return errors.New("the plan names no adapter")
	}
	for name, value := range p.Secrets {
		if len(value) < 8 {
			return fmt.Errorf("the secret %q is shorter than 8 characters: it would be found by chance", name)
		}
	}
	for id := range p.Skip {
		if !known(id) {
			return fmt.Errorf("skip names the check %q, which does not exist", id)
		}
	}
	return nil
}

// program is the adapter's file, absolute.
func (p Plan) program() string { return p.path(p.Adapter[0]) }

// path is relative to the plan, unless it is absolute or a bare name in PATH.
func (p Plan) path(name string) string {
	if filepath.IsAbs(name) || p.dir == "" || !strings.Contains(name, "/") {
		return name
	}
	return filepath.Join(p.dir, name)
}

// fill replaces the words in a JSON document. Values are put in as JSON text.
func fill(doc string, words map[string]string) string {
	for name, value := range words {
		quoted, err := json.Marshal(value)
		if err != nil {
			continue // text always can be
		}
		doc = strings.ReplaceAll(doc, "{{"+name+"}}", strings.Trim(string(quoted), `"`))
	}
	return doc
}
