package exec

// configSchema describes destinations.NAME.with for editors and documentation.
// Configure checks more than a schema can say, and is what counts.
const configSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "The built-in exec adapter",
  "type": "object",
  "required": ["dispatch", "operations"],
  "additionalProperties": false,
  "properties": {
    "dispatch": {"$ref": "#/$defs/argv"}, "read": {"$ref": "#/$defs/argv"}, "undo": {"$ref": "#/$defs/argv"},
    "check": {"$ref": "#/$defs/argv"}, "describe": {"$ref": "#/$defs/argv"},
    "trust_exit": {"type": "boolean", "description": "without JSON, exit status 0 means done"},
    "config": {"type": "object", "description": "handed to every command as config"},
    "operations": {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/operation"}}
  },
  "$defs": {
    "argv": {"type": "array", "minItems": 1, "items": {"type": "string"}, "description": "the command and its arguments"},
    "duration": {"type": "string", "pattern": "^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^[0-9]+d$"},
    "operation": {"type": "object", "additionalProperties": false, "properties": {
      "summary": {"type": "string"}, "reversible": {"enum": ["reversible", "compensatable", "irreversible"]},
      "read": {"type": "object", "additionalProperties": false, "properties": {
        "consistency": {"enum": ["strong", "bounded", "eventual"]}, "lag": {"$ref": "#/$defs/duration"},
        "proves_absence": {"type": "boolean"}, "view": {"type": "string"}}},
      "dedupe": {"type": "object", "additionalProperties": false, "properties": {
        "window": {"$ref": "#/$defs/duration"}, "verified_on": {"type": "string"}, "scope": {"type": "string"},
        "replay": {"enum": ["first_response", "success_only", "current_state"]},
        "mismatch": {"enum": ["rejects", "returns_first", "executes_again"]},
        "key_max_bytes": {"type": "integer", "minimum": 1, "maximum": 65536},
        "covers": {"type": "array", "items": {"type": "string"}}, "caches_rejections": {"type": "boolean"}}},
      "consequences": {"type": "array", "items": {"enum": ["write", "publish", "send", "charge", "delete", "trigger"]}},
      "sensitive": {"type": "array", "items": {"type": "string"}},
      "human_only": {"type": "boolean"}}}
  }
}`
