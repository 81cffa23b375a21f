"""The offsets that rows must cover, by the columns of partition and offset alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from frazil.ingest.batches import steps
from frazil.ingest.tables.table import Table
from frazil.ledger import Ledger
from frazil.write.plain_target import plain_target
from frazil_verify import levels
from frazil_verify.findings import Kind
from frazil_verify.independent.matching import NOWHERE, doubled
from frazil_verify.independent.topic import Range
from frazil_verify.opened import Level, Opened, Options, bounded, whole_ranges
from frazil_verify.places import Expected, PlacedRows, check_places
from packages.verify.tests.unit.planted import Filled, MemoryRows
from tests.simulation.judge.loop import TABLE, TOPIC, Sent

LEDGER = Ledger(3, "b", 100, 90, 0, 80, 6, 4)
"""The ledger of a hundred offsets, ten of which have no record."""


def rows(*offsets: int) -> PlacedRows:
    """The rows of these offsets of one partition."""
    return PlacedRows(np.zeros(len(offsets), np.int64), np.array(offsets, np.int64), [("t", 0)])


def kinds(placed: PlacedRows, expected: Expected) -> list[Kind]:
    """The kinds of what is found."""
    return [finding.kind for finding in check_places(placed, expected)]


def test_bad_records_that_were_skipped_need_neither_a_row_nor_a_dead_letter() -> None:
    expected = Expected([Range("t", 0, 0, 100)], {}, LEDGER, skipped=6)
    assert kinds(rows(*range(80)), expected) == []
    assert kinds(rows(*range(79)), expected) == [Kind.MISSING]
    dead = {("t", 0): np.arange(94, 100)}
    assert kinds(rows(*range(80)), replace(expected, dead=dead, skipped=0)) == []


def test_offsets_that_kafka_deleted_before_they_were_read_need_no_row() -> None:
    expected = Expected([Range("t", 0, 0, 150)], {}, LEDGER, skipped=6)
    assert kinds(rows(*range(50, 130)), expected) == []
    assert kinds(rows(*range(50, 129)), expected) == [Kind.MISSING]


def test_without_a_ledger_no_offset_is_missing_however_many_there_are() -> None:
    expected = Expected([Range("t", 0, 0, 2**50)], {})
    assert kinds(rows(5, 2**49), expected) == []
    assert kinds(rows(5, 5, 2**50), expected) == [Kind.DOUBLED, Kind.INVENTED]


@pytest.mark.parametrize("is_older", [True, False])
def test_rows_from_before_the_first_ledger_are_of_records_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_older: bool
) -> None:
    values = [Sent(0, json.dumps({"id": number}).encode()) for number in range(10)]
    with monkeypatch.context() as patch:
        if is_older:
            patch.setattr(steps, "next_ledger", lambda *_: None)
        filled = Filled.of(tmp_path, {"metadata": ["partition", "offset"]}, values)
    filled.loop.produce(values)
    filled.loop.run(50)
    table = Table(filled.loop.spec.tables[0])
    table.state = state = filled.loop.catalog.load(TABLE)
    assert state is not None
    assert state.progress.ledger is not None
    assert (state.progress.ledger.partial, state.progress.ledger.records) == (is_older, 10 if is_older else 20)
    catalog: Any = filled.loop.catalog
    opened = Opened(filled.loop.spec, catalog, filled.loop.source, Options(Level.ROWS), print)
    filled.loop.source.trim(TOPIC, 0, 4)
    for is_of_kafka, first in ((False, 0), (True, 4)):
        whole, ledger = whole_ranges(opened, table, state, is_of_kafka)
        assert (list(bounded(opened, whole)), ledger is None) == ([Range(TOPIC, 0, first, 20)], is_older)


@pytest.mark.parametrize("gap", [1, 1000])
def test_rows_of_one_place_are_found_where_offsets_are_dense_and_where_they_are_not(gap: int) -> None:
    offsets = np.array([3, 1, 2, 1, NOWHERE, NOWHERE, 2]) * np.array([gap, gap, gap, gap, 1, 1, gap])
    numbers = np.array([0, 0, 1, 0, 0, 0, 0])
    assert doubled(numbers, offsets).tolist() == [3]
    numbers[3] = 1
    assert doubled(numbers, offsets).tolist() == []
    assert doubled(numbers[:0], offsets[:0]).tolist() == []
    assert doubled(np.array([NOWHERE, NOWHERE]), np.array([NOWHERE, NOWHERE])).tolist() == []


@pytest.mark.parametrize("metadata", [["partition", "offset"], ["topic", "partition", "offset"]])
@pytest.mark.parametrize("lacks_offset", [False, True])
def test_a_row_without_a_partition_is_a_row_of_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata: list[str], lacks_offset: bool
) -> None:
    values = [Sent(number % 2, json.dumps({"id": number}).encode()) for number in range(20)]
    filled = Filled.of(tmp_path, {"metadata": metadata}, values, partitions=2)
    table = Table(filled.loop.spec.tables[0])
    table.state = state = filled.loop.catalog.load(TABLE)
    assert state is not None
    rows, catalog = filled.rows(), cast("Any", filled.loop.catalog)
    stored = MemoryRows(rows, plain_target(state).arrow_schema)
    monkeypatch.setattr(levels, "stored_rows", lambda *_: stored)
    opened = Opened(filled.loop.spec, catalog, filled.loop.source, Options(Level.ROWS), print)
    assert levels._by_places(opened, table, state).findings == ()
    rows[3]["_kafka_partition"] = None
    if lacks_offset:
        rows[3]["_offset"] = None
    found = {finding.kind for finding in levels._by_places(opened, table, state).findings}
    assert found == ({Kind.MISSING} if lacks_offset else {Kind.MISSING, Kind.INVENTED})
