package main

import (
	"os"

	"github.com/settled-dev/settled/cmd/settled/internal/author"
	"github.com/settled-dev/settled/daemon/config"
)

// authorMain is the verb for people who write adapters.
func authorMain(args []string) int {
	self, err := os.Executable()
	if err != nil {
		self = "/proc/self/exe"
	}
	return author.App{
		Stdout: os.Stdout, Stderr: os.Stderr, Self: self, BuiltIn: builtIn(), Dir: adaptersDir,
	}.Main(args)
}

// adaptersDir is where adapters are installed. Without a configuration it is the usual place.
func adaptersDir() (string, error) {
	opts := config.FromOS()
	cfg, err := config.Open("", opts)
	if err != nil {
		if os.Getenv("SETTLED_CONFIG") != "" {
			return "", err
		}
		return config.Default(opts).Adapters.Dir, nil
	}
	return cfg.Adapters.Dir, nil
}
