// Package config turns the operator's TOML into one checked value.
//
// What it guarantees: a *Config exists only if every key was known, every value
// was in range and the values agree with each other as the retry and absence
// rules demand. Otherwise Load returns an [*Error] that lists every fault found,
// each with its file, line, column, source line and what to type next; nothing
// is reported one at a time and nothing is ignored.
//
// The order is: read the main file, then conf.d/*.toml beside it in name order;
// check each file's syntax; merge the tables (a key written twice is a fault
// that names both places); decode into [Config]; refuse what is not built yet;
// check names, ranges and sums. A file with a syntax fault stops the later
// steps, because what follows from half a file would only mislead.
//
// The package writes nothing and keeps nothing: a crash leaves nothing behind.
// Secrets are never part of a Config; they are read by [Config.Credential]
// when an adapter is configured.
package config
