"""Many records of JSON read at once, by Arrow's reader, where all have values that need no rule.

Arrow reads one text. Records become one with a line each, and the number of its objects shows that each record is one: a
record that begins with `{` and ends with `}` is at least one object, or the whole text is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from numpy.typing import NDArray

from frazil_verify.independent.matching import Ints

EXACT = 2**53
"""Integers from here on may be inexact as floating-point numbers."""
_MOST_PASSED = 64


@dataclass
class ManyReader:
    """Reads records with some of these columns and no other field."""

    schema: pa.Schema
    #: How many calls are refused at once, as those before were: records of such a topic seldom need no rule.
    _passed: int = 0
    _left: int = 0

    def read(self, values: Sequence[bytes | None]) -> tuple[pa.Table, Ints] | None:
        """Returns the rows of values that need no rule, and their indexes; None where not all values are such objects."""
        if self._left:
            self._left -= 1
            return None
        table = self._read(values)
        self._passed = 0 if table is not None else min(_MOST_PASSED, 2 * self._passed + 1)
        self._left = self._passed
        if table is None:
            return None
        are_sure = np.ones(len(values), np.bool_)
        for field in self.schema:
            if pa.types.is_floating(field.type):
                are_sure &= _are_sure(table.column(field.name))
        sure = np.flatnonzero(are_sure)
        return (table if sure.size == len(values) else table.take(sure)), sure

    def _read(self, values: Sequence[bytes | None]) -> pa.Table | None:
        if not values or None in values:
            return None
        text, ends = b"\n".join(value for value in values if value is not None), len(values) - 1
        is_lines = text[:1] == b"{" and text[-1:] == b"}" and text.count(b"\n") == text.count(b"}\n{") == ends
        if not is_lines or b"\0" in text:
            return None
        options = pj.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="error")
        reading = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            text.decode()  # Arrow does not look at the bytes of texts.
            table = pj.read_json(pa.BufferReader(text), reading, options)
        except (UnicodeDecodeError, pa.ArrowException):
            return None
        return table.select(self.schema.names) if table.num_rows == len(values) else None


def _are_sure(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Returns which numbers no rule has to look at: `-0` is a negative zero, a large integer may be inexact, and 1e400 is
    infinite.
    """
    numbers = np.asarray(column.fill_null(1.0))
    are_sure: NDArray[np.bool_] = (np.abs(numbers) < EXACT) & ((numbers != 0) | ~np.signbit(numbers))
    return are_sure
