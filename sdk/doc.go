// Package sdk is what authors of destination adapters import.
//
// An adapter performs at most one effect per Dispatch and reads back
// authoritatively what the destination holds. Its answers are classes of
// knowledge, not errors: done, did not happen, may be sent again, accepted, and
// unknown for everything else. The daemon alone decides what follows from them;
// in particular only the daemon concludes that an effect is absent.
//
// The package depends on the standard library. The wire (gRPC through
// go-plugin) is behind sdk/serve and sdk/wire.
package sdk
