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
    "examples": ["long", "timestamptz(ms)", "decimal(18,2)", "list<string>", "map<string,double>", "struct<a: int>"],
}

OWNED_KAFKA_PROPERTIES: Mapping[str, str] = {
    "group.id": "Frazil names its own groups",
    "auto.offset.reset": "set `start` for where a table begins, and `on_data_loss` for lost offsets",
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
    "registry": Setting("The schema registry, one that speaks Confluent's API.", _section("registry")),
    "catalog": Setting("The Iceberg catalog; by default JDBC on SQLite under ./frazil-data.", _section("catalog")),
    "spark": Setting("Spark's master and configuration.", _section("spark")),
    "commit": Setting("When to commit and how large files should be: the default for every table.", _section("commit")),
    "maintenance": Setting(
        "Table maintenance: the default for every table.",
        {"anyOf": [{"type": "boolean"}, _section("maintenance")]},
    ),
    "tables": Setting(
        "The tables, by name: a namespace and a table, joined by a dot.",
        {"type": "object", "minProperties": 1, "additionalProperties": _section("table")},
    ),
    "namespace": Setting("The namespace of the tables that `topics` get.", TEXT),
    "topics": Setting("Topics, or /regular expressions/, that get a table each: `<namespace>.<topic>`.", SELECTORS),
    "defaults": Setting("Settings of every table that does not have them itself.", _section("defaults")),
}

_ADDRESS: JsonSchema = {"type": "string", "pattern": "^\\s*(https?://|\\$\\{)"}

OWNED_REGISTRY_PROPERTIES: Mapping[str, str] = {
    "url": "write it as `registry.url`",
    "basic.auth.user.info": "write `registry.auth: {username: …, password: …}`",
    "bearer.auth.token": "write `registry.auth: {token: …}`",
    "ssl.ca.location": "write it as `registry.tls.ca`",
    "ssl.certificate.location": "write it as `registry.tls.certificate`",
    "ssl.key.location": "write it as `registry.tls.key`",
    "ssl.key.password": "write it as `registry.tls.key_password`",
    "timeout": "remove it: Frazil waits ten seconds for an answer",
    "max.retries": "remove it: Frazil tries again itself",
    "retries.wait.ms": "remove it: Frazil tries again itself",
    "retries.max.wait.ms": "remove it: Frazil tries again itself",
    "cache.capacity": "remove it: Frazil keeps every schema that it met",
    "cache.latest.ttl.sec": "remove it: the latest schema is kept for a minute",
}

REGISTRY: Mapping[str, Setting] = {
    "url": Setting(
        "The registry's address; several, as a list or comma-separated, are tried one after another.",
        {"anyOf": [_ADDRESS, {"type": "array", "items": _ADDRESS, "minItems": 1}]},
    ),
    "auth": Setting("How to log in: with user and password, or with a token.", _section("auth")),
    "tls": Setting("Certificates of your own; public ones need no setting.", _section("tls")),
    "context": Setting(
        "The context that subjects and ids belong to.", {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$"}
    ),
    "naming": Setting(
        "How producers name subjects: after the topic, after the record's type, or after both.",
        choices=("topic", "record", "topic_record"),
        default="topic",
    ),
    "properties": Setting(
        "Further properties of Confluent's registry client, with its own names, passed through.",
        {**STRINGS, "propertyNames": {"not": {"enum": list(OWNED_REGISTRY_PROPERTIES)}}},
    ),
}

AUTH: Mapping[str, Setting] = {
    "username": Setting("The user.", TEXT),
    "password": Setting("The password, as ${env:NAME} or ${file:PATH}.", TEXT),
    "token": Setting("A bearer token, as ${env:NAME} or ${file:PATH}, in place of user and password.", TEXT),
}

TLS: Mapping[str, Setting] = {
    "ca": Setting("File (PEM) or folder of the authorities that the registry's certificate may come from.", TEXT),
    "certificate": Setting("File (PEM) with the certificate that Frazil shows.", TEXT),
    "key": Setting("File (PEM) with that certificate's key, unless it is in the same file.", TEXT),
    "key_password": Setting("What opens the key, as ${env:NAME} or ${file:PATH}.", TEXT),
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
    "min_file_size": Setting(
        "A commit comes before its interval has passed when enough waits for a file of this size; `target_file_size`"
        " unless written.",
        SIZE,
    ),
}

DEAD_LETTERS: Mapping[str, Setting] = {
    "table": Setting("The table of bad records; `<table>__dead_letters` unless written.", TEXT),
    "topic": Setting("A Kafka topic that bad records are written to as well.", TOPIC),
    "stop_above": Setting(
        "The share of bad records above which the table stops instead, once there are 100 records to judge by.",
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*%$", "examples": ["5%", "100%"]},
        default="20%",
    ),
}

LIMITS: Mapping[str, Setting] = {
    "columns": Setting(
        "The columns, nested fields counted, that records may bring a table to; it stops rather than get more.",
        {"type": "integer", "minimum": 1},
        default=1000,
    ),
    "partitions": Setting(
        "The partitions that one batch may write; the table stops rather than write more.",
        {"type": "integer", "minimum": 1},
        default=10_000,
    ),
    "record_size": Setting("The size of a value above which its record is a bad one, unread.", SIZE, default="16MiB"),
}

VALUE: Mapping[str, Setting] = {
    "format": Setting(
        "What the records' values are.",
        choices=("avro", "protobuf", "json_schema", "json", "text", "raw"),
        default="json",
    ),
    "schema": Setting(
        "Where the schema comes from: the registry by the id in the record, or its latest.",
        choices=("registry", "latest"),
        default="registry",
    ),
    "framing": Setting(
        "Where a record names its schema: an id of 4 bytes at its beginning (confluent), of 8 (apicurio), or a header.",
        choices=("confluent", "apicurio", "header"),
        default="confluent",
    ),
    "subject": Setting("The subject of `schema: latest`, where it is not the one that `registry.naming` says.", TEXT),
    "message": Setting("The Protobuf message's full name, where records do not say which one they are.", TEXT),
    "logical_types": Setting(
        "Of Avro, a `logicalType` beside a field's `type`: ignored, as Avro says (strict), or read as if it were"
        " inside.",
        choices=("strict", "lenient"),
        default="strict",
    ),
}

KEY: Mapping[str, Setting] = {
    **VALUE,
    "format": Setting("What the records' keys are.", choices=VALUE["format"].choices, default="raw"),
}

_PATH: JsonSchema = {"type": "string", "minLength": 1, "examples": ["order.total"]}
PATHS: JsonSchema = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "examples": ["id", "user.name", "order.*"]},
    "minItems": 1,
    "uniqueItems": True,
}

FLATTEN: Mapping[str, Setting] = {
    "separator": Setting("What joins the names.", TEXT, default="_"),
    "depth": Setting(
        "How many levels of nested records become columns; all unless written.",
        {"type": "integer", "minimum": 1, "maximum": 100},
    ),
}

COLUMN: Mapping[str, Setting] = {
    "type": Setting("The column's type, in Iceberg's words.", TYPE_WORD),
    "field": Setting("Path of the field of the record that feeds the column, where it is called otherwise.", _PATH),
    "coerce": Setting(
        "Whether text in the column takes numbers, booleans, objects and arrays as they are written.",
        choices=(True, False),
        default=False,
    ),
    "zone": Setting(
        "Of a timestamp the zone that moments are converted to, of a timestamptz the one that times without a zone"
        " are in: a name of the IANA database.",
        {**TEXT, "examples": ["UTC", "Europe/Berlin"]},
    ),
    "constant": Setting("The column's value in every row.", {"type": ["string", "number", "boolean"]}),
    "header": Setting("The header whose value the column gets; of several with this name the last.", TEXT),
    "value": Setting("What the header's bytes are, where its column's type does not tell.", {"$ref": "#/$defs/value"}),
    "properties": Setting("Iceberg's properties of this column.", STRINGS, is_built=False),
}
