"""The JSON schema of a file of rules and limits: what an editor completes and marks. It knows no more than the form."""

from typing import Any, get_args

from batchlimit.quota.failure_policy import Kind
from batchlimit.rules.rule import Mode

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1}
_QUOTA = {"type": "string", "description": "Such as '100/s burst 200' or '5/minute; 100/day'."}
_KIND = {"enum": list(get_args(Kind))}
_TERMS: dict[str, Any] = {
    "quota": _QUOTA,
    "on_failure": {
        "description": "While the store is away.",
        "anyOf": [
            _KIND,
            {
                "type": "object",
                "properties": {"kind": _KIND, "instances": {"type": "integer", "minimum": 1}},
                "required": ["kind"],
                "additionalProperties": False,
            },
        ],
    },
    "mode": {"enum": list(get_args(Mode)), "description": "'shadow': decide and count, but admit."},
}
_LIMIT = {"type": "object", "properties": _TERMS, "required": ["quota"], "additionalProperties": False}
_RULE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_./:-]{0,63}$"},
        "key": {"type": "string", "description": "The key in the store, with fields to fill: 'login:{ip}'."},
        "match": {
            "description": "'POST /login', '/api/*', '/items/{id}', several; false: routes ask for it.",
            "anyOf": [_TEXT, _TEXTS, {"const": False}],
        },
        "cost": {"anyOf": [{"type": "integer", "minimum": 0}, _TEXT], "description": "Tokens, or a function's name."},
        "charge": {
            "description": "Statuses, such as [401, '5xx'], or a function's name.",
            "anyOf": [{"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 1}, _TEXT],
        },
        "replaces": {"anyOf": [_TEXT, _TEXTS], "description": "Rules that do not apply where this one does."},
        **_TERMS,
    },
    "required": ["name", "quota", "key"],
    "additionalProperties": False,
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Rules and limits of batchlimit",
    "type": "object",
    "properties": {
        "revision": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
        "identities": {"type": "array", "items": _TEXT, "description": "Names that the identity of each request has."},
        "exempt": {
            "type": "array",
            "items": _TEXT,
            "description": "Requests that no rule is for: 'GET /health', or a function's name.",
        },
        "limits": {"type": "object", "additionalProperties": {"anyOf": [_QUOTA, _LIMIT]}},
        "rules": {"type": "array", "items": _RULE, "minItems": 1},
    },
    "anyOf": [{"required": ["rules"]}, {"required": ["limits"]}],
    "additionalProperties": False,
}
