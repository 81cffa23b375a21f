"""A field whose values contradict each other takes nothing from the others: their types and rows are what they are without
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import IcebergType, ListType, StructType
from structlog.testing import capture_logs

from frazil.ingest.tables.state import RunState
from frazil.spec.settings import DeadLettersSpec, FlattenSpec
from tests.fixtures.slices import sliced
from tests.simulation.faults import Fate
from tests.unit.ingest.service_scene import Scene, only

_PARTITIONS = 3
_KINDS: tuple[Any, ...] = (7, "s", [1], {"a": 1}, True)
_FLATTEN = (None, FlattenSpec(), FlattenSpec(depth=1))


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.mark.parametrize("seed", sliced(range(16), 8))
def test_what_is_not_contradicted_is_as_it_is_without_the_contradiction(seed: int, tmp_path: Path) -> None:
    fate = Fate(seed)
    kinds = [_KINDS[fate.pick(0, len(_KINDS) - 1)] for _ in range(_PARTITIONS)]
    records = [_record(fate, number) for number in range(fate.pick(5, 60))]
    mixed = [_mixed(fate, record, kinds[n % _PARTITIONS]) for n, record in enumerate(records)]
    flatten = _FLATTEN[fate.pick(0, len(_FLATTEN) - 1)]
    pure, other = (_table(tmp_path / name, flatten, given) for name, given in (("pure", records), ("mixed", mixed)))
    contradicted = {n for n, record in enumerate(mixed) if record != records[n]}
    refused = {record["id"] for record in mixed} - {row["id"] for row in other.rows("n.a")}
    assert refused <= contradicted
    assert len(other.dead_letters("n.a") if refused else []) == len(refused)
    # A record that is refused shows nothing of its other fields: a number may be whole without it.
    reported = [record for record in records if record["id"] not in refused]
    assert _types(other) == _types(_table(tmp_path / "reported", flatten, reported))
    rows = {row["id"]: row for row in other.rows("n.a")}
    expected = [row for row in pure.rows("n.a") if row["id"] not in contradicted]
    assert [_others(rows[row["id"]]) for row in expected] == expected


def _record(fate: Fate, number: int) -> dict[str, Any]:
    record: dict[str, Any] = {"id": number}
    if fate.maybe(0.7):
        record["y"] = _number(fate)
    if fate.maybe(0.7):
        record["o"] = {"p": _number(fate), "q": {"r": _number(fate)}}
    if fate.maybe(0.5):
        record["l"] = [{"k": _number(fate)} for _ in range(fate.pick(0, 2))]
    return record


def _number(fate: Fate) -> float:
    return 1.5 if fate.maybe(0.1) else fate.pick(0, 9)


def _mixed(fate: Fate, record: dict[str, Any], kind: Any) -> dict[str, Any]:
    """With fields that have the kind of the record's partition."""
    found = {**record, "x": kind} if fate.maybe(0.3) else record
    if "o" in found and fate.maybe(0.3):
        found = {**found, "o": {**found["o"], "x": kind}}
    return found


def _table(root: Path, flatten: FlattenSpec | None, records: list[dict[str, Any]]) -> Scene:
    scene = Scene(root, "a", flatten=flatten, dead_letters=DeadLettersSpec(stop_above=1.0))
    scene.source.by_name["a"].partitions.extend([] for _ in range(_PARTITIONS - 1))
    for number, record in enumerate(records):
        scene.feed("a", record, partition=number % _PARTITIONS)
    table = only(scene.catch_up())
    assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    return scene


def _types(scene: Scene) -> Any:
    state = scene.catalog.load("n.a")
    assert state is not None
    return _shape(state.schema.as_struct())


def _shape(kind: IcebergType) -> Any:
    """The type, whatever its fields' ids."""
    if isinstance(kind, StructType):
        return {field.name: _shape(field.field_type) for field in kind.fields if not _is_mixed(field.name)}
    return [_shape(kind.element_type)] if isinstance(kind, ListType) else str(kind)


def _others(held: Any) -> Any:
    if not isinstance(held, dict):
        return held
    return {name: _others(member) for name, member in held.items() if not _is_mixed(name)}


def _is_mixed(name: str) -> bool:
    return name.split("_")[0] == "x" or name.startswith("o_x")
