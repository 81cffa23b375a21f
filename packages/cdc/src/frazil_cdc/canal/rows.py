"""Rows of Canal's messages: texts, read by the column types in their message, which are those of MySQL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.cdc.json_members import EnvelopeBatch
from frazil.column_names import Spellings
from frazil.decode.cast import convert_columns
from frazil.decode.columns import Columns, Fault, Group, bytes_of, offsets_of
from frazil.decode.conversion import Conversion
from frazil.decode.epochs import SKIPPED as SKIPPED_REASON
from frazil.decode.epochs import zone_settings
from frazil.decode.json import values as json_values
from frazil.decode.json.grammar import ABSENT, NULL, OBJECT, STRING
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.names import all_members, is_text
from frazil.decode.json.scalars import text_column
from frazil.decode.json.slices import Slices, Texts, group_equal
from frazil.decode.json.text import TEXT_READERS, TextColumn, read_zoned
from frazil.decode.json.values import OUT_OF_RANGE, SKIPPED
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import Bools, Ints, arrow_type, structs_where

_FORM = re.compile(r"\s*([a-z]+(?: precision)?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?(.*)", re.DOTALL)
_MAX_DIGITS = 38
_UNSIGNED_64 = DecimalType(20, 0)
_PLAIN: dict[str, IcebergType] = {
    **dict.fromkeys(("bool", "boolean", "tinyint", "smallint", "mediumint", "year"), IntegerType()),
    "float": FloatType(),
    **dict.fromkeys(("double", "double precision", "real"), DoubleType()),
    "date": DateType(),
    "time": TimeType(),
    **dict.fromkeys(("datetime", "timestamp"), TimestampType()),
}
_BYTES = frozenset(
    (
        "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "linestring", "polygon",
        "multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection",
    )
)  # fmt: skip
_DECIMALS = ("decimal", "numeric", "dec", "fixed")

_NUMBERS = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
_TIMES = (TimestampType, TimestamptzType)
_INTEGERS, _NUMBER = r"^-?[0-9]+$", r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_MAX_INTEGER_DIGITS = 25  # Longer texts of numbers are refused unread: no integer column holds them.
_BAD_TYPES = {
    1: Fault(ErrorClass.UNUSABLE_SCHEMA, "`mysqlType` is not an object that gives each column the text of its type")
}
_NOT_TEXT = {
    json_values.WRONG_KIND: Fault(ErrorClass.TYPE_MISMATCH, "{value} is not text, and values are written as texts"),
    json_values.LONE_SURROGATE: Fault(
        ErrorClass.INVALID_TEXT, "{value} has half of a surrogate pair, which is not text"
    ),
}


@dataclass(frozen=True)
class SourceType:
    """The type of a column of the source."""

    #: The type as the source names it.
    text: str
    #: The Iceberg type.
    kind: IcebergType
    #: Whether values are bytes, each written as the ISO 8859-1 character of its number.
    is_bytes: bool = False


UNKNOWN = SourceType("text", StringType())
"""The type of a column without type information: its texts are kept."""
_LOCAL = SourceType("timestamp", TimestampType())


def parse_type(text: str) -> SourceType:
    """Returns the type for a text such as `bigint(20) unsigned` or `decimal(10,2)`; the type string for an unknown type."""
    match = _FORM.fullmatch(text.lower())
    if match is None:
        return SourceType(text, StringType())
    name, first, second, rest = match.groups()
    if name in _BYTES:
        return SourceType(text, BinaryType(), is_bytes=True)
    kind = _PLAIN.get(name) or _sized(name, int(first) if first else None, int(second or 0), "unsigned" in rest)
    return SourceType(text, kind)


def _sized(name: str, size: int | None, scale: int, is_unsigned: bool) -> IcebergType:
    """Returns types that depend on a size in brackets, or on being unsigned. MySQL always names the size of bits and
    decimals: without it, as TiCDC leaves it out, they may have any size.
    """
    if name in ("int", "integer"):
        return LongType() if is_unsigned else IntegerType()
    if name == "bigint":
        return _UNSIGNED_64 if is_unsigned else LongType()
    if name == "bit":
        bits = size or 64
        return BooleanType() if bits == 1 else LongType() if bits < 64 else _UNSIGNED_64
    if name in _DECIMALS and size and size <= _MAX_DIGITS and scale <= size:
        return DecimalType(size, scale)
    return StringType()


def reading_type(source: SourceType, column_type: IcebergType | None) -> IcebergType:
    """Returns the type as which texts of this source are read. column_type: the type of the table's column; None without
    one.

    A number is read as the type of the source, so that the conversion rules of numbers are those of every format; other
    values as the type of the column.
    """
    if column_type is None or column_type == source.kind:
        return source.kind
    if isinstance(source.kind, _NUMBERS) and isinstance(column_type, (*_NUMBERS, *_TIMES)):
        return source.kind
    return column_type if type(column_type) in _READERS or type(column_type) in TEXT_READERS else source.kind


@dataclass(frozen=True)
class Read:
    """The values of texts."""

    #: The values, null where the text is null or no value of the type.
    array: pa.Array
    #: Which texts are no values of the type: bool of shape (n_texts,).
    bad: Bools
    #: Which of these are values out of the type's range.
    far: Bools
    #: Which of these are local times that the column's zone does not have.
    skipped: Bools


def read_texts(texts: pa.StringArray, source: SourceType, kind: IcebergType, zone: str | None = None) -> Read:
    """Returns the values in this type, which is one that `reading_type` returns. zone: of times without one."""
    reader = _bytes if source.is_bytes and not isinstance(kind, StringType) else _READERS.get(type(kind))
    if reader is not None:
        array, bad = reader(texts, kind)
        return Read(array, bad, _none(texts), _none(texts))
    codes, kinds = np.zeros(len(texts), np.uint8), np.full(len(texts), STRING, np.uint8)
    column = TextColumn(texts, np.asarray(texts.is_valid()).astype(np.uint8), codes)
    if zone is not None and isinstance(kind, _TIMES):
        array = read_zoned(column, kind, kinds, None, zone, is_local=False)
    else:
        array = TEXT_READERS[type(kind)].read(column, kind, kinds)
    return Read(array, codes != 0, codes == OUT_OF_RANGE, codes == SKIPPED)


def _none(texts: pa.StringArray) -> Bools:
    return np.zeros(len(texts), np.bool_)


def _are_local(texts: pa.StringArray, kind: IcebergType, bad: Bools) -> Bools:
    """Returns which refused texts are times without a zone, in a column whose type has one."""
    if not isinstance(kind, TimestamptzType):
        return _none(texts)
    return bad & ~read_texts(texts, _LOCAL, _LOCAL.kind).bad


def _cannot_cast(texts: pa.Array, values: pa.Array) -> Bools:
    return np.asarray(pc.and_(texts.is_valid(), values.is_null()))


def _text(texts: pa.StringArray, _: IcebergType) -> tuple[pa.Array, Bools]:
    return texts, _none(texts)


def _boolean(texts: pa.StringArray, _: IcebergType) -> tuple[pa.Array, Bools]:
    booleans = pa.array([False, True]).take(pc.index_in(texts, pa.array(["0", "1"])))
    return booleans, _cannot_cast(texts, booleans)


def _integer(texts: pa.StringArray, kind: IcebergType) -> tuple[pa.Array, Bools]:
    digits = pc.if_else(pc.fill_null(pc.match_substring_regex(texts, _INTEGERS), False), texts, None)
    try:
        numbers = digits.cast(pa.int64())
    except pa.ArrowInvalid:  # Some of them are too large.
        numbers = pa.array([_read_integers(text) for text in digits.to_pylist()], pa.int64())
    if isinstance(kind, IntegerType):
        is_int = pc.and_(pc.greater_equal(numbers, -(2**31)), pc.less(numbers, 2**31))
        numbers = pc.if_else(is_int, numbers, None).cast(pa.int32())
    return numbers, _cannot_cast(texts, numbers)


def _read_integers(text: str | None) -> int | None:
    number = int(text) if text is not None and len(text) <= _MAX_INTEGER_DIGITS else 2**63
    return number if -(2**63) <= number < 2**63 else None


def _float(texts: pa.StringArray, kind: IcebergType) -> tuple[pa.Array, Bools]:
    formatted = pc.if_else(pc.fill_null(pc.match_substring_regex(texts, _NUMBER), False), texts, None)
    numbers = formatted.cast(arrow_type(kind))
    floats = pc.if_else(pc.is_finite(numbers), numbers, None)
    return floats, _cannot_cast(texts, floats)


_CONTINUES, _BEYOND = 0x80, 0xC4  # UTF-8: continuation bytes; first bytes of characters after U+00FF.


def read_latin1(texts: pa.StringArray) -> tuple[pa.BinaryArray, NDArray[np.bool_]]:
    """Returns the bytes, null where there is no text, and which texts have a character that represents no byte (null
    too): bool of shape (n_texts,).
    """
    rows = len(texts)
    texts = pa.concat_arrays([texts.cast(pa.string())])  # From the beginning of its buffer.
    is_present, bad = np.asarray(texts.is_valid()), np.zeros(rows, np.bool_)
    offsets = offsets_of(texts)
    if not offsets[-1]:
        return texts.cast(pa.binary()), bad
    raw_texts = bytes_of(texts)[: offsets[-1]]
    sums = np.concatenate([[0], np.cumsum(raw_texts >= _BEYOND, dtype=np.int64)])
    bad = (sums[offsets[1:]] > sums[offsets[:-1]]) & is_present
    is_first = (raw_texts & 0xC0) != _CONTINUES
    following = np.append(raw_texts[1:], np.uint8(0))
    joined = ((raw_texts & 0x03) << 6) | (following & 0x3F)
    raw = np.where(raw_texts < _CONTINUES, raw_texts, joined)[is_first]
    places = np.concatenate([[0], np.cumsum(is_first, dtype=np.int32)])[offsets].astype(np.int32)
    nulls = pa.array(is_present & ~bad)
    every = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(places), pa.py_buffer(raw)])
    return (every if nulls.true_count == rows else every.take(pa.array(np.arange(rows), mask=~np.asarray(nulls)))), bad


def _bytes(texts: pa.StringArray, kind: IcebergType) -> tuple[pa.Array, Bools]:
    """Returns the bytes, and which are valid: with a fixed-length type those of its length."""
    raw, _ = read_latin1(texts)
    if not isinstance(kind, BinaryType | FixedType | UUIDType):
        return pa.nulls(len(texts), arrow_type(kind)), np.asarray(texts.is_valid())
    target = arrow_type(kind)
    if pa.types.is_fixed_size_binary(target):
        fits = pc.fill_null(pc.equal(pc.binary_length(raw), target.byte_width), False)
        raw = pc.if_else(fits, raw, None).cast(target)
    return raw, _cannot_cast(texts, raw)


_READERS: dict[type[IcebergType], Callable[[pa.StringArray, IcebergType], tuple[pa.Array, Bools]]] = {
    StringType: _text,
    BooleanType: _boolean,
    IntegerType: _integer,
    LongType: _integer,
    FloatType: _float,
    DoubleType: _float,
}


Types = Mapping[str, SourceType]
"""The types of columns, by name."""


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
    """Yields the row numbers of messages with the same column types, and these types; behind them those of messages
    without types, whose texts give a column no type where others do, and last those of messages without rows. Messages
    with invalid types are refused, and their rows are among the last.
    """
    object_types = has_rows & (types.kind == OBJECT)
    code = np.full(has_rows.size, -1, np.int64)
    code[has_rows & (types.kind <= NULL)] = 0
    distinct, firsts = group_equal(texts.base, types.take(object_types))
    code[object_types] = distinct + 1
    types_by_code: list[Types | None] = [
        {},
        *(_parse(texts.text(types, int(np.flatnonzero(object_types)[n]))) for n in firsts),
    ]
    for number, column_types in enumerate(types_by_code):
        if column_types is None:
            code[code == number] = -1
    is_bad = has_rows & (code < 0)
    texts.refuse(types, is_bad.astype(np.uint8), "mysqlType", _BAD_TYPES)
    row_codes = code[owner]
    for number in (*range(1, len(types_by_code)), 0):
        column_types = types_by_code[number]
        places = np.flatnonzero(row_codes == number)
        if places.size and column_types is not None:
            yield places, column_types
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
    conversion = Conversion(batch.reading, "", places.size, texts.conversion.limit)
    requested = {field.name: field.field_type for field in batch.fields}
    typed_columns = [(requested[name], name, array.take(at)) for name, array in others.items()]
    for image in _images(texts, rows, places, types):
        kind = requested.get(image.name)
        if isinstance(kind, StructType):
            typed_columns.append(_read_image(texts, conversion, image, types, kind))
        if image.name == "after":
            typed_columns.append(_marks(image, rows.is_update[places], requested["unavailable"]))
    fields = [NestedField(0, name, kind, required=False) for kind, name, _ in typed_columns]
    columns = Columns([array for _, _, array in typed_columns], np.zeros(places.size, np.uint8), ())
    return Group(places, convert_columns(conversion, StructType(*fields), columns, batch.fields))


def _images(texts: Texts, rows: ImageRows, places: Ints, types: Types) -> tuple[_Image, _Image]:
    """Returns the rows after and before their changes. A column that an update did not change is the same before and
    after it.
    """
    after, old = rows.after.take(places), rows.before.take(places)
    is_delete, has_old = rows.is_delete[places], old.kind == OBJECT
    members = _members(texts, after, list(types))
    changed = _members(texts, old, list(members))
    nothing = after.only()
    before = {}
    for name, column in changed.items():
        same = members.get(name, nothing).masked(is_delete | has_old)
        before[name] = same.replaced(column.kind != ABSENT, column)
    is_object = after.kind == OBJECT
    kept = {name: column.masked(~is_delete) for name, column in members.items()}
    return _Image("after", is_object & ~is_delete, kept), _Image("before", is_object & (is_delete | has_old), before)


def _members(texts: Texts, objects: Slices, first_names: list[str]) -> dict[str, Slices]:
    """Returns the members of rows by name, those of `first_names` first."""
    error = np.zeros(len(objects), np.uint8)
    names, members = all_members(texts, objects, first_names, error)
    refuse_objects(texts, objects, error, ("data",))
    return {name: column for name, column in zip(names, members.columns, strict=False) if is_text(name)}


def _read_image(
    texts: Texts, conversion: Conversion, image: _Image, types: Types, column_struct: StructType
) -> tuple[IcebergType, str, pa.Array]:
    """Returns one image in the types of its columns. column_struct: the columns of the table."""
    column_types = {field.name: field.field_type for field in column_struct.fields}
    selection = conversion.reading.selection
    spellings, fields, arrays = Spellings(column_types), [], []
    for name, slices in image.members.items():
        if selection is not None and selection.takes((image.name, name)) == "none":
            continue
        source = types.get(name, UNKNOWN)
        column = spellings.find(name) or name
        kind = reading_type(source, column_types.get(column))
        zone = conversion.reading.zone_at.get((image.name, column))
        fields.append(NestedField(0, name, kind, required=False))
        arrays.append(_read_column(texts, conversion, slices, source, kind, zone, (image.name, name)))
    array = structs_where([field.name for field in fields], arrays, image.there.size, image.there)
    return StructType(*fields), image.name, array


def _read_column(
    texts: Texts,
    conversion: Conversion,
    slices: Slices,
    source: SourceType,
    kind: IcebergType,
    zone: str | None,
    path: tuple[str, str],
) -> pa.Array:
    """Returns the values of one column. A value that is not of the column's type is refused (see Conversion). zone: that of
    times without one; None where the column has none.
    """
    column = text_column(texts, slices, numbers=not isinstance(kind, StringType))
    texts.refuse(slices, column.bad, ".".join(path), _NOT_TEXT)
    read = read_texts(column.array, source, kind, zone)
    if read.bad.any():
        owner, value = np.arange(len(slices), dtype=np.int32), f"{{value}} ({source.text})"
        beyond, skipped = f"{value} is out of the range of {kind}", SKIPPED_REASON.replace("{zone}", zone or "")
        conversion.refuse(column.array, read.far, owner, path, ErrorClass.OUT_OF_RANGE, beyond)
        conversion.refuse(column.array, read.skipped, owner, path, ErrorClass.OUT_OF_RANGE, skipped)
        local = _are_local(column.array, kind, read.bad & ~(read.far | read.skipped))
        remedy = zone_settings(conversion.reading.in_row(path), kind)
        conversion.refuse(
            column.array,
            local,
            owner,
            path,
            ErrorClass.TYPE_MISMATCH,
            f"{value} has no zone, and {kind} has one: {remedy}",
        )
        is_other = read.bad & ~(read.far | read.skipped | local)
        conversion.refuse(column.array, is_other, owner, path, ErrorClass.TYPE_MISMATCH, f"{value} does not fit {kind}")
    return read.array


def _marks(image: _Image, is_update: Bools, requested: IcebergType) -> tuple[IcebergType, str, pa.Array]:
    """Returns which values of updates were not sent: MySQL leaves out unchanged columns unless its row images are full
    (`binlog_row_image`).
    """
    assert isinstance(requested, StructType)
    arrays, names = [], [field.name for field in requested.fields]
    spellings = Spellings(names)
    members = {spellings.find(name) or name: slices for name, slices in image.members.items()} | dict(image.members)
    for name in names:
        slices = members.get(name)
        lacks = np.ones(is_update.size, np.bool_) if slices is None else slices.kind == ABSENT
        arrays.append(pa.array(lacks & is_update & image.there))
    return requested, "unavailable", structs_where(names, arrays, is_update.size)
