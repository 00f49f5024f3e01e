// Package systemd speaks to the service manager: notifications, sockets that it
// hands over, and its journal. It is small and depends on no library.
//
// Guarantees: outside of systemd everything here does nothing. A notification or
// a log line that cannot be delivered never stops or delays the daemon; a log
// line then goes to standard error, where systemd reads it too. Nothing here is
// remembered, so a crash leaves nothing behind.
package systemd
