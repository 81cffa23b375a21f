"""The parts in which a copy joins reference tables, by what commits name; and which tables have none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.catalog.progress import LOOKUPS, REPLAY_ID, key
from frazil.spec import load_spec
from frazil.spec.models import TableSpec
from frazil.types import Progress
from frazil_verify.history import History
from frazil_verify.reference_versions import Part, UnknownVersions, parts_of
from packages.verify.tests.unit.test_ledger_check import PIPELINE, commit, committed, snapshot


@pytest.fixture
def spec(tmp_path: Path) -> TableSpec:
    """A table with the lookup `country`."""
    file = tmp_path / "frazil.yaml"
    file.write_text(
        "pipeline: p\nkafka: {bootstrap.servers: 'k:9092'}\ntables:\n  n.t:\n    topic: t\n"
        "    lookup: {country: {table: ref.countries, on: 'code = code', take: [name]}}\n"
    )
    return load_spec(file).tables[0]


def joined(number: int, versions: Mapping[str, int]) -> Progress:
    """The progress after so many batches, the last of which was joined with these snapshots."""
    progress = commit(number)
    lookups = {name: {"table": "ref.countries", "snapshot-id": at} for name, at in versions.items()}
    return replace(progress, batch=replace(progress.batch, lookups=lookups))


def history(*numbers: int, first: int = 1) -> History:
    """Commits that were joined with these snapshots of the reference table."""
    snapshots = (committed(n, joined(n, {"country": at})) for n, at in enumerate(numbers, first))
    return History(tuple(snapshots))


def part(number: int, at: int) -> Part:
    """A part up to so many batches."""
    return Part(joined(number, {"country": at}).batch.lookups, commit(number).offsets)


def test_a_part_ends_where_a_commit_names_another_version(spec: TableSpec) -> None:
    parts = parts_of(spec, history(7, 7, 8, 7, 7), PIPELINE)
    assert parts == [part(2, 7), part(3, 8), part(5, 7)]
    assert [of.snapshots for of in parts] == [{"ref.countries": at} for at in (7, 8, 7)]


def test_snapshots_of_maintenance_and_empty_commits_end_no_part(spec: TableSpec) -> None:
    repeated = replace(commit(2), batch=replace(commit(2).batch, balance=None))
    snapshots = (*history(7, 7).snapshots, snapshot(3, repeated), snapshot(4, None, "replace"))
    assert parts_of(spec, History(snapshots), PIPELINE) == [part(2, 7)]


def test_parts_end_at_the_snapshot_that_is_compared(spec: TableSpec) -> None:
    assert parts_of(spec, history(7, 8, 9).up_to(2), PIPELINE) == [part(1, 7), part(2, 8)]


def test_a_recreated_topic_begins_with_the_parts_of_its_own_records(spec: TableSpec) -> None:
    first = joined(1, {"country": 9})
    snapshots = (*history(7, 8).snapshots, committed(3, first), committed(4, joined(2, {"country": 9})))
    assert parts_of(spec, History(snapshots), PIPELINE) == [part(2, 9)]


def _replayed(history: History) -> tuple[Any, ...]:
    entries = {key(PIPELINE, REPLAY_ID): "r", key(PIPELINE, LOOKUPS): "{}"}
    last = snapshot(9, None)
    return (*history.snapshots, replace(last, summary=entries))


@pytest.mark.parametrize(
    ("snapshots", "reason"),
    [
        (history(8, 8, first=4).snapshots, "its oldest commits have expired"),
        ((*history(7).snapshots, committed(2, joined(2, {"nation": 8}))), "made with other lookups"),
        ((committed(1), *history(7, first=2).snapshots), "made with other lookups"),
        (_replayed(history(7)), "joined with the versions of their replay"),
    ],
    ids=["expired", "renamed", "none", "replayed"],
)
def test_versions_that_commits_do_not_name_are_not_guessed(
    spec: TableSpec, snapshots: tuple[Any, ...], reason: str
) -> None:
    with pytest.raises(UnknownVersions, match=reason):
        parts_of(spec, History(snapshots), PIPELINE)


def test_two_versions_of_one_table_in_one_commit_are_refused() -> None:
    versions = {name: {"table": "ref.countries", "snapshot-id": at} for name, at in (("a", 1), ("b", 2))}
    with pytest.raises(UnknownVersions, match=r"two versions of ref\.countries"):
        _ = Part(versions, {}).snapshots
