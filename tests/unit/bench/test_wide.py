"""Wide records, their sums, and a table that is counted in the same way."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet as pq
import pytest

from bench.table import Table
from bench.wide import make_wide_pool, weight


class Files(Table):
    """A table of these files."""

    def __init__(self, paths: list[Path]) -> None:
        super().__init__(Path("catalog.db"), "bench", "t")
        self._paths = paths

    def files(self) -> list[tuple[int, Path]]:
        return [(number, path) for number, path in enumerate(self._paths)]


def test_a_record_has_sixty_fields_and_its_own_id() -> None:
    pool = make_wide_pool(10)
    assert json.loads(pool.value(1_234_567))["id"] == 1_234_567
    assert len(pool.totals(1)) == 60 + len(("(rows)", "(different ids)"))


def test_records_are_about_eleven_hundred_bytes_long() -> None:
    pool = make_wide_pool(500)
    assert 1080 <= sum(len(pool.value(number)) for number in range(1_000_000, 1_000_500)) / 500 <= 1120


def test_the_pool_is_the_same_each_time() -> None:
    assert make_wide_pool(20) == make_wide_pool(20)


@pytest.mark.parametrize(("value", "adds"), [(7, 7), (True, 1), (-0.29, -29), ("é", 2)])
def test_every_kind_of_value_adds_to_its_fields_sum(value: object, adds: int) -> None:
    assert weight(value) == adds


def test_totals_are_those_of_a_table_of_the_records(tmp_path: Path) -> None:
    pool, count = make_wide_pool(7), 24
    records = [json.loads(pool.value(number)) for number in range(count)]
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, rows in zip(paths, (records[:10], records[10:]), strict=True):
        pq.write_table(pyarrow.Table.from_pylist(rows), path)
    assert Files(paths).field_totals() == pool.totals(count)


def test_a_changed_value_deep_inside_is_seen(tmp_path: Path) -> None:
    pool = make_wide_pool(7)
    records = [json.loads(pool.value(number)) for number in range(7)]
    records[3]["cart"]["items"][0]["n"] += 1
    pq.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    found, expected = Files([tmp_path / "a.parquet"]).field_totals(), pool.totals(7)
    assert {path for path, value in found.items() if value != expected[path]} == {"cart.items.n"}
