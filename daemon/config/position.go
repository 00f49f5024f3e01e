package config

import "strings"

// Position finds where a value of the adapter's own table is written. pointer
// is a JSON pointer (RFC 6901) into destinations.NAME.with; where it leads
// nowhere the nearest table above is named, and the zero Place when the
// destination is not in a file at all.
func (c *Config) Position(destination, pointer string) Place {
	path := []string{"destinations", destination, "with"}
	if _, ok := c.root.find(path[:2]...); !ok {
		return Place{}
	}
	if trimmed := strings.TrimPrefix(pointer, "/"); trimmed != "" {
		for _, part := range strings.Split(trimmed, "/") {
			path = append(path, strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
		}
	}
	v := &validator{cfg: c}
	return v.where(path)
}

// AdapterFault turns an adapter's diagnostic into a fault with its place.
func (c *Config) AdapterFault(destination, pointer, summary, detail string, warning bool) Fault {
	key := "destinations." + destination + ".with"
	if trimmed := strings.Trim(pointer, "/"); trimmed != "" {
		key += "." + strings.ReplaceAll(trimmed, "/", ".")
	}
	if name := pointer[strings.LastIndex(pointer, "/")+1:]; name != "" && strings.HasPrefix(summary, "is ") {
		summary = name + " " + summary // the place of what is missing is the table around it
	}
	return Fault{
		Place: c.Position(destination, pointer), Code: CodeAdapter, Key: key,
		Message: summary, Hint: detail, Warning: warning,
	}
}
