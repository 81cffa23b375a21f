"""Formats of records and envelopes of changes by name.

A format has what a pipeline file may declare of it and the function that decodes it; an envelope the formats that it is read
from, the metadata that it has, and its members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from pyiceberg.types import BinaryType, IcebergType, IntegerType, LongType, StringType, StructType

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class Format:
    """One format of records."""

    #: `decode(reading, fields, records, limit)` returns a `decode.columns.Decoded` with the columns `fields` of the
    #: records' values; the function, or `module:name` of it.
    decode: Callable[..., Any] | str
    #: Whether values have fields; otherwise the value is one column, `value`.
    has_fields: bool = True
    #: Whether schemas are in the schema registry.
    needs_registry: bool = False
    #: The keys of `value` in the pipeline file, besides `format`, that have an effect.
    keys: tuple[str, ...] = ()
    #: The types that a column of a header in this format can have; empty: any.
    header_types: tuple[type[IcebergType], ...] = ()

    @property
    def decoder(self) -> Callable[..., Any]:
        """The function that decodes."""
        return function_of(self.decode)


@dataclass(frozen=True)
class MessageFormat:
    """What reads the schemas of a format."""

    #: The class of a `decode.messages.MessageSchemas`, or of `TextSchemas` for `json_schema`, as `module:name`.
    target: str

    @property
    def schemas(self) -> Any:
        """The instance that reads schemas; the same at each call."""
        return _instance_of(self.target)


@cache
def _instance_of(target: str) -> Any:
    return function_of(target)()


_BY_SCHEMA = "frazil.rows.writer_schemas:decode_with_schemas"
_PLAIN = "frazil.decode.plain:decode_plain"
_SCHEMA = ("schema", "framing", "subject")

FORMATS: Registered[Format] = Registered(
    "frazil.formats",
    "format",
    Format,
    {
        "avro": Format(_BY_SCHEMA, needs_registry=True, keys=(*_SCHEMA, "logical_types")),
        "protobuf": Format(_BY_SCHEMA, needs_registry=True, keys=(*_SCHEMA, "message"), header_types=(StructType,)),
        "json_schema": Format(_BY_SCHEMA, needs_registry=True, keys=_SCHEMA, header_types=(StructType,)),
        "json": Format("frazil.rows.decoder:decode_json_values"),
        "text": Format(_PLAIN, has_fields=False, header_types=(StringType, IntegerType, LongType)),
        "raw": Format(_PLAIN, has_fields=False, header_types=(BinaryType,)),
    },
)
"""Every format; of a package `format: NAME` in its group `frazil.formats`."""
MESSAGES: Registered[MessageFormat] = Registered("frazil.messages", "format", MessageFormat, {})
"""What reads the schemas of Protobuf and of JSON Schema; the core has no such reader."""


MemberForm = Literal["number", "text", "timestamp", "s", "ms", "us"]
"""How a member is read: a number, a text, or a time: as ISO 8601 text, or as a number of this unit since 1970."""


@dataclass(frozen=True)
class Members:
    """The members of an envelope that is one JSON object with the rows before and after a change as members.

    A dot in a name leads into a member that is an object: `metadata.operation`.
    """

    #: The member that names the operation.
    operation: str
    #: Its texts, each with Debezium's code: `c` create, `u` update, `d` delete, `r` a row of a snapshot.
    operations: Mapping[str, str]
    #: The member with the row after the change.
    after: str
    #: The member with the row before the change; empty where no record has it.
    before: str = ""
    #: Texts of `operation` in records that change no row: `heartbeat`, `transaction`, `schema_change`, `message` or
    #: `delete`.
    ignored: Mapping[str, str] = field(default_factory=dict)
    #: The fields in `before`: `all`; `changed`, with the other values as in `after`; or `some`, and an update may lack
    #: `before`. Unless it has all, a deleted row is in `after`.
    before_has: Literal["all", "changed", "some"] = "all"
    #: Further members that every change must have.
    required: tuple[str, ...] = ()
    #: The member of each field of `metadata`, and how it is read.
    metadata: Mapping[str, tuple[str, MemberForm]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All members."""
        before = (self.before,) if self.before else ()
        return (self.operation, self.after, *before, *self.required, *(name for name, _ in self.metadata.values()))


@dataclass(frozen=True)
class EnvelopeKind:
    """One kind of envelope."""

    #: The members; None where a room of `cdc` opens the envelope.
    members: Members | None
    #: The formats that it is read from.
    formats: tuple[str, ...] = ("json",)
    #: The fields of `metadata` that it has, besides those of `members` and of every change.
    metadata: tuple[str, ...] = ()
    #: The fields of `metadata` that every table has unless the file names them otherwise.
    columns: tuple[str, ...] = ()
    #: Whether record keys have the fields that identify the row; otherwise an upsert table must name `key_columns`.
    has_key_fields: bool = True
    #: Opens messages that have several rows each: `open_rows(records, fields, reading, limit, large)` returns the
    #: `cdc.envelope.MessageRows` with the columns `fields` of `cdc.envelope`; the function, or `module:name` of it. None: a
    #: record has one row. large: mismatches for values that were left out for their size.
    open_rows: Callable[..., Any] | str | None = None
    #: Without `members`: the members with the row after and before the change, for warnings.
    images: tuple[str, ...] = ()
    #: Whether each record names the columns that identify a row.
    names_keys: bool = False
    #: Opens events, which have attributes in their headers and keys: `open_events(records, fields, reading, limit)` returns
    #: the columns `fields` of `cdc.envelope`, one event per record; the function, or `module:name` of it. None: the value
    #: alone is opened.
    open_events: Callable[..., Any] | str | None = None
    #: The prefix, in record keys, of the names of primary-key columns, where other fields name the table.
    key_prefix: str = ""
    #: Makes record keys JSON objects: `flat_keys(keys)`; the function, or `module:name` of it. None: they are.
    flat_keys: Callable[..., Any] | str | None = None

    @property
    def rows_opener(self) -> Callable[..., Any]:
        """The function that opens messages with several rows."""
        assert self.open_rows is not None
        return function_of(self.open_rows)

    @property
    def events_opener(self) -> Callable[..., Any]:
        """The function that opens events."""
        assert self.open_events is not None
        return function_of(self.open_events)

    @property
    def all_metadata(self) -> tuple[str, ...]:
        """The fields of `metadata` that it has, besides `op` and `image`."""
        return (*self.metadata, *(self.members.metadata if self.members is not None else ()))


_EVERY = ("json", "avro", "protobuf", "json_schema")
_PLACES = ("source_database", "source_schema", "source_table")

ENVELOPES: Registered[EnvelopeKind] = Registered(
    "frazil.envelopes",
    "envelope",
    EnvelopeKind,
    {
        "debezium": EnvelopeKind(
            None,
            _EVERY,
            (
                "source_ts", "connector_ts", "transaction_id", "total_order", "collection_order", "position",
                "source_order", *_PLACES, "unavailable",
            ),
            images=("after", "before"),
        ),
        "operation": EnvelopeKind(None, _EVERY),
    },
)  # fmt: skip
"""Every envelope; of a package `envelope: NAME` in its group `frazil.envelopes`. `operation`: a field of the row itself
names the operation.
"""
