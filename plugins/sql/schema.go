package sql

// configSchema describes destinations.NAME.with for editors and documentation.
// Configure checks more than a schema can say, and is what counts.
const configSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "The built-in sql adapter",
  "type": "object",
  "required": ["driver", "dsn", "operations"],
  "additionalProperties": false,
  "properties": {
    "driver": {"enum": ["postgres", "mysql", "sqlite"], "description": "mysql is also MariaDB"},
    "dsn": {"type": "string", "minLength": 1, "description": "where the database is; ${$secret.NAME} stands for user or password"},
    "table": {"type": "string", "default": "settled_effect", "description": "of the rows that prove effects: name or schema.name"},
    "timeouts": {"type": "object", "additionalProperties": false, "description": "on the server's side; their sum bounds a late commit", "properties": {
      "statement": {"$ref": "#/$defs/duration"}, "idle": {"$ref": "#/$defs/duration"}}},
    "operations": {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/operation"}}
  },
  "$defs": {
    "duration": {"type": "string", "pattern": "^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^[0-9]+d$"},
    "sql": {"type": "string", "minLength": 1, "description": "one statement; values only as :name"},
    "value": {"type": "string", "minLength": 1, "description": "a JSON pointer into the payload, or a jq program over $payload and $effect"},
    "rows": {"type": "integer", "minimum": 0},
    "operation": {"type": "object", "required": ["statement"], "additionalProperties": false, "properties": {
      "summary": {"type": "string"}, "reversible": {"enum": ["reversible", "compensatable", "irreversible"]},
      "statement": {"$ref": "#/$defs/sql"},
      "parameters": {"type": "object", "additionalProperties": {"$ref": "#/$defs/value"}},
      "precondition": {"type": "object", "required": ["rows"], "additionalProperties": false, "properties": {"rows": {"$ref": "#/$defs/rows"}}},
      "postcondition": {"$ref": "#/$defs/sql"},
      "object": {"$ref": "#/$defs/sql"}, "object_id": {"$ref": "#/$defs/value"},
      "undo": {"type": "object", "required": ["statement"], "additionalProperties": false, "properties": {
        "statement": {"$ref": "#/$defs/sql"}, "rows": {"$ref": "#/$defs/rows"}, "verify": {"$ref": "#/$defs/sql"}}},
      "consequences": {"type": "array", "items": {"enum": ["write", "publish", "send", "charge", "delete", "trigger"]}},
      "sensitive": {"type": "array", "items": {"type": "string"}},
      "human_only": {"type": "boolean"}}}
  }
}`
