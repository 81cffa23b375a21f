"""What a released table leaves to the tool that continues."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from frazil.clock import new_id
from frazil.dead_letters.tables import DeadLetterTables
from frazil.errors import SpecError
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.table import Table
from frazil.kafka.port import GroupOffset
from frazil.schema.evolve import new_schema
from frazil.spec import TableSpec
from frazil.types import MAIN, Commit
from frazil_migrate.adopt.adopt import Handover, Origin, Tool, chosen, handed_over
from frazil_migrate.adopt.offsets import Services
from frazil_migrate.adopt.release import plan_release, release
from frazil_migrate.adopt.spark import find_progress
from frazil_publish.audits import NO_AUDITS
from frazil_publish.publisher import Published, Publisher
from frazil_testing.memory_branches import MemoryBranches
from frazil_testing.memory_kafka import MemoryGroup
from packages.migrate.tests.unit.adopt.scene import CONTROL, POSITION, SINK, TABLE, TOPIC, Scene
from packages.state.tests.unit.grouping.grouping import PER_MINUTE, Grouped, moment


def test_the_sink_gets_the_offsets_and_ignores_older_events(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**{POSITION: '{"0":0}'})
    scene.has_read(SINK, 2)
    scene.adopt(Tool.KAFKA_CONNECT)
    scene.catch_up()
    scene.source.produce(CONTROL, 0, b"an event of a file that the table must not have any more")
    assert scene.release(Tool.KAFKA_CONNECT, is_dry=True).place == f"group {SINK}"
    assert scene.group(SINK).commits == []
    scene.release(Tool.KAFKA_CONNECT)
    assert scene.group(SINK).committed == {(TOPIC, 0): GroupOffset(6, "")}
    assert json.loads(scene.catalog.ancestors(TABLE)[0].summary[POSITION]) == {"0": 1}


def test_a_batch_in_hand_is_refused_by_a_release(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.catch_up()
    running = scene.start()
    scene.feed(TOPIC, {"id": 6})
    running.turn(until_caught_up=False)
    scene.release(Tool.GROUP, group="g")
    for _ in range(20):
        running.turn(until_caught_up=False)
    assert [row["id"] for row in scene.rows(TABLE)] == list(range(6))
    assert scene.group("g").committed == {(TOPIC, 0): GroupOffset(6, "")}


def test_a_release_that_was_interrupted_is_repeated_until_the_tool_has_continued(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table()
    refused = scene.release(Tool.GROUP, group="g").problem
    assert refused is not None
    assert refused.remedy == "name a table that it has written"
    scene.has_read("g", 2)
    scene.adopt(Tool.GROUP, group="g")
    for _ in range(2):
        scene.release(Tool.GROUP, group="h")
        assert scene.group("h").committed == {(TOPIC, 0): GroupOffset(2, "")}
        scene.group("h").committed.clear()
    scene.catalog.append_foreign(TABLE)
    moved = scene.release(Tool.GROUP, group="h").problem
    assert moved is not None
    assert "frazil adopt" in moved.remedy
    scene.has_read("h", 4)
    scene.adopt(Tool.GROUP, group="h")
    assert scene.release(Tool.GROUP, group="h").offsets == {TOPIC: {0: 4}}


def test_a_table_is_released_once_its_branch_is_published(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.catalog.with_branches(lambda _: "ingest")
    scene.catch_up()
    for _ in range(2):
        refused = scene.release(Tool.GROUP, group="g").problem
        assert refused is not None
        assert refused.remedy.startswith("run `frazil publish n.a`, and repeat the command")
    assert scene.group("g").commits == []
    Publisher(MemoryBranches(scene.catalog), NO_AUDITS, "p", scene.clock).publish(Published(TABLE), "by hand")
    assert scene.release(Tool.GROUP, group="g").problem is None
    assert scene.group("g").committed == {(TOPIC, 0): GroupOffset(6, "")}


def test_a_table_of_closed_windows_is_refused_and_another_one_of_its_topics_is_released(
    tmp_path: Path, queries: SparkQueries
) -> None:
    grouped, group = Grouped(tmp_path, queries, PER_MINUTE, "late: 10m, emit: closed"), MemoryGroup("g")
    (closed,) = grouped.spec.tables
    other = Grouped(tmp_path / "other", queries, PER_MINUTE, "late: 10m").spec.tables[0]
    other = other.model_copy(update={"name": "n.u"})
    grouped.catalog.with_branches(lambda name: "windows" if name == "n.t" else MAIN)
    services = Services(grouped.catalog, grouped.source, grouped.source, lambda _: group)

    def released(spec: TableSpec) -> Handover:
        parts = (services, Table(spec), Origin(Tool.GROUP, group="g"), (), DeadLetterTables(grouped.catalog))
        return handed_over(spec.name, lambda: release(*parts))

    for seconds in (0, 660):
        grouped.pay("a", seconds)
    grouped.catch_up()
    refused = released(closed).problem
    assert refused is not None
    assert refused.remedy.startswith("write another table of the same topics without `emit: closed`")
    grouped.pay("a", 1320)
    grouped.catch_up()  # The refused release has stopped nothing.
    assert grouped.table_rows("minute", "n") == [(moment(0), 1), (moment(660), 1), (moment(1320), 1)]
    grouped.spec = grouped.spec.model_copy(update={"tables": (other,)})
    grouped.catch_up()
    assert released(other).problem is None
    assert group.committed == {("a", 0): GroupOffset(3, "")}


def test_spark_gets_a_checkpoint_that_continues(tmp_path: Path) -> None:
    scene, folder = Scene(tmp_path), tmp_path / "checkpoint"
    scene.catch_up()
    scene.release(Tool.SPARK, checkpoint=folder)
    query = json.loads((folder / "metadata").read_text())["id"]
    scene.catalog.append_foreign(
        TABLE, summary={"spark.sql.streaming.queryId": query, "spark.sql.streaming.epochId": "0"}
    )
    assert find_progress(scene.services, TABLE, folder).offsets == {(TOPIC, 0): 6}


def test_what_cannot_be_given_offsets_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.catch_up()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    cases: list[tuple[Tool, dict[str, Any], str]] = [
        (Tool.GROUP, {}, "give --group"),
        (Tool.KAFKA_CONNECT, {}, "connect-CONNECTOR"),
        (Tool.FLINK, {}, "release the table to a group"),
        (Tool.SPARK, {}, "a folder that is empty"),
        (Tool.SPARK, {"checkpoint": tmp_path / "full"}, "a folder that is empty"),
        (Tool.SPARK, {"checkpoint": tmp_path / "full" / "file"}, "a folder that is empty"),
        (Tool.SPARK, {"checkpoint": Path("s3://lake/checkpoint")}, "copy it to the store"),
    ]
    for tool, options, remedy in cases:
        with pytest.raises(SpecError) as missing:
            scene.release(tool, **options)
        assert remedy in missing.value.remedy
    scene.group("g").has_members = True
    assert scene.release(Tool.GROUP, group="g").action == "refused"
    scene.group("g").has_members = False
    assert scene.release(Tool.GROUP, group="g").action == "release"


def test_tables_of_one_topic_are_released_at_equal_offsets(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.catch_up()
    (table,) = chosen(scene.discovery(), TABLE)
    other = Table(table.spec.model_copy(update={"name": "n.b"}))
    progress = scene.catalog.load(TABLE).progress  # type: ignore[union-attr]
    scene.catalog.create("n.b", new_schema([("id", LongType())]), {}, 2)

    def release_both(offset: int) -> Handover:
        state = scene.catalog.load("n.b")
        assert state is not None
        released = replace(progress, offsets={TOPIC: {0: offset}}, commit_id=new_id(), released_to="group")
        scene.catalog.commit(Commit("n.b", (), released, state.progress, shape=state.shape))
        return handed_over(TABLE, lambda: plan_release(scene.services, table, Origin(Tool.GROUP, "g"), [other]))

    refused = release_both(2).problem
    assert refused is not None
    assert "release both while no pipeline runs" in refused.remedy
    assert release_both(6).action == "release"


def test_pending_dead_letters_are_committed_by_a_release_and_not_by_a_look(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.catch_up()
    scene.feed(TOPIC, b"no json")
    scene.catch_up()
    pending = [one for one in scene.catalog.ancestors(f"{TABLE}__dead_letters") if one.files]
    scene.catalog.roll_back(f"{TABLE}__dead_letters", pending[0].parent)
    scene.release(Tool.GROUP, group="g", is_dry=True)
    assert scene.dead_letters(TABLE) == []
    scene.release(Tool.GROUP, group="g")
    assert scene.dead_letters(TABLE) == [(TOPIC, 0, 6)]
