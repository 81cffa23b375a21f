"""What the layouts of a table are measured with: the same records and columns as the table that they are compared with."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from bench import loads
from bench.loads import Load, json_load
from bench.place import Place
from bench.records import FIRST_TS, POOL, SCHEMA, Pool, make_pool
from bench.settings import Settings
from bench.tree import Sampler, Tree

_FEW = 100


class Unfilled(Place):
    """Has no broker: topics are names."""

    def topic(self, prefix: str, pool: Pool, records: int) -> str:
        """See Place."""
        assert len(pool.tails) == _FEW
        return f"{prefix}_{records}"


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "make_pool", partial(make_pool, _FEW))


def load_of(variant: str) -> Load:
    place = Unfilled(Settings(), "", 0, Path(), Sampler(Tree(os.getpid())), make_pool(_FEW))
    return json_load(place, variant)


@pytest.mark.parametrize(
    ("variant", "other", "warm", "counted"),
    [
        ("running_partitioned", "running_days", 4_000_000, 8_000_000),
        ("many_partitions", "one_million", 0, 1_000_000),
        ("running_many_partitions", "running_one_million", 4_000_000, 1_000_000),
    ],
)
def test_a_layout_is_compared_with_the_same_records_in_a_table_without_partitions(
    variant: str, other: str, warm: int, counted: int
) -> None:
    laid_out, plain = load_of(variant), load_of(other)
    assert (plain.warm, plain.total) == (warm, warm + counted)
    assert set(laid_out.table) == {"columns", "partition_by"}
    assert dataclasses.replace(laid_out, table={"columns": laid_out.table["columns"]}) == plain


def test_days_are_two_days_of_timestamps() -> None:
    load, seconds = load_of("running_partitioned"), (FIRST_TS / 1e6, FIRST_TS / 1e6 + POOL - 1)
    assert load.table["partition_by"] == ["bucket(user_id, 16)", "day(ts)"]
    assert load.table["columns"] == {**SCHEMA, "ts": "timestamptz(us)"}
    assert load.expected == make_pool(_FEW, apart_us=1_000_000).totals(load.total)
    first, last = (datetime.fromtimestamp(second, UTC).date() for second in seconds)
    assert (last - first).days == 1
