// Command mkdocs writes the man pages and shell completions of settled into a
// directory: man1, man7 and completions. They come from the verbs and
// from the pages of `settled help`, and from nothing else. It writes the same
// bytes for the same program and SOURCE_DATE_EPOCH.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/settled-dev/settled/cmd/settled/internal/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mkdocs DIRECTORY VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "mkdocs:", err)
		os.Exit(1)
	}
}

func run(dir, version string) error {
	for _, d := range []string{"man1", "man7", "completions"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	app := cli.App{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Version: version,
		Local: []cli.Local{
			{Name: "serve", Short: "Runs the daemon: --config FILE, --hold[=WHY], --log-level, --log-format"},
			{Name: "demo", Short: "The whole story in half a minute, on destinations that lose answers"},
			{Name: "check", Short: "Checks configuration, credentials, adapters, journal and schedules: --config FILE, --json, --quiet, --offline"},
			{Name: "bench", Short: "Measures effects per second, fsyncs and latency on this machine"},
		},
	}
	root := app.Root()
	root.DisableAutoGenTag = true
	when := epoch()
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "settled " + version, Manual: "settled", Date: &when}, filepath.Join(dir, "man1")); err != nil {
		return err
	}
	for name, page := range cli.Topics() {
		if err := topic(filepath.Join(dir, "man7"), name, page, version, when); err != nil {
			return err
		}
	}
	return completions(root, filepath.Join(dir, "completions"))
}

// topic makes settled-NAME(7) of a page.
func topic(dir, name, page, version string, when time.Time) error {
	title, rest, _ := strings.Cut(strings.TrimPrefix(page, "# "), "\n")
	head := fmt.Sprintf("%% settled-%s 7 %q %q \"settled\"\n\n# NAME\n\nsettled-%s - %s\n\n# DESCRIPTION\n", name, when.Format("January 2006"), "settled "+version, name, title)
	return os.WriteFile(filepath.Join(dir, "settled-"+name+".7"), md2man.Render([]byte(head+rest)), 0o644)
}

func completions(root *cobra.Command, dir string) error {
	for file, gen := range map[string]func(*bytes.Buffer) error{
		"settled.bash": func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"_settled":     func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"settled.fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
	} {
		var b bytes.Buffer
		if err := gen(&b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// epoch is SOURCE_DATE_EPOCH, so that two builds give the same pages.
func epoch() time.Time {
	s, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Now().UTC()
	}
	return time.Unix(s, 0).UTC()
}
