"""Lower and upper bounds and null counts of the columns of a data file, and the files that they exclude from a look-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from frazil.catalog.scans import LiveFile
from frazil.upsert.lookup.live_rows import Path, as_numbers
from frazil.write.target import TableTarget

_NARROW = 4
_WIDENED = (LongType, TimestampType, TimestamptzType)
_MOST_KEYS_TO_SORT = 100_000
# Not of UUIDs: Iceberg's Java library compared their two 64-bit parts as signed numbers when it merged bounds of row
# groups (apache/iceberg#14216), and a file does not name its writer.
_BOUNDED = (
    IntegerType,
    LongType,
    DecimalType,
    StringType,
    BinaryType,
    FixedType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
)


def bounds_of(file: LiveFile, field_id: int, kind: PrimitiveType) -> tuple[Any, Any]:
    """Returns a value that is at most the smallest of the column in the file, and one that is at least the greatest;
    None for an unknown bound, or one written in a type that cannot be compared. Iceberg truncates bounds of texts.
    """
    return _bound(file, "lower-bounds", field_id, kind), _bound(file, "upper-bounds", field_id, kind)


def null_count_of(file: LiveFile, field_id: int) -> int | None:
    """Returns the number of nulls of the column in the file; None where it is unknown."""
    count: int | None = file.column_metrics(field_id).get("null-value-counts")
    return count


def _bound(file: LiveFile, name: str, field_id: int, kind: PrimitiveType) -> Any:
    stored = file.column_metrics(field_id).get(name)
    if stored is None:
        return None
    raw = bytes.fromhex(stored)
    if len(raw) == _NARROW and isinstance(kind, _WIDENED):  # The file is older than the column's type.
        return from_bytes(IntegerType(), raw) if isinstance(kind, LongType) else None
    return from_bytes(kind, raw)


class KeyBounds:
    """Excludes files whose column bounds exclude every key; with very many keys, files whose bounds lie outside the
    range of all keys.
    """

    def __init__(self, target: TableTarget, keys: Sequence[pa.Array], paths: Sequence[Path]) -> None:
        self._sorted: list[tuple[int, PrimitiveType, Any]] = []
        self._are_ends = len(keys[0]) > _MOST_KEYS_TO_SORT
        for key, path in zip(keys, paths, strict=True):
            column = target.schema.find_field(".".join(path))
            if isinstance(column.field_type, _BOUNDED):
                values = _plain_sorted(_ends(key) if self._are_ends else key)
                self._sorted.append((column.field_id, column.field_type, values))

    def may_have(self, file: LiveFile) -> bool:
        """Returns whether the bounds admit some key."""
        return file.record_count > 0 and all(
            _overlaps(file, field_id, kind, values, self._are_ends) for field_id, kind, values in self._sorted
        )


def _plain_sorted(key: pa.Array) -> Any:
    """Returns the keys sorted as Iceberg compares bounds: an integer array, or an object array of texts."""
    key = as_numbers(key)
    ordered = key.take(pc.sort_indices(key))
    return np.asarray(ordered) if pa.types.is_integer(ordered.type) else np.array(ordered.to_pylist(), object)


def _ends(key: pa.Array) -> pa.Array:
    """Returns the smallest and the greatest key, in the order of bounds."""
    found = pc.min_max(as_numbers(key))
    return pa.array([found["min"].as_py(), found["max"].as_py()], as_numbers(key).type)


def _overlaps(file: LiveFile, field_id: int, kind: PrimitiveType, values: Any, are_ends: bool) -> bool:
    """Returns whether some key lies within the file's bounds. are_ends: `values` are the ends of a range, in which any
    value may be a key.
    """
    lower, upper = bounds_of(file, field_id, kind)
    first = np.searchsorted(values, lower, "left") if lower is not None else 0
    last = np.searchsorted(values, upper, "right") if upper is not None else len(values)
    return bool(first < len(values) and last > 0) if are_ends else bool(first < last)
