"""Whether all texts of a field are ISO 8601 times, and of which Iceberg type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DateType, IcebergType, StringType, TimestampType, TimestamptzType

from frazil.decode.json import values
from frazil.decode.json.grammar import ESCAPED, STRING
from frazil.decode.json.slices import Slices, Texts
from frazil.decode.json.text import TEXT_READERS, TextColumn
from frazil.decode.memory import I32
from frazil.decode.zones import have_zones

_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|z|[+-][0-9]{2}(:?[0-9]{2})?)?$"


def type_of_texts(texts: Texts, slices: Slices) -> IcebergType:
    """Returns the time type that every text among the slices has; string without one. slices: with at least one text."""
    if (slices.kind == ESCAPED).any():  # No time needs an escape.
        return StringType()
    rows = np.flatnonzero(slices.kind == STRING).astype(np.int32)
    if not _spells(_texts_at(texts, slices, rows[:1]), f"{_DAY}|{_TIME}"):
        return StringType()
    column = _texts_at(texts, slices, rows)
    if _spells(column, _DAY):
        return _if_read(column, DateType())
    if not _spells(column, _TIME):
        return StringType()
    zoned = have_zones(column)
    if zoned.all():
        return _if_read(column, TimestamptzType())
    return StringType() if zoned.any() else _if_read(column, TimestampType())


def _spells(column: pa.StringArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, pattern)).as_py())


def _if_read(column: pa.StringArray, kind: IcebergType) -> IcebergType:
    valid, bad = np.ones(len(column), np.uint8), np.zeros(len(column), np.uint8)
    TEXT_READERS[type(kind)].read(TextColumn(column, valid, bad), kind, np.full(len(column), STRING, np.uint8))
    return StringType() if bad.any() else kind


def _texts_at(texts: Texts, slices: Slices, rows: I32) -> pa.StringArray:
    """Returns the texts at these rows, without their quotes."""
    start, end = slices.start + 1, slices.end - 1
    out = np.empty(int((end[rows] - start[rows]).sum()) + 1, np.uint8)
    offsets = np.zeros(rows.size + 1, np.int32)
    values.copy_texts(texts.base, start, end, rows, offsets, out.ctypes.data)
    return pa.Array.from_buffers(pa.string(), rows.size, [None, pa.py_buffer(offsets), pa.py_buffer(out)])
