"""The pipeline file's JSON Schema, for editors.

It describes what the file promises: settings that this version refuses are in it and say so. Whatever `load_spec`
accepts is valid, not the other way round: names, types and references are checked only on loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from frazil.spec.keys import Key, keys_of
from frazil.spec.models import (
    DEFAULTS_KEYS,
    ISOLATION_LEVELS,
    OWNED_KAFKA_PROPERTIES,
    TABLE_MAINTENANCE_KEYS,
    AtomicSpec,
    AuthSpec,
    CatalogSpec,
    ColumnSpec,
    CommitSpec,
    DeadLettersSpec,
    EnvelopeSpec,
    FlattenSpec,
    KeySpec,
    LimitsSpec,
    MaintenanceSpec,
    PipelineSpec,
    RegistrySpec,
    SparkSpec,
    TableSpec,
    TlsSpec,
    ValueSpec,
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


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the file as the user writes it."""
    return {
        "$schema": DIALECT,
        "title": "Frazil pipeline",
        **_schema_of(PipelineSpec),
        "$defs": {
            "kafka": _KAFKA,
            "registry": _schema_of(RegistrySpec),
            "auth": _schema_of(AuthSpec),
            "tls": _schema_of(TlsSpec),
            "catalog": _schema_of(CatalogSpec),
            "spark": _schema_of(SparkSpec),
            "commit": _schema_of(CommitSpec),
            "maintenance": _schema_of(MaintenanceSpec),
            "table_maintenance": _schema_of(MaintenanceSpec, TABLE_MAINTENANCE_KEYS),
            "snapshots": _object(keys_of(MaintenanceSpec, "snapshots")),
            "orphans": _object(keys_of(MaintenanceSpec, "orphans")),
            "dead_letters": _schema_of(DeadLettersSpec),
            "limits": _schema_of(LimitsSpec),
            "value": _schema_of(ValueSpec),
            "key": _schema_of(KeySpec),
            "flatten": _schema_of(FlattenSpec),
            "infer": _object(keys_of(TableSpec, "infer")),
            "atomic": _schema_of(AtomicSpec),
            "envelope": _schema_of(EnvelopeSpec),
            "column": _schema_of(ColumnSpec),
            "defaults": _object(DEFAULTS_KEYS),
            "table": _schema_of(TableSpec),
        },
    }


def _schema_of(model: type[BaseModel], keys: Mapping[str, Key] | None = None) -> dict[str, Any]:
    """The section that a model declares, with the rules between its keys; `keys`: those that it has in this place."""
    rules = model.model_config.get("json_schema_extra")
    assert rules is None or isinstance(rules, dict)
    return {**_object(keys_of(model) if keys is None else keys), **(rules or {})}


def _object(keys: Mapping[str, Key]) -> dict[str, Any]:
    properties = {name: _property(key) for name, key in keys.items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _property(key: Key) -> dict[str, Any]:
    schema: dict[str, Any] = {"enum": list(key.choices)} if key.form is None else dict(key.form.schema)
    if key.default is not None:
        schema["default"] = key.default
    schema["description"] = _description(key)
    return schema


def _description(key: Key) -> str:
    if not key.is_built:
        return f"{key.description} Not available in this version."
    if key.not_built:
        return f"{key.description} Not available in this version: {', '.join(map(str, key.not_built))}."
    return key.description
