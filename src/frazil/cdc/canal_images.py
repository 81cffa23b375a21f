"""Rows of Canal's messages: texts, read by the types that their message tells of its columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StringType, StructType

from frazil.cdc.json_members import Group, Stretch, either, where
from frazil.cdc.mysql_types import UNTOLD, SourceType, parse_type
from frazil.cdc.mysql_values import read_texts, reading_type
from frazil.decode.cast import Fitting, fit_columns
from frazil.decode.columns import Columns, Fault, bitmap
from frazil.decode.json import values as json_values
from frazil.decode.json.columns import text_column
from frazil.decode.json.grammar import ABSENT, NULL, OBJECT
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.same_texts import group_same
from frazil.decode.json.slices import Slices, Texts, is_text, take_all

Bools = NDArray[np.bool_]
Places = NDArray[np.int64]
Types = Mapping[str, SourceType]
"""The types of columns, by name."""
_BAD_TYPES = {1: Fault("unusable_schema", "`mysqlType` is no object that gives each column the text of its type")}
_NOT_TEXT = {
    json_values.WRONG_KIND: Fault("type_mismatch", "{value} is no text, and values are written as texts"),
    json_values.LONE_SURROGATE: Fault("invalid_text", "{value} has half of a surrogate pair, which is no text"),
}


@dataclass(frozen=True)
class ImageRows:
    """All rows of some messages. owner: the message of each. after: the row as its message has it, of a delete the one that
    goes; before: what an update has changed of it. note: as in `opened`.
    """

    owner: NDArray[np.int32]
    note: NDArray[np.int32]
    after: Slices
    before: Slices
    is_update: Bools
    is_delete: Bools


@dataclass(frozen=True)
class _Image:
    """One image of some rows: where it is there, and its members by name."""

    name: str
    there: Bools
    members: Mapping[str, Slices]


def group_rows(
    texts: Texts, types: Slices, has_rows: Bools, owner: NDArray[np.int32]
) -> Iterator[tuple[Places, Types]]:
    """The places of the rows of messages that tell the same types, with these; at last those of messages without rows.
    Messages that tell types which are none are refused, and their rows are among the last.
    """
    told = has_rows & (types.kind == OBJECT)
    code = np.full(has_rows.size, -1, np.int64)
    code[has_rows & (types.kind <= NULL)] = 0
    of_told, firsts = group_same(texts.base, where(types, told))
    code[told] = of_told + 1
    known: list[Types | None] = [{}, *(_parse(texts.text(types, int(np.flatnonzero(told)[n]))) for n in firsts)]
    for number, found in enumerate(known):
        if found is None:
            code[code == number] = -1
    is_bad = has_rows & (code < 0)
    texts.refuse(types, is_bad.astype(np.uint8), "mysqlType", _BAD_TYPES)
    of_rows = code[owner]
    for number, found in enumerate(known):
        places = np.flatnonzero(of_rows == number)
        if places.size and found is not None:
            yield places, found
    yield np.flatnonzero(of_rows < 0), {}


def _parse(text: str) -> Types | None:
    told = json.loads(text, parse_int=float)  # Python refuses integers of very many digits.
    is_well = all(isinstance(word, str) for word in told.values())
    return {name: parse_type(word) for name, word in told.items()} if is_well else None


def read_group(stretch: Stretch, rows: ImageRows, places: Places, types: Types, others: Mapping[str, pa.Array]) -> None:
    """Adds the columns of these rows, whose types are known. others: columns of all rows that are no images."""
    texts, at = stretch.texts, pa.array(places)
    fitting = Fitting(stretch.reading, "", places.size, texts.limit)
    asked = {one.name: one.field_type for one in stretch.fields}
    found = [(asked[name], name, array.take(at)) for name, array in others.items()]
    for image in _images(texts, rows, places, types):
        kind = asked.get(image.name)
        if isinstance(kind, StructType):
            found.append(_read_image(texts, fitting, image, types, kind))
        if image.name == "after":
            found.append(_marks(image, rows.is_update[places], asked["unavailable"]))
    fields = [NestedField(0, name, kind, required=False) for kind, name, _ in found]
    columns = Columns([array for _, _, array in found], np.zeros(places.size, np.uint8), ())
    decoded = fit_columns(fitting, StructType(*fields), columns, stretch.fields)
    texts.refused[places] |= decoded.refused
    texts.mismatches += [replace(one, row=int(places[one.row])) for one in decoded.mismatches]
    stretch.groups.append(Group(places.astype(np.int32), decoded))


def _images(texts: Texts, rows: ImageRows, places: Places, types: Types) -> tuple[_Image, _Image]:
    """The rows after and before their changes. What an update has not changed is before it as it is after it."""
    after, old = _at(rows.after, places), _at(rows.before, places)
    is_delete, is_told = rows.is_delete[places], old.kind == OBJECT
    members = _members(texts, after, list(types))
    changed = _members(texts, old, list(members))
    nothing = _only(after, np.zeros(places.size, np.bool_))
    before = {}
    for name, column in changed.items():
        same = _only(members.get(name, nothing), is_delete | is_told)
        before[name] = either(column.kind != ABSENT, column, same)
    there = after.kind == OBJECT
    kept = {name: _only(column, ~is_delete) for name, column in members.items()}
    return _Image("after", there & ~is_delete, kept), _Image("before", there & (is_delete | is_told), before)


def _at(slices: Slices, places: Places) -> Slices:
    return Slices(slices.start[places], slices.end[places], slices.kind[places], slices.owner[places])


def _only(slices: Slices, mask: Bools) -> Slices:
    return Slices(slices.start, slices.end, np.where(mask, slices.kind, ABSENT).astype(np.uint8), slices.owner)


def _members(texts: Texts, objects: Slices, known: list[str]) -> dict[str, Slices]:
    """The members of rows by name, the `known` ones first."""
    error = np.zeros(len(objects), np.uint8)
    names, members = take_all(texts, objects, known, error)
    refuse_objects(texts, objects, error, ("data",))
    return {name: column for name, column in zip(names, members.columns, strict=False) if is_text(name)}


def _read_image(
    texts: Texts, fitting: Fitting, image: _Image, types: Types, wanted: StructType
) -> tuple[IcebergType, str, pa.Array]:
    """One image in the types of its columns. wanted: the columns that the table has."""
    known, selection = {one.name: one.field_type for one in wanted.fields}, fitting.reading.selection
    fields, arrays = [], []
    for name, slices in image.members.items():
        if selection is not None and selection.takes((image.name, name)) == "none":
            continue
        source = types.get(name, UNTOLD)
        kind = reading_type(source, known.get(name))
        fields.append(NestedField(0, name, kind, required=False))
        arrays.append(_read_column(texts, fitting, slices, source, kind, (image.name, name)))
    return StructType(*fields), image.name, _struct(fields, arrays, image.there)


def _struct(fields: Sequence[NestedField], arrays: Sequence[pa.Array], there: Bools) -> pa.Array:
    kind = pa.struct([pa.field(one.name, array.type) for one, array in zip(fields, arrays, strict=True)])
    return pa.Array.from_buffers(kind, there.size, [bitmap(there)], children=list(arrays))


def _read_column(
    texts: Texts, fitting: Fitting, slices: Slices, source: SourceType, kind: IcebergType, path: tuple[str, str]
) -> pa.Array:
    """The values of one column; what is none of the type is put aside, or makes its message a bad one."""
    column = text_column(texts, slices, numbers=not isinstance(kind, StringType))
    texts.refuse(slices, column.bad, ".".join(path), _NOT_TEXT)
    read = read_texts(column.array, source, kind)
    if read.bad.any():
        owner, value = np.arange(len(slices), dtype=np.int32), f"{{value}} ({source.text})"
        beyond = f"{value} is out of the range of {kind}"
        fitting.refuse(column.array, read.far, owner, path, "out_of_range", beyond)
        fitting.refuse(column.array, read.bad & ~read.far, owner, path, "type_mismatch", f"{value} does not fit {kind}")
    return read.array


def _marks(image: _Image, is_update: Bools, asked: IcebergType) -> tuple[IcebergType, str, pa.Array]:
    """Which values of updates were not sent: MySQL leaves out what did not change where its row images are not full."""
    assert isinstance(asked, StructType)
    arrays = []
    for one in asked.fields:
        slices = image.members.get(one.name)
        lacks = np.ones(is_update.size, np.bool_) if slices is None else slices.kind == ABSENT
        arrays.append(pa.array(lacks & is_update & image.there))
    return asked, "unavailable", _struct(asked.fields, arrays, np.ones(is_update.size, np.bool_))
