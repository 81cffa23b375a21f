"""Letters on their way to new files: those that stay get the reason of today."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from frazil import __version__
from frazil.decode.columns import Mismatch, as_text
from frazil.errors import UnavailableError
from frazil.write.write import FileWriter


def write_some(writer: FileWriter, rows: pa.Table) -> None:
    """Nothing for no rows: a file without rows is of no use."""
    if rows.num_rows:
        writer.write(rows)


def with_new_reason(rows: pa.Table, mismatches: Sequence[Mismatch]) -> pa.Table:
    """The letters with today's reasons, and one more retry."""
    news = {
        "error_class": pa.array([mismatch.kind for mismatch in mismatches], pa.string()),
        "message": pa.array([as_text(mismatch.reason) for mismatch in mismatches], pa.string()),
        "path": pa.array([as_text(mismatch.path) or None for mismatch in mismatches], pa.string()),
        "retries": pc.add(pc.fill_null(rows["retries"], 0), pa.scalar(1, pa.int32())),
        "frazil_version": pa.repeat(pa.scalar(__version__), rows.num_rows),
    }
    for name, column in news.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows


@contextmanager
def abandoning(*writers: FileWriter) -> Iterator[None]:
    """In its block what goes wrong removes what was written; trouble with the store is UnavailableError."""
    try:
        yield
    except BaseException as error:
        for writer in writers:
            writer.abandon()
        if isinstance(error, OSError):
            raise UnavailableError(f"the store does not read or write a file: {error}") from None
        raise
