"""The pipeline file's JSON Schema, for editors.

It describes what the file promises: settings that this version refuses are in it and say so. Whatever `load_spec`
accepts is valid, not the other way round: names, types and references are checked only on loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.spec.maintenance import MAINTENANCE, ORPHANS, SNAPSHOTS, TABLE_MAINTENANCE
from frazil.spec.table_vocabulary import ATOMIC, ENVELOPE, INFER, OF_ONE_TABLE, TABLE
from frazil.spec.vocabulary import (
    AUTH,
    CATALOG,
    COLUMN,
    COMMIT,
    DEAD_LETTERS,
    FLATTEN,
    ISOLATION_LEVELS,
    KEY,
    LIMITS,
    OWNED_KAFKA_PROPERTIES,
    PIPELINE,
    REGISTRY,
    SPARK,
    TLS,
    VALUE,
    Setting,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PROPERTY = {"type": ["string", "number", "boolean"]}
_KAFKA: dict[str, Any] = {
    "type": "object",
    "required": ["bootstrap.servers"],
    "propertyNames": {"not": {"enum": list(OWNED_KAFKA_PROPERTIES)}},
    "properties": {
        "bootstrap.servers": {
            "type": "string",
            "minLength": 1,
            "description": "The brokers: host:port, comma-separated.",
        },
        "isolation.level": {
            "enum": list(ISOLATION_LEVELS),
            "default": ISOLATION_LEVELS[0],
            "description": "Whether records of open and aborted transactions are read.",
        },
        "security.protocol": {**_PROPERTY, "description": "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."},
        "sasl.mechanism": {**_PROPERTY, "description": "How to log in, such as PLAIN or SCRAM-SHA-512."},
        "sasl.username": {**_PROPERTY, "description": "The user."},
        "sasl.password": {**_PROPERTY, "description": "The password, as ${env:NAME} or ${file:PATH}."},
    },
    "additionalProperties": _PROPERTY,
}
# A column has one source.
_PAIRS = [{"required": pair} for pair in (["field", "constant"], ["field", "header"], ["constant", "header"])]


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the file as the user writes it."""
    return {
        "$schema": DIALECT,
        "title": "Frazil pipeline",
        **_object(PIPELINE, required=["pipeline", "kafka"]),
        "anyOf": [{"required": ["tables"]}, {"required": ["topics"]}],
        "dependentRequired": {"topics": ["namespace"], "namespace": ["topics"]},
        "$defs": {
            "kafka": _KAFKA,
            "registry": _object(REGISTRY, required=["url"]),
            "auth": {**_object(AUTH), "oneOf": [{"required": ["username", "password"]}, {"required": ["token"]}]},
            "tls": {**_object(TLS), "dependentRequired": {"key": ["certificate"], "key_password": ["certificate"]}},
            "catalog": _object(CATALOG),
            "spark": _object(SPARK),
            "commit": _object(COMMIT),
            "maintenance": {**_object(MAINTENANCE), "not": {"required": ["sort", "zorder"]}},
            "table_maintenance": {**_object(TABLE_MAINTENANCE), "not": {"required": ["sort", "zorder"]}},
            "snapshots": _object(SNAPSHOTS),
            "orphans": _object(ORPHANS),
            "dead_letters": _object(DEAD_LETTERS),
            "limits": _object(LIMITS),
            "value": _object(VALUE),
            "key": _object(KEY),
            "flatten": _object(FLATTEN),
            "infer": _object(INFER),
            "atomic": _object(ATOMIC, required=["transaction_topic"]),
            "envelope": {**_object(ENVELOPE), "oneOf": [{"required": ["type"]}, {"required": ["operation"]}]},
            "column": {
                **_object(COLUMN, required=["type"]),
                "not": {"anyOf": _PAIRS},
                "dependentRequired": {"value": ["header"]},
            },
            "defaults": _object({name: setting for name, setting in TABLE.items() if name not in OF_ONE_TABLE}),
            "table": {**_object(TABLE), "oneOf": [{"required": ["topic"]}, {"required": ["topics"]}]},
        },
    }


def _object(settings: Mapping[str, Setting], required: list[str] | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False}
    if required:
        schema["required"] = required
    return {**schema, "properties": {name: _property(setting) for name, setting in settings.items()}}


def _property(setting: Setting) -> dict[str, Any]:
    schema = dict(setting.schema) or {"enum": list(setting.choices)}
    if setting.default is not None:
        schema["default"] = setting.default
    schema["description"] = _description(setting)
    return schema


def _description(setting: Setting) -> str:
    if not setting.is_built:
        return f"{setting.description} Not available in this version."
    if setting.not_built:
        words = ", ".join(str(word).lower() for word in setting.not_built)
        return f"{setting.description} Not available in this version: {words}."
    return setting.description
