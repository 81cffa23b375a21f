"""A topic whose table would be another table's dead-letter table, and a dead-letter table that is something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.ingest.loop.refresh import TOPICS_EVERY_S
from frazil.ingest.tables.state import RunState
from frazil.schema.evolve import new_schema
from frazil.spec import PipelineSpec, TopicSelector
from tests.unit.ingest.service_scene import Scene, only, turn_until

OWNER, TAKEN = "n.orders", "n.orders__dead_letters"


class Everything(Scene):
    """All topics get a table each."""

    def spec(self, *topics: str) -> PipelineSpec:
        chosen = {"tables": (), "namespace": "n", "topics": (TopicSelector(pattern=".*"),)}
        return super().spec(*topics).model_copy(update=chosen)


@pytest.mark.parametrize("order", [("orders", "orders__dead_letters"), ("orders__dead_letters", "orders")])
def test_the_table_that_would_hold_the_dead_letters_of_another_is_stopped(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    scene = Everything(tmp_path)
    scene.source.create(order[0])
    scene.feed(order[0], {"x": 1})
    service = scene.start()
    turn_until(service, lambda: service.is_over(until_caught_up=True), 30)
    scene.source.create(order[1])
    scene.feed(order[1], {"x": 1})
    scene.clock.sleep(TOPICS_EVERY_S)
    turn_until(service, lambda: False, 30)
    tables = {table.name: table for table in service.tables}
    assert tables[OWNER].status.run_state is RunState.WAITING
    assert (tables[TAKEN].status.run_state, tables[TAKEN].status.reason) == (
        RunState.STOPPED,
        "this table is the dead-letter table of n.orders",
    )
    assert [row["x"] for row in scene.rows(OWNER)] == [1]


def test_dead_letters_do_not_go_to_a_table_that_is_something_else(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.catalog.create("n.a__dead_letters", new_schema([]), {}, 2)
    scene.feed("a", {"x": 1}, b"not json")
    table = only(scene.catch_up())
    assert (table.status.run_state, table.status.reason) == (
        RunState.STOPPED,
        "the table n.a__dead_letters is not a dead-letter table: it has no column error_class",
    )
    assert scene.rows("n.a") == []
