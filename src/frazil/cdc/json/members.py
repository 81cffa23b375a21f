"""Envelopes in JSON while they are opened: the text slice of each member."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

from frazil.decode.columns import Decoded
from frazil.decode.envelope import Envelope
from frazil.decode.json.columns import Findings, read_value
from frazil.decode.json.grammar import ABSENT, INT
from frazil.decode.json.records import JsonOptions
from frazil.decode.json.slices import Slices, Texts
from frazil.decode.settings import Reading


@dataclass
class EnvelopeMembers:
    """The members of envelopes, one slice per record and name."""

    #: Record numbers, int32 of shape (n_rows,).
    rows: NDArray[np.int32]
    #: The slices of each member by name.
    members: dict[str, Slices]
    #: The kind of each record, a code of `cdc.envelope`.
    record_kind: NDArray[np.int32]
    #: The operation of each record.
    op: pa.Array
    #: Whether `before` has only the changed values.
    is_overlay: bool = False

    def slices(self, name: str) -> Slices:
        """Returns the slices of a member that not every kind of envelope has."""
        found = self.members.get(name)
        if found is not None:
            return found
        nothing = np.zeros(self.rows.size, np.int32)
        return Slices(nothing, nothing, np.zeros(self.rows.size, np.uint8), self.rows)


@dataclass
class Group:
    """Records that were opened together."""

    #: Record numbers, int32 of shape (n_group,).
    rows: NDArray[np.int32]
    #: Their columns and mismatches.
    decoded: Decoded


@dataclass
class EnvelopeBatch:
    """All records while they are opened."""

    texts: Texts
    reading: Reading
    #: The columns to return.
    fields: tuple[NestedField, ...]
    #: The records opened so far.
    groups: list[Group] = field(default_factory=list)

    @property
    def envelope(self) -> Envelope:
        """The envelope that the table declares."""
        assert self.reading.envelope is not None
        return self.reading.envelope

    def type_of(self, name: str) -> IcebergType | None:
        """Returns the type of a column to return; None for other columns."""
        return next((one.field_type for one in self.fields if one.name == name), None)


def read_string(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the texts of a member of the envelope; another value is a mismatch at `name`."""
    return read_value(batch.texts, slices, StringType(), Findings(), (name,)).cast(pa.string())


def read_code(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the texts of a member, with integers as written; another value is a mismatch at `name`."""
    others = replace(slices, kind=np.where(slices.kind == INT, ABSENT, slices.kind).astype(np.uint8))
    texts, numbers = read_string(batch, others, name), read_number(batch, slices.only(INT), name)
    return pc.coalesce(texts, numbers.cast(pa.string()))


def read_number(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the integers of a member of the envelope; another value is a mismatch at `name`."""
    return read_value(batch.texts, slices, LongType(), Findings(), (name,))


def where(slices: Slices, mask: NDArray[np.bool_]) -> Slices:
    """Returns the slices that `mask` marks; the others are absent."""
    return Slices(slices.start[mask], slices.end[mask], slices.kind[mask], slices.owner[mask])


def either(choice: NDArray[np.bool_], one: Slices, other: Slices) -> Slices:
    """Returns the slices of `one` where `choice` is true, else those of `other`."""
    return Slices(
        np.where(choice, one.start, other.start),
        np.where(choice, one.end, other.end),
        np.where(choice, one.kind, other.kind),
        other.owner,
    )


def json_options(reading: Reading, limit: int, is_extended: bool = False) -> JsonOptions:
    """Returns how rows in JSON are read. is_extended: they are MongoDB documents."""
    return JsonOptions(
        reading.unknown_fields,
        reading.is_rescuing,
        limit,
        reading.selection,
        reading.units,
        reading.rejected_at,
        is_extended,
        reading.coerced,
        reading.numbers,
        row_depth=0 if reading.envelope is None else 1,
        hints=reading.hints,
        zones=reading.zones,
        infers_times=reading.infers_times,
    )
