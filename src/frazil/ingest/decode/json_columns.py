"""Value slices of one column, read as a declared Iceberg type: Arrow arrays, and a misfit for each value that is not
one.

Nothing is rounded, cut or converted between kinds: a string is no number, 1.5 is no integer. docs/reference/json.md has
the table of what fits what; tests/unit/ingest/test_json_types.py holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from frazil.ingest.decode import json_values as values
from frazil.ingest.decode.json_grammar import ARRAY, I32, NULL, OBJECT, U8
from frazil.ingest.decode.json_infer import infer_type, refuse_objects
from frazil.ingest.decode.json_scan import OK
from frazil.ingest.decode.json_text import TEXT_READERS, TextColumn, whole_number
from frazil.ingest.decode.slices import (
    Slices,
    Texts,
    bitmap,
    elements_of,
    entries_of,
    is_text,
    presence,
    take_all,
    take_apart,
)

_REASONS = {
    values.WRONG_KIND: "{value} does not fit {type}",
    values.OUT_OF_RANGE: "{value} is out of the range of {type}",
    values.NOT_INTEGRAL: "{value} is not a whole number, as {type} needs",
    values.LONE_SURROGATE: "{value} has half of a surrogate pair, which is no text",
    values.UNREADABLE: "{value} cannot be read as {type}",
    values.MISSING: "the column is required and the record has no value for it",
    values.TWICE: "the object has the same key twice",
}
_BOUNDS: dict[type[IcebergType], tuple[int, int]] = {
    IntegerType: (-(2**31), 2**31 - 1),
    LongType: (-(2**63), 2**63 - 1),
}


@dataclass
class Findings:
    """What decoding met besides values.

    wanted: fields nobody declared and their inferred types, by path of the struct that has them (list elements and map
    values are the path parts `element` and `value`). dropped: paths of fields that were left out because the table says
    so.
    """

    undeclared: str = "add"
    wanted: dict[tuple[str, ...], dict[str, IcebergType]] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)


def read_members(
    texts: Texts,
    slices: Slices,
    fields: tuple[NestedField, ...],
    findings: Findings,
    path: tuple[str, ...],
    error: U8,
) -> list[pa.Array]:
    """The fields of all objects among `slices`, one array each; `error` gets the faults of the objects themselves."""
    names = [member.name for member in fields]
    members = take_apart(texts, slices, names, error)
    if members.unknown:
        _note_undeclared(texts, slices, names, members.unknown, findings, path, error)
        members.clear(error)
    arrays = []
    for member, column in zip(fields, members.columns, strict=True):
        arrays.append(read_value(texts, column, member.field_type, findings, (*path, member.name)))
        if member.required:
            _refuse_missing(texts, slices, column, arrays[-1], (*path, member.name), error)
    return arrays


def read_value(texts: Texts, slices: Slices, kind: IcebergType, findings: Findings, path: tuple[str, ...]) -> pa.Array:
    """One column of any type; as many values as there are slices, null where absent, null or refused."""
    reader = _READERS.get(type(kind))
    if reader is not None:
        return reader(texts, slices, kind, findings, path)
    return _read_text(texts, slices, kind, path)


def _note_undeclared(
    texts: Texts,
    slices: Slices,
    known: list[str],
    unknown: list[str],
    findings: Findings,
    path: tuple[str, ...],
    error: U8,
) -> None:
    if findings.undeclared == "drop":
        findings.dropped.update(".".join((*path, name)) for name in unknown if is_text(name))
        return
    names, members = take_all(texts, slices, known, error)
    for name, column in zip(names[len(known) :], members.columns[len(known) :], strict=True):
        inferred = infer_type(texts, column, (*path, name))
        if inferred is not None:
            findings.wanted.setdefault(path, {})[name] = inferred


def _refuse_missing(
    texts: Texts, slices: Slices, column: Slices, array: pa.Array, path: tuple[str, ...], error: U8
) -> None:
    missing = (slices.kind == OBJECT) & (error == OK) & np.asarray(array.is_null()) & (column.kind <= 1)
    if missing.any():
        texts.refuse(column, missing.astype(np.uint8) * values.MISSING, ".".join(path), _REASONS)


def _refuse(texts: Texts, slices: Slices, bad: U8, kind: IcebergType, path: tuple[str, ...]) -> None:
    if bad.any():
        name = str(kind).split("<")[0]  # What is in a list or struct would only hide what the value should have been.
        texts.refuse(
            slices, bad, ".".join(path), {code: text.replace("{type}", name) for code, text in _REASONS.items()}
        )


def _flags(slices: Slices) -> tuple[U8, U8]:
    return np.zeros(len(slices), np.uint8), np.zeros(len(slices), np.uint8)


def _read_boolean(texts: Texts, slices: Slices, kind: IcebergType, _: Findings, path: tuple[str, ...]) -> pa.Array:
    valid, bad = _flags(slices)
    out = np.zeros(len(slices), np.uint8)
    values.parse_bools(slices.start, slices.kind, out, valid, bad)
    _refuse(texts, slices, bad, kind, path)
    return pa.Array.from_buffers(pa.bool_(), len(slices), [bitmap(valid), bitmap(out)])


def _read_integer(texts: Texts, slices: Slices, kind: IcebergType, _: Findings, path: tuple[str, ...]) -> pa.Array:
    valid, bad = _flags(slices)
    out = np.zeros(len(slices), np.int64)
    least, most = _BOUNDS[type(kind)]
    slow = np.empty(len(slices), np.int32)
    count = values.parse_integers(texts.base, slices.start, slices.end, slices.kind, least, most, out, valid, bad, slow)
    for row in slow[:count].tolist():
        whole = whole_number(texts.text(slices, row))
        if whole is None:
            bad[row] = values.NOT_INTEGRAL
        elif not least <= whole <= most:
            bad[row] = values.OUT_OF_RANGE
        else:
            out[row], valid[row] = whole, 1
    _refuse(texts, slices, bad, kind, path)
    if isinstance(kind, IntegerType):
        return pa.Array.from_buffers(pa.int32(), len(slices), [bitmap(valid), pa.py_buffer(out.astype(np.int32))])
    return pa.Array.from_buffers(pa.int64(), len(slices), [bitmap(valid), pa.py_buffer(out)])


def _read_double(texts: Texts, slices: Slices, kind: IcebergType, _: Findings, path: tuple[str, ...]) -> pa.Array:
    valid, bad = _flags(slices)
    out = np.zeros(len(slices), np.float64)
    slow = np.empty(len(slices), np.int32)
    count = values.parse_doubles(texts.base, slices.start, slices.end, slices.kind, out, valid, bad, slow)
    if count:
        rows = slow[:count]
        out[rows] = _exact_doubles(texts, slices, rows)
    arrow = pa.float64()
    if isinstance(kind, FloatType):
        arrow = pa.float32()
        with np.errstate(over="ignore"):
            out = out.astype(np.float32)
    endless = np.isinf(out)
    if endless.any():
        bad[endless], valid[endless] = values.OUT_OF_RANGE, 0
    _refuse(texts, slices, bad, kind, path)
    return pa.Array.from_buffers(arrow, len(slices), [bitmap(valid), pa.py_buffer(out)])


def _exact_doubles(texts: Texts, slices: Slices, rows: I32) -> values.F64:
    """Doubles with more digits than one rounding can take: Arrow's own exact parser, over their text."""
    size = int((slices.end[rows] - slices.start[rows]).sum())
    out = np.empty(size, np.uint8)
    offsets = np.zeros(rows.size + 1, np.int32)
    values.copy_texts(texts.base, slices.start, slices.end, rows, offsets, out.ctypes.data)
    text = pa.Array.from_buffers(pa.string(), rows.size, [None, pa.py_buffer(offsets), pa.py_buffer(out)])
    return np.asarray(text.cast(pa.float64()))


def text_column(texts: Texts, slices: Slices, numbers: bool) -> TextColumn:
    """Strings with their escapes gone (and numbers as written, if asked for) as one Arrow array, and what is no such
    text.
    """
    valid, bad = _flags(slices)
    offsets = np.empty(len(slices) + 1, np.int64)
    values.measure_strings(texts.base, slices.start, slices.end, slices.kind, numbers, offsets, valid, bad)
    out = np.empty(int(offsets[-1]), np.uint8)
    values.copy_strings(texts.base, slices.start, slices.end, slices.kind, valid, offsets, out.ctypes.data)
    if offsets[-1] < 2**31:
        buffers = [bitmap(valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
        return TextColumn(pa.Array.from_buffers(pa.string(), len(slices), buffers), valid, bad)
    buffers = [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(out)]
    return TextColumn(pa.Array.from_buffers(pa.large_string(), len(slices), buffers), valid, bad)


def _read_string(texts: Texts, slices: Slices, kind: IcebergType, _: Findings, path: tuple[str, ...]) -> pa.Array:
    column = text_column(texts, slices, numbers=False)
    _refuse(texts, slices, column.bad, kind, path)
    return column.array


def _read_text(texts: Texts, slices: Slices, kind: IcebergType, path: tuple[str, ...]) -> pa.Array:
    """Types that JSON writes as text: decimals, dates, times, uuids, bytes."""
    reader = TEXT_READERS[type(kind)]
    column = text_column(texts, slices, numbers=reader.numbers)
    array = reader.read(column, kind, slices.kind)
    _refuse(texts, slices, column.bad, kind, path)
    return array


def _read_struct(
    texts: Texts, slices: Slices, kind: IcebergType, findings: Findings, path: tuple[str, ...]
) -> pa.Array:
    assert isinstance(kind, StructType)
    validity, nulls, other = presence(slices, OBJECT)
    _refuse(texts, slices, other, kind, path)
    error = np.zeros(len(slices), np.uint8)
    arrays = read_members(texts, slices, kind.fields, findings, path, error)
    refuse_objects(texts, slices, error, path)
    arrow = pa.struct([pa.field(f.name, a.type) for f, a in zip(kind.fields, arrays, strict=True)])
    return pa.Array.from_buffers(arrow, len(slices), [validity], null_count=nulls, children=arrays)


def _read_list(texts: Texts, slices: Slices, kind: IcebergType, findings: Findings, path: tuple[str, ...]) -> pa.Array:
    assert isinstance(kind, ListType)
    validity, nulls, other = presence(slices, ARRAY)
    _refuse(texts, slices, other, kind, path)
    offsets, elements = elements_of(texts, slices)
    items = read_value(texts, elements, kind.element_type, findings, (*path, "element"))
    if kind.element_required:
        _refuse_null(texts, elements, (*path, "element"))
    arrow = pa.list_(pa.field("element", items.type))
    return pa.Array.from_buffers(
        arrow, len(slices), [validity, pa.py_buffer(offsets)], null_count=nulls, children=[items]
    )


def _read_map(texts: Texts, slices: Slices, kind: IcebergType, findings: Findings, path: tuple[str, ...]) -> pa.Array:
    assert isinstance(kind, MapType)
    validity, nulls, other = presence(slices, OBJECT)
    if not isinstance(kind.key_type, StringType):
        other = ((slices.kind > 1).astype(np.uint8)) * np.uint8(values.WRONG_KIND)
    _refuse(texts, slices, other, kind, path)
    offsets, key_slices, value_slices = entries_of(texts, slices)
    keys = text_column(texts, key_slices, numbers=False)
    _refuse(texts, key_slices, keys.bad, StringType(), (*path, "key"))
    _refuse_twice(texts, slices, offsets, keys.array, path)
    items = read_value(texts, value_slices, kind.value_type, findings, (*path, "value"))
    if kind.value_required:
        _refuse_null(texts, value_slices, (*path, "value"))
    arrow = pa.map_(pa.string(), pa.field("value", items.type))
    names = keys.array.cast(pa.string()).fill_null("")  # Arrow ends the process over a key that is null.
    entries = pa.StructArray.from_arrays([names, items], fields=[arrow.key_field, arrow.item_field])
    return pa.Array.from_buffers(
        arrow, len(slices), [validity, pa.py_buffer(offsets)], null_count=nulls, children=[entries]
    )


def _refuse_null(texts: Texts, slices: Slices, path: tuple[str, ...]) -> None:
    missing = (slices.kind <= NULL).astype(np.uint8) * np.uint8(values.MISSING)
    if missing.any():
        texts.refuse(slices, missing, ".".join(path), _REASONS)


def _refuse_twice(texts: Texts, slices: Slices, offsets: I32, keys: pa.Array, path: tuple[str, ...]) -> None:
    """A map cannot hold one key twice: (row, key) pairs must differ."""
    rows = np.repeat(np.arange(len(slices), dtype=np.int64), np.diff(offsets))
    codes = np.asarray(keys.dictionary_encode().indices.fill_null(-1), dtype=np.int64)
    pairs = rows * (codes.max(initial=0) + 2) + codes
    unique, first = np.unique(pairs, return_index=True)
    if unique.size == pairs.size:
        return
    bad = np.zeros(len(slices), np.uint8)
    again = np.ones(pairs.size, bool)
    again[first] = False
    bad[rows[again]] = values.TWICE
    texts.refuse(slices, bad, ".".join(path), _REASONS)


_Reader = Callable[[Texts, Slices, IcebergType, Findings, tuple[str, ...]], pa.Array]
_READERS: dict[type[IcebergType], _Reader] = {
    BooleanType: _read_boolean,
    IntegerType: _read_integer,
    LongType: _read_integer,
    FloatType: _read_double,
    DoubleType: _read_double,
    StringType: _read_string,
    StructType: _read_struct,
    ListType: _read_list,
    MapType: _read_map,
}
