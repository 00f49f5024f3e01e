package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/settled-dev/settled/sdk"
	"github.com/settled-dev/settled/sdk/docs"
	"github.com/settled-dev/settled/sdk/wire"
)

// byHand answers a person. Exit status 0 on success, 1 when the adapter fails, 2 for a wrong call.
func byHand(a sdk.Adapter, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d, err := a.Describe(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "the adapter cannot describe itself: %v\nrepair its Describe method, then run it again\n", err)
		return 1
	}
	switch {
	case len(args) == 0, len(args) == 1 && (args[0] == "help" || args[0] == "--help" || args[0] == "-h"):
		help(stdout, d)
		return 0
	case len(args) == 1 && args[0] == "describe":
		if err := describe(stdout, d); err != nil {
			fmt.Fprintf(stderr, "cannot print the description: %v\n", err)
			return 1
		}
		return 0
	case len(args) == 1 && args[0] == "docs":
		_, _ = stdout.Write(docs.Markdown(d))
		return 0
	case args[0] == "call":
		return call(a, d, args[1:], stdout, stderr)
	case args[0] == "dev":
		return dev(a, d, args[1:], stdin, stdout, stderr)
	}
	fmt.Fprintf(stderr, "unknown arguments %q\nnext: %s help\n", args, filepath.Base(os.Args[0]))
	return 2
}

func help(w io.Writer, d sdk.Description) {
	name := filepath.Base(os.Args[0])
	fmt.Fprintf(w, "%s %s is an adapter of settled. The daemon starts it; by hand it only tells what it can do.\n\n", d.Name, d.Version)
	fmt.Fprintf(w, `usage:
  %[1]s describe   print name, version, operations and schemas as JSON
  %[1]s docs       print the same for people, as Markdown
  %[1]s call METHOD --config FILE [--secret NAME=FILE] [--payload FILE]
                   make one call to the real destination: check, prepare, dispatch or read
  %[1]s dev --config FILE [--secret NAME=FILE]
                   configure once, then answer one JSON request a line (for a debugger)
  %[1]s help       print this text

next: settled adapter test %[1]s
`, name)
	if len(d.Actions) == 0 {
		return
	}
	fmt.Fprintln(w, "\noperations:")
	for _, a := range d.Actions {
		fmt.Fprintf(w, "  %-24s %s\n", a.Name, a.Summary)
	}
}

// describe prints the wire form of the description, with the schemas as JSON instead of base64.
func describe(w io.Writer, d sdk.Description) error {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(wire.DescriptionToProto(d))
	if err != nil {
		return err
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return err
	}
	inline(doc, "config_schema", d.ConfigSchema)
	if list, ok := doc["actions"].([]any); ok {
		for i, v := range list {
			if m, ok := v.(map[string]any); ok {
				inline(m, "payload_schema", d.Actions[i].PayloadSchema)
			}
		}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

func inline(m map[string]any, key string, schema []byte) {
	if json.Valid(schema) {
		m[key] = json.RawMessage(schema)
	}
}
