"""The limits on the memory of one record, and of the records that are decoded at once.

The number of bytes is no limit: two bytes are an empty message with 2,000 columns. Cells are counted instead: places
for values of columns, also of those that no record has. Records with too many cells together are decoded in pieces
(`read_bounded`); a record with too many cells of its own is a dead letter. The table of all limits is
docs/reference/limits.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyiceberg.types import IcebergType, StructType

from frazil.column_names import explain_long_name, is_long, long_name_reason
from frazil.decode.columns import Fault
from frazil.error_classes import ErrorClass
from frazil.schema.names import key_settings
from frazil.schema.parts import is_too_deep

MAX_BATCH_CELLS = 2**24
"""Cells of the records that are decoded at once: 20,000 records of 800 columns and some; 8 to 30 bytes each."""

MAX_RECORD_CELLS = 2**24
"""Cells of one record, in addition to one for each of its bytes. Records that are decoded at once never have more
together: whether one is too large must not depend on its neighbours.
"""

MAX_NEW_FIELDS = 10_000
"""Fields that the table lacks, at all depths, whose types are inferred from records that are decoded at once."""

_UNLIMITED = 2**62


class TooMuch(Exception):
    """The records that are decoded at once exceed a limit. fault: the fault of a record that exceeds it by itself."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True)
class Bounds:
    """The limits for the records that are being decoded."""

    #: The largest number of cells.
    cells: int = _UNLIMITED
    #: The largest number of fields that the table lacks.
    new_fields: int = _UNLIMITED
    #: The reason why none of them is read; None to read them.
    refusal: Fault | None = None


_NONE = Bounds()
_bounds: ContextVar[Bounds] = ContextVar("bounds", default=_NONE)


def bounds_of(record_count: int, byte_count: int, columns_left: int) -> Bounds:
    """Returns the limits for some records. columns_left: the number of columns that the table may still get."""
    cells = min(MAX_BATCH_CELLS, MAX_RECORD_CELLS) if record_count > 1 else MAX_RECORD_CELLS + byte_count
    return Bounds(cells, max(MAX_NEW_FIELDS, columns_left))


@contextmanager
def bounded(bounds: Bounds) -> Iterator[None]:
    """Applies these limits to decoding inside the block, which raises TooMuch beyond them."""
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)


def refusal() -> Fault | None:
    """Returns the reason why no record is to be read at present; None without one."""
    return _bounds.get().refusal


def may_guess(count: int) -> bool:
    """Whether memory for `count` cells may be allocated before the needed number is known."""
    return count <= min(MAX_BATCH_CELLS, _bounds.get().cells)


def check_cells(count: int) -> None:
    """Raises TooMuch where `count` cells exceed the limit. Called before the memory is allocated."""
    if count > _bounds.get().cells:
        raise TooMuch(
            Fault(
                ErrorClass.TOO_LARGE,
                f"the record would become {count:,} values in columns, absent ones included, and may become "
                f"{MAX_RECORD_CELLS:,} and one per byte: split it, or leave out its largest list with `exclude`",
            )
        )


def check_new_fields(count: int) -> None:
    """Raises TooMuch where `count` fields that the table lacks exceed the limit."""
    most = _bounds.get().new_fields
    if count > most:
        raise TooMuch(
            Fault(ErrorClass.TOO_MANY_FIELDS, f"the record has more than {most:,} fields that the table lacks")
        )


def leaf_count(kind: IcebergType) -> int:
    """Returns the cells of one value of a type whose lists and maps are empty."""
    if isinstance(kind, StructType):
        return sum(leaf_count(member.field_type) for member in kind.fields) or 1
    return 1


def long_name_fault(name: str, is_key: bool = False) -> Fault:
    """Returns the fault of a record with a field whose name is too long. is_key: whether it is a field of its key."""
    return Fault(
        ErrorClass.NAME_TOO_LONG, f"{long_name_reason(name)}: {key_settings()}" if is_key else explain_long_name(name)
    )


def rejected_fault(name: str, reason: str) -> Fault:
    """Returns the fault of a record with a field that the table cannot have."""
    if is_long(name):
        return Fault(ErrorClass.NAME_TOO_LONG, reason)
    return Fault(ErrorClass.TOO_DEEP if is_too_deep(reason) else ErrorClass.NAME_CONFLICT, reason)


Read = TypeVar("Read")
Piece = tuple[pa.RecordBatch, dict[str, pa.Array], Read]
_NO_LIMIT = 2**31


def plain_columns(records: pa.RecordBatch) -> dict[str, pa.Array]:
    """Returns the columns by name, times in microseconds."""
    columns = dict(zip(records.schema.names, records.columns, strict=True))
    if "timestamp" in columns:
        columns["timestamp"] = columns["timestamp"].cast(pa.timestamp("us", tz="UTC"))
    return columns


def read_bounded(
    records: pa.RecordBatch,
    read: Callable[[dict[str, pa.Array]], Read],
    columns_left: int = _NO_LIMIT,
    columns_of: Callable[[pa.RecordBatch], dict[str, pa.Array]] = plain_columns,
) -> Iterator[Piece[Read]]:
    """Yields the results of reading some records, in order: of all at once, or of halves of them, and so on.

    A record that exceeds a limit by itself is read as one whose value is too large. read: must change nothing before it
    has decoded the records. columns_left: the number of columns that the table may still get. columns_of: the columns that
    are read.
    """
    waiting = [records]
    while waiting:
        some = waiting.pop()
        columns = columns_of(some)
        bounds = bounds_of(some.num_rows, some.nbytes, 0 if columns_left >= _NO_LIMIT else columns_left)
        try:
            with bounded(bounds):
                result = read(columns)
        except TooMuch as error:
            half = some.num_rows // 2
            if half:
                waiting += [some.slice(half), some.slice(0, half)]
                continue
            with bounded(Bounds(refusal=error.fault)):
                result = read(columns)
        yield some, columns, result
