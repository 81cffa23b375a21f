"""A table that cannot be loaded, read or planned is stopped with its reason; the process and its neighbours continue."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestampNanoType
from structlog.testing import capture_logs

from frazil.catalog.port import TableState
from frazil.errors import SpecError
from frazil.ingest.loop.load import RELOAD_IDLE_EVERY_S
from frazil.ingest.loop.planner import Planner
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil_testing.twins import MemoryCatalog
from tests.unit.ingest.service_scene import Scene, turn_until


class TornCatalog(MemoryCatalog):
    """Loading some tables raises."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "p")
        self.errors: dict[str, Exception] = {}

    def load(self, table: str) -> TableState | None:
        if table in self.errors:
            raise self.errors[table]
        return super().load(table)


class Torn(Scene):
    """Topics `a` and `b`."""

    def __init__(self, root: Path, **settings: Any) -> None:
        super().__init__(root, "a", "b", **settings)
        self.catalog: TornCatalog = TornCatalog(root)
        for topic in self.topics:
            self.feed(topic, {"id": 1})

    def count(self, topic: str) -> int:
        """The rows of the topic's table."""
        return len(self.rows(f"n.{topic}")) if f"n.{topic}" in self.catalog._tables else 0

    def continues(self, service: Service, topic: str = "b") -> None:
        """Records of a topic still arrive."""
        self.feed(topic, {"id": 2})
        records = len(self.source.by_name[topic].partitions[0])
        assert turn_until(service, lambda: self.count(topic) == records)


def table_of(service: Service, name: str) -> Table:
    (found,) = (table for table in service.tables if table.name == name)
    return found


ERRORS = [ValueError("Type not recognized: zzz"), KeyError("zzz"), RecursionError()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_table_whose_load_fails_in_a_way_nobody_foresaw_stops_alone(
    tmp_path: Path, error: Exception, is_known: bool
) -> None:
    scene = Torn(tmp_path)
    if not is_known:
        scene.catalog.errors["n.a"] = error
    with capture_logs() as logged:
        service = scene.start()
        scene.continues(service)
        if is_known:
            scene.continues(service, "a")
            scene.catalog.errors["n.a"] = error
            scene.clock.sleep(RELOAD_IDLE_EVERY_S)
            assert turn_until(service, lambda: table_of(service, "n.a").status.run_state is RunState.STOPPED)
            scene.continues(service)
    table = table_of(service, "n.a")
    assert (table.status.run_state, table.status.where) == (RunState.STOPPED, "n.a")
    assert type(error).__name__ in table.status.reason
    assert "report it" in table.status.remedy
    assert [event["table"] for event in logged if event["event"] == "unexpected_error"] == ["n.a"]
    assert service.fatal is None


def test_a_table_whose_planning_fails_stops_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Torn(tmp_path)
    plan = Planner.plan

    def plan_or_fail(planner: Planner, table: Table, now_s: float) -> Any:
        if table.name == "n.a":
            raise ZeroDivisionError
        return plan(planner, table, now_s)

    monkeypatch.setattr(Planner, "plan", plan_or_fail)
    service = scene.start()
    scene.continues(service)
    assert table_of(service, "n.a").status.run_state is RunState.STOPPED


def test_a_table_with_a_column_that_cannot_be_written_stops_with_its_name_and_type(tmp_path: Path) -> None:
    scene = Torn(tmp_path)
    with pytest.raises(SpecError):
        scene.catalog.create("n.a", Schema(NestedField(1, "at", TimestampNanoType(), required=False)), {}, 3)
    service = scene.start()
    scene.continues(service)
    table = table_of(service, "n.a")
    assert (table.status.run_state, table.status.where) == (RunState.STOPPED, "n.a")
    assert table.status.reason == "the column at has the type timestamp_ns, which this version cannot write"
    assert "drop the column" in table.status.remedy


@pytest.mark.parametrize("file_format", ["orc", "AVRO", "vortex"])
def test_a_table_whose_file_format_cannot_be_written_stops_until_it_is_parquet(
    tmp_path: Path, file_format: str
) -> None:
    scene = Torn(tmp_path)
    columns = Schema(NestedField(1, "id", LongType(), required=False))
    scene.catalog.create("n.a", columns, {"write.format.default": file_format}, 2)
    service = scene.start()
    scene.continues(service)
    table = table_of(service, "n.a")
    assert (table.status.run_state, table.status.where) == (RunState.STOPPED, "n.a")
    words = f"the table's property `write.format.default` is `{file_format.lower()}`, which Frazil does not write"
    assert table.status.reason == words
    _correct(scene, table.status.remedy)
    scene.continues(scene.start(), "a")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("write.parquet.compression-codec", "lzo"),
        ("write.parquet.compression-level", "best"),
        ("write.parquet.page-size-bytes", "1m"),
        ("write.target-file-size-bytes", "512MB"),
        ("write.parquet.bloom-filter-fpp.column.id", "1%"),
        ("write.metadata.metrics.default", "all"),
        ("write.metadata.metrics.column.id", "truncate"),
    ],
)
def test_a_table_whose_properties_no_file_can_be_written_with_stops_until_they_are_corrected(
    tmp_path: Path, name: str, text: str
) -> None:
    scene = Torn(tmp_path)
    columns = Schema(NestedField(1, "id", LongType(), required=False))
    scene.catalog.create("n.a", columns, {name: text}, 2)
    service = scene.start()
    scene.continues(service)
    status = table_of(service, "n.a").status
    assert (status.run_state, status.where) == (RunState.STOPPED, "n.a")
    assert status.reason.startswith(f"the table's property `{name}` is `{text}`, and Iceberg takes ")
    _correct(scene, status.remedy)
    scene.continues(scene.start(), "a")


def _correct(scene: Torn, remedy: str) -> None:
    """Runs the statement of the remedy."""
    [(corrected, value)] = re.findall(r"`ALTER TABLE n\.a SET TBLPROPERTIES \('(.+)' = '(.+)'\)`", remedy)
    table = scene.catalog._tables["n.a"]
    table.state = replace(table.state, properties={**table.state.properties, corrected: value})


def test_another_table_of_the_same_name_is_read_into_from_start_and_reported(tmp_path: Path) -> None:
    scene = Torn(tmp_path)
    service = scene.start()
    scene.continues(service, "a")
    assert [row["id"] for row in scene.rows("n.a")] == [1, 2]
    schema = scene.catalog.load("n.a")
    assert schema is not None
    del scene.catalog._tables["n.a"]
    scene.catalog.create("n.a", schema.schema, {}, 2)
    with capture_logs() as logged:
        scene.feed("a", {"id": 3})
        assert turn_until(service, lambda: scene.count("a") == 3)
    assert [row["id"] for row in scene.rows("n.a")] == [1, 2, 3]
    assert [(event["table"], event["log_level"]) for event in logged if event["event"] == "table_recreated"] == [
        ("n.a", "warning")
    ]


def test_another_table_of_the_same_name_gets_all_columns_also_when_it_is_met_by_a_change_of_columns(
    tmp_path: Path,
) -> None:
    """Its maker is another process, whose file asks for other columns."""
    scene = Torn(tmp_path, metadata={"offset": "_offset"})
    service = scene.start()
    scene.continues(service, "a")
    scene.catalog.drop("n.a")
    scene.catalog.create("n.a", Schema(NestedField(1, "id", LongType(), required=False)), {}, 2)
    scene.feed("a", {"id": 3, "new": 1})
    assert turn_until(service, lambda: scene.count("a") == 3)
    assert [(row["id"], row["_offset"]) for row in scene.rows("n.a")] == [(1, 0), (2, 1), (3, 2)]


def test_what_is_gone_from_kafka_since_the_first_table_was_made_does_not_stop_the_second(tmp_path: Path) -> None:
    scene = Torn(tmp_path)
    service = scene.start()
    scene.continues(service, "a")
    scene.source.trim("a", 0, 1)
    del scene.catalog._tables["n.a"]
    scene.feed("a", {"id": 3})
    assert turn_until(service, lambda: scene.count("a") == 2)
    assert table_of(service, "n.a").status.run_state is not RunState.STOPPED
