"""What the benchmark of catalogs and stores is judged by."""

from __future__ import annotations

from pathlib import Path

from bench.goals import GOALS
from bench.report import render
from bench.results import Results
from bench.table import local_path
from tests.unit.bench.test_report import result


def test_the_place_of_an_object_has_its_bucket() -> None:
    assert local_path("s3://lake/bench/t/data/1.parquet") == Path("lake/bench/t/data/1.parquet")
    assert local_path("file:/bench/t/1.parquet") == local_path("/bench/t/1.parquet") == Path("/bench/t/1.parquet")


def test_throughput_to_s3_is_compared_with_a_folder_in_the_same_invocation() -> None:
    [goal] = [goal for goal in GOALS if goal.what.startswith("records/s to S3")]
    local, s3 = (result("frazil", name, 2.0, benchmark="lakes") for name in ("local", "s3"))
    other = result("frazil", "s3", 2.0, benchmark="lakes", invocation="two")
    assert goal.measured(Results([local, s3])) == 1.0
    assert goal.measured(Results([local, other])) is None
    assert "| s3 | 1,000 / **1,000** / 1,000 |" in render(Results([local, s3]))
