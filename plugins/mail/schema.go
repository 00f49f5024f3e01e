package mail

// configSchema describes destinations.NAME.with for editors and documentation.
// Configure checks more than a schema can say, and is what counts.
const configSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "The built-in mail adapter",
  "type": "object",
  "required": ["domain", "smtp", "operations"],
  "additionalProperties": false,
  "properties": {
    "domain": {"type": "string", "format": "hostname", "description": "of Message-IDs; one that is yours"},
    "from": {"type": "string", "description": "sender, when the payload names none"},
    "recipients": {"enum": ["all_or_none", "send_to_rest"], "default": "all_or_none", "description": "what one refused recipient means for the others"},
    "smtp": {"type": "object", "required": ["addr", "security"], "additionalProperties": false, "properties": {
      "addr": {"$ref": "#/$defs/addr"}, "security": {"$ref": "#/$defs/security"}, "hello": {"type": "string"},
      "user": {"$ref": "#/$defs/login"}, "password": {"$ref": "#/$defs/login"}}},
    "imap": {"type": "object", "required": ["addr", "security", "user", "password", "mailboxes"], "additionalProperties": false, "properties": {
      "addr": {"$ref": "#/$defs/addr"}, "security": {"$ref": "#/$defs/security"}, "hello": {"type": "string"},
      "user": {"$ref": "#/$defs/login"}, "password": {"$ref": "#/$defs/login"},
      "mailboxes": {"type": "array", "minItems": 1, "items": {"type": "string"}, "description": "a mail must reach exactly one of them"},
      "lag": {"type": "string", "pattern": "^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^[0-9]+d$", "description": "how long a mail may wait in queues at most"},
      "proves_absence": {"type": "boolean"}}},
    "operations": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "object", "additionalProperties": false, "properties": {
      "summary": {"type": "string"}, "reversible": {"enum": ["irreversible"]},
      "consequences": {"type": "array", "items": {"enum": ["write", "publish", "send", "charge", "delete", "trigger"]}},
      "sensitive": {"type": "array", "items": {"type": "string"}}, "human_only": {"type": "boolean"}}}}
  },
  "$defs": {
    "addr": {"type": "string", "description": "host:port"},
    "security": {"enum": ["tls", "starttls", "none"]},
    "login": {"type": "string", "description": "${$secret.NAME} stands for a credential"}
  }
}`

// payloadSchema describes the payload.
const payloadSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "required": ["to", "subject"],
  "anyOf": [{"required": ["text"]}, {"required": ["html"]}],
  "additionalProperties": false,
  "properties": {
    "from": {"type": "string"},
    "to": {"type": "array", "minItems": 1, "items": {"type": "string"}},
    "cc": {"type": "array", "items": {"type": "string"}},
    "subject": {"type": "string", "maxLength": 500},
    "text": {"type": "string"}, "html": {"type": "string"},
    "headers": {"type": "object", "additionalProperties": {"type": "string"}}
  }
}`
