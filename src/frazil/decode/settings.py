"""How records become columns, as tasks need it: the settings of a decoder, small and comparable. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pyiceberg.types import BooleanType, IcebergType, ListType, LongType, MapType, StringType, TimestamptzType

from frazil.column_names import fold_case
from frazil.plugins.formats import ENVELOPES, EnvelopeKind
from frazil.plugins.registration import function_of
from frazil.schema.names import Aliases
from frazil.schema.selection import NOTHING_DECLARED, DeclaredValues, Path, Selection
from frazil.types import EXTRA_COLUMNS

PLACEHOLDER = "__debezium_unavailable_value"
OLD_KEY, NEW_KEY = "__debezium.oldkey", "__debezium.newkey"
"""Headers of Debezium for primary-key updates: the old key on the insert, the new key on the delete."""


@dataclass(frozen=True)
class Envelope:
    """The envelope of records, and what is needed of their changes."""

    #: The name of the envelope, such as `debezium`; `operation` where a field of the row names the operation; `none`:
    #: the record is a row, as record keys are.
    kind: str
    #: The field that names the operation.
    operation: str = ""
    #: Its values for an insert.
    insert: tuple[str, ...] = ()
    #: Its values for an update.
    update: tuple[str, ...] = ()
    #: Its values for a delete.
    delete: tuple[str, ...] = ()
    #: The placeholder for a value that was not sent.
    placeholder: str = PLACEHOLDER
    #: Paths of the key columns, where they are known.
    keys: tuple[Path, ...] = ()
    #: Whether every image of every change becomes a row (a changelog table).
    is_log: bool = False
    #: Whether a deleted row stays, marked as deleted (`deletes: soft`).
    marks_deletes: bool = False
    #: Whether rows replace those with the same key.
    is_upsert: bool = False
    #: Whether the row before a change is subtracted from the row that it was added to.
    retracts: bool = False

    @property
    def _own(self) -> EnvelopeKind | None:
        return None if self.kind == "none" else ENVELOPES.get(self.kind)

    @property
    def needs_keys(self) -> bool:
        """Whether a deleted row may be identified by its record's key alone, as with MongoDB documents."""
        return self.kind == "debezium" and (self.is_log or self.is_upsert)

    @property
    def has_events(self) -> bool:
        """Whether records are events, which have attributes in their headers and keys."""
        own = self._own
        return own is not None and own.open_events is not None

    @property
    def key_prefix(self) -> str:
        """The prefix, in record keys, of the names of primary-key columns, where other fields name the table."""
        own = self._own
        return "" if own is None else own.key_prefix

    @property
    def flat_keys(self) -> Callable[..., Any] | None:
        """What makes record keys in JSON objects, keys to keys; None where they are objects."""
        own = self._own
        return None if own is None or own.flat_keys is None else function_of(own.flat_keys)

    @property
    def needs_headers(self) -> bool:
        """Whether a primary-key update may be announced by a header."""
        return bool(self.headers)

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of the headers that changes may have."""
        return (OLD_KEY, NEW_KEY) if self.kind == "debezium" and self.is_upsert and not self.retracts else ()

    @property
    def names_keys(self) -> bool:
        """Whether each record names the columns that identify a row."""
        own = self._own
        return own is not None and own.names_keys

    @property
    def has_many_rows(self) -> bool:
        """Whether a record may have several rows."""
        own = self._own
        return own is not None and own.open_rows is not None

    @property
    def takes_tombstones(self) -> bool:
        """Whether a record without a value deletes the row of its key. It may be the only remaining record of a delete:
        Debezium's unwrap transform can drop the delete, and compaction removes it.
        """
        is_deleting = self.is_upsert and not (self.marks_deletes or self.retracts)
        return self.kind in ("debezium", "operation") and is_deleting


NO_ENVELOPE = Envelope("none")
"""The envelope for the keys of wrapped changes: their fields are written as those of rows are."""

OWN_TYPES: Mapping[str, IcebergType] = {
    "op": StringType(),
    "image": StringType(),
    "source_ts": TimestamptzType(),
    "connector_ts": TimestamptzType(),
    "transaction_id": StringType(),
    "total_order": LongType(),
    "collection_order": LongType(),
    "source_order": StringType(),
    "position": StringType(),
    "source_database": StringType(),
    "source_schema": StringType(),
    "source_table": StringType(),
    "unavailable": ListType(0, StringType(), element_required=False),
    "ce_id": StringType(),
    "ce_source": StringType(),
    "ce_type": StringType(),
    "ce_time": TimestamptzType(),
    "ce_subject": StringType(),
    "ce_dataschema": StringType(),
    "ce_datacontenttype": StringType(),
    "ce_extensions": MapType(0, StringType(), 0, StringType(), value_required=False),
    "event_id": StringType(),
    "event_type": StringType(),
    "aggregate_type": StringType(),
    "aggregate_id": StringType(),
    "deleted": BooleanType(),
    "deleted_at": TimestamptzType(),
    "valid_from": TimestamptzType(),
    "valid_to": TimestamptzType(),
    "is_current": BooleanType(),
}
"""Fields of `metadata` that an envelope provides, with the types of their columns."""


@dataclass(frozen=True)
class WriterSchema:
    """A schema of the registry, as tasks need it."""

    #: `avro`, `protobuf` or `json_schema`; `unknown` where the registry has no schema with the id; `unusable` with the
    #: reason as its text.
    kind: str
    #: The schema's text.
    text: str = ""
    #: Name and text of each schema it refers to.
    references: tuple[tuple[str, str], ...] = ()
    #: The compiled FileDescriptorSet, of Protobuf.
    descriptors: bytes = b""


Framing = Literal["confluent", "apicurio", "none"]
"""`confluent`: a zero byte and four bytes of id, big-endian. `apicurio`: a zero byte and eight. `none`: the value is
the body.
"""


@dataclass(frozen=True)
class WireFormat:
    """How records name the schema of their values, and the message in it (see `decode.wire_format`)."""

    #: What the first bytes of a value have of it.
    framing: Framing = "confluent"
    #: Whether the record header `header` names the schema instead.
    is_by_header: bool = False
    #: The name of that header.
    header: str = "__value_schema_id"
    #: The full name of the Protobuf message, where records do not name one.
    message: str = ""


@dataclass(frozen=True)
class Evolution:
    """How the columns of the table may change for its records."""

    #: Whether a column may get a wider type.
    may_widen: bool = True
    #: The number of columns that may be added; a record that adds more is a bad record.
    columns_left: int = 2**31
    #: Paths of fields that the table cannot have, with the reason: records that have them are bad records.
    rejected: tuple[tuple[Path, str], ...] = ()

    def moved(self, places: Callable[[Path], Iterable[Path]]) -> Evolution:
        """Returns the evolution with the rejected fields at other paths. places: returns the new paths of a field."""
        return replace(self, rejected=tuple((place, why) for path, why in self.rejected for place in places(path)))


NO_EVOLUTION = Evolution(may_widen=False)
"""The columns keep their types."""


@dataclass(frozen=True)
class JsonTypes:
    """The types of JSON values that their notation does not give."""

    #: Whether the values are MongoDB's Extended JSON.
    is_extended: bool = False
    #: The type of numbers without a column; None: inferred from their values.
    numbers: IcebergType | None = None
    #: Inference hints from earlier records (`schema.evolve.hints_of`).
    hints: tuple[tuple[Path, str], ...] = ()
    #: Whether text without a column that is always a time becomes a time column.
    infers_times: bool = False
    #: Paths of fields that are no lists where they have no column, with why a list is refused (`process.steps`).
    refused_lists: tuple[tuple[Path, str], ...] = ()
    #: Paths of fields without a column, each with a kind of values, as in `hints`, that is refused, and why.
    refused_kinds: tuple[tuple[Path, tuple[str, str]], ...] = ()
    #: Paths of fields that are text where they have no column, whatever their values are, in any case.
    texts: tuple[Path, ...] = ()

    def moved(self, places: Callable[[Path], Iterable[Path]]) -> JsonTypes:
        """Returns the types with the fields at other paths. places: returns the new paths of a field."""
        hints, lists = (
            tuple((place, what) for path, what in some for place in places(path))
            for some in (self.hints, self.refused_lists)
        )
        kinds = tuple((place, kind) for path, kind in self.refused_kinds for place in places(path))
        texts = tuple(place for path in self.texts for place in places(path))
        return replace(self, hints=hints, refused_lists=lists, refused_kinds=kinds, texts=texts)


EXTENDED_JSON = JsonTypes(is_extended=True)


@dataclass(frozen=True)
class Reading:
    """How a table's records become rows."""

    #: The format of the values.
    format: str = "json"
    #: How records name their schema.
    wire: WireFormat = WireFormat()
    #: The schemas known so far, by id.
    schemas: tuple[tuple[str, WriterSchema], ...] = ()
    #: The handling of fields that the table lacks: `add`, `drop`, `rescue` or `refuse`.
    unknown_fields: str = "add"
    #: Whether values that do not fit go to the column `_rescued`.
    is_rescuing: bool = False
    #: How the columns may change.
    evolution: Evolution = Evolution()
    #: The handling of a record that cannot become a row: `dead_letter`, `stop` or `skip`.
    on_bad: str = "stop"
    #: Larger values are not read.
    max_record_bytes: int = 2**31
    #: The fields to take; None: all.
    selection: Selection | None = None
    #: What settings and schemas declare of the values, by path.
    declared: DeclaredValues = NOTHING_DECLARED
    #: The types of values in JSON.
    json: JsonTypes = JsonTypes()
    #: The envelope of the records, where opened envelopes (`cdc.envelope`) are read and not the records themselves.
    envelope: Envelope | None = None
    #: Other names that a column's field may have in records, by path of the column.
    aliases: Aliases = ()
    #: Whether the values are the keys of records, read as one column of `metadata`.
    is_key_column: bool = False
    #: Paths of fields that identify rows, where there is no envelope with them: equal numbers in them must be written
    #: alike; the empty path is an entire key.
    keys: tuple[Path, ...] = ()

    def with_hints(self, hints: Iterable[tuple[Path, str]]) -> Reading:
        """Returns the reading with other inference hints."""
        return replace(self, json=replace(self.json, hints=tuple(hints)))

    def schema(self, schema_id: str) -> WriterSchema | None:
        """Returns the schema of an id, None while it is not known."""
        return self._by_id.get(schema_id)

    @cached_property
    def _by_id(self) -> dict[str, WriterSchema]:
        return dict(self.schemas)

    @cached_property
    def unit_at(self) -> Mapping[Path, str]:
        """The units, by path."""
        return dict(self.declared.units)

    def coerces(self, path: Path) -> bool:
        """Whether the string column at a path accepts values of other types."""
        return self.is_text(path) or any(path[: len(prefix)] == prefix for prefix in self.declared.coerced)

    def is_text(self, path: Path) -> bool:
        """Whether a field of JSON is text where it has no column, whatever its values are."""
        return bool(self.json.texts) and tuple(map(fold_case, path)) in self._texts

    @cached_property
    def _texts(self) -> frozenset[Path]:
        return frozenset(tuple(map(fold_case, path)) for path in self.json.texts)

    @property
    def has_coerced(self) -> bool:
        """Whether string columns accept values of other types."""
        return bool(self.declared.coerced or self.json.texts)

    @cached_property
    def zone_at(self) -> Mapping[Path, str]:
        """The zones of local times, by path."""
        return dict(self.declared.zones)

    @cached_property
    def rejected_at(self) -> Mapping[Path, str]:
        """The reasons for rejected fields, by path."""
        return dict(self.evolution.rejected)

    @cached_property
    def hint_at(self) -> Mapping[Path, str]:
        """The inference hints, by path in lower case: names that differ in case alone are one field."""
        return {tuple(map(fold_case, path)): kind for path, kind in self.json.hints}

    @cached_property
    def refused_list_at(self) -> Mapping[Path, str]:
        """Why a list is refused, by path in lower case."""
        return {tuple(map(fold_case, path)): reason for path, reason in self.json.refused_lists}

    @cached_property
    def refused_kind_at(self) -> Mapping[Path, tuple[str, str]]:
        """The kind of values that is refused, and why, by path in lower case."""
        return {tuple(map(fold_case, path)): kind for path, kind in self.json.refused_kinds}

    def in_row(self, path: Path) -> Path:
        """Returns a path as a pipeline file writes it: from the top of the row, not of an envelope."""
        return path if self.envelope is None else path[1:]

    def is_in_row(self, path: Path) -> bool:
        """Whether a path leads to a field of the row, which settings of columns are for, and not to one of the envelope."""
        return self.envelope is None or len(path) > 1

    @property
    def extra_columns(self) -> frozenset[str]:
        """The columns that the table has for what its other columns cannot have."""
        return EXTRA_COLUMNS if self.is_rescuing or self.unknown_fields == "rescue" else frozenset()
