"""How records become columns, as tasks need it: the settings of a decoder, small and comparable. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pyiceberg.types import IcebergType

from frazil.decode.envelope import Envelope
from frazil.schema.name_mapping import Aliases
from frazil.schema.selection import Path, Selection


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


@dataclass(frozen=True)
class Reading:
    """How a table's records become rows."""

    #: The format of the values.
    format: str = "json"
    #: The wire format that names the schema (see `decode.wire_format`).
    framing: Framing = "confluent"
    #: Whether the record header `header` names the schema instead.
    is_by_header: bool = False
    #: The name of that header.
    header: str = "__value_schema_id"
    #: The full name of the Protobuf message, where records do not name one.
    message: str = ""
    #: The schemas known so far, by id.
    schemas: tuple[tuple[str, WriterSchema], ...] = ()
    #: The handling of fields that the table lacks: `add`, `drop`, `rescue` or `refuse`.
    unknown_fields: str = "add"
    #: Whether values that do not fit go to the column `_rescued`.
    is_rescuing: bool = False
    #: Whether a column may get a wider type.
    may_widen: bool = True
    #: The handling of a record that cannot become a row: `dead_letter`, `stop` or `skip`.
    on_bad: str = "stop"
    #: Larger values are not read.
    max_record_bytes: int = 2**31
    #: The fields to take; None: all.
    selection: Selection | None = None
    #: The units of numbers in time fields, by path. Without one they are milliseconds in JSON, and no times in other
    #: formats.
    units: tuple[tuple[Path, str], ...] = ()
    #: The envelope of the records, where opened envelopes (`cdc.envelope`) are read and not the records themselves.
    envelope: Envelope | None = None
    #: Paths of fields that the table cannot have, with the reason: records that have them are bad records.
    rejected: tuple[tuple[Path, str], ...] = ()
    #: The number of columns that may be added; a record that adds more is a bad record.
    columns_left: int = 2**31
    #: Whether JSON is MongoDB's Extended JSON.
    is_extended: bool = False
    #: Paths of string columns that accept values of other types (`coerce: true`).
    coerced: tuple[Path, ...] = ()
    #: The type of JSON numbers without a column; None: inferred from their values.
    numbers: IcebergType | None = None
    #: Inference hints from earlier records (`schema.inference_hints`).
    hints: tuple[tuple[Path, str], ...] = ()
    #: The zones of local times, by path.
    zones: tuple[tuple[Path, str], ...] = ()
    #: Whether JSON text without a column that is always a time becomes a time column.
    infers_times: bool = False
    #: Other names that a column's field may have in records, by path of the column.
    aliases: Aliases = ()
    #: Paths of fields that identify rows, where there is no envelope with them: equal numbers in them must be written
    #: alike; the empty path is an entire key.
    keys: tuple[Path, ...] = ()

    def schema(self, schema_id: str) -> WriterSchema | None:
        """Returns the schema of an id, None while it is not known."""
        return self._by_id.get(schema_id)

    @cached_property
    def _by_id(self) -> dict[str, WriterSchema]:
        return dict(self.schemas)

    @cached_property
    def unit_at(self) -> Mapping[Path, str]:
        """The units, by path."""
        return dict(self.units)

    def coerces(self, path: Path) -> bool:
        """Whether the string column at a path accepts values of other types."""
        return any(path[: len(one)] == one for one in self.coerced)

    @cached_property
    def zone_at(self) -> Mapping[Path, str]:
        """The zones of local times, by path."""
        return dict(self.zones)

    @cached_property
    def rejected_at(self) -> Mapping[Path, str]:
        """The reasons for rejected fields, by path."""
        return dict(self.rejected)

    @property
    def has_rescued_column(self) -> bool:
        """Whether the table has the column `_rescued`."""
        return self.is_rescuing or self.unknown_fields == "rescue"
