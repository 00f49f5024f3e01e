package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// PolicySHA256 identifies the effective configuration: "sha256:" and 64
// hexadecimal digits over every setting, defaults included. Comments, order,
// spelling of durations and the division into files do not change it. Secrets
// are not in it, because they are not in the configuration.
func (c *Config) PolicySHA256() string {
	data, err := json.Marshal(c)
	if err != nil {
		// Every field is plain data, and With was encoded by ourselves.
		panic(fmt.Sprintf("config: cannot encode: %v", err))
	}
	sum := sha256.Sum256(append([]byte("settled policy 1\n"), data...))
	return "sha256:" + hex.EncodeToString(sum[:])
}
