"""The cells that a walk over records fills (`scan`), for the functions that make columns of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import Bodies, Fault, bitmap
from frazil.decode.memory import COMPILED, U8, copy_bytes
from frazil.decode.protobuf.program import I64, Place, Program
from frazil.decode.protobuf.wire import is_utf8

Flags = NDArray[np.bool_]
LENGTH_MASK = 2**32 - 1  # A text's cell is its place times 2**32 plus its length.


@dataclass(frozen=True)
class Cells:
    """The results of a walk; see `scan`."""

    program: Program
    bodies: Bodies
    #: The start of each column in `words` and `flags`.
    column_at: I64
    #: The 64 bits of every cell.
    words: I64
    #: Whether every cell was written.
    flags: U8
    #: The number of cells per domain.
    used: I64
    #: Which records have a fault.
    refused: Flags

    def words_of(self, column: int, domain: int) -> I64:
        """Returns the 64 bits of each cell: int64 of shape (n_cells,)."""
        at = self.column_at[column]
        return self.words[at : at + self.used[domain]]

    def flags_of(self, column: int, domain: int) -> Flags:
        """Returns which cells were written: bool of shape (n_cells,)."""
        at = self.column_at[column]
        return self.flags[at : at + self.used[domain]].view(np.bool_)

    def owners(self, domain: int) -> I64:
        """Returns the record that each cell of the domain belongs to: int64 of shape (n_cells,)."""
        if domain == 0:
            return np.arange(self.used[0], dtype=np.int64)
        parent, column = self.program.parents[domain]
        return np.repeat(self.owners(parent), self.words_of(column, parent))


@dataclass
class Refusals:
    """Faults of records that are found only in their columns.

    A value that Protobuf's parser drops from a message makes it faulty only where the parser itself refuses it.
    """

    #: The fault and the path, by record.
    by_row: dict[int, tuple[Fault, str]] = field(default_factory=dict)
    #: The value by record, where the message shows it.
    values: dict[int, str] = field(default_factory=dict)
    #: Which map entries have a later entry with the same key, by domain.
    _replaced: dict[int, Flags] = field(default_factory=dict)

    def replace(self, domain: int, entries: Flags) -> None:
        """Records which entries of a map, whose cells are in `domain`, have a later entry with the same key."""
        self._replaced[domain] = entries

    def add(
        self, cells: Cells, domain: int, bad: Flags, fault: Fault, path: str, *, is_malformed: bool = False
    ) -> None:
        """Refuses the records of the cells in `bad`, unless these are in map entries that later ones replace.

        is_malformed: no parser accepts such a record, so replaced entries count too.
        """
        if not bad.any():
            return
        if not is_malformed:
            bad = bad & ~self._are_replaced(cells, domain)
        for row in np.unique(cells.owners(domain)[bad]).tolist():
            self.by_row.setdefault(row, (fault, path))

    def add_times(self, cells: Cells, spot: Spot, bad: Flags, fault: Fault, times: tuple[I64, I64]) -> None:
        """Refuses the records of the times in `bad`. times: their seconds and nanoseconds."""
        if not bad.any():
            return
        before = set(self.by_row)
        self.add(cells, spot.domain, bad, fault, spot.path)
        owners, seconds, nanos = cells.owners(spot.domain), *times
        for cell in np.flatnonzero(bad)[::-1].tolist():
            row = int(owners[cell])
            if row in self.by_row and row not in before:
                self.values[row] = f'{{"seconds":{seconds[cell]},"nanos":{nanos[cell]}}}'

    def _are_replaced(self, cells: Cells, domain: int) -> Flags:
        if domain == 0:
            return np.zeros(int(cells.used[0]), np.bool_)
        parent, column = cells.program.parents[domain]
        found: Flags = np.repeat(self._are_replaced(cells, parent), cells.words_of(column, parent))
        own = self._replaced.get(domain)
        return found if own is None else found | own


@dataclass(frozen=True)
class Spot:
    """One column of values to be read."""

    #: The field.
    place: Place
    #: The column of the values.
    column: int
    #: The domain of the values.
    domain: int
    #: Which of its cells are values; None: all.
    valid: Flags | None

    @property
    def path(self) -> str:
        """The field, with `element` for the elements of a list."""
        return f"{self.place.path}.element" if self.place.member.shape == "list" else self.place.path


def offsets_of(counts: I64) -> NDArray[np.int32]:
    """Returns the offsets of values with so many elements or bytes: int32 of shape (n_values + 1,)."""
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def validity(valid: Flags | None) -> pa.Buffer | None:
    """Returns Arrow's bitmap, None when all are valid."""
    return None if valid is None else bitmap(valid)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def copy_slices(base: int, limit: int, places: I64, out: int, out_limit: int) -> None:
    """Copies the bytes at `places`, one after another, to the address `out`; never reads or writes beyond the limits.

    A copy of a fixed size is one instruction, so short texts are copied with the bytes after them, which the next text
    overwrites.
    """
    for n in range(places.size):
        i = base + (places[n] >> 32)
        length = places[n] & LENGTH_MASK
        if length <= 16 and i + 16 <= limit and out + 16 <= out_limit:
            copy_bytes(out, i, 16)
        else:
            copy_bytes(out, i, length)
        out += length


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def may_repeat_keys(counts: I64, codes: I64) -> bool:
    """Whether a map may have a key twice. codes: equal for equal keys. A large map is not checked: it may."""
    at = 0
    for n in range(counts.size):
        count = counts[n]
        if count > 16:
            return True
        for k in range(at + 1, at + count):
            for j in range(at, k):
                if codes[k] == codes[j]:
                    return True
        at += count
    return False


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def find_no_texts(base: int, places: I64) -> Flags:
    """Returns which of the places hold bytes that are not UTF-8."""
    found = np.zeros(places.size, np.bool_)
    for n in range(places.size):
        i = base + (places[n] >> 32)
        found[n] = not is_utf8(i, i + (places[n] & LENGTH_MASK))
    return found
