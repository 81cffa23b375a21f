"""How much one record, and one lot of records that are decoded at once, may become in memory.

Bytes do not bound it: two bytes are an empty message with 2,000 columns. What is counted are cells: places for values of
columns, also of those that no record has. A lot with too many is decoded in pieces (`ingest.pieces`); a record that has too
many by itself is a dead letter. The table of all limits is docs/reference/limits.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from pyiceberg.types import IcebergType, StructType

from frazil.decode.columns import Fault
from frazil.name_length import is_long, say_long

MAX_BATCH_CELLS = 24_000_000
"""Cells of the records that are decoded at once: 20,000 records of 1,000 columns and some; 8 to 30 bytes each."""

MAX_RECORD_CELLS = 2**24
"""Cells of one record, besides one for each of its bytes."""

MAX_NEW_FIELDS = 10_000
"""Fields that the table lacks, at all depths, whose types are found out from records that are decoded at once."""

_UNLIMITED = 2**62


class TooMuch(Exception):
    """Records that are decoded at once become more than they may. fault: what is said of a record that does so alone."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True)
class Bounds:
    """What the records that are being decoded may become. refusal: why none of them is read."""

    cells: int = _UNLIMITED
    new_fields: int = _UNLIMITED
    refusal: Fault | None = None


_NONE = Bounds()
_bounds: ContextVar[Bounds] = ContextVar("bounds", default=_NONE)


def bounds_of(record_count: int, byte_count: int, room: int) -> Bounds:
    """The bounds of some records. room: how many columns more the table may get."""
    cells = MAX_BATCH_CELLS if record_count > 1 else MAX_RECORD_CELLS + byte_count
    return Bounds(cells, max(MAX_NEW_FIELDS, room))


@contextmanager
def bounded(bounds: Bounds) -> Iterator[None]:
    """What is decoded inside stays within these bounds, or TooMuch is raised."""
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)


def refusal() -> Fault | None:
    """Why no record is to be read at present."""
    return _bounds.get().refusal


def may_guess(count: int) -> bool:
    """Whether there may be memory for so many cells before it is known how many are needed."""
    return count <= min(MAX_BATCH_CELLS, _bounds.get().cells)


def check_cells(count: int) -> None:
    """Raises TooMuch where so many cells are too many. Called before there is memory for them."""
    if count > _bounds.get().cells:
        raise TooMuch(
            Fault(
                "too_large",
                f"the record would become {count:,} values in columns, absent ones included, and may become "
                f"{MAX_RECORD_CELLS:,} and one per byte: split it, or leave out its largest list with `exclude`",
            )
        )


def check_new_fields(count: int) -> None:
    """Raises TooMuch where so many fields that the table lacks are too many."""
    most = _bounds.get().new_fields
    if count > most:
        reason = (
            f"the record has more than {most:,} fields that the table lacks: declare the column whose objects have "
            "so many names as map<string, …>, or leave it out with `exclude`"
        )
        raise TooMuch(Fault("too_many_fields", reason))


def leaf_count(kind: IcebergType) -> int:
    """The cells that one value of a type takes where nothing is in its lists and maps."""
    if isinstance(kind, StructType):
        return sum(leaf_count(member.field_type) for member in kind.fields) or 1
    return 1


def long_name_fault(name: str) -> Fault:
    """What is said of a record with a field of such a name."""
    return Fault("name_too_long", say_long(name))


def rejected_fault(name: str, reason: str) -> Fault:
    """What is said of a record with a field that the table cannot have."""
    return Fault("name_too_long", reason) if is_long(name) else Fault("name_conflict", reason)
