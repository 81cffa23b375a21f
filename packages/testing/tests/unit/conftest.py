"""How tests write a pipeline with its cases, and play them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.clock import SystemClock
from frazil.ingest.tables.queries import SparkQueries
from frazil_testing.compare import Verdict
from frazil_testing.suite import Suite
from tests.unit.ops.conftest import scenario as scenario

HEAD = 'pipeline: shop\nkafka: {bootstrap.servers: "localhost:9092"}\n'
ORDERS = f"""{HEAD}
tables:
  shop.orders:
    topic: orders
    columns: {{id: long, amount: "decimal(12,2)", at: timestamptz, tags: list<string>}}
"""
Play = Callable[..., list[Verdict]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def play(folder: Path) -> Play:
    def write_and_play(cases: str, pipeline: str = ORDERS, queries: SparkQueries | None = None, **options: Any) -> Any:
        (folder / "frazil.yaml").write_text(pipeline)
        (folder / "cases.yaml").write_text(cases)
        suite = Suite(folder / "frazil.yaml", lambda _: queries, SystemClock(), **options)
        return list(suite.play([Path("cases.yaml")]))

    return write_and_play


def shown(verdicts: list[Verdict]) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Each difference with its columns."""
    return [
        (difference.what, [(change.column, change.expected, change.actual) for change in difference.changes])
        for verdict in verdicts
        for difference in verdict.differences
    ]


def is_well(verdicts: list[Verdict]) -> bool:
    problems = [(verdict.name, verdict.error, shown([verdict])) for verdict in verdicts if not verdict.is_ok]
    assert problems == []
    return bool(verdicts)
