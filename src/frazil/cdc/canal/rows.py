"""Rows of Canal's messages: texts, read by the column types in their message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StringType, StructType

from frazil.cdc.canal.mysql import UNKNOWN, SourceType, parse_type, read_texts, reading_type
from frazil.cdc.json.members import EnvelopeBatch, either, masked, pick_slices
from frazil.decode.cast import convert_columns
from frazil.decode.columns import Columns, Fault, Group
from frazil.decode.conversion import Conversion
from frazil.decode.json import values as json_values
from frazil.decode.json.grammar import ABSENT, NULL, OBJECT
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.scalars import text_column
from frazil.decode.json.slices import Slices, Texts, all_members, group_equal, is_text
from frazil.name_case import Spellings
from frazil.schema.arrow import Bools, Ints, structs_where

Types = Mapping[str, SourceType]
"""The types of columns, by name."""
_BAD_TYPES = {1: Fault("unusable_schema", "`mysqlType` is no object that gives each column the text of its type")}
_NOT_TEXT = {
    json_values.WRONG_KIND: Fault("type_mismatch", "{value} is no text, and values are written as texts"),
    json_values.LONE_SURROGATE: Fault("invalid_text", "{value} has half of a surrogate pair, which is no text"),
}


@dataclass(frozen=True)
class ImageRows:
    """All rows of some messages."""

    #: The message of each row: int32 of shape (n_rows,).
    owner: NDArray[np.int32]
    #: The kind of each row's message, a code of `cdc.envelope`.
    record_kind: NDArray[np.int32]
    #: The row as its message has it; of a delete the deleted row.
    after: Slices
    #: The old values of the columns that an update changed.
    before: Slices
    #: Which rows are updates.
    is_update: Bools
    #: Which rows are deletes.
    is_delete: Bools


@dataclass(frozen=True)
class _Image:
    """One image of some rows."""

    #: `after` or `before`.
    name: str
    #: Which rows have the image.
    there: Bools
    #: The members of the image by name.
    members: Mapping[str, Slices]


def group_rows(texts: Texts, types: Slices, has_rows: Bools, owner: NDArray[np.int32]) -> Iterator[tuple[Ints, Types]]:
    """Yields the row numbers of messages with the same column types, and these types; last those of messages without
    rows. Messages with invalid types are refused, and their rows are among the last.
    """
    object_types = has_rows & (types.kind == OBJECT)
    code = np.full(has_rows.size, -1, np.int64)
    code[has_rows & (types.kind <= NULL)] = 0
    distinct, firsts = group_equal(texts.base, pick_slices(types, object_types))
    code[object_types] = distinct + 1
    known: list[Types | None] = [{}, *(_parse(texts.text(types, int(np.flatnonzero(object_types)[n]))) for n in firsts)]
    for number, found in enumerate(known):
        if found is None:
            code[code == number] = -1
    is_bad = has_rows & (code < 0)
    texts.refuse(types, is_bad.astype(np.uint8), "mysqlType", _BAD_TYPES)
    row_codes = code[owner]
    for number, found in enumerate(known):
        places = np.flatnonzero(row_codes == number)
        if places.size and found is not None:
            yield places, found
    yield np.flatnonzero(row_codes < 0), {}


def _parse(text: str) -> Types | None:
    types = json.loads(text, parse_int=float)  # Python refuses integers of very many digits.
    is_valid = all(isinstance(text, str) for text in types.values())
    return {name: parse_type(text) for name, text in types.items()} if is_valid else None


def read_group(
    batch: EnvelopeBatch, rows: ImageRows, places: Ints, types: Types, others: Mapping[str, pa.Array]
) -> Group:
    """Returns the columns of these rows, whose types are known. others: columns of all rows other than images."""
    texts, at = batch.texts, pa.array(places)
    conversion = Conversion(batch.reading, "", places.size, texts.options.limit)
    requested = {one.name: one.field_type for one in batch.fields}
    found = [(requested[name], name, array.take(at)) for name, array in others.items()]
    for image in _images(texts, rows, places, types):
        kind = requested.get(image.name)
        if isinstance(kind, StructType):
            found.append(_read_image(texts, conversion, image, types, kind))
        if image.name == "after":
            found.append(_marks(image, rows.is_update[places], requested["unavailable"]))
    fields = [NestedField(0, name, kind, required=False) for kind, name, _ in found]
    columns = Columns([array for _, _, array in found], np.zeros(places.size, np.uint8), ())
    return Group(places, convert_columns(conversion, StructType(*fields), columns, batch.fields))


def _images(texts: Texts, rows: ImageRows, places: Ints, types: Types) -> tuple[_Image, _Image]:
    """Returns the rows after and before their changes. A column that an update did not change is the same before and
    after it.
    """
    after, old = pick_slices(rows.after, places), pick_slices(rows.before, places)
    is_delete, has_old = rows.is_delete[places], old.kind == OBJECT
    members = _members(texts, after, list(types))
    changed = _members(texts, old, list(members))
    nothing = masked(after, np.zeros(places.size, np.bool_))
    before = {}
    for name, column in changed.items():
        same = masked(members.get(name, nothing), is_delete | has_old)
        before[name] = either(column.kind != ABSENT, column, same)
    there = after.kind == OBJECT
    kept = {name: masked(column, ~is_delete) for name, column in members.items()}
    return _Image("after", there & ~is_delete, kept), _Image("before", there & (is_delete | has_old), before)


def _members(texts: Texts, objects: Slices, known: list[str]) -> dict[str, Slices]:
    """Returns the members of rows by name, the `known` ones first."""
    error = np.zeros(len(objects), np.uint8)
    names, members = all_members(texts, objects, known, error)
    refuse_objects(texts, objects, error, ("data",))
    return {name: column for name, column in zip(names, members.columns, strict=False) if is_text(name)}


def _read_image(
    texts: Texts, conversion: Conversion, image: _Image, types: Types, column_struct: StructType
) -> tuple[IcebergType, str, pa.Array]:
    """Returns one image in the types of its columns. column_struct: the columns of the table."""
    known, selection = {one.name: one.field_type for one in column_struct.fields}, conversion.reading.selection
    spellings, fields, arrays = Spellings(known), [], []
    for name, slices in image.members.items():
        if selection is not None and selection.takes((image.name, name)) == "none":
            continue
        source = types.get(name, UNKNOWN)
        kind = reading_type(source, known.get(spellings.find(name) or name))
        fields.append(NestedField(0, name, kind, required=False))
        arrays.append(_read_column(texts, conversion, slices, source, kind, (image.name, name)))
    array = structs_where([one.name for one in fields], arrays, image.there.size, image.there)
    return StructType(*fields), image.name, array


def _read_column(
    texts: Texts, conversion: Conversion, slices: Slices, source: SourceType, kind: IcebergType, path: tuple[str, str]
) -> pa.Array:
    """Returns the values of one column. A value that is not of the column's type is rescued, or makes its message a bad
    record.
    """
    column = text_column(texts, slices, numbers=not isinstance(kind, StringType))
    texts.refuse(slices, column.bad, ".".join(path), _NOT_TEXT)
    read = read_texts(column.array, source, kind)
    if read.bad.any():
        owner, value = np.arange(len(slices), dtype=np.int32), f"{{value}} ({source.text})"
        beyond = f"{value} is out of the range of {kind}"
        conversion.refuse(column.array, read.far, owner, path, "out_of_range", beyond)
        conversion.refuse(
            column.array, read.bad & ~read.far, owner, path, "type_mismatch", f"{value} does not fit {kind}"
        )
    return read.array


def _marks(image: _Image, is_update: Bools, requested: IcebergType) -> tuple[IcebergType, str, pa.Array]:
    """Returns which values of updates were not sent: MySQL leaves out unchanged columns unless its row images are full
    (`binlog_row_image`).
    """
    assert isinstance(requested, StructType)
    arrays, names = [], [one.name for one in requested.fields]
    spellings = Spellings(names)
    members = {spellings.find(name) or name: slices for name, slices in image.members.items()} | dict(image.members)
    for name in names:
        slices = members.get(name)
        lacks = np.ones(is_update.size, np.bool_) if slices is None else slices.kind == ABSENT
        arrays.append(pa.array(lacks & is_update & image.there))
    return requested, "unavailable", structs_where(names, arrays, is_update.size)
