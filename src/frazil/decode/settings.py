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
    """A schema of the registry, as tasks need it.

    kind: avro, protobuf or json_schema; `unknown` where the registry has none of the id; `unusable` with the reason as its
    text. references: name and text of what it refers to. descriptors: of Protobuf, the compiled FileDescriptorSet.
    """

    kind: str
    text: str = ""
    references: tuple[tuple[str, str], ...] = ()
    descriptors: bytes = b""


Framing = Literal["confluent", "apicurio", "none"]


@dataclass(frozen=True)
class Reading:
    """How a table's records become rows.

    format: of the values; framing: where they name their schema (see `decode.frames`), or in the header `header` if
    is_by_header. message: full name of the Protobuf message, where records do not name one. schemas: by id those known
    so far. unknown_fields: what becomes of fields that the table lacks (`add`, `drop`, `rescue`, `refuse`). is_rescuing:
    whether values that do not fit go to the column `_rescued`. may_widen: whether a column may get a wider type.
    on_bad: what becomes of a record that cannot become a row (`dead_letter`, `stop`, `skip`). max_record_bytes: larger
    values are not read. selection: the fields that count; None: all. units: of numbers in fields of time, by path;
    without one they are milliseconds in JSON, and no times elsewhere. envelope: how records wrap a change, where what is
    read is not the record but its opened envelope (`decode.envelopes.opened`). rejected: paths of fields that the table
    cannot have, with the reason: records that have them are bad ones. room: so many columns may be added; a record that
    brings more is a bad one. is_extended: JSON is MongoDB's extended one. coerced: paths of columns that take values of
    other types as text. numbers: what numbers of JSON become where there is no column yet; None: what their values need.
    hints: as in `hints`, of records before these. zones: of local times, by path. infers_times: whether text of JSON that
    is always a time becomes one where there is no column yet. aliases: by path of a column other names that its field may
    have in records. keys: paths of fields that identify rows, where there is no envelope to say so: equal numbers in them
    must be written alike; the empty path is all of a key.
    """

    format: str = "json"
    framing: Framing = "confluent"
    is_by_header: bool = False
    header: str = "__value_schema_id"
    message: str = ""
    schemas: tuple[tuple[str, WriterSchema], ...] = ()
    unknown_fields: str = "add"
    is_rescuing: bool = False
    may_widen: bool = True
    on_bad: str = "stop"
    max_record_bytes: int = 2**31
    selection: Selection | None = None
    units: tuple[tuple[Path, str], ...] = ()
    envelope: Envelope | None = None
    rejected: tuple[tuple[Path, str], ...] = ()
    room: int = 2**31
    is_extended: bool = False
    coerced: tuple[Path, ...] = ()
    numbers: IcebergType | None = None
    hints: tuple[tuple[Path, str], ...] = ()
    zones: tuple[tuple[Path, str], ...] = ()
    infers_times: bool = False
    aliases: Aliases = ()
    keys: tuple[Path, ...] = ()

    def schema(self, schema_id: str) -> WriterSchema | None:
        """The schema of an id, None while it is not known."""
        return self._by_id.get(schema_id)

    @cached_property
    def _by_id(self) -> dict[str, WriterSchema]:
        return dict(self.schemas)

    @cached_property
    def unit_at(self) -> Mapping[Path, str]:
        """The units, by path."""
        return dict(self.units)

    def coerces(self, path: Path) -> bool:
        """Whether text at a path takes values of other types."""
        return any(path[: len(one)] == one for one in self.coerced)

    @cached_property
    def zone_at(self) -> Mapping[Path, str]:
        """The zones of local times, by path."""
        return dict(self.zones)

    @cached_property
    def rejected_at(self) -> Mapping[Path, str]:
        """Why fields cannot be had, by path."""
        return dict(self.rejected)

    @property
    def has_rescued_column(self) -> bool:
        """Whether the table has the column `_rescued`."""
        return self.is_rescuing or self.unknown_fields == "rescue"
