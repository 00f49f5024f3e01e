package host

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
)

// runMark names the variable that marks every process of one run. It finds
// those that left the process group.
const runMark = "SETTLED_ADAPTER_RUN"

// allowed are the variables of ours that an adapter sees. Nothing that tells
// about systemd (NOTIFY_SOCKET, LISTEN_*), credentials or the daemon's own settings.
func allowed(name string) bool {
	switch name {
	case "PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR":
		return true
	}
	return false
}

// childEnv is the whole environment of a child. The handshake's variables come
// last, because the last value of a name wins.
func childEnv(extra, handshake []string, mark string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if name, _, ok := strings.Cut(kv, "="); ok && allowed(name) {
			env = append(env, kv)
		}
	}
	env = append(env, extra...)
	env = append(env, handshake...)
	return append(env, runMark+"="+mark)
}

// newMark is 128 bits of chance.
func newMark() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
