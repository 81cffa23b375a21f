"""Every key that a pipeline file may have, what it means, and whether this version can do it.

The readers and the JSON Schema both go by these tables. A setting that is promised but not built stays in them, so
that a misspelt key and a key that has to wait are told apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.spec.units import DURATION_PATTERN, SIZE_PATTERN

JsonSchema = Mapping[str, Any]
Word = str | int | bool


@dataclass(frozen=True)
class Setting:
    """One key.

    `choices`: the values it can have, if they are a fixed few; `not_built`: those of them that this version refuses.
    `schema`: JSON Schema of the value as the user writes it; with `choices` only where other forms are promised too.
    `default`: what the user gets by leaving it out, None if that cannot be written as one value.
    """

    description: str
    schema: JsonSchema = field(default_factory=dict)
    choices: tuple[Word, ...] = ()
    not_built: tuple[Word, ...] = ()
    default: Word | None = None
    is_built: bool = True

    @property
    def built(self) -> tuple[Word, ...]:
        """The choices that this version can do."""
        return tuple(choice for choice in self.choices if choice not in self.not_built)


def _section(name: str) -> JsonSchema:
    return {"$ref": f"#/$defs/{name}"}


TEXT: JsonSchema = {"type": "string", "minLength": 1}
STRINGS: JsonSchema = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
DURATION: JsonSchema = {"type": "string", "pattern": DURATION_PATTERN, "examples": ["500ms", "2s", "5m", "1h"]}
SIZE: JsonSchema = {"type": "string", "pattern": SIZE_PATTERN, "examples": ["64MiB", "128MiB", "1GiB"]}
TOPIC: JsonSchema = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"}
SELECTOR: JsonSchema = {"type": "string", "pattern": "^([A-Za-z0-9._-]{1,249}|/.+/)$"}
SELECTORS: JsonSchema = {"anyOf": [SELECTOR, {"type": "array", "items": SELECTOR, "minItems": 1, "uniqueItems": True}]}
TYPE_WORD: JsonSchema = {
    "type": "string",
    "minLength": 1,
    "examples": ["long", "timestamptz", "decimal(18,2)", "list<string>", "map<string,double>", "struct<a: int>"],
}

OWNED_KAFKA_PROPERTIES: Mapping[str, str] = {
    "group.id": "Frazil names its own groups",
    "auto.offset.reset": "where a table begins is `start`, what happens to lost offsets is `on_data_loss`",
    "enable.auto.commit": "progress is in the table, nothing is committed to Kafka",
    "key.deserializer": "Frazil reads bytes and decodes them itself",
    "value.deserializer": "Frazil reads bytes and decodes them itself",
}
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")

PIPELINE: Mapping[str, Setting] = {
    "pipeline": Setting(
        "Identity of the pipeline's progress: unique per Kafka cluster and catalog.",
        {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"},
    ),
    "kafka": Setting(
        "Kafka client properties, passed through; secrets as ${env:NAME} or ${file:PATH}.", _section("kafka")
    ),
    "registry": Setting("The schema registry.", _section("registry"), is_built=False),
    "catalog": Setting("The Iceberg catalog; by default JDBC on SQLite under ./frazil-data.", _section("catalog")),
    "spark": Setting("Spark's master and configuration.", _section("spark")),
    "commit": Setting("When to commit and how large files should be: the default for every table.", _section("commit")),
    "tables": Setting(
        "The tables, by name: a namespace and a table, joined by a dot.",
        {"type": "object", "minProperties": 1, "additionalProperties": _section("table")},
    ),
    "namespace": Setting("The namespace of the tables that `topics` get.", TEXT),
    "topics": Setting("Topics, or /regular expressions/, that get a table each: `<namespace>.<topic>`.", SELECTORS),
}

REGISTRY: Mapping[str, Setting] = {
    "url": Setting("The registry's address.", TEXT, is_built=False),
    "auth": Setting("How to log in.", _section("auth"), is_built=False),
}

AUTH: Mapping[str, Setting] = {
    "username": Setting("The user.", TEXT, is_built=False),
    "password": Setting("The password, as ${env:NAME} or ${file:PATH}.", TEXT, is_built=False),
}

CATALOG: Mapping[str, Setting] = {
    "type": Setting(
        "The kind of catalog.",
        choices=("jdbc", "rest", "hive", "glue", "nessie", "hadoop"),
        not_built=("hive", "glue", "nessie", "hadoop"),
        default="jdbc",
    ),
    "impl": Setting("The Java class of a catalog that is none of the known kinds.", TEXT, is_built=False),
    "uri": Setting("The catalog's address; by default a SQLite file under ./frazil-data.", TEXT),
    "warehouse": Setting("Where tables are stored; a local path is relative to the working directory.", TEXT),
    "properties": Setting("Further catalog properties, with Iceberg's own names, passed through.", STRINGS),
}

SPARK: Mapping[str, Setting] = {
    "master": Setting("Spark's master URL.", TEXT, default="local[*]"),
    "conf": Setting(
        "Spark's own properties.",
        {**STRINGS, "propertyNames": {"pattern": r"^spark\."}},
    ),
}

COMMIT: Mapping[str, Setting] = {
    "interval": Setting("How long to collect records for one commit.", DURATION, default="1s"),
    "target_file_size": Setting("The size that files should reach.", SIZE, default="128MiB"),
}

VALUE: Mapping[str, Setting] = {
    "format": Setting(
        "What the records' values are.",
        choices=("avro", "protobuf", "json_schema", "json", "text", "raw"),
        not_built=("avro", "protobuf", "json_schema", "text", "raw"),
        default="json",
    ),
    "schema": Setting(
        "Where the schema comes from: the registry by the id in the record, or its latest.",
        choices=("registry", "latest"),
        is_built=False,
    ),
}

KEY: Mapping[str, Setting] = {
    "format": Setting("What the records' keys are.", choices=VALUE["format"].choices, is_built=False),
    "schema": Setting("Where the schema comes from.", choices=("registry", "latest"), is_built=False),
}

COLUMN: Mapping[str, Setting] = {
    "type": Setting("The column's type, in Iceberg's words.", TYPE_WORD),
    "properties": Setting("Iceberg's properties of this column.", STRINGS, is_built=False),
}
