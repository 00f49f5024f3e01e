// Command settled is the daemon and every tool around it. Offline verbs and
// the daemon are registered here; client verbs talk to it over its socket.
package main

import (
	"fmt"
	"os"

	"github.com/settled-dev/settled/cmd/settled/internal/desk"
	"github.com/settled-dev/settled/cmd/settled/internal/gitdest"
	"github.com/settled-dev/settled/sdk/serve"
)

func main() { os.Exit(runHidden(os.Args[1:])) }

// runHidden runs the verbs that only other parts of settled start: adapters,
// and the two destinations of the demo. It knows no flags of its own.
func runHidden(args []string) int {
	if len(args) == 0 {
		return unknownVerb()
	}
	switch args[0] {
	case "adapter-serve":
		if len(args) < 2 || builtIn()[args[1]] == nil {
			return unknownVerb()
		}
		return serve.Run(builtIn()[args[1]](), args[2:])
	case "git-destination":
		return gitdest.Main(args[1:])
	case "desk":
		return desk.Main(args[1:])
	case "serve":
		return serveMain(args[1:])
	case "check":
		return checkMain(args[1:])
	case "bench":
		return benchMain(args[1:])
	}
	return unknownVerb()
}

func unknownVerb() int {
	fmt.Fprintln(os.Stderr, "settled: no such verb; type: settled --help")
	return 2
}
