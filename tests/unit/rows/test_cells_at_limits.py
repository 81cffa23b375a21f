"""The limits of cells, the places for values in columns: at a limit and one below it all is read at once; one above it a
chunk is read in two, and a record is a dead letter whose neighbours are rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.decode import limits
from frazil.ingest.tasks.task import read_records
from tests.unit.decode.test_amplification import CASES, FORMATS, ITEMS, WIDE, target, took
from tests.unit.ingest.targets import records_of


def least(is_read: Callable[[int], bool]) -> int:
    """The number of cells that something takes: the least that it is read with."""
    low, high = 0, 10_000_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_read(middle) else (middle, high)
    return high


@pytest.mark.parametrize("name", CASES)
def test_a_record_with_one_cell_too_many_is_a_dead_letter_and_its_neighbours_are_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    how, record = FORMATS[name]
    values = [record(0, 1), record(1, ITEMS), record(2, 1)]

    def is_read(cells: int) -> bool:
        monkeypatch.setattr(limits, "MAX_RECORD_CELLS", cells)
        return took(target(tmp_path, how, {"id": "long", "l": WIDE}), [values[1]])[1] == [1]

    cells = least(is_read)
    for more in (-1, 0, 1):
        monkeypatch.setattr(limits, "MAX_RECORD_CELLS", cells - more)
        _, rows, dead_letters = took(target(tmp_path, how, {"id": "long", "l": WIDE}), values)
        expected = ([0, 2], [(1, "too_large")]) if more > 0 else ([0, 1, 2], [])
        assert (rows, dead_letters) == expected, more


@pytest.mark.parametrize("name", CASES)
def test_a_chunk_with_one_cell_too_many_is_read_in_two_and_all_of_it_becomes_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    how, record = FORMATS[name]
    values, table = [record(n, ITEMS) for n in range(4)], target(tmp_path, how, {"id": "long", "l": WIDE})
    chunk = records_of({"offset": n, "value": value} for n, value in enumerate(values))

    def pieces(cells: int) -> list[int]:
        monkeypatch.setattr(limits, "MAX_BATCH_CELLS", cells)
        return [
            one.num_rows for one, *_ in limits.read_bounded(chunk, lambda columns: read_records(table, "a", columns, 1))
        ]

    most = least(lambda cells: pieces(cells) == [4])
    for more in (-1, 0, 1):
        assert pieces(most - more) == ([2, 2] if more > 0 else [4])
        assert took(table, values)[1:] == ([0, 1, 2, 3], [])
