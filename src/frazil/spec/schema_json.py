"""The pipeline file's JSON Schema, for editors.

It describes what the file promises: settings that this version refuses are in it and say so. Whatever `load_spec`
accepts is valid, not the other way round: names, types and references are checked only on loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from frazil.spec import connections, models, settings
from frazil.spec.package_stages import stage_keys
from frazil.spec.publishing import PublishSpec, TagSpec
from frazil.spec.syntax.keys import Key, keys_of
from frazil.spec.table_keys import LateSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PROPERTY = {"type": ["string", "number", "boolean"]}
_KAFKA: dict[str, Any] = {
    "type": "object",
    "required": ["bootstrap.servers"],
    "propertyNames": {"not": {"enum": list(connections.OWNED_KAFKA_PROPERTIES)}},
    "properties": {
        "bootstrap.servers": {
            "type": "string",
            "minLength": 1,
            "description": "The brokers: host:port, comma-separated.",
        },
        "isolation.level": {
            "enum": list(connections.ISOLATION_LEVELS),
            "default": connections.ISOLATION_LEVELS[0],
            "description": "Whether records of open and aborted transactions are read.",
        },
        connections.TOPICS_FROM: {
            "enum": list(connections.TOPICS_FROM_CHOICES),
            "description": "Where topics request a table: in their own configuration, with the keys of AutoMQ.",
        },
        "security.protocol": {**_PROPERTY, "description": "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."},
        "sasl.mechanism": {**_PROPERTY, "description": "How to log in, such as PLAIN or SCRAM-SHA-512."},
        "sasl.username": {**_PROPERTY, "description": "The user."},
        "sasl.password": {**_PROPERTY, "description": "The password, as ${env:NAME} or ${file:PATH}."},
    },
    "additionalProperties": _PROPERTY,
}


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "registry": connections.RegistrySpec,
    "auth": connections.AuthSpec,
    "tls": connections.TlsSpec,
    "catalog": connections.CatalogSpec,
    "spark": connections.SparkSpec,
    "http": connections.HttpSpec,
    "http_tokens": connections.HttpTokensSpec,
    "http_tls": connections.HttpTlsSpec,
    "telemetry": connections.TelemetrySpec,
    "ha": connections.HaSpec,
    "verify": settings.VerifySpec,
    "commit": settings.CommitSpec,
    "maintenance": settings.MaintenanceSpec,
    "dead_letters": settings.DeadLettersSpec,
    "limits": settings.LimitsSpec,
    "value": settings.ValueSpec,
    "key": settings.KeySpec,
    "snapshots": settings.SnapshotsSpec,
    "orphans": settings.OrphansSpec,
    "infer": settings.InferSpec,
    "flatten": settings.FlattenSpec,
    "atomic": settings.AtomicSpec,
    "dedupe": settings.DedupeSpec,
    "late": LateSpec,
    "publish": PublishSpec,
    "tag": TagSpec,
    "envelope": settings.EnvelopeSpec,
    "column": settings.ColumnSpec,
    "lookup": settings.LookupSpec,
    **{name: model for stage in models.STAGE_SETTINGS.values() for name, model in stage.sections.items()},
}


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the file as the user writes it."""
    return {
        "$schema": DIALECT,
        "title": "Frazil pipeline",
        **_schema_of(models.PipelineSpec),
        "$defs": {
            **{name: _schema_of(model) for name, model in _SECTIONS.items()},
            "kafka": _KAFKA,
            "table_maintenance": _schema_of(settings.MaintenanceSpec, models.TABLE_MAINTENANCE_KEYS),
            "table": _schema_of(models.TableSpec, {**models.TABLE_KEYS, **stage_keys()}),
            "route": _schema_of(models.RouteSpec, {**models.ROUTE_KEYS, **stage_keys()}),
            "defaults": _object({**models.DEFAULTS_KEYS, **stage_keys()}),
        },
    }


def _schema_of(model: type[BaseModel], keys: Mapping[str, Key] | None = None) -> dict[str, Any]:
    """The section that a model declares, with the rules between its keys; `keys`: those that it has in this place."""
    keys, rules = keys_of(model) if keys is None else keys, model.model_config.get("json_schema_extra")
    assert rules is None or isinstance(rules, dict)
    required = [name for name, key in keys.items() if key.is_required]
    return {**_object(keys), **({"required": required} if required else {}), **(rules or {})}


def _object(keys: Mapping[str, Key]) -> dict[str, Any]:
    properties = {name: _property(key) for name, key in keys.items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _property(key: Key) -> dict[str, Any]:
    schema: dict[str, Any] = {"enum": list(key.words)} if key.form is None else dict(key.form.schema)
    if key.form is not None and key.added:  # Words, or a section.
        schema["anyOf"] = [{"enum": list(key.words)}, *schema["anyOf"][1:]]
    if key.default is not None:
        schema["default"] = key.default
    schema["description"] = key.description
    return schema
