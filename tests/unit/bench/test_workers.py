"""The measure of a Python worker counts every stage."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from bench.records import make_pool
from bench.workers import STAGES, measure


def test_every_stage_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    pool = make_pool(100)
    spent = measure(pa.array([pool.value(number) for number in range(500)], pa.binary()), str(tmp_path))
    assert set(spent) == set(STAGES)
    assert all(seconds >= 0 for seconds in spent.values())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
