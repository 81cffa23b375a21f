"""What a load takes, beside what was measured: the figures are read from docs/performance.md."""

from __future__ import annotations

import re

import pytest

from docs.scan import ROOT
from frazil_start.sizing import Load, Prices, Size, record_cpu_s, size_of

_PAGE = (ROOT / "docs" / "performance.md").read_text()


def row(pattern: str, column: int) -> float:
    """The number in a column of the one row of a table that begins like this."""
    [line] = [line for line in _PAGE.splitlines() if re.match(pattern, line)]
    middle = line.split("|")[column].strip().split(" / ")
    return float(middle[len(middle) // 2].strip("*").replace(",", ""))


def size(**load: float | str) -> Size:
    return size_of(Load(**load), Prices())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("load", "measured"),
    [
        ({"records_per_s": 10_000, "commit_interval_s": 0.3}, row(r"\| Frazil \| 300ms \|", 10)),
        ({"records_per_s": 20_000}, row(r"\| Frazil \| on \| 20,000", 5)),
        ({"records_per_s": 4_000, "tables": 200, "commit_interval_s": 30}, row(r"\| many \| 200-topics", 3) / 100),
        ({"records_per_s": 5_000, "mode": "upsert", "rows": 5_000_000}, row(r"\| Frazil \| steady \|", 9)),
    ],
    ids=["short interval", "with maintenance", "many tables", "upserts"],
)
def test_the_cores_of_a_load_are_near_those_that_were_measured(load: dict[str, float | str], measured: float) -> None:
    assert size(**load).load_cores == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(
    ("load", "measured"),
    [
        (Load(1), row(r"\| Frazil \| running \|", 4)),
        (Load(1, 95, format="avro"), row(r"\| avro \|", 4)),
        (Load(1, 95, format="protobuf"), row(r"\| protobuf \|", 4)),
        (Load(1, 1_100), row(r"\| wide, earlier \|", 4)),
    ],
    ids=["json", "avro", "protobuf", "wide json"],
)
def test_a_record_costs_what_was_measured(load: Load, measured: float) -> None:
    assert record_cpu_s(load) * 1e6 == pytest.approx(measured, rel=0.01)


def test_the_memory_is_at_least_what_was_measured() -> None:
    assert size(records_per_s=20_000).memory_mb >= row(r"\| Frazil \| on \| 20,000", 14)
    steady = size(records_per_s=5_000, mode="upsert", rows=5_000_000)
    assert steady.memory_mb >= row(r"\| Frazil \| steady \|", 13)
    assert size(records_per_s=500, mode="upsert", rows=50_000_000).memory_mb >= row(r"\| Frazil \| scattered-5", 6)


def test_requests_follow_the_commit_interval_and_are_none_without_records() -> None:
    each_second, half_a_minute = size(records_per_s=1_000), size(records_per_s=1_000, commit_interval_s=30)
    assert (each_second.commits_per_day, half_a_minute.commits_per_day) == (86_400, 2_880)
    assert each_second.requests_per_month == pytest.approx(30 * half_a_minute.requests_per_month, rel=0.01)
    assert size(records_per_s=0.1, tables=10).commits_per_day == 8_640, "a commit for each record at most"


def test_half_of_the_cores_are_left_for_catching_up() -> None:
    heavy = size(records_per_s=3_000_000)
    assert heavy.load_cores <= heavy.cores / 2 < heavy.load_cores + 0.5
    assert heavy.catch_up_records_per_s > 3_000_000
    assert heavy.memory_mb > size(records_per_s=1_000).memory_mb


def test_prices_are_those_that_are_given() -> None:
    free = size_of(Load(1_000), Prices(0, 0, 0, 0))
    assert (free.compute_per_month, free.requests_per_month, free.price_per_month) == (0, 0, 0)
    puts = size_of(Load(1_000), Prices(0, 0, 1, 0))
    assert puts.price_per_month == pytest.approx(puts.puts_per_day / 1_000 * 730 / 24, rel=0.001)
