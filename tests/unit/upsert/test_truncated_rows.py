"""The rows that a truncate with a place takes, against a plain look at every row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from frazil.catalog.scans import LiveFile, delete_file_of
from frazil.decode.settings import Reading
from frazil.errors import SpecError
from frazil.upsert.emptied import EmptiedRows, find_emptied
from frazil.upsert.lookup.delete_files import write_deletes
from frazil.upsert.lookup.search import find_rows
from frazil.write.target import ChangeReading, TableTarget
from frazil.write.write import FileWriter
from tests.unit.ingest.targets import target_of

LARGE = 150_000  # Rows: more than are read at a time.


def _target(folder: Path, is_one_partition: bool = False) -> TableTarget:
    reading = ChangeReading(Reading(), ("k",), order_by="at", has_source_order=True, is_one_partition=is_one_partition)
    return replace(target_of(folder, {"k": "long", "at": "string"}), changes=reading)


def _place(number: int) -> str:
    return f"{number:020d}"


def _write(target: TableTarget, places: Sequence[int | None], gone: Sequence[int] = ()) -> LiveFile:
    """A file of rows with these places; those at `gone` are deleted. Its keys are as its rows."""
    writer = FileWriter(target)
    at = pa.array([None if place is None else _place(place) for place in places], pa.string())
    writer.write(pa.Table.from_arrays([pa.array(range(len(places))), at], schema=target.arrow_schema))
    (made,) = writer.finish()
    file = LiveFile(made.path, made.record_count, made.content)
    return replace(file, deletes=tuple(write_deletes(target, {file: BitMap64(gone)}, 3))) if gone else file


def _gone(found: EmptiedRows) -> dict[str, list[int]]:
    return {path: list(bits) for path, (_, bits) in found.gone.items()}


@pytest.mark.parametrize("seed", range(4))
def test_a_truncate_takes_what_is_older_and_alive(tmp_path: Path, seed: int) -> None:
    rng, target = np.random.default_rng(seed), _target(tmp_path, is_one_partition=bool(seed % 2))
    whole, gone, count, files = [], {}, 0, []
    for size, low, high in ((40, 0, 90_000), (60, 40_000, 160_000), (50, 100_000, 200_000), (LARGE, 0, 200_000)):
        places: list[int | None] = rng.integers(low, high, size).tolist()
        if seed % 2:
            places[7] = None
        deleted = set(rng.choice(size, size // 5, replace=False).tolist())
        files.append(_write(target, places, sorted(deleted)))
        older = {row for row, place in enumerate(places) if place is None or place < 100_000}
        count += len(older - deleted)
        if len(older) == size:
            whole.append(files[-1])
        elif older - deleted:
            gone[files[-1].path] = sorted(older | deleted)
    found = find_emptied(target, files, _place(100_000))
    assert (found.complete_files, _gone(found), found.row_count) == (whole, gone, count)
    assert found.left(files) == [file for file in files if file not in whole]


def test_files_whose_bounds_tell_of_all_rows_are_not_opened(tmp_path: Path) -> None:
    target = _target(tmp_path)
    older, newer = (_write(target, range(start, start + 10_000, 1000), gone=[3]) for start in (80_000, 110_000))
    both = _write(target, [80_000, 100_000])
    for file in (older, newer):
        Path(file.path).unlink()
    found = find_emptied(target, [older, both, newer], _place(100_000))
    assert (found.complete_files, _gone(found), found.row_count) == ([older], {both.path: [0]}, 10)
    with pytest.raises(FileNotFoundError):
        find_emptied(target, [older], _place(85_000))


def test_places_that_bounds_cannot_tell_apart_are_read(tmp_path: Path) -> None:
    target = _target(tmp_path)  # Of a text bounds have the first 16 characters.
    older, newer = _write(target, [100_001, 100_002]), _write(target, [100_003, 100_004])
    found = find_emptied(target, [older, newer], _place(100_003))
    assert (found.complete_files, found.gone, found.row_count) == ([older], {}, 2)


@pytest.mark.parametrize("places", [[None, 80_000], [None, 120_000], [None, None]])
def test_rows_without_a_place_are_an_error_unless_there_is_one_partition(
    tmp_path: Path, places: list[int | None]
) -> None:
    target = _target(tmp_path)
    with pytest.raises(SpecError, match="no value in the column at"):
        find_emptied(target, [_write(target, places)], _place(100_000))
    assert find_emptied(target, [_write(target, places, gone=[0, 1])], _place(100_000)) == EmptiedRows()
    alone = _target(tmp_path, is_one_partition=True)
    file = _write(alone, places)
    found = find_emptied(alone, [file], _place(100_000))
    assert found == (
        EmptiedRows([], {file.path: (file, BitMap64([0]))}, 1) if 120_000 in places else EmptiedRows([file], {}, 2)
    )


def test_rows_that_equality_deletes_have_taken_are_not_counted(tmp_path: Path) -> None:
    target = _target(tmp_path)
    other = _write(target, [0, 0, 0])
    content = {"content": "equality-deletes", "file-path": other.path, "file-format": "PARQUET", "record-count": 3}
    delete = delete_file_of(json.dumps({**content, "equality-ids": [1]}))  # Of the keys 0 to 2.
    older, both = (_write(target, [low] * 3 + [high] * 2) for low, high in ((1, 2), (1, 200_000)))
    files = [replace(file, deletes=(delete,)) for file in (older, both)]
    found = find_emptied(target, files, _place(100_000))
    assert (found.complete_files, found.gone, found.row_count) == ([files[0]], {}, 2)


def test_rows_that_a_truncate_takes_are_found_no_more(tmp_path: Path) -> None:
    target = _target(tmp_path)
    both = _write(target, [1, 200_000, 2], gone=[2])
    truncated = find_emptied(target, [both], _place(100_000))
    for keys, left in (([0, 1], [1]), ([0], [])):
        found = truncated.without_rows(find_rows(target, [both], [pa.array(keys)], [("k",)]))
        assert [row for hits in found.hits for row in hits.rows.tolist()] == left
        assert len(found.hits) == len(left)
