"""A change of the table that changes nothing is not asked for again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema

from frazil.catalog.port import TableState
from frazil.dead_letters.files import Selection
from frazil.errors import SpecError
from frazil.ingest.tables.state import RunState, find_no_op_change
from frazil.ingest.tables.table import Table
from frazil.schema.evolve import RequestedFields, extend_schema, new_schema
from frazil.schema.projection import KEY_ROOT
from frazil.spec.settings import LimitsSpec
from frazil.spec.syntax.types import parse_type
from frazil.types import Progress
from frazil_testing.twins import MemoryCatalog
from tests.needs import has_package, needs
from tests.unit.ingest.service_scene import Scene, only, turn_until

if has_package("deadletters"):
    from packages.deadletters.tests.unit import scene as dead_letter_scene

_REPORTED = "records need a schema change that changes nothing: field "
_FIRST, _SECOND = {"x": 1, "o": {"p": 1}}, {"x": 2, "o": {"p": 2, "q": 3}}


class _Unmoved(MemoryCatalog):
    """A catalog that takes so many changes of columns and makes none of them; then it is as others are."""

    no_op_change = 0

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        found = self.load(table)
        assert found is not None
        if self.no_op_change and change(found.schema) != found.schema:
            self.no_op_change -= 1
            return found
        return super().evolve(table, change)


class _Raced(MemoryCatalog):
    """A catalog in which another process is quicker with every change."""

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        super().evolve(table, change)
        return super().evolve(table, change)


def _run(scene: Scene, value: Any) -> Table:
    scene.feed("a", value)
    return only(scene.catch_up())


def test_a_change_that_changes_nothing_twice_stops_the_table_with_the_field(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.catalog = catalog = _Unmoved(tmp_path, "p")
    _run(scene, _FIRST)
    catalog.no_op_change = 2
    table = _run(scene, _SECOND)
    assert (table.status.run_state, table.status.reason, table.status.where) == (
        RunState.STOPPED,
        f"{_REPORTED}o.q",
        "n.a",
    )
    assert table.status.remedy.startswith("leave the field out with `exclude`")
    assert scene.rows("n.a") == [_FIRST]


def test_a_change_that_changes_nothing_once_stops_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.catalog = catalog = _Unmoved(tmp_path, "p")
    _run(scene, _FIRST)
    service = scene.start()

    def has_rows(count: int) -> bool:
        return turn_until(service, lambda: len(scene.rows("n.a")) == count)

    for count in (2, 3):  # What was asked for in vain is forgotten with the commit.
        catalog.no_op_change = 1
        scene.feed("a", {"o": {f"q{count}": count}})
        assert has_rows(count), only(service.tables).status.reason
    assert [row["o"] for row in scene.rows("n.a")] == [{"p": 1}, {"p": None, "q2": 2}, {"p": None, "q2": None, "q3": 3}]


def test_a_change_that_another_process_has_just_made_stops_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.catalog = _Raced(tmp_path, "p")
    _run(scene, _FIRST)
    assert _run(scene, _SECOND).status.run_state is RunState.WAITING
    assert scene.rows("n.a") == [_FIRST, _SECOND]


def _scene_of_dead_letters(root: Path, no_op_change: int) -> dead_letter_scene.Scene:
    """A dead letter with a field that the table lacks."""
    scene = dead_letter_scene.Scene(root, {}, limits=LimitsSpec(record_bytes=20))
    scene.catalog = catalog = _Unmoved(root, "p")
    scene.feed({"o": {"p": 1}}, {"o": {"p": 2, "q": 3}})
    scene.declare({}, limits=LimitsSpec())
    catalog.no_op_change = no_op_change
    return scene


@needs("deadletters")
def test_dead_letters_that_ask_for_a_change_that_changes_nothing_twice_stay(tmp_path: Path) -> None:
    scene = _scene_of_dead_letters(tmp_path, no_op_change=2)
    with pytest.raises(SpecError, match=f"{_REPORTED}o.q"):
        scene.replayer.replay(scene.table, Selection())
    assert len(scene.dead_letters()) == 1


@needs("deadletters")
def test_dead_letters_that_ask_for_a_change_that_changes_nothing_once_become_rows(tmp_path: Path) -> None:
    scene = _scene_of_dead_letters(tmp_path, no_op_change=1)
    assert scene.replayer.replay(scene.table, Selection()).replayed == 1
    assert sorted(row["o"]["p"] for row in scene.rows()) == [1, 2]


_BEFORE = TableState(
    "n.a", "u", new_schema([("x", parse_type("long"))]), "", {}, format_version=3, progress=Progress(),
)  # fmt: skip
_WIDER = replace(_BEFORE, schema=extend_schema(_BEFORE.schema, {(): {"y": parse_type("long")}}))
_WIDER = replace(_WIDER, schema=_WIDER.schema.model_copy(update={"schema_id": 1}))
_Z: RequestedFields = {(): {"z": parse_type("long")}}


def test_what_another_process_has_changed_begins_again() -> None:
    assert find_no_op_change(_BEFORE, _WIDER, _Z, (), None) is None, "it has changed since it was read"
    first = find_no_op_change(_BEFORE, _BEFORE, _Z, (), None)
    assert first is not None
    assert find_no_op_change(_WIDER, _WIDER, _Z, (), first) is not None, "it has changed since it was asked for"
    noted = replace(_BEFORE, marks={"key-columns": "[]"})
    assert find_no_op_change(_BEFORE, noted, _Z, (), first) is None
    assert find_no_op_change(_BEFORE, replace(_BEFORE, uuid="v"), _Z, (), first) is None, "it is another table"
    assert find_no_op_change(_BEFORE, _BEFORE, _Z, [("x",)], first) not in (None, first), "it is another change"


def test_fields_are_named_as_records_name_them() -> None:
    requested_fields: RequestedFields = {
        (KEY_ROOT,): {"id": parse_type("int")},
        ("o", "l", "element"): {"a b": parse_type("int")},
    }
    first = find_no_op_change(_BEFORE, _BEFORE, requested_fields, [("x",)], None)
    with pytest.raises(SpecError) as raised:
        find_no_op_change(_BEFORE, _BEFORE, requested_fields, [("x",)], first)
    assert raised.value.message == _REPORTED + '["o", "l", "element", "a b"], _key.id, x'
    assert raised.value.where == "n.a"
