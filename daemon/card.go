package daemon

import (
	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/sdk"
)

// CardOf is the capability card of an operation as it would be ruled here,
// without a daemon: what the operator wrote joined with what the adapter declares.
func CardOf(eff config.Effective, spec sdk.ActionSpec) Capability {
	o := resolve(eff, spec, "", "")
	return Card(spec, o.policy, o.eff.Owner)
}
