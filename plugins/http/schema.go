package http

// configSchema describes destinations.NAME.with for editors and documentation.
// Configure checks more than a schema can say, and is what counts.
const configSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "The built-in http adapter",
  "type": "object",
  "required": ["base_url", "operations"],
  "additionalProperties": false,
  "properties": {
    "base_url": {"type": "string", "format": "uri", "description": "http or https; paths are added to it"},
    "headers": {"$ref": "#/$defs/headers"},
    "operations": {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/operation"}}
  },
  "$defs": {
    "template": {"type": "string", "minLength": 1, "description": "plain text; ${ … } inserts the result of a jq expression"},
    "jq": {"type": "string", "minLength": 1, "description": "a jq program"},
    "duration": {"type": "string", "pattern": "^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^[0-9]+d$"},
    "codes": {"type": "array", "items": {"type": "integer", "minimum": 300, "maximum": 599}},
    "headers": {"type": "object", "additionalProperties": {"$ref": "#/$defs/template"}},
    "test": {"type": "object", "required": ["path", "when"], "additionalProperties": false, "properties": {
      "method": {"type": "string"}, "path": {"$ref": "#/$defs/template"}, "headers": {"$ref": "#/$defs/headers"},
      "body": {"$ref": "#/$defs/jq"}, "when": {"$ref": "#/$defs/jq"}}},
    "dispatch": {"type": "object", "required": ["method", "path", "done"], "additionalProperties": false, "properties": {
      "method": {"type": "string"}, "path": {"$ref": "#/$defs/template"}, "headers": {"$ref": "#/$defs/headers"},
      "body": {"$ref": "#/$defs/jq"}, "target": {"$ref": "#/$defs/jq"}, "done": {"$ref": "#/$defs/jq"},
      "accepted": {"$ref": "#/$defs/jq"}, "object_id": {"$ref": "#/$defs/jq"}, "request_id": {"$ref": "#/$defs/jq"},
      "not_executed_retryable": {"$ref": "#/$defs/codes"}, "not_executed_final": {"$ref": "#/$defs/codes"}}},
    "undo": {"type": "object", "required": ["method", "path"], "additionalProperties": false, "properties": {
      "method": {"type": "string"}, "path": {"$ref": "#/$defs/template"}, "headers": {"$ref": "#/$defs/headers"},
      "body": {"$ref": "#/$defs/jq"}, "done": {"$ref": "#/$defs/jq"}, "request_id": {"$ref": "#/$defs/jq"},
      "not_executed_retryable": {"$ref": "#/$defs/codes"}, "not_executed_final": {"$ref": "#/$defs/codes"},
      "verify": {"$ref": "#/$defs/test"}}},
    "read": {"type": "object", "required": ["path", "items"], "additionalProperties": false, "properties": {
      "method": {"type": "string"}, "path": {"$ref": "#/$defs/template"}, "headers": {"$ref": "#/$defs/headers"},
      "body": {"$ref": "#/$defs/jq"}, "view": {"type": "string"}, "identify": {"enum": ["marker", "natural", "snapshot"]},
      "items": {"$ref": "#/$defs/jq"}, "next": {"$ref": "#/$defs/jq"}, "none": {"$ref": "#/$defs/jq"},
      "complete": {"$ref": "#/$defs/jq"}, "marker": {"$ref": "#/$defs/jq"}, "digest": {"$ref": "#/$defs/jq"},
      "match": {"$ref": "#/$defs/jq"}, "object_id": {"$ref": "#/$defs/jq"}, "state": {"$ref": "#/$defs/jq"},
      "account": {"$ref": "#/$defs/jq"}, "created_at": {"$ref": "#/$defs/jq"}, "partial": {"$ref": "#/$defs/jq"},
      "guard": {"$ref": "#/$defs/test"}, "consistency": {"enum": ["strong", "bounded", "eventual"]},
      "lag": {"$ref": "#/$defs/duration"}, "proves_absence": {"type": "boolean"}}},
    "operation": {"type": "object", "required": ["dispatch"], "additionalProperties": false, "properties": {
      "summary": {"type": "string"}, "reversible": {"enum": ["reversible", "compensatable", "irreversible"]},
      "dispatch": {"$ref": "#/$defs/dispatch"}, "read": {"$ref": "#/$defs/read"}, "undo": {"$ref": "#/$defs/undo"},
      "dedupe": {"type": "object", "additionalProperties": false, "properties": {
        "window": {"$ref": "#/$defs/duration"}, "verified_on": {"type": "string"}, "scope": {"type": "string"},
        "replay": {"enum": ["first_response", "success_only", "current_state"]},
        "mismatch": {"enum": ["rejects", "returns_first", "executes_again"]},
        "key_max_bytes": {"type": "integer", "minimum": 1, "maximum": 65536},
        "covers": {"type": "array", "items": {"type": "string"}}, "caches_rejections": {"type": "boolean"}}},
      "handle": {"$ref": "#/$defs/jq"},
      "poll": {"type": "object", "required": ["path", "done"], "additionalProperties": false, "properties": {
        "method": {"type": "string"}, "path": {"$ref": "#/$defs/template"}, "headers": {"$ref": "#/$defs/headers"},
        "done": {"$ref": "#/$defs/jq"}, "failed": {"$ref": "#/$defs/jq"}}},
      "snapshot": {"type": "object", "required": ["path"], "additionalProperties": false, "properties": {
        "method": {"type": "string"}, "path": {"$ref": "#/$defs/template"}, "headers": {"$ref": "#/$defs/headers"},
        "items": {"$ref": "#/$defs/jq"}, "none": {"$ref": "#/$defs/jq"}}},
      "postcondition": {"$ref": "#/$defs/test"},
      "precondition": {"type": "object", "required": ["path"], "additionalProperties": false, "properties": {
        "method": {"type": "string"}, "path": {"$ref": "#/$defs/template"}, "headers": {"$ref": "#/$defs/headers"},
        "value": {"$ref": "#/$defs/jq"}, "etag": {"$ref": "#/$defs/jq"}}},
      "consequences": {"type": "array", "items": {"enum": ["write", "publish", "send", "charge", "delete", "trigger"]}},
      "sensitive": {"type": "array", "items": {"type": "string"}},
      "human_only": {"type": "boolean"}}}
  }
}`
