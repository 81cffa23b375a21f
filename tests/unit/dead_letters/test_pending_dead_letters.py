"""Dead letters that one process has promised and could not keep are kept by whichever process continues from its commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema

from frazil.catalog.port import TableState
from frazil.dead_letters import tables
from frazil.errors import UnavailableError
from frazil.spec.settings import DeadLettersSpec
from frazil.types import Commit, Progress
from frazil.write.target import TableTarget
from tests.unit.ingest.service_scene import Scene, turn_until


def _offset(scene: Scene) -> int:
    state = scene.catalog.load("n.a")
    return state.progress.offsets.get("a", {}).get(0, 0) if state else 0


def test_a_promise_that_comes_to_light_with_a_change_of_columns_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, "a", dead_letters=DeadLettersSpec(stop_above=1.0))
    first, second = scene.start(), scene.start()
    scene.feed("a", {"x": 1}, b"bad")
    assert turn_until(second, lambda: _offset(scene) == 2 and scene.dead_letters("n.a") == [("a", 0, 1)])
    assert turn_until(first, lambda: first.tables[0].progress.offsets == {"a": {0: 2}})
    evolve, commit, is_meanwhile = scene.catalog.evolve, scene.catalog.commit, [False]

    def refuse(made: Commit) -> Progress:
        if made.table.endswith("__dead_letters"):
            raise UnavailableError("no answer")
        return commit(made)

    def evolve_late(table: str, change: Callable[[Schema], Schema]) -> TableState:
        """While this process changes the columns, the other commits a bad record and dies before its dead letter is
        there.
        """
        if not is_meanwhile[0]:
            is_meanwhile[0] = True
            scene.feed("a", b"worse")
            with monkeypatch.context() as patch:
                patch.setattr(scene.catalog, "commit", refuse)
                assert turn_until(first, lambda: _offset(scene) == 4)
        return evolve(table, change)

    monkeypatch.setattr(scene.catalog, "evolve", evolve_late)
    scene.feed("a", {"x": 2, "y": 1})
    assert turn_until(second, lambda: is_meanwhile[0])
    scene.feed("a", {"x": 3})
    assert turn_until(second, lambda: _offset(scene) == 5)
    assert scene.dead_letters("n.a") == [("a", 0, 1), ("a", 0, 3)]


def test_dead_letters_of_a_rolled_back_table_are_known_by_their_offsets_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, "a", dead_letters=DeadLettersSpec(stop_above=1.0))
    for number in range(3):
        scene.feed("a", {"x": number}, b"bad")
        scene.catch_up()
    scene.catalog.roll_back("n.a", scene.catalog.ancestors("n.a")[-1].id)
    there = {file.path for file in scene.catalog.scan("n.a__dead_letters").files}
    read, read_dead_letters = list[tuple[str, Sequence[str] | None]](), tables.read_dead_letters

    def noted(target: TableTarget, path: str, names: Sequence[str] | None = None) -> pa.Table:
        read.append((path, names))
        return read_dead_letters(target, path, names)

    monkeypatch.setattr(tables, "read_dead_letters", noted)
    scene.feed("a", b"worse")
    scene.catch_up()
    assert scene.dead_letters("n.a") == [("a", 0, offset) for offset in (1, 3, 5, 6)]
    assert [row["x"] for row in scene.rows("n.a")] == [0, 1, 2]
    assert {path for path, names in read if names == ("topic", "partition", "offset")} >= there
    # The first one is what the commit has promised that the table went back to.
    assert len({path for path, names in read if names is None} & there) == 1
