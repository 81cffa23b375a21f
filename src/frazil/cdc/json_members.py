"""The members of envelopes in JSON: the text slice of each, the images of the row, and the values beside them.

Images are objects, or the JSON texts that MongoDB's connector writes. Values that were not sent are found here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, StructType, TimestamptzType

from frazil.cdc.envelope import BY_KEY, IMAGES, NO_DOCUMENT, NO_OBJECT, ROW
from frazil.cdc.placeholders import json_forms, remove_unsent
from frazil.cdc.positions import NUMBERS, ORIGINS, facts_of, flat_fields, source_fields
from frazil.decode.columns import Fault
from frazil.decode.conversion import Conversion
from frazil.decode.epochs import from_numbers
from frazil.decode.json.columns import read_members, read_value
from frazil.decode.json.grammar import ABSENT, ESCAPED, INT, NULL, OBJECT, STRING
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.records import FAULTS, read_objects
from frazil.decode.json.slices import Slices, Texts, members_under
from frazil.decode.settings import Envelope, Reading
from frazil.error_classes import ErrorClass
from frazil.plugins.formats import Members
from frazil.schema.arrow import Bools, arrow_type, as_written, structs_where
from frazil.schema.selection import Path


@dataclass
class EnvelopeMembers:
    """The members of envelopes, one slice per record and name."""

    #: The slices of each member by name.
    members: dict[str, Slices]
    #: The kind of each record, a code of `cdc.envelope`.
    record_kind: NDArray[np.int32]
    #: The operation of each record.
    op: pa.Array
    #: Whether values that `before` lacks are those in `after`.
    is_overlay: bool = False
    #: The declared members of the envelope; None where it is opened by other rules.
    declared: Members | None = None

    def slices(self, name: str) -> Slices:
        """Returns the slices of a member that not every kind of envelope has."""
        slices = self.members.get(name)
        if slices is not None:
            return slices
        size = self.record_kind.size
        nothing = np.zeros(size, np.int32)
        return Slices(nothing, nothing, np.zeros(size, np.uint8), np.arange(size, dtype=np.int32))


@dataclass
class EnvelopeBatch:
    """All records while they are opened."""

    texts: Texts
    reading: Reading
    #: The columns to return.
    fields: tuple[NestedField, ...]

    @property
    def envelope(self) -> Envelope:
        """The envelope that the table declares."""
        assert self.reading.envelope is not None
        return self.reading.envelope

    def type_of(self, name: str) -> IcebergType | None:
        """Returns the type of a column to return; None for other columns."""
        return next((field.field_type for field in self.fields if field.name == name), None)


def read_string(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the texts of a member of the envelope; another value is a mismatch at `name`."""
    return read_value(batch.texts, slices, StringType(), (name,)).cast(pa.string())


def read_code(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the texts of a member, with integers as written; another value is a mismatch at `name`."""
    if not (slices.kind == INT).any():
        return read_string(batch, slices, name)
    texts = read_string(batch, slices.masked(slices.kind != INT), name)
    numbers = read_number(batch, slices.only(INT), name)
    return pc.coalesce(texts, numbers.cast(pa.string()))


def read_number(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the integers of a member of the envelope; another value is a mismatch at `name`."""
    return read_value(batch.texts, slices, LongType(), (name,))


_NO_TIME = {1: Fault(ErrorClass.OUT_OF_RANGE, "{value} is a time outside the years 1 to 9999")}
_COUNTS = ("total_order", "data_collection_order")
_ORIGIN_NAMES = frozenset(name for names in ORIGINS.values() for name in names)


def read_facts(batch: EnvelopeBatch, envelopes: EnvelopeMembers, is_change: Bools) -> dict[str, pa.Array]:
    """Returns the requested values of envelopes other than the images, by name."""
    requested = [field.name for field in batch.fields]
    if envelopes.declared is not None:
        return _declared_facts(batch, envelopes, envelopes.declared, is_change)
    if batch.envelope.kind != "debezium":
        return {}
    return facts_of(_JsonValues(batch, envelopes, is_change), requested)


class _JsonValues:
    """See EnvelopeValues. A value of another type than the member's is a mismatch, reported once."""

    def __init__(self, batch: EnvelopeBatch, envelopes: EnvelopeMembers, is_change: Bools) -> None:
        self._batch, self._envelopes, self._is_change = batch, envelopes, is_change
        self._is_flat = is_change & (envelopes.record_kind == ROW)
        requested = [field.name for field in batch.fields]
        #: The members to read of each object, in one pass.
        self._names = {
            "source": source_fields(requested),
            "transaction": ("id", *_COUNTS),
            "after": flat_fields(requested),
        }
        self._inside: dict[str, dict[str, Slices]] = {}
        self._read: dict[Path, pa.Array] = {}

    def member(self, path: Path) -> pa.Array | None:
        if path not in self._read:
            self._read[path] = self._member(path)
        array = self._read[path]
        return array if array.null_count < len(array) else None

    def _member(self, path: Path) -> pa.Array:
        slices, name = self._slices(path), path[-1]
        if name in _ORIGIN_NAMES:
            return _text(self._batch, slices, ".".join(path))
        is_text = np.isin(slices.kind, (STRING, ESCAPED)).any()
        if name in _COUNTS or (name in NUMBERS and not is_text):
            return read_number(self._batch, slices, ".".join(path))
        # Oracle's `scn` was a number once: a text beside numbers is a fault of neither.
        return read_code(self._batch, slices, ".".join(path))

    def _slices(self, path: Path) -> Slices:
        if len(path) == 1:
            return kept(self._envelopes, path, self._is_change)[path[0]]
        around, name = path
        if around not in self._inside:
            mask = self._is_flat if around == "after" else self._is_change
            self._inside[around] = members_of(self._batch, self._envelopes, around, self._names[around], mask)
        return self._inside[around][name]

    def time(self, path: Path, unit: str) -> pa.Array:
        return times_of(self._batch, self._slices(path), ".".join(path), unit)

    def flat_member(self, name: str) -> pa.Array | None:
        return _text(self._batch, self._slices(("after", name)), name) if self._is_flat.any() else None

    def flat_time(self, name: str, unit: str) -> pa.Array | None:
        if not self._is_flat.any():
            return None
        return times_of(self._batch, self._slices(("after", name)).only(INT), f"ts_{unit}", unit)


def _declared_facts(
    batch: EnvelopeBatch, envelopes: EnvelopeMembers, declared: Members, is_change: Bools
) -> dict[str, pa.Array]:
    facts = {}
    for fact, (name, how) in declared.metadata.items():
        kind = batch.type_of(fact)
        if kind is None:
            continue
        slices = kept(envelopes, (name,), is_change)[name]
        if how == "text":
            facts[fact] = read_code(batch, slices, name)
        elif how == "timestamp":
            facts[fact] = read_value(batch.texts, slices, TimestamptzType(), (name,))
        else:
            array = read_number(batch, slices, name) if how == "number" else times_of(batch, slices, name, how)
            facts[fact] = array.cast(arrow_type(kind))
    return facts


def kept(envelopes: EnvelopeMembers, names: Sequence[str], is_change: Bools) -> dict[str, Slices]:
    """Returns members of the envelopes that are changes."""
    return {name: envelopes.slices(name).masked(is_change) for name in names}


def members_of(
    batch: EnvelopeBatch, envelopes: EnvelopeMembers, name: str, names: Sequence[str], is_change: Bools
) -> dict[str, Slices]:
    """Returns members of an object in the envelopes that are changes."""
    around = kept(envelopes, (name,), is_change)[name]
    error = np.zeros(len(around), np.uint8)
    members = members_under(batch.texts, around, names, error)
    refuse_objects(batch.texts, around, error, (name,))
    return dict(zip(names, members, strict=True))


def _text(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the texts of a member; null for another value."""
    return read_string(batch, slices.only(STRING, ESCAPED), name)


def times_of(batch: EnvelopeBatch, slices: Slices, name: str, unit: str) -> pa.Array:
    """Returns microseconds since 1970, from numbers that count `unit`; times outside the years 1 to 9999 make a bad
    record.
    """
    moments = from_numbers(read_number(batch, slices, name), unit)
    batch.texts.refuse(slices, moments.is_outside.astype(np.uint8), name, _NO_TIME)
    return moments.micros


MONGODB = "mongodb"
"""The connector whose rows are documents: JSON texts in every message format."""


def read_image(
    batch: EnvelopeBatch, slices: Slices, kind: StructType, name: str, envelopes: EnvelopeMembers
) -> pa.Array:
    """Returns one image of the row per record, null where there is none."""
    is_text = np.isin(slices.kind, (STRING, ESCAPED))
    envelopes.record_kind[(slices.kind > NULL) & (slices.kind != OBJECT) & ~is_text] = NO_OBJECT
    error = np.zeros(len(slices), np.uint8)
    image = _read_members(batch.texts, slices, kind, name, error)
    refuse_objects(batch.texts, slices, error, (name,))
    if not is_text.any():
        return image
    texts = slices.take(is_text)
    raw = read_value(batch.texts, texts, StringType(), (name,)).cast(pa.binary())
    return replace_rows(image, is_text, read_documents(batch.texts.conversion, raw, texts.owner, kind, name))


def replace_rows(image: pa.Array, mask: Bools, other: pa.Array) -> pa.Array:
    """Returns the image with other values where `mask` is true."""
    order = np.arange(len(image))
    order[mask] = len(image) + np.arange(len(other))
    return pa.concat_arrays([image, as_written(other, image.type)]).take(pa.array(order))


def mark_changes_without_image(batch: EnvelopeBatch, envelopes: EnvelopeMembers, image: str, is_change: Bools) -> None:
    """Sets the record kind of changes of MongoDB documents that lack an image: BY_KEY for deletes without the row before
    them, NO_DOCUMENT for updates without the row after them.
    """
    op, kind = ("u", NO_DOCUMENT) if image == "after" else ("d", BY_KEY)
    lacks = is_change & (envelopes.record_kind == IMAGES) & (envelopes.slices(image).kind <= NULL)
    lacks &= np.asarray(pc.fill_null(pc.equal(envelopes.op, op), False))
    if lacks.any():
        source = members_of(batch, envelopes, "source", ["connector"], lacks)
        connector = read_string(batch, source["connector"], "source.connector")
        envelopes.record_kind[lacks & np.asarray(pc.fill_null(pc.equal(connector, MONGODB), False))] = kind


def _read_members(texts: Texts, slices: Slices, kind: StructType, name: str, error: NDArray[np.uint8]) -> pa.Array:
    is_object = slices.kind == OBJECT
    arrays = read_members(texts, slices, kind.fields, (name,), error)
    return structs_where([field.name for field in kind.fields], arrays, len(slices), is_object)


def read_documents(outer: Conversion, raw: pa.Array, owner: NDArray[np.int32], kind: StructType, name: str) -> pa.Array:
    """Returns images that are JSON texts, as MongoDB's connector writes them. owner: the record of each."""

    def read(texts: Texts, slices: Slices, error: NDArray[np.uint8]) -> pa.Array:
        return _read_members(texts, slices, kind, name, error)

    reading = replace(outer.reading, json=replace(outer.reading.json, is_extended=True))
    image, texts, slices, error = read_objects(raw, Conversion(reading, "", len(raw), outer.limit), read)
    texts.refuse(slices, error, name, FAULTS)
    outer.take(texts.conversion, owner)
    return image


def watcher(
    batch: EnvelopeBatch,
    envelopes: EnvelopeMembers,
    name: str,
    marks: dict[str, Bools],
    seen: dict[str, Slices],
) -> Callable[[list[str], list[Slices]], None]:
    """Returns a function that is called with the members of an image before they are read: it records and removes
    values that were not sent; where `before` has only the changed values, it fills in the others from `after`.
    """
    forms = json_forms(batch.envelope.placeholder)

    def watch(names: list[str], columns: list[Slices]) -> None:
        for n, (member, column) in enumerate(zip(names, columns, strict=True)):
            if name == "after":
                seen[member] = replace(column)
            elif envelopes.is_overlay and member in seen:
                columns[n] = column.replaced(column.kind == ABSENT, seen[member])
            if batch.envelope.kind != "debezium":
                continue
            unsent = remove_unsent(batch.texts.buffer, column, forms)
            if unsent is not None and name == "after":
                marks[member] = unsent

    return watch


def marks_of(batch: EnvelopeBatch, marks: Mapping[str, Bools], rows: int) -> pa.Array:
    """Returns the column of values that were not sent."""
    kind = batch.type_of("unavailable")
    assert isinstance(kind, StructType)
    names = [field.name for field in kind.fields]
    flags = [pa.array(marks[name]) if name in marks else pa.nulls(rows, pa.bool_()) for name in names]
    return structs_where(names, flags, rows)
