"""What the benchmark of a query compares, and what it is judged by."""

from __future__ import annotations

import os
from pathlib import Path

from bench.goals import GOALS
from bench.process import QUERY, loads_of
from bench.records import make_pool
from bench.report import render
from bench.results import Results
from bench.settings import Settings
from bench.tree import Sampler, Tree
from tests.unit.bench.test_loads import Unfilled
from tests.unit.bench.test_report import result


def test_the_query_reads_the_records_of_the_plain_table_and_keeps_half() -> None:
    settings = Settings(records=1000, running_batches=2)
    loads = loads_of(Unfilled(settings, "", 0, Path(), Sampler(Tree(os.getpid())), make_pool(100)))
    plain, query = loads["plain"], loads["query"]
    assert (
        (query.topic, query.total, query.warm)
        == (plain.topic, plain.total, plain.warm)
        == ("bench_json_3000", 3000, 1000)
    )
    assert query.table == {**plain.table, "select": QUERY}
    kept = [one for one in make_pool(100).user_ids if one < 500_000]
    assert isinstance(query.expected, dict)
    assert query.rows == query.expected["(rows)"] == 30 * len(kept)
    assert query.expected["user"] == 30 * len(kept) * 64
    assert 0.4 < query.rows / plain.rows < 0.6


def test_a_query_is_compared_with_no_query_in_the_same_invocation() -> None:
    [goal] = [goal for goal in GOALS if goal.what.startswith("a query")]
    plain, query = (result("frazil", name, cpu, benchmark="process") for name, cpu in (("plain", 2.0), ("query", 2.2)))
    other = result("frazil", "query", 2.2, benchmark="process", invocation="two")
    assert goal.measured(Results([plain, query])) == 1.1
    assert goal.measured(Results([plain, other])) is None
    assert "| query | 1,000 / **1,000** / 1,000 |" in render(Results([plain, query]))


def test_the_query_is_compared_with_structured_streaming_in_the_report() -> None:
    [goal] = [goal for goal in GOALS if goal.what.endswith("in Spark Structured Streaming")]
    own, stock = (
        result(subject, "query", cpu, benchmark="process") for subject, cpu in (("frazil", 2.0), ("stock", 5.0))
    )
    assert goal.measured(Results([own, stock])) == 2.5
    assert "| query in Spark Structured Streaming | 1,000 / **1,000** / 1,000 |" in render(Results([own, stock]))
