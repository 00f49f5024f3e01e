//go:build libsqlite3

package sqlite

// The journal runs only on the SQLite that the driver brings: a system library
// may be older than 3.51.3, which can corrupt a database that one connection
// commits to while another checkpoints it. Build without the tag libsqlite3.
var _ = the_libsqlite3_build_tag_is_refused
