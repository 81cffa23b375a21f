"""A pipeline file after reading: complete, frozen values, which declare its keys (see `keys`).

What may hold a secret (Kafka's properties, the registry, the catalog, Spark's configuration) is neither shown by `repr`
nor serialised.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny
from pyiceberg.types import IcebergType

from frazil.plugins.catalogs import CATALOGS, CatalogKind
from frazil.plugins.envelopes import ENVELOPES
from frazil.plugins.formats import FORMATS
from frazil.plugins.maintenance_actions import ACTIONS
from frazil.plugins.services import Service, service_at
from frazil.routing import Route, Template, ValueSource, parse_source, parse_template
from frazil.spec.forms import (
    ADDRESSES,
    CONTEXT,
    DEPTH,
    DURATION,
    ORPHAN_AGE,
    PATHS,
    SEPARATOR,
    SIZE,
    SPARK_CONF,
    STRINGS,
    TEXT,
    TEXTS,
    TYPE_WORD,
    WORDS,
    ZONE,
    count,
    parse_path,
    parsed_text,
    share,
    text_like,
    with_switch,
)
from frazil.spec.keys import NOT_A_KEY, Form, Key, keys_of, section
from frazil.spec.partitioning import PARTITION_BY, SORT_BY, PartitionTerm, SortTerm
from frazil.spec.secrets import redact
from frazil.spec.topics import SELECTORS, START, TOPIC, namespace_name, pipeline_name, select_topics, table_name
from frazil.spec.topics import Start as Start
from frazil.spec.topics import TopicSelector as TopicSelector
from frazil.spec.types import parse_numbers
from frazil.spec.units import WINDOW_PATTERN, parse_window
from frazil.types import RoutedTable

MetadataField = Literal[
    "topic", "partition", "offset", "timestamp", "headers", "key", "op", "image", "source_ts", "connector_ts",
    "transaction_id", "total_order", "collection_order", "position", "source_order", "source_database",
    "source_schema", "source_table", "unavailable", "deleted", "deleted_at", "ce_id", "ce_source", "ce_type", "ce_time",
    "ce_subject", "ce_dataschema", "ce_datacontenttype", "ce_extensions", "event_id", "event_type", "aggregate_type",
    "aggregate_id",
]  # fmt: skip
_ENVELOPES = ("none", *(name for name in ENVELOPES.built_in if name != "operation"))
METADATA_COLUMNS: Mapping[MetadataField, str] = {field: f"_{field}" for field in get_args(MetadataField)}
"""The column that each field of `metadata` is written to, unless the file names another."""
ProtectAction = Literal["drop", "null", "hash", "mask", "tokenize", "truncate", "constant"]
PROTECT_ACTIONS: tuple[str, ...] = get_args(ProtectAction)
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
"""Properties of the registry's client that the file has other keys for, and what to write."""
OWNED_KAFKA_PROPERTIES: Mapping[str, str] = {
    "group.id": "Frazil names its own groups",
    "auto.offset.reset": "set `start` for where a table begins, and `on_data_loss` for lost offsets",
    "enable.auto.commit": "progress is in the table, nothing is committed to Kafka",
    "key.deserializer": "Frazil reads bytes and decodes them itself",
    "value.deserializer": "Frazil reads bytes and decodes them itself",
}
"""Properties of Kafka's clients that are not for the file to set, and why."""
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")

SecretText = Annotated[str, Field(repr=False, exclude=True)]
SecretWord = Annotated[str | None, Field(repr=False, exclude=True)]
SecretStrings = Annotated[dict[str, str], Field(repr=False, exclude=True)]

Constant = str | int | float | bool
_COLUMNS = Form({"type": "array", "items": TEXT.schema, "minItems": 1, "uniqueItems": True})
_ACTIONS = Form(
    {"type": "array", "items": TEXT.schema, "uniqueItems": True}, None, lambda fields, key: fields.names(key, ACTIONS)
)
SKIPPABLE = ("compact", "deletes", "manifests", "expire", "orphans")
"""Maintenance actions that `skip` may name. Progress is carried forward all the same: another tool expires it otherwise."""
_SKIPPED = Form({"type": "array", "items": {"enum": list(SKIPPABLE)}, "uniqueItems": True})
_METADATA = Form(
    {
        "anyOf": [
            {"type": "array", "items": {"enum": list(METADATA_COLUMNS)}, "uniqueItems": True},
            {
                "type": "object",
                "propertyNames": {"enum": list(METADATA_COLUMNS)},
                "additionalProperties": {"type": "string"},
            },
        ]
    }
)


class _Declared(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
    )


class ValueSpec(_Declared):
    """What the records' values (or keys, or values of a header) are."""

    format: Annotated[str, Key(registered=FORMATS)] = "json"
    """What the records' values are."""
    source: Annotated[Literal["registry", "latest"], Key(name="schema")] = "registry"
    """Where the schema comes from: the registry by the id in the record, or its latest."""
    framing: Literal["confluent", "apicurio", "header"] = "confluent"
    """Where a record names its schema: an id of 4 bytes at its beginning (confluent), of 8 (apicurio), or a
    header."""
    subject: Annotated[str | None, TEXT] = None
    """The subject of `schema: latest`, where it is not the one that `registry.naming` says."""
    message: Annotated[str | None, TEXT] = None
    """The Protobuf message's full name, where records do not say which one they are."""
    logical_types: Literal["strict", "lenient"] = "strict"
    """Of Avro, a `logicalType` beside a field's `type`: ignored, as Avro says (strict), or read as if it were
    inside."""

    @property
    def needs_registry(self) -> bool:
        """Whether its schemas are in the registry."""
        return FORMATS.get(self.format).needs_registry


class KeySpec(ValueSpec):
    """What the records' keys are: a declaration alone, which is read to a ValueSpec."""

    format: Annotated[str, Key(choices=tuple(FORMATS.built_in))] = "raw"
    """What the records' keys are."""


class ColumnSpec(
    _Declared,
    json_schema_extra={
        "required": ["type"],
        # A column has one source.
        "not": {
            "anyOf": [
                {"required": ["field", "constant"]},
                {"required": ["field", "header"]},
                {"required": ["constant", "header"]},
            ]
        },
        "dependentRequired": {"value": ["header"]},
    },
):
    """A declared column. At most one of `field`, `constant` and `header` is there."""

    #: The column's name.
    name: Annotated[str, NOT_A_KEY]
    #: Its field ids are placeholders.
    type: Annotated[SerializeAsAny[IcebergType], Form(TYPE_WORD)]
    """The column's type, in Iceberg's words."""
    #: None: the field that would get a column of this name.
    field: Annotated[tuple[str, ...] | None, parsed_text(text_like("order.total"), parse_path)] = None
    """Path of the field of the record that feeds the column, where it is called otherwise."""
    #: The unit of numbers in a column of time, counted from the epoch or, in one of times of day, from midnight.
    unit: Annotated[Literal["s", "ms", "us", "ns"] | None, NOT_A_KEY] = None
    coerce: bool = False
    """Whether text in the column takes numbers, booleans, objects and arrays as they are written."""
    zone: Annotated[str | None, ZONE] = None
    """Of a timestamp the zone that moments are converted to, of a timestamptz the one that times without a zone are
    in: a name of the IANA database."""
    #: The value as text.
    constant: Annotated[str | None, Form({"type": ["string", "number", "boolean"]})] = None
    """The column's value in every row."""
    header: Annotated[str | None, TEXT] = None
    """The header whose value the column gets; of several with this name the last."""
    #: None: the bytes are the text, the digits or the bytes that the type says.
    value: Annotated[
        ValueSpec | None,
        section("value"),
        Key(STRINGS, name="properties", is_built=False, description="Iceberg's properties of this column."),
    ] = None
    """What the header's bytes are, where its column's type does not tell."""

    @property
    def is_own(self) -> bool:
        """Whether it comes from something else than the record's value."""
        return self.constant is not None or self.header is not None


class FlattenSpec(_Declared):
    """Nested records become columns, their names joined."""

    separator: Annotated[str, SEPARATOR] = "_"
    """What joins the names."""
    depth: Annotated[int, DEPTH] = 100
    """How many levels of nested records become columns; all unless written."""


class EnvelopeSpec(_Declared, json_schema_extra={"oneOf": [{"required": ["type"]}, {"required": ["operation"]}]}):
    """How records wrap a change of their source. The kind `operation`: a field of the row itself names the operation."""

    kind: Annotated[str, Key(name="type", choices=("debezium",), default="debezium")]
    """`debezium`, to write its settings beside it."""
    placeholder: Annotated[str, Key(TEXT, name="unavailable_value")] = "__debezium_unavailable_value"
    """What Debezium writes for a value that it was not given: its `unavailable.value.placeholder`."""
    operation: Annotated[str, TEXT] = ""
    """The field of the row that names the operation."""
    insert: Annotated[tuple[str, ...], WORDS] = ("c", "C", "i", "I", "insert", "INSERT")
    """Its values for an insert; c, i and insert unless written."""
    update: Annotated[tuple[str, ...], WORDS] = ("u", "U", "update", "UPDATE")
    """Its values for an update; u and update unless written."""
    delete: Annotated[tuple[str, ...], WORDS] = ("d", "D", "delete", "DELETE")
    """Its values for a delete; d and delete unless written."""


class AtomicSpec(_Declared, json_schema_extra={"required": ["transaction_topic"]}):
    """That a snapshot shows transactions of the source whole."""

    #: None: a transaction is whole when the next one has begun.
    transaction_topic: Annotated[str | None, TOPIC] = None
    """The topic to which Debezium writes when transactions begin and end, `<prefix>.transaction`."""


class ProtectRule(_Declared, json_schema_extra={"required": ["action"]}):
    """What happens to the fields that a rule of `protect` finds."""

    #: The path of a field, or a regular expression between slashes.
    selector: Annotated[str, NOT_A_KEY]
    action: Annotated[ProtectAction, Key(default="hash")] = "hash"
    """What the field becomes: drop, null, hash, mask, tokenize, truncate or constant."""
    label: Annotated[str, TEXT] = ""
    """Of `hash` and `tokenize`: equal values of fields with one label become equal; the field's path unless written."""
    keep: Annotated[int, count(4)] = 4
    """Of `mask`: how many characters at the end stay, where the text has at least twice as many."""
    length: Annotated[int, count(4)] = 4
    """Of `truncate`: how many characters at the beginning stay."""
    value: Annotated[str, TEXT] = ""
    """Of `constant`: the text."""


class CommitSpec(_Declared):
    """When to commit, and the size that files aim at."""

    #: A commit comes at most this many seconds after data arrived.
    interval_s: Annotated[float, Key(DURATION, name="interval")] = 1.0
    """How long to collect records for one commit."""
    target_file_size_bytes: Annotated[int, Key(SIZE, name="target_file_size")] = 128 * 1024 * 1024
    """The size that files should reach."""
    #: None: the target.
    min_file_size_bytes: Annotated[int | None, Key(SIZE, name="min_file_size")] = None
    """A commit comes before its interval has passed when enough waits for a file of this size; `target_file_size`
    unless written."""


class MaintenanceSpec(_Declared, json_schema_extra={"not": {"required": ["sort", "zorder"]}}):
    """How a table is maintained. At most one of `sort` and `zorder` is there."""

    is_on: Annotated[bool, NOT_A_KEY] = True
    cores: Annotated[int, count(2)] = 1
    """How many maintenance tasks run at a time beside ingestion."""
    #: Minutes of the day (UTC).
    window: Annotated[
        tuple[int, int] | None,
        parsed_text({"type": "string", "pattern": WINDOW_PATTERN, "examples": ["22:00-06:00"]}, parse_window),
    ] = None
    """The hours (UTC) in which files are rewritten, such as 22:00-06:00; always unless written."""
    target_file_size_bytes: Annotated[int | None, Key(SIZE, name="target_file_size")] = None
    """The size that compaction aims at; that of `commit` unless written."""
    min_input_files: Annotated[int, count(2)] = 50
    """How many small files of a partition are worth a compaction; for an upsert table a sixth of them when there is time
    to spare."""
    small_file_share: Annotated[float, share("10%")] = 0.1
    """The share of small files that is left alone."""
    snapshot_age_s: Annotated[
        float,
        Key(section("snapshots"), name="snapshots", description="Which snapshots are kept."),
        Key(DURATION, name="snapshots.age"),
    ] = 24 * 3600.0
    """How long a snapshot is kept."""
    snapshot_count: Annotated[int, Key(count(2), name="snapshots.count")] = 200
    """How many snapshots are kept, however young they are."""
    orphan_age_s: Annotated[
        float,
        Key(section("orphans"), name="orphans", description="When files that no snapshot references are removed."),
        Key(ORPHAN_AGE, name="orphans.age"),
    ] = 72 * 3600.0
    """The age at which a file that no snapshot references is removed: 24h or more."""
    manifests: bool = True
    """Whether manifests are rewritten."""
    #: Each with asc or desc after it, or without.
    sort: Annotated[tuple[str, ...], _COLUMNS] = ()
    """Columns that compaction sorts by, such as `[region, ts desc]`."""
    zorder: Annotated[tuple[str, ...], _COLUMNS] = ()
    """Columns that compaction orders rows by along a Z-curve."""
    #: Where the file has the columns of `sort` or `zorder`.
    order_lines: Annotated[tuple[int, ...], NOT_A_KEY] = ()
    statistics: bool = False
    """Whether the number of distinct values of each column is counted once a day."""
    actions: Annotated[tuple[str, ...], _ACTIONS] = ()
    """Further maintenance actions, by their names in installed packages."""
    skip: Annotated[tuple[str, ...], _SKIPPED] = ()
    """Maintenance actions that are left to the catalog or to another tool: compact, deletes, manifests, expire, orphans."""


class DeadLettersSpec(_Declared):
    """Where bad records go."""

    #: None: `<table>__dead_letters`.
    table: Annotated[str | None, parsed_text(TEXT.schema, table_name)] = None
    """The table of bad records; `<table>__dead_letters` unless written."""
    #: None: to no topic.
    topic: Annotated[str | None, TOPIC] = None
    """A Kafka topic that bad records are written to as well."""
    #: 0 to 1.
    stop_above: Annotated[float, share("5%", "100%")] = 0.2
    """The share of bad records above which the table stops instead, once there are 100 records to judge by."""


class LimitsSpec(_Declared):
    """Limits of columns, partitions and record sizes."""

    columns: Annotated[int, count(1000)] = 1000
    """The columns, nested fields counted, that records may bring a table to; it stops rather than get more."""
    partitions: Annotated[int, count(1000)] = 10_000
    """The partitions that one batch may write; the table stops rather than write more."""
    record_bytes: Annotated[int, Key(SIZE, name="record_size")] = 16 * 1024 * 1024
    """The size of a value above which its record is a bad one, unread."""


class CatalogSpec(_Declared, json_schema_extra={"not": {"required": ["type", "impl"]}}):
    """Which Iceberg catalog. Local paths are absolute."""

    type: Annotated[str, Key(registered=CATALOGS)] = "jdbc"
    """The kind of catalog."""
    #: None: `type` names the kind.
    impl: Annotated[str | None, TEXT] = None
    """The Java class of a catalog that is none of the known kinds, in place of `type`."""
    uri: Annotated[SecretText, TEXT]
    """The catalog's address; by default a SQLite file under ./frazil-data."""
    #: None where a REST catalog chooses it itself.
    warehouse: Annotated[SecretWord, TEXT] = None
    """Where tables are stored; a local path is relative to the working directory."""
    properties: Annotated[SecretStrings, STRINGS] = {}
    """Further catalog properties, with Iceberg's own names, passed through."""
    jars: Annotated[tuple[str, ...], TEXTS] = ()
    """Paths of jars with the classes that the catalog and its store need, relative to the working directory."""

    @property
    def service(self) -> Service | None:
        """The managed service at a REST catalog's address; None for another one."""
        return service_at(self.uri) if self.type == "rest" and self.impl is None else None

    @property
    def kind(self) -> CatalogKind:
        """What Frazil knows of the catalog; of a Java class only that."""
        if self.impl is None:
            kind = CATALOGS.get(self.type)
            return replace(kind, lowers_names=True) if self.service is not None and self.service.lowers_names else kind
        return CatalogKind({"catalog-impl": self.impl}, needs_spark_jars=True)


class AuthSpec(
    _Declared, json_schema_extra={"oneOf": [{"required": ["username", "password"]}, {"required": ["token"]}]}
):
    """How to log in to the registry: with user and password, with a token, or (all are None) not at all."""

    username: Annotated[SecretWord, TEXT] = None
    """The user."""
    password: Annotated[SecretWord, TEXT] = None
    """The password, as ${env:NAME} or ${file:PATH}."""
    token: Annotated[SecretWord, TEXT] = None
    """A bearer token, as ${env:NAME} or ${file:PATH}, in place of user and password."""


class TlsSpec(
    _Declared, json_schema_extra={"dependentRequired": {"key": ["certificate"], "key_password": ["certificate"]}}
):
    """Files for TLS, their paths absolute; what is None is the machine's own choice."""

    ca: Annotated[SecretWord, TEXT] = None
    """File (PEM) or folder of the authorities that the registry's certificate may come from."""
    certificate: Annotated[SecretWord, TEXT] = None
    """File (PEM) with the certificate that Frazil shows."""
    key: Annotated[SecretWord, TEXT] = None
    """File (PEM) with that certificate's key, unless it is in the same file."""
    key_password: Annotated[SecretWord, TEXT] = None
    """What opens the key, as ${env:NAME} or ${file:PATH}."""


class RegistrySpec(_Declared, json_schema_extra={"required": ["url"]}):
    """The schema registry."""

    #: At least one, without credentials and without a slash at the end.
    urls: Annotated[tuple[str, ...], Key(ADDRESSES, name="url"), Field(repr=False, exclude=True)]
    """The registry's address; several, as a list or comma-separated, are tried one after another."""
    auth: Annotated[AuthSpec, section("auth")] = AuthSpec()
    """How to log in: with user and password, or with a token."""
    tls: Annotated[TlsSpec, section("tls")] = TlsSpec()
    """Certificates of your own; public ones need no setting."""
    #: Empty for the default one.
    context: Annotated[str, CONTEXT] = ""
    """The context that subjects and ids belong to."""
    naming: Literal["topic", "record", "topic_record"] = "topic"
    """How producers name subjects: after the topic, after the record's type, or after both."""
    properties: Annotated[
        SecretStrings, Form({**STRINGS.schema, "propertyNames": {"not": {"enum": list(OWNED_REGISTRY_PROPERTIES)}}})
    ] = {}
    """Further properties of Confluent's registry client, with its own names, passed through."""


class SparkSpec(_Declared):
    """Spark's master URL and its own properties."""

    master: Annotated[SecretText, TEXT] = "local[*]"
    """Spark's master URL."""
    conf: Annotated[SecretStrings, SPARK_CONF] = {}
    """Spark's own properties."""


class TableSpec(_Declared, json_schema_extra={"oneOf": [{"required": ["topic"]}, {"required": ["topics"]}]}):
    """One table: which topics feed it, and how."""

    #: At least a namespace and a table, joined by dots.
    name: Annotated[str, NOT_A_KEY]
    topics: Annotated[
        tuple[TopicSelector, ...],
        Key(Form(TOPIC.schema), name="topic", description="The topic that feeds the table."),
        SELECTORS,
    ]
    """The topics, or a /regular expression/, that feed the table."""
    start: Annotated[Start, Key(START, default="earliest")] = Start()
    """Where to begin without progress: earliest, latest, a timestamp, or offsets."""
    value: Annotated[ValueSpec, section("value")] = ValueSpec()
    """The records' values."""
    key: Annotated[ValueSpec, section("key")] = ValueSpec(format="raw")
    """The records' keys."""
    #: None: the file does not say; then what the table has stays.
    partition_by: Annotated[tuple[PartitionTerm, ...] | None, PARTITION_BY] = None
    """How the table is partitioned: columns, or year, month, day, hour, bucket, truncate or void of one. An
    existing table keeps its partition spec unless this is written; `[]` is for none."""
    #: None: the file does not say; then what the table has stays.
    sort_by: Annotated[tuple[SortTerm, ...] | None, SORT_BY] = None
    """How rows are sorted inside a file: terms as in `partition_by`, each with asc or desc, nulls first or last."""
    schema_evolution: Literal["evolve", "add_only", "freeze"] = "evolve"
    """What to do when records have other fields or types than the table."""
    on_bad_record: Literal["dead_letter", "stop", "skip"] = "dead_letter"
    """What to do with a record that cannot become a row."""
    dead_letters: Annotated[DeadLettersSpec, section("dead_letters", DeadLettersSpec)] = DeadLettersSpec()
    """Where bad records go, and how many are too many."""
    limits: Annotated[LimitsSpec, section("limits", LimitsSpec)] = LimitsSpec()
    """Limits of columns, partitions and record sizes."""
    on_data_loss: Literal["stop", "skip"] = "stop"
    """What to do when Kafka has deleted the record at the next offset."""
    columns: Annotated[
        tuple[ColumnSpec, ...],
        Form({"type": "object", "additionalProperties": {"anyOf": [TYPE_WORD, section("column").schema]}}),
    ] = ()
    """Declared columns and overrides of inferred ones: name to type."""
    unknown_fields: Literal["add", "drop", "rescue"] = "add"
    """What happens to fields that `columns` does not name."""
    #: None: the type that a sample of the numbers needs.
    numbers: Annotated[
        SerializeAsAny[IcebergType] | None,
        Key(
            parsed_text(
                {
                    "type": "string",
                    "pattern": r"^(as_seen|double|decimal\s*\(.*\))$",
                    "examples": ["double", "decimal(18,4)"],
                },
                parse_numbers,
            ),
            default="as_seen",
        ),
    ] = None
    """What numbers of JSON without a schema become where no column is declared: `as_seen` long, or double where a
    sample of the topic has a fraction; `double`; or `decimal(p,s)`."""
    infers_timestamps: Annotated[
        bool,
        Key(
            section("infer"),
            name="infer",
            description="What fields of JSON without a schema may become where no column is declared.",
        ),
        Key(name="infer.timestamps"),
    ] = False
    """Whether text that is always an ISO 8601 time becomes timestamptz, timestamp or date."""
    rescue: bool = False
    """Whether values that do not fit their column go to the column _rescued."""
    flatten: Annotated[
        FlattenSpec | None,
        Key(
            Form({"anyOf": [{"enum": [True, False]}, section("flatten").schema]}), choices=(True, False), default=False
        ),
    ] = None
    """Whether nested records become columns of their own: `user: {id: 1}` the column user_id. Lists and maps stay."""
    column_case: Literal["keep", "lower", "snake", "camel"] = "keep"
    """How columns, and members of structs in them, are named after fields: as they are, in small letters, as user_id,
    or as userId."""
    #: Empty: all fields.
    include: Annotated[tuple[tuple[str, ...], ...], PATHS] = ()
    """Paths of the fields to take, each with everything in it; all unless written."""
    exclude: Annotated[tuple[tuple[str, ...], ...], PATHS] = ()
    """Paths of the fields to leave out, each with everything in it."""
    protect: Annotated[
        tuple[ProtectRule, ...],
        Form(
            {
                "type": "object",
                "additionalProperties": {"anyOf": [{"enum": list(PROTECT_ACTIONS)}, section("protect_rule").schema]},
            }
        ),
    ] = ()
    """What happens to fields with personal data before anything is written: path, or /regular expression/, to an action.
    The first rule that finds a field decides."""
    protect_key: Annotated[SecretWord, TEXT] = None
    """The key of `protect`, at least 32 bytes, as ${file:PATH} or ${env:NAME}."""
    where: Annotated[str, TEXT] = ""
    """The condition for records that the table takes, in Spark SQL: `type = 'order'`. Others make no row and are counted."""
    rename: Annotated[tuple[tuple[tuple[str, ...], str], ...], STRINGS] = ()
    """New names of fields: `{old: new}`, nested ones by their path."""
    drop_fields: Annotated[tuple[tuple[str, ...], ...], PATHS] = ()
    """Paths of fields that rows do not have, each with everything in it. Conditions may use them; `exclude` leaves fields
    unread."""
    keep_fields: Annotated[tuple[tuple[str, ...], ...], PATHS] = ()
    """Paths of the fields that rows have, each with everything in it; all unless written."""
    cast: Annotated[
        tuple[tuple[tuple[str, ...], SerializeAsAny[IcebergType]], ...],
        Form({"type": "object", "additionalProperties": TYPE_WORD}),
    ] = ()
    """New types of fields, as Spark's `cast` makes them: `{amount: "decimal(12,2)"}`."""
    add_fields: Annotated[tuple[tuple[str, Constant], ...], STRINGS] = ()
    """Columns to add: a constant, or metadata of the record or of its change by name: `{origin: shop, topic: _topic, sent:
    source.ts_ms}`."""
    filter: Annotated[str, TEXT] = ""
    """The condition for rows that the table takes, in Spark SQL, over what the other steps leave. Others are counted."""
    select: Annotated[str, TEXT] = ""
    """The query that makes the table's rows, in Spark SQL, from one relation, `records`: `select id, lower(email) as
    email from records`."""
    on_error: Literal["dead_letter", "null"] = "dead_letter"
    """What a record becomes for which an expression of the query fails: a dead letter, or a row with null in the column."""
    #: The column that each is written to.
    metadata: Annotated[dict[MetadataField, str], _METADATA] = {}
    """Metadata of a record besides its value, in columns _topic, _partition, _offset and so on, or in the
    columns that a mapping names."""
    commit: Annotated[CommitSpec, section("commit")] = CommitSpec()
    """When to commit and how large files should be."""
    maintenance: Annotated[MaintenanceSpec, with_switch(section("table_maintenance"))] = MaintenanceSpec()
    """Table maintenance."""
    #: None: records are rows.
    envelope: Annotated[
        EnvelopeSpec | None,
        Key(
            Form({"anyOf": [{"enum": list(_ENVELOPES)}, section("envelope").schema]}),
            choices=_ENVELOPES,
            default="none",
            registered=ENVELOPES,
        ),
    ] = None
    """The envelope of records: none; debezium, maxwell, canal, dms or a field that names the operation, of changes;
    cloudevents or outbox, of events."""
    mode: Literal["append", "upsert"] = "append"
    """Whether records are appended (append) or replace rows by key (upsert)."""
    #: Empty: those of the record's key.
    key_columns: Annotated[tuple[str, ...], PATHS] = ()
    """The columns that identify a row; by default the record key's, or those that Canal's messages name."""
    #: None: partition and offset.
    order_by: Annotated[str | None, TEXT] = None
    """The column that orders the changes of a key; by default partition and offset."""
    changelog: bool = False
    """Whether every change becomes a row, with the rows before and after it."""
    deletes: Literal["hard", "soft"] = "hard"
    """Whether a deleted row is removed (hard), or kept with `_deleted` and `_deleted_at` (soft)."""
    #: Empty: the file does not say.
    tombstones: Literal["", "delete", "ignore", "dead_letter", "row"] = ""
    """What happens to a record without a value (a tombstone): `delete` deletes the row of its key, `ignore` counts it
    only, `dead_letter` makes a dead letter, `row` a row with null in the columns of the value. Unless written
    `delete` for upsert; for append `dead_letter`, or `ignore` with an `envelope`."""
    #: None: a snapshot may show a part of a transaction.
    atomic: Annotated[
        AtomicSpec | None,
        Key(
            Form({"anyOf": [{"enum": ["batch", "transaction"]}, section("atomic").schema]}),
            choices=("batch", "transaction"),
            default="batch",
        ),
    ] = None
    """Whether a snapshot may show a part of a transaction of the source: `transaction` of a table of one topic, with
    Debezium's envelope."""
    format_version: Literal[2, 3] = 2
    """Iceberg's format version of a new table; unless written 2 for append, 3 for upsert."""
    #: None: the catalog chooses it.
    location: Annotated[str | None, TEXT] = None
    """The folder of a new table in the store; the catalog chooses it unless written, and some catalogs demand it. Its
    dead-letter table is beside it, in the folder `<location>__dead_letters`."""
    properties: Annotated[dict[str, str], STRINGS] = {}
    """Iceberg's table properties, with Iceberg's names, of a new table; an existing table keeps its own."""
    #: The route that feeds the table; None where the table takes all records of its topics.
    route: Annotated[Route | None, NOT_A_KEY] = None
    #: The values of the table's records, of a table that the route made.
    route_values: Annotated[tuple[str, ...], NOT_A_KEY] = ()
    #: Where the file declares it; 0 if it does not.
    line: Annotated[int, NOT_A_KEY] = 0

    @property
    def has_query(self) -> bool:
        """Whether a query, or `protect`, makes the table's rows from the records' fields; otherwise they are the records."""
        return bool(self.where or self.select or self.has_steps or self.protect)

    def without_query(self) -> Self:
        """Returns the settings without those that change records before the table, except for `protect`."""
        texts, lists = ("where", "filter", "select"), ("rename", "drop_fields", "keep_fields", "cast", "add_fields")
        return self.model_copy(update={**dict.fromkeys(texts, ""), **dict.fromkeys(lists, ())})

    @property
    def has_steps(self) -> bool:
        """Whether fields are renamed, dropped, cast or added, or rows filtered, before the query."""
        steps = (self.rename, self.drop_fields, self.keep_fields, self.cast, self.add_fields, self.filter)
        return any(steps)


class RouteSpec(
    TableSpec,
    json_schema_extra={"required": ["to"], "oneOf": [{"required": ["topic"]}, {"required": ["topics"]}]},
):
    """How records of some topics are divided among many tables, which all have the same settings."""

    by: Annotated[
        ValueSource,
        Key(parsed_text(text_like("type", "header.kind", "source.table"), parse_source), default="topic"),
    ] = ValueSource("topic")
    """The value that says to which table a record goes: a field, `header.NAME`, a change event's `source.table`, or
    topic."""
    to: Annotated[Template, parsed_text(text_like("shop.${type}", "sales.$1"), parse_template)]
    """The name of the tables, with values of the record as `${…}`, or groups of the topic's expression as $1."""
    limit: Annotated[int, count(200)] = 200
    """How many tables the route makes at most; records of further values go to `rest`."""
    rest: Annotated[str | None, parsed_text(TEXT.schema, table_name)] = None
    """The table of records that no other table of the route takes."""

    @property
    def is_by_topic(self) -> bool:
        """Whether all records of a topic go to one table."""
        return self.by.kind == "topic"

    @property
    def text(self) -> str:
        """The names of the tables, for messages."""
        return self.to.fill(["…"] * len(self.to.sources))

    def as_table(self, **settings: Any) -> TableSpec:
        """A table with the settings of the route, and with these."""
        return TableSpec(**{**{name: getattr(self, name) for name in TableSpec.model_fields}, **settings})

    def table_of(self, topic: str) -> str:
        """The table of a topic, of a route by topic."""
        selector = next(one for one in self.topics if one.matches(topic))
        found = re.search(selector.pattern, topic) if selector.pattern is not None else None
        values = [
            (found.group(int(source.path[0])) or "" if found is not None else "") if source.kind == "capture" else topic
            for source in self.to.sources
        ]
        return self.to.fill(values)


class PipelineSpec(
    _Declared,
    json_schema_extra={
        "required": ["pipeline", "kafka"],
        "anyOf": [{"required": ["tables"]}, {"required": ["topics"]}, {"required": ["routes"]}],
        "dependentRequired": {"topics": ["namespace"], "namespace": ["topics"]},
    },
):
    """A whole pipeline file."""

    pipeline: Annotated[
        str, parsed_text({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}, pipeline_name)
    ]
    """Identity of the pipeline's progress: unique per Kafka cluster and catalog."""
    #: Properties of every client, `isolation.level` always among them.
    kafka: Annotated[SecretStrings, section("kafka")]
    """Kafka client properties, passed through; secrets as ${env:NAME} or ${file:PATH}."""
    registry: Annotated[RegistrySpec | None, section("registry")] = None
    """The schema registry, one that speaks Confluent's API."""
    catalog: Annotated[CatalogSpec, section("catalog")]
    """The Iceberg catalog; by default JDBC on SQLite under ./frazil-data."""
    spark: Annotated[SparkSpec, section("spark")] = SparkSpec()
    """Spark's master and configuration."""
    commit: Annotated[CommitSpec, section("commit")] = CommitSpec()
    """When to commit and how large files should be: the default for every table."""
    maintenance: Annotated[MaintenanceSpec, with_switch(section("maintenance"))] = MaintenanceSpec()
    """Table maintenance: the default for every table."""
    tables: Annotated[
        tuple[TableSpec, ...],
        Form({"type": "object", "minProperties": 1, "additionalProperties": section("table").schema}),
    ] = ()
    """The tables, by name: a namespace and a table, joined by a dot."""
    namespace: Annotated[str | None, parsed_text(TEXT.schema, namespace_name)] = None
    """The namespace of the tables that `topics` get."""
    topics: Annotated[tuple[TopicSelector, ...], SELECTORS] = ()
    """Topics, or /regular expressions/, that get a table each: `<namespace>.<topic>`."""
    routes: Annotated[
        tuple[RouteSpec, ...], Form({"type": "array", "minItems": 1, "items": section("route").schema})
    ] = ()
    """Topics whose records are divided among many tables, which are created as their values appear."""
    #: Also those of the tables of `topics`.
    defaults: Annotated[TableSpec | None, section("defaults")] = None
    """Settings of every table that does not have them itself."""
    #: The file it came from.
    path: Annotated[Path, NOT_A_KEY]
    #: Values that must never be shown; see `redact`.
    secrets: Annotated[frozenset[str], NOT_A_KEY, Field(repr=False, exclude=True)] = frozenset()
    #: Absolute, for what may be lost.
    state_dir: Annotated[Path, NOT_A_KEY]

    def redact(self, text: str) -> str:
        """`text` with every secret of this pipeline masked."""
        return redact(text, self.secrets)

    def table_for(self, topic: str) -> TableSpec:
        """The table of `topic`, which the pipeline's own `topics` select: `<namespace>.<topic>`, with defaults."""
        name = f"{self.namespace}.{topic}"
        chosen = {"name": name, "topics": (TopicSelector(literal=topic),), "line": 0}
        if self.defaults is not None:
            return self.defaults.model_copy(update=chosen)
        return TableSpec.model_validate({**chosen, "commit": self.commit, "maintenance": self.maintenance})

    def routed_table(self, rest: TableSpec, routed: RoutedTable) -> TableSpec:
        """The table of a route that takes the records with some values. rest: the route's table of the rest."""
        route = next(one for one in self.routes if one.rest == rest.name)
        start = Start(kind="offsets", offsets=dict(routed.start))
        return route.as_table(name=routed.name, start=start, route=rest.route, route_values=routed.values, line=0)

    def tables_by_topic(self, topics: Collection[str]) -> list[TableSpec]:
        """The tables of those of the topics that routes by topic select, each with all topics of its name."""
        fed: dict[str, tuple[RouteSpec, list[TopicSelector]]] = {}
        for route in self.routes:
            for topic in sorted(select_topics(route.topics, topics)) if route.is_by_topic else ():
                fed.setdefault(route.table_of(topic), (route, []))[1].append(TopicSelector(literal=topic))
        return [route.as_table(name=name, topics=tuple(own), line=0) for name, (route, own) in fed.items()]


OF_ONE_TABLE = ("topic", "topics", "start", "location")
"""Keys of a table that are no defaults for others."""
OF_ALL_TABLES = ("cores", "window")
"""Keys of `maintenance` that a table does not have for itself."""
TABLE_KEYS = keys_of(TableSpec)
ROUTE_KEYS = {name: key for name, key in keys_of(RouteSpec).items() if name != "location"}
DEFAULTS_KEYS = {name: key for name, key in TABLE_KEYS.items() if name not in OF_ONE_TABLE}
MAINTENANCE_KEYS = keys_of(MaintenanceSpec)
TABLE_MAINTENANCE_KEYS = {name: key for name, key in MAINTENANCE_KEYS.items() if name not in OF_ALL_TABLES}
