"""Sections of a table in a pipeline file (see `models`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import SerializeAsAny
from pyiceberg.types import IcebergType

from frazil.errors import SpecError
from frazil.plugins.driver import ACTIONS
from frazil.plugins.formats import FORMATS
from frazil.spec.syntax import forms
from frazil.spec.syntax.document import Node, Scalar, Section
from frazil.spec.syntax.keys import Declared, Form, Key, describe, named, not_a_key, section
from frazil.spec.syntax.problems import LABEL, NAME, Mistake, Mistakes, advice
from frazil.spec.syntax.types import parse_column_type
from frazil.spec.syntax.units import WINDOW_PATTERN, parse_window
from frazil.spec.topics import TOPIC_NAME, table_name

if TYPE_CHECKING:
    from frazil.spec.syntax.reading import Reading

MetadataField = Literal[
    "topic", "partition", "offset", "timestamp", "headers", "key", "op", "image", "source_ts", "connector_ts",
    "transaction_id", "total_order", "collection_order", "position", "source_order", "source_database",
    "source_schema", "source_table", "unavailable", "deleted", "deleted_at", "ce_id", "ce_source", "ce_type", "ce_time",
    "ce_subject", "ce_dataschema", "ce_datacontenttype", "ce_extensions", "event_id", "event_type", "aggregate_type",
    "aggregate_id", "valid_from", "valid_to", "is_current",
]  # fmt: skip
HISTORY: tuple[MetadataField, ...] = ("valid_from", "valid_to", "is_current")
"""The columns of a table with `mode: history` that show when a version of a row was valid."""
METADATA_COLUMNS: Mapping[MetadataField, str] = {
    **{field: field if field in HISTORY else f"_{field}" for field in get_args(MetadataField)},
    "partition": "_kafka_partition",  # Iceberg reserves `_partition`, and its Spark reader refuses a table with it.
}
"""The column that each field of `metadata` is written to, unless the file names another, and its name in queries."""
OTHER_DROPS = (
    "where", "filter", "explode", "lookup", "duplicate", "late", "tombstone", "heartbeat", "transaction", "schema_change",
    "message", "delete", "truncate", "update_without_document", "notification",
)  # fmt: skip
"""What records are counted as that are dropped, or change no row: no expectation has such a name."""
REFERENCE_FILES = (".parquet", ".csv")
"""How the name of a `file` of `lookup` ends."""
Constant = str | int | float | bool
_ACTIONS = forms.names_of(ACTIONS, {"type": "array", "items": forms.TEXT.schema, "uniqueItems": True})
SKIPPABLE = ("compact", "deletes", "manifests", "expire", "orphans")
"""Maintenance actions that `skip` may name. Progress is carried forward all the same: another tool expires it otherwise."""
_SORT_COLUMN = re.compile(r"([^\s,()]+)(?: (asc|desc))?", re.IGNORECASE)
_CURVE_COLUMN = re.compile(r"[^\s,()]+")


def _columns(form: re.Pattern[str], remedy: str) -> Form:
    """A list of columns. form: of each. remedy: for another text."""

    def read_one(node: Node) -> str:
        text = forms.read_text(node)
        if form.fullmatch(text) is None:
            raise SpecError(f"`{text}` under `{LABEL}` is not a column", remedy=remedy)
        return text

    schema = {"type": "array", "items": forms.TEXT.schema, "minItems": 1, "uniqueItems": True}
    empty = "write names of columns, such as `[id]`, or remove it"
    return Form(schema, read=lambda node, _: forms.read_some(node, read_one, empty))


def _read_value(node: Node, _: Reading) -> Node:
    """Returns the section with the format of values."""
    if isinstance(node, Scalar) and node.text in FORMATS:
        message = f"`{LABEL}` is {describe(node)} where a mapping is expected"
        raise SpecError(message, remedy=f"write `{LABEL}: {{format: {node.text}}}`")
    return node


def _read_constant(node: Node, _: Reading) -> str:
    is_text = isinstance(node, Scalar) and node.kind == "text"  # Also an empty one.
    return node.text if is_text else forms.read_string(node)  # type: ignore[union-attr]


def _read_key(node: Node, reading: Reading) -> Node:
    """Returns the section with the format of keys: `raw` unless written."""
    _read_value(node, reading)
    if not isinstance(node, Section):
        return node
    written = node.setdefault("format", Scalar("raw", "text", node.line))
    if isinstance(written, Scalar) and written.text in FORMATS.added():
        message = f"`{LABEL}` cannot be `{written.text}`"
        raise Mistakes([Mistake("format", message, advice(written.text, FORMATS.built_in))], is_cause=True)
    return node


VALUE, KEY = section("value", _read_value), section("key", _read_key)


class ValueSpec(Declared):
    """What the records' values (or keys, or values of a header) are."""

    format: Annotated[str, Key(registered=FORMATS)] = "json"
    """The format of the records' values."""
    source: Annotated[Literal["registry", "latest"], named("schema")] = "registry"
    """Where the schema comes from: the registry by the id in the record, or its latest."""
    framing: Literal["confluent", "apicurio", "header"] = "confluent"
    """Where a record names its schema: an id of 4 bytes at its beginning (confluent), of 8 (apicurio), or a
    header."""
    subject: Annotated[str | None, forms.TEXT] = None
    """The subject of `schema: latest`, if it differs from the subject that `registry.naming` makes."""
    message: Annotated[str | None, forms.TEXT] = None
    """The Protobuf message's full name, if records do not name it."""
    logical_types: Literal["strict", "lenient"] = "strict"
    """How a `logicalType` next to a field's `type` in Avro is read: ignored, as Avro prescribes (strict), or read as if it
    were inside the type (lenient)."""

    @property
    def needs_registry(self) -> bool:
        """Whether its schemas are in the registry."""
        return FORMATS.get(self.format).needs_registry


class KeySpec(ValueSpec):
    """What the records' keys are: a declaration alone, which is read to a ValueSpec."""

    format: Annotated[str, Key(choices=tuple(FORMATS.built_in))] = "raw"
    """The format of the records' keys."""


class ColumnSpec(
    Declared,
    json_schema_extra={
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
    name: Annotated[str, not_a_key("name")]
    #: Its field ids are placeholders.
    type: Annotated[
        SerializeAsAny[IcebergType],
        forms.parsed_text(forms.TYPE_WORD, parse_column_type),
        Key(lack=f"`{LABEL}` has no type", remedy=f"write `{NAME}: long`, or another type"),
    ]
    """The column's type, with Iceberg's name."""
    #: None: the field that would get a column of this name.
    field: Annotated[tuple[str, ...] | None, forms.parsed_text(forms.text_like("order.total"), forms.parse_path)] = None
    """Path of the field of the record that feeds the column, if its name differs."""
    #: The unit of numbers in a column of time, counted from the epoch or, in one of times of day, from midnight.
    unit: Annotated[Literal["s", "ms", "us", "ns"] | None, not_a_key("unit")] = None
    coerce: bool = False
    """Whether a text column stores numbers, booleans, objects and arrays as they are written."""
    zone: Annotated[str | None, forms.ZONE] = None
    """For a timestamp, the zone to which instants are converted; for a timestamptz, the zone of times without a zone. A
    name of the IANA database."""
    #: The value as text.
    constant: Annotated[str | None, Form({"type": ["string", "number", "boolean"]}, read=_read_constant)] = None
    """The column's value in every row."""
    header: Annotated[str | None, forms.TEXT] = None
    """The header whose value the column gets; if several have this name, the last one."""
    #: None: the bytes are the text, the digits or the bytes of the type.
    value: Annotated[ValueSpec | None, VALUE] = None
    """The format of the header's bytes, if the column's type does not decide it."""

    @property
    def is_own(self) -> bool:
        """Whether it comes from something else than the record's value."""
        return self.constant is not None or self.header is not None


class FlattenSpec(Declared):
    """Nested records become columns, their names joined."""

    separator: Annotated[str, forms.SEPARATOR] = "_"
    """The text between joined names."""
    depth: Annotated[int, forms.DEPTH] = 100
    """How many levels of nested records become columns; all unless written."""


class EnvelopeSpec(Declared, json_schema_extra={"oneOf": [{"required": ["type"]}, {"required": ["operation"]}]}):
    """How records wrap a change of their source. The kind `operation`: a field of the row itself names the operation."""

    kind: Annotated[str, Key(choices=("debezium",), default="debezium"), named("type")] = "operation"
    """`debezium`; this form allows further settings of the envelope."""
    placeholder: Annotated[str, forms.TEXT, named("unavailable_value")] = "__debezium_unavailable_value"
    """Debezium's text for a value that the source did not send: its `unavailable.value.placeholder`."""
    operation: Annotated[str, forms.TEXT] = ""
    """The field of the row that names the operation."""
    insert: Annotated[tuple[str, ...], forms.WORDS] = ("c", "C", "i", "I", "insert", "INSERT")
    """Its values for an insert; c, i and insert unless written."""
    update: Annotated[tuple[str, ...], forms.WORDS] = ("u", "U", "update", "UPDATE")
    """Its values for an update; u and update unless written."""
    delete: Annotated[tuple[str, ...], forms.WORDS] = ("d", "D", "delete", "DELETE")
    """Its values for a delete; d and delete unless written."""


class AtomicSpec(Declared, json_schema_extra={"required": ["transaction_topic"]}):
    """That a snapshot shows transactions of the source whole."""

    #: None: a transaction is whole when the next one has begun.
    transaction_topic: Annotated[str | None, TOPIC_NAME] = None
    """The topic to which Debezium writes when transactions begin and end, `<prefix>.transaction`."""


class LookupSpec(Declared, json_schema_extra={"required": ["on", "take"]}):
    """A reference table that the table's records are joined with."""

    #: The lookup, and the column that it fills.
    name: Annotated[str, not_a_key("name")]
    table: Annotated[str, forms.TEXT] = ""
    """The reference table: an Iceberg table of the catalog."""
    file: Annotated[str, forms.TEXT] = ""
    """Instead of `table`, a Parquet or CSV file: a path, or an address in the store, such as
    s3://bucket/countries.csv."""
    on: Annotated[tuple[tuple[tuple[str, ...], str], ...], forms.ON] = ()
    """The condition: a field of the record, `=`, a column of the reference table; join several with `and`."""
    take: Annotated[tuple[str, ...], forms.TEXTS] = ()
    """The columns of the reference table that become members of the lookup's column."""
    on_miss: Literal["null", "drop", "dead_letter"] = "null"
    """The result of a record without a row in the reference table, or with null in the key: null in the lookup's
    column, no row, or a dead letter."""
    #: None: no record waits.
    wait_s: Annotated[float | None, forms.DURATION, named("wait")] = None
    """How long a record waits for its row of the reference table, such as `10m`, before `on_miss` decides; unless
    written, no record waits."""


class DedupeSpec(Declared):
    """Which records of an append table are duplicates."""

    by: Annotated[
        tuple[str, ...],
        forms.NAMES,
        Key(lack="`dedupe` does not say which columns identify an event", remedy="write `by: [event_id]`"),
    ]
    """The columns that identify an event: a record whose values in these columns are already in the table is a
    duplicate, and is dropped and counted. A record without a value in one of the columns is never a duplicate."""
    #: None: the whole table.
    within_s: Annotated[float | None, forms.DURATION, named("within")] = None
    """The greatest distance between the Kafka timestamps of a duplicate and of the record that was kept: `24h`. Records
    that are farther apart are different events; unless written, the distance is not limited."""


class CommitSpec(Declared):
    """When to commit, and the size that files aim at."""

    #: A commit comes at most this many seconds after data arrived.
    interval_s: Annotated[float, forms.INTERVAL, named("interval")] = 1.0
    """How long to collect records for one commit: `168h` or less."""
    target_file_size_bytes: Annotated[int, forms.SIZE, named("target_file_size")] = 128 * 1024 * 1024
    """The size that files should reach."""
    #: None: the target.
    min_file_size_bytes: Annotated[int | None, forms.SIZE, named("min_file_size")] = None
    """A table commits before its interval has passed when the waiting records fill a file of this size;
    `target_file_size` unless written."""


class VerifySpec(Declared):
    """How a running pipeline compares some of its newest commits with the topics."""

    every_s: Annotated[float, forms.DURATION, named("every")] = 3600.0
    """How often."""
    sample: Annotated[float, forms.share("0.1%", "100%")] = 0.001
    """The share of the records since the last comparison that is read again, in whole commits: at least one commit of
    each table."""


class SnapshotsSpec(Declared):
    """Which snapshots are kept."""

    age_s: Annotated[float, forms.DURATION, named("age")] = 24 * 3600.0
    """How long a snapshot is kept."""
    kept: Annotated[int, forms.count(2), named("count")] = 200
    """How many snapshots are kept, however young they are."""


class OrphansSpec(Declared):
    """When files that no snapshot references are removed."""

    age_s: Annotated[float, forms.ORPHAN_AGE, named("age")] = 72 * 3600.0
    """The age at which a file that no snapshot references is removed: 24h or more."""


class InferSpec(Declared):
    """What fields of JSON without a schema may become where no column is declared."""

    timestamps: bool = False
    """Whether text that is always an ISO 8601 time becomes timestamptz, timestamp or date."""


class MaintenanceSpec(Declared, json_schema_extra={"not": {"required": ["sort", "zorder"]}}):
    """How a table is maintained. At most one of `sort` and `zorder` is there."""

    is_on: Annotated[bool, not_a_key("is_on")] = True
    cores: Annotated[int, forms.count(2)] = 1
    """How many maintenance tasks run at a time, concurrently with ingestion."""
    #: Minutes of the day (UTC).
    window: Annotated[
        tuple[int, int] | None,
        forms.parsed_text(forms.text_of(WINDOW_PATTERN, "22:00-06:00"), parse_window),
    ] = None
    """The hours (UTC) in which files are rewritten, such as 22:00-06:00; always unless written."""
    target_file_size_bytes: Annotated[int | None, forms.SIZE, named("target_file_size")] = None
    """The target size of compacted files. By default the target size of `commit`."""
    min_input_files: Annotated[int, forms.count(2)] = 50
    """How many small files of a partition start a compaction; for an upsert table a sixth of this number if compaction
    takes little time."""
    small_file_share: Annotated[float, forms.share("10%")] = 0.1
    """The share of small files that is not compacted."""
    snapshots: Annotated[SnapshotsSpec, section("snapshots")] = SnapshotsSpec()
    """Which snapshots are kept."""
    orphans: Annotated[OrphansSpec, section("orphans")] = OrphansSpec()
    """When files that no snapshot references are removed."""
    manifests: bool = True
    """Whether manifests are rewritten."""
    #: Each with asc or desc after it, or without.
    sort: Annotated[
        tuple[str, ...], _columns(_SORT_COLUMN, "write the column's name, with asc or desc after it if need be")
    ] = ()
    """Columns that compaction sorts by, such as `[region, ts desc]`."""
    zorder: Annotated[tuple[str, ...], _columns(_CURVE_COLUMN, "write the column's name")] = ()
    """Columns by which compaction orders rows along a Z-curve."""
    #: Where the file has the columns of `sort` or `zorder`.
    order_lines: Annotated[tuple[int, ...], not_a_key("order_lines")] = ()
    statistics: bool = False
    """Whether the number of distinct values of each column is counted once a day."""
    actions: Annotated[tuple[str, ...], _ACTIONS] = ()
    """Further maintenance actions, by their names in installed packages."""
    skip: Annotated[tuple[str, ...], forms.some_of(SKIPPABLE)] = ()
    """Maintenance actions that the catalog or another tool performs: compact, deletes, manifests, expire, orphans."""


class DeadLettersSpec(Declared):
    """Where bad records go."""

    #: None: `<table>__dead_letters`.
    table: Annotated[str | None, forms.parsed_text(forms.TEXT.schema, table_name)] = None
    """The table of bad records; `<table>__dead_letters` unless written."""
    #: None: to no topic.
    topic: Annotated[str | None, TOPIC_NAME] = None
    """A Kafka topic to which bad records are written too."""
    #: 0 to 1.
    stop_above: Annotated[float, forms.share("5%", "100%")] = 0.2
    """The share of bad records above which the table stops instead, counted from 100 records on."""


class LimitsSpec(Declared):
    """Limits of columns, partitions and record sizes."""

    columns: Annotated[int, forms.count(1000)] = 1000
    """The largest number of columns, nested fields included. A table stops if records would add more."""
    partitions: Annotated[int, forms.count(1000)] = 10_000
    """The largest number of partitions that one batch may write. The table stops before it writes more."""
    groups: Annotated[int, forms.count(1_000_000)] = 100_000_000
    """The largest number of rows of a table that merges records, with `merge` or GROUP BY: one for each group. The
    table stops at the first batch after it has more."""
    record_bytes: Annotated[int, forms.SIZE, named("record_size")] = 16 * 1024 * 1024
    """The largest size of a value. Records with larger values become bad records without being decoded."""
