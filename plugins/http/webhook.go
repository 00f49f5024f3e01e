package http

import "github.com/settled-dev/settled/plugins/internal/decode"

// webhook checks the table of messages that the destination sends of itself.
// The daemon receives and believes them; the adapter only knows the form.
func (c *compiler) webhook(o *decode.Object) {
	if o == nil {
		return
	}
	if o.Enum("scheme", "standard", "stripe", "github") == "" && !o.Has("scheme") {
		c.faults.Errorf(o.Pointer("scheme"), "is required: standard, stripe or github")
	}
	if o.String("credential") == "" {
		c.faults.Errorf(o.Pointer("credential"), "is required: which credential holds the shared secret?")
	}
	o.Duration("tolerance")
	vars := []string{"$headers"}
	for _, name := range []string{"event_id", "key", "object_id", "verdict", "may_resend"} {
		if c.program(o, name, vars) == nil && !o.Has(name) && (name == "key" || name == "verdict") {
			c.faults.Errorf(o.Pointer(name), "is required")
		}
	}
	o.Done()
}
