package serve

import (
	"context"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/wire"
)

// PluginName is the name under which the adapter is dispensed, and ProtocolVersion
// the major version of the contract, the number in the package name adapterv1.
const (
	PluginName      = "adapter"
	ProtocolVersion = 1
)

// The cookie tells a program started by the daemon from one started by hand. It is no secret.
const (
	CookieKey   = "SETTLED_ADAPTER_COOKIE"
	CookieValue = "settled-adapter-v1"
)

// Handshake is what daemon and adapter must agree on before the first call.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion: ProtocolVersion, MagicCookieKey: CookieKey, MagicCookieValue: CookieValue,
	}
}

// Plugin joins go-plugin and the wire. On the adapter's side Adapter is set; on
// the host's side it dispenses the bare *grpc.ClientConn.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	Adapter *wire.Server
}

// Plugins is the set that both sides hand to go-plugin; server is nil on the host's side.
func Plugins(server *wire.Server) map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{ProtocolVersion: {PluginName: &Plugin{Adapter: server}}}
}

// GRPCServer registers the adapter.
func (p *Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	p.Adapter.Register(s)
	return nil
}

// GRPCClient returns the connection.
func (p *Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, cc *grpc.ClientConn) (any, error) {
	return cc, nil
}

// newGRPCServer has the contract's message limits, 8 MiB both ways.
func newGRPCServer(opts []grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(sdk.MaxMessage), grpc.MaxSendMsgSize(sdk.MaxMessage))...)
}
