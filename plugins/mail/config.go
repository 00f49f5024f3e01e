package mail

import (
	"net"
	netmail "net/mail"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/settled-dev/settled/plugins/internal/card"
	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// How a connection is protected.
const (
	securityTLS      = "tls"      // from the first byte
	securityStartTLS = "starttls" // before anything else; required
	securityNone     = "none"     // only to this machine, or without credentials
)

// What a refused recipient means for the others.
const (
	recipientsAll  = "all_or_none"
	recipientsRest = "send_to_rest"
)

// configuration is destinations.NAME.with.
type configuration struct {
	domain     string           // of Message-IDs
	from       *netmail.Address // when the payload names none
	smtp       server
	imap       *server // nil = no read
	mailboxes  []string
	terms      card.ReadTerms
	recipients string
	names      []string
	operations map[string]*operation
}

// server is one endpoint with its login; an empty user logs in nowhere.
type server struct {
	addr, host, security string
	user, password       string
	hello                string
}

type operation struct {
	name, summary string
	consequences  []sdk.Consequence
	sensitive     []string
	humanOnly     bool
}

type compiler struct {
	faults  *decode.Faults
	secrets map[string]string
}

func parse(raw []byte, secrets map[string]string, faults *decode.Faults) *configuration {
	with := decode.Parse(raw, faults)
	c := &compiler{faults: faults, secrets: secrets}
	cfg := &configuration{domain: with.String("domain"), operations: map[string]*operation{}}
	domain := regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
	if !with.Has("domain") {
		faults.Errorf("/domain", "is required: the domain of Message-IDs, one that is yours")
	} else if !domain.MatchString(cfg.domain) || len(cfg.domain) > 200 {
		faults.Errorf("/domain", "must be a domain name such as ops.example.org")
	}
	if from := with.String("from"); from != "" {
		var err error
		if cfg.from, err = netmail.ParseAddress(from); err != nil {
			faults.Errorf("/from", "is no mail address: %v", err)
		}
	}
	cfg.recipients = with.Enum("recipients", recipientsAll, recipientsRest)
	if o := with.Object("smtp"); o != nil {
		cfg.smtp = c.server(o, cfg.domain)
		o.Done()
	} else if !with.Has("smtp") {
		faults.Errorf("/smtp", "is required: which server takes the mail?")
	}
	cfg.parseIMAP(c, with.Object("imap"))
	cfg.parseOperations(c, with.Object("operations"))
	with.Done()
	return cfg
}

func (cfg *configuration) parseIMAP(c *compiler, o *decode.Object) {
	if o == nil {
		c.faults.Warnf("/imap", "without imap an unknown outcome can only be settled by a person")
		return
	}
	s := c.server(o, cfg.domain)
	cfg.imap = &s
	cfg.mailboxes = o.Strings("mailboxes")
	if len(cfg.mailboxes) == 0 || slices.Contains(cfg.mailboxes, "") {
		c.faults.Errorf(o.Pointer("mailboxes"), "is required: in which mailboxes does a copy of every mail arrive?")
	}
	cfg.terms = card.ReadTerms{Consistency: "eventual", Lag: o.Duration("lag"), ProvesAbsence: o.Bool("proves_absence")}
	if cfg.terms.ProvesAbsence && cfg.terms.Lag == nil {
		c.faults.Errorf(o.Pointer("lag"), "proves_absence needs it: how long may a mail wait in queues at most?")
	}
	if s.user == "" {
		c.faults.Errorf(o.Pointer("user"), "is required")
	}
	o.Done()
}

func (cfg *configuration) parseOperations(c *compiler, operations *decode.Object) {
	cfg.names = operations.Keys()
	if len(cfg.names) == 0 && !c.faults.Failed() {
		c.faults.Errorf("/operations", "at least one operation is needed, if only an empty table")
	}
	for _, name := range cfg.names {
		o := operations.Object(name)
		if o == nil {
			continue
		}
		op := &operation{
			name: name, summary: o.String("summary"), consequences: card.ParseConsequences(o),
			sensitive: o.Strings("sensitive"), humanOnly: o.Bool("human_only"),
		}
		if kind := card.ParseReversal(o); kind != sdk.ReversalUnspecified && kind != sdk.Irreversible {
			c.faults.Errorf(o.Pointer("reversible"), "a sent mail cannot be taken back; write irreversible")
		}
		cfg.operations[name] = op
		o.Done()
	}
}

func (c *compiler) server(o *decode.Object, domain string) server {
	s := server{addr: o.String("addr"), security: o.Enum("security", securityTLS, securityStartTLS, securityNone), hello: o.String("hello")}
	host, _, err := net.SplitHostPort(s.addr)
	if err != nil || host == "" {
		c.faults.Errorf(o.Pointer("addr"), "must be host:port")
	}
	s.host = host
	if !o.Has("security") {
		c.faults.Errorf(o.Pointer("security"), "is required: tls, starttls or none")
	}
	if s.hello == "" {
		s.hello = domain
	}
	if strings.ContainsAny(s.hello, " \r\n\t") {
		c.faults.Errorf(o.Pointer("hello"), "must be one word")
	}
	s.user = c.login(o, "user", false)
	s.password = c.login(o, "password", true)
	if (s.user == "") != (s.password == "") {
		c.faults.Errorf(o.Pointer("user"), "user and password belong together")
	}
	if ip := net.ParseIP(host); s.user != "" && s.security == securityNone && (ip == nil || !ip.IsLoopback()) && host != "localhost" {
		c.faults.Errorf(o.Pointer("security"), "a password is sent in the clear only to this machine")
	}
	return s
}

// login reads user or password, in which ${$secret.NAME} stands for a credential.
func (c *compiler) login(o *decode.Object, key string, secretOnly bool) string {
	source := o.String(key)
	reference := regexp.MustCompile(`\$\{\s*\$secret\.([A-Za-z_][A-Za-z0-9_-]*)\s*\}`)
	if secretOnly && source != "" && reference.FindString(source) != source {
		c.faults.Errorf(o.Pointer(key), "must be a credential: ${$secret.NAME}")
		return ""
	}
	return reference.ReplaceAllStringFunc(source, func(found string) string {
		name := reference.FindStringSubmatch(found)[1]
		value, ok := c.secrets[name]
		if !ok {
			c.faults.Add(sdk.Diagnostic{Pointer: o.Pointer(key), Summary: "no credential \"" + name + "\" was given; add it to the destination's credentials", Warning: c.secrets == nil})
			return "?" // so that only this fault is reported
		}
		return value
	})
}

// actions are the capability cards.
func (cfg *configuration) actions() []sdk.ActionSpec {
	list := make([]sdk.ActionSpec, 0, len(cfg.names))
	for _, name := range cfg.names {
		op := cfg.operations[name]
		spec := sdk.ActionSpec{
			Name: name, Summary: op.summary, PayloadSchema: []byte(payloadSchema),
			Idempotency: sdk.Idempotency{Mode: sdk.IdempotencyNone, SameKeyOtherPayload: sdk.MismatchExecutesAgain},
			Read:        sdk.ReadSpec{Lookup: sdk.LookupNone, Authority: sdk.Advisory},
			Reversal:    sdk.Reversal{Kind: sdk.Irreversible}, Outcomes: outcomes(),
			Consequences: op.consequences, Sensitive: op.sensitive, HumanOnly: op.humanOnly,
		}
		if spec.Summary == "" {
			spec.Summary = "sends a mail by " + cfg.smtp.addr
		}
		if len(spec.Consequences) == 0 {
			spec.Consequences = []sdk.Consequence{sdk.ConsequenceSend}
		}
		if cfg.imap != nil {
			spec.Read = cfg.terms.Spec(sdk.LookupByMarker)
			spec.Read.View = cfg.view()
			for _, mailbox := range cfg.mailboxes {
				spec.Read.Permissions = append(spec.Read.Permissions, "read "+mailbox)
			}
		}
		list = append(list, spec)
	}
	return list
}

func (cfg *configuration) view() string { return strings.Join(cfg.mailboxes, ", ") }

// outcomes is the table of answers for the capability card.
func outcomes() []sdk.OutcomeRule {
	return []sdk.OutcomeRule{
		{Code: "250 after the message", Class: sdk.ClassExecuted},
		{Code: "4xx", Class: sdk.ClassNotExecutedRetryable},
		{Code: "5xx", Class: sdk.ClassNotExecutedFinal},
		{Code: "no connection", Class: sdk.ClassNotExecutedRetryable},
		{Code: "lost before the end of the message", Class: sdk.ClassNotExecutedRetryable},
	}
}

// timeLimit of a call without a deadline.
const timeLimit = time.Minute
