// Package adaptertest tells an author where an adapter is wrong.
//
// [Serve] puts an adapter of this process behind a gRPC connection in memory,
// for quick tests of its own logic. [Run] and [Report.Test] are the conformance
// kit: they start the adapter's program as the daemon does, put a proxy that
// loses, holds, doubles and falsifies on purpose between it and a destination
// for tests, and try one rule after the other. `settled adapter test` is the
// same kit as a command.
//
// Every check has an id, a level (L0 protocol, L1 meaning, L2 faults, L3
// hygiene), a rule in words and a result with its reason. A check that does not
// apply is skipped and says why; one that the kit does not have yet says "not
// built". Nothing passes by not running, and the badge names the SHA-256 of the
// program that was tested.
//
// The kit leaves nothing behind: every process that it starts is dead when Run
// returns, and its directory is removed. A kit that is killed leaves its
// directory under the system's temporary one.
package adaptertest
