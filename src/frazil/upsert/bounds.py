"""What Iceberg's JSON of a data file says of a column's values."""

from __future__ import annotations

from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.types import IntegerType, LongType, PrimitiveType, TimestampType, TimestamptzType

from frazil.catalog.scans import LiveFile

_NARROW = 4
_WIDENED = (LongType, TimestampType, TimestamptzType)


def bounds_of(file: LiveFile, field_id: int, kind: PrimitiveType) -> tuple[Any, Any]:
    """Values of the column that none of the file's is below and above; None where there is none, or it was written in a type
    that cannot be compared. Of texts Iceberg keeps the beginning.
    """
    return _bound(file, "lower-bounds", field_id, kind), _bound(file, "upper-bounds", field_id, kind)


def null_count_of(file: LiveFile, field_id: int) -> int | None:
    """How many rows of the file have no value in the column; None where that is not known."""
    count: int | None = file.said_of(field_id).get("null-value-counts")
    return count


def _bound(file: LiveFile, name: str, field_id: int, kind: PrimitiveType) -> Any:
    stored = file.said_of(field_id).get(name)
    if stored is None:
        return None
    raw = bytes.fromhex(stored)
    if len(raw) == _NARROW and isinstance(kind, _WIDENED):  # The file is older than the column's type.
        return from_bytes(IntegerType(), raw) if isinstance(kind, LongType) else None
    return from_bytes(kind, raw)
