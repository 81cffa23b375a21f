"""Half an hour of everything at once: records with ever new fields, ingestion and table care that are killed at random, a
foreign compactor in the same tables. A slice of it is part of the suite.
"""

from __future__ import annotations

import signal
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from frazil.clock import SystemClock
from frazil.spec.table_vocabulary import TABLE
from tests.acceptance.ledger import Feed, events
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline

pytestmark = pytest.mark.timeout(3600)

SOAK_S = 1800.0
CARE = {"min_input_files": 4, "snapshots": {"count": 8}}
STEPS = ("care.planned", "care.compact.begins", "care.compact.written", "care.compact.landed", "care.expire.begins")
LIVES_MS = 12_000


@contextmanager
def feeding(pipeline: Pipeline, topics: list[str]) -> Iterator[None]:
    """Some hundred records a second, with a new field now and then, until the block ends."""
    stopping = threading.Event()
    feed = Feed(pipeline.servers, pipeline.ledger)

    def produce() -> None:
        number = 0
        while not stopping.wait(0.2):
            for topic in topics:
                rows = events(30, number)
                feed.produce(topic, [{**row, f"extra{number // 3000}": number} for row in rows])
            number += 30

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(60)


@contextmanager
def compacted_by_others(pipeline: Pipeline, operator: Operator, tables: list[str]) -> Iterator[None]:
    """Somebody who puts two files together every few seconds."""
    stopping = threading.Event()

    def compact() -> None:
        while not stopping.wait(3.0):
            for table in tables:
                operator.open(pipeline.folder, table).compact_two()

    thread = threading.Thread(target=compact)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(60)


def chance(seed: int, number: int, below: int) -> int:
    """The same for the same seed."""
    return zlib.crc32(f"{seed} {number}".encode()) % below


def soak(pipeline: Pipeline, operator: Operator, seed: int, seconds: float) -> None:
    """Lives and deaths for so long; afterwards nothing is lost or doubled and nothing is left over."""
    pipeline.document["maintenance"] = CARE
    settings = {"partition_by": ["truncate(text, 1)"]} if TABLE["partition_by"].is_built else {}
    pairs = [pipeline.add_fed_table(f"soaked{number}", 2, **settings) for number in range(2)]
    tables = [table for table, _ in pairs]
    for _, topic in pairs:
        pipeline.feed.produce(topic, events(50, 0))
    pipeline.catch_up()
    clock = SystemClock()
    end_s, number = clock.monotonic_s() + seconds, 0
    with feeding(pipeline, [topic for _, topic in pairs]), compacted_by_others(pipeline, operator, tables):
        while clock.monotonic_s() < end_s or number == 0:
            live_and_die(pipeline, tables, seed, number)
            number += 1
    pipeline.catch_up()
    pipeline.document["maintenance"] = {**CARE, "orphans": {"age": "1ms"}}
    pipeline.command("maintain")
    for table in tables:
        pipeline.check(table)
        assert unnamed(pipeline, table) == set()


def live_and_die(pipeline: Pipeline, tables: list[str], seed: int, number: int) -> None:
    step = STEPS[chance(seed, number, len(STEPS))]
    run = pipeline.run(failpoints=f"{step}=kill@2" if number % 3 == 0 else "")
    before = {table: pipeline.metadata(table) for table in tables}
    with suppress(AssertionError):  # It may have died of its failpoint before that.
        run.wait_while_running(
            lambda: {t: pipeline.metadata(t) for t in tables} != before, "it has committed something"
        )
    if number % 2:
        with suppress(AssertionError):  # It may have nothing to do at that step.
            pipeline.command("maintain", failpoints=f"{step}=kill", expected=-signal.SIGKILL)
    deadline = SystemClock().monotonic_s() + chance(seed, number + 1000, LIVES_MS) / 1000
    with suppress(AssertionError):
        run.wait_while_running(lambda: SystemClock().monotonic_s() > deadline, "its time has come")
    if run.is_running:
        run.kill(run.pid)
    assert run.wait() == -signal.SIGKILL
    run.close()


def unnamed(pipeline: Pipeline, table: str) -> set[str]:
    """Data files on the disk that no snapshot names."""
    metadata = pipeline.metadata(table)
    assert metadata is not None
    named = StaticTable.from_metadata(str(metadata)).inspect.all_files()["file_path"].to_pylist()
    there = {str(path) for path in (metadata.parent.parent / "data").rglob("*") if path.is_file()}
    return there - {str(Path(path.removeprefix("file:"))) for path in named}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1))
def test_half_an_hour_of_everything(pipeline: Pipeline, operator: Operator, seed: int) -> None:
    soak(pipeline, operator, seed, SOAK_S)


def test_a_minute_of_everything(pipeline: Pipeline, operator: Operator) -> None:
    soak(pipeline, operator, 7, 0.0)
