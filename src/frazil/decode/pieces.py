"""Records that are decoded at once, divided where they need too much memory (`decode.limits`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from frazil.decode.limits import Bounds, TooMuch, bounded, bounds_of

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
                found = read(columns)
        except TooMuch as error:
            half = some.num_rows // 2
            if half:
                waiting += [some.slice(half), some.slice(0, half)]
                continue
            with bounded(Bounds(refusal=error.fault)):
                found = read(columns)
        yield some, columns, found
