"""Which tables `frazil dead-letters` looks at, and how it counts and sorts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from frazil.dead_letters.files import Selection
from frazil.errors import SpecError
from frazil.ops.dead_letters import classes_of, count_dead_letters, find_tables, newest_dead_letters
from frazil.ops.pipeline_status import ProcessState
from frazil.ops.table_status import TableStatus
from frazil_testing.memory_kafka import MemorySource
from tests.unit.dead_letters.scene import DEAD_LETTERS, Scene
from tests.unit.ops.conftest import Scenario

_TOPICS = "namespace: n\ntopics: [a, /^dev/]\ntables:\n  x.t: {topic: t}\n"


class _Away(MemorySource):
    def __init__(self) -> None:
        super().__init__()
        self.is_down = True


def _names(
    scenario: Scenario, source: MemorySource, reported: Sequence[str] = (), name: str | None = None
) -> list[str]:
    state = ProcessState(tables={table: TableStatus(table) for table in reported})
    return [table.name for table in find_tables(scenario.spec(_TOPICS), source, state, name)]


def test_tables_of_topics_are_found_in_kafka_or_as_the_last_run_has_left_them(scenario: Scenario) -> None:
    for topic in ("a", "dev-1", "other"):
        scenario.source.create(topic)
    assert _names(scenario, scenario.source) == ["n.a", "n.dev-1", "x.t"]
    assert _names(scenario, _Away(), ("n.dev-2", "x.t", "n.other")) == ["n.a", "n.dev-2", "x.t"]


def test_a_table_that_is_named_needs_no_kafka(scenario: Scenario) -> None:
    assert _names(scenario, _Away(), (), "n.dev-7") == ["n.dev-7"]
    assert _names(scenario, _Away(), (), "x.t") == ["x.t"]
    with pytest.raises(SpecError, match=r"no table `n\.other`"):
        _names(scenario, _Away(), (), "n.other")


def test_dead_letters_of_many_files_are_counted_and_sorted_together(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"id": "long"})
    for number in range(5):
        scene.feed({"id": number}, b"{", None, partition=number % 2)
    state = scene.catalog.load(DEAD_LETTERS)
    assert state is not None
    assert len(scene.catalog.scan(DEAD_LETTERS).files) == 5
    assert [(one.error_class, one.count) for one in classes_of(scene.catalog, state)] == [
        ("malformed", 5), ("tombstone", 5),
    ]  # fmt: skip
    assert count_dead_letters(scene.catalog, state, Selection(error_class="malformed", partition=1)) == 2
    newest = newest_dead_letters(scene.catalog, state, Selection(), 3)
    assert [(row["partition"], row["offset"]) for row in newest] == [(0, 8), (0, 5), (0, 2)]
    assert len(newest_dead_letters(scene.catalog, state, Selection(), 100)) == 10
