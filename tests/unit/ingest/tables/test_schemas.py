"""Schemas of the registry in a running pipeline: found missing, asked for, kept; on the memory twins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from frazil.decode.settings import WriterSchema
from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.state import RunState
from frazil.registry.port import RegisteredSchema, UnusableSchema
from frazil.spec import CatalogSpec, ColumnSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.syntax.types import parse_type
from frazil_testing.memory_registry import MemoryRegistry
from frazil_testing.twins import FakeClock, MemoryCatalog, MemoryJobs, MemorySource, StepWorkers
from tests.needs import needs
from tests.unit.rows.test_writer_schemas import framed


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[Any]]:
    with capture_logs() as logs:
        yield logs


def avro(**fields: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]})


class Scenario:
    """A topic `a` of Avro records, its table, a registry, and services one after another."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.source, self.catalog, self.clock = MemorySource(), MemoryCatalog(root, "p"), FakeClock()
        self.source.create("a")
        self.registry = MemoryRegistry()
        given = {"value": {"format": "avro"}, **settings}
        self.table = TableSpec.model_validate({"name": "n.t", "topics": (TopicSelector(literal="a"),), **given})
        self.service = self.start()

    def start(self) -> Service:
        """A process that has just begun."""
        spec = PipelineSpec(
            pipeline="p",
            kafka={},
            catalog=CatalogSpec(uri=""),
            tables=(self.table,),
            path=self.root / "f",
            state_dir=self.root,
        )
        jobs, workers = MemoryJobs(self.source), StepWorkers(self.clock)
        parts = Services(self.source, self.catalog, jobs, self.clock, workers, Schemas(self.registry, clock=self.clock))
        service = Service(spec, parts, f"run-{self.clock.now_ms()}", lambda _: None)
        service.connect()
        return service

    def register(self, text: str, subject: str = "a-value") -> int:
        return self.registry.register("avro", text, subject=subject)

    def produce(self, schema_id: int, text: str, *records: dict[str, Any]) -> None:
        for value in framed(schema_id, WriterSchema("avro", text), *records):
            self.source.produce("a", 0, value)

    def settle(self, service: Service | None = None) -> None:
        """Continues until all is read, or nothing continues."""
        service = service or self.service
        for _ in range(200):
            if service.is_over(until_caught_up=True):
                return
            service.turn(until_caught_up=True)

    def go(self) -> None:
        """The first process continues for a while."""
        for _ in range(60):
            self.service.turn()

    def rows(self, table: str = "n.t") -> list[dict[str, Any]]:
        files = [file for snapshot in reversed(self.catalog.ancestors(table)) for file in snapshot.files]
        return [row for file in files for row in pq.read_table(file.path).to_pylist()]


V1, V2 = avro(id="int"), avro(id="long", name="string")


def test_schemas_are_asked_for_once_and_the_table_follows_them(tmp_path: Path, logs: list[Any]) -> None:
    scenario = Scenario(tmp_path)
    one = scenario.register(V1)
    scenario.produce(one, V1, {"id": 1})
    scenario.settle()
    two = scenario.register(V2)
    service = scenario.start()
    scenario.produce(two, V2, {"id": 2**40, "name": "b"})
    scenario.produce(one, V1, {"id": 3})
    scenario.settle(service)
    assert scenario.rows() == [{"id": 1}, {"id": 2**40, "name": "b"}, {"id": 3, "name": None}]
    # The second process asks for what the first one used before it reads, and for the new one when it meets it.
    assert scenario.registry.asked == [f"id {one}", f"id {one}", f"id {two}"]
    assert [log["schemas"] for log in logs if log["event"] == "schemas_fetched"] == [["1"], ["2"]]
    state = scenario.catalog.load("n.t")
    assert state is not None
    assert (state.progress.batch.schemas, str(state.schema.find_type("id"))) == (("1", "2"), "long")


def test_a_registry_that_is_away_is_waited_for_and_nothing_is_refused(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    one = scenario.register(V1)
    scenario.registry.is_down = True
    scenario.produce(one, V1, {"id": 1})
    scenario.go()
    [table] = scenario.service.tables
    assert (table.status.run_state, scenario.catalog.load("n.t")) == (RunState.BACKING_OFF, None)
    scenario.registry.is_down = False
    scenario.settle(scenario.start())
    assert scenario.rows() == [{"id": 1}]
    assert scenario.catalog.load("n.t__dead_letters") is None


def test_an_id_that_the_registry_does_not_know_makes_dead_letters_until_it_does(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    one = scenario.register(V1)
    scenario.produce(one, V1, {"id": 1})
    scenario.produce(one + 1, V2, {"id": 2, "name": "b"})
    scenario.settle()
    assert scenario.rows() == [{"id": 1}]
    [dead_letter] = scenario.rows("n.t__dead_letters")
    assert (dead_letter["error_class"], dead_letter["offset"]) == ("unknown_schema_id", 1)
    assert scenario.register(V2) == one + 1
    service = scenario.start()
    scenario.produce(one + 1, V2, {"id": 3, "name": "c"})
    scenario.settle(service)
    assert scenario.rows() == [{"id": 1}, {"id": 3, "name": "c"}]


def test_a_running_process_learns_of_an_id_that_was_not_known_within_a_minute(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    one = scenario.register(V1)
    scenario.produce(one, V1, {"id": 1})
    scenario.produce(one + 1, V2, {"id": 2, "name": "b"})
    scenario.go()
    scenario.register(V2)
    scenario.clock.sleep(61)
    scenario.produce(one + 1, V2, {"id": 3, "name": "c"})
    scenario.go()
    assert scenario.rows() == [{"id": 1}, {"id": 3, "name": "c"}]
    assert [dead_letter["offset"] for dead_letter in scenario.rows("n.t__dead_letters")] == [1]


class _Behind(MemoryRegistry):
    """A server that does not have yet what schemas refer to."""

    is_behind = True

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema | None:
        if self.is_behind:
            raise UnusableSchema("it refers to version 1 of subject `b`, which is not in the registry")
        return super().by_id(schema_id, subject)


def test_a_schema_that_could_not_be_used_is_asked_for_again_within_a_minute(tmp_path: Path) -> None:
    scenario = Scenario(
        tmp_path, dead_letters={"stop_above": 1.0}, columns=(ColumnSpec(name="id", type=parse_type("int")),)
    )
    registry = scenario.registry = _Behind()
    scenario.service = scenario.start()
    one = scenario.register(V1)
    scenario.produce(one, V1, {"id": 1})
    scenario.go()
    registry.is_behind = False
    scenario.produce(one, V1, {"id": 2})
    scenario.go()
    scenario.clock.sleep(61)
    scenario.produce(one, V1, {"id": 3})
    scenario.go()
    assert scenario.rows() == [{"id": 3}]
    dead_letters = scenario.rows("n.t__dead_letters")
    assert [(dead_letter["error_class"], dead_letter["offset"]) for dead_letter in dead_letters] == [
        ("unusable_schema", 0),
        ("unusable_schema", 1),
    ]


def test_a_schema_that_cannot_be_used_does_not_keep_a_table_that_is_turned_to_once_a_minute(tmp_path: Path) -> None:
    scenario = Scenario(
        tmp_path, dead_letters={"stop_above": 1.0}, columns=(ColumnSpec(name="id", type=parse_type("int")),)
    )
    scenario.registry = _Behind()
    scenario.service = scenario.start()
    scenario.produce(scenario.register(V1), V1, {"id": 1})
    for _ in range(20):
        scenario.service.turn()
        scenario.clock.sleep(65)
    assert [dead_letter["offset"] for dead_letter in scenario.rows("n.t__dead_letters")] == [0]


def test_a_table_stops_rather_than_get_more_columns_than_it_may(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, value={"format": "json"}, limits={"columns": 4})
    scenario.source.produce("a", 0, b'{"a": 1, "b": {"c": 1}}')
    scenario.settle()
    scenario.source.produce("a", 0, b'{"d": 1}')
    scenario.source.produce("a", 0, b'{"e": 1}')
    service = scenario.start()
    scenario.settle(service)
    [table] = service.tables
    assert (table.status.run_state, len(scenario.rows())) == (RunState.STOPPED, 1)
    assert "records bring the table to 5 columns, nested ones counted, and its limit is 4" in table.status.reason


def test_a_refused_change_is_reported_once_with_its_schema(tmp_path: Path, logs: list[Any]) -> None:
    scenario = Scenario(tmp_path, schema_evolution="add_only")
    one = scenario.register(V1)
    scenario.produce(one, V1, {"id": 1})
    scenario.settle()
    two = scenario.register(V2)
    service = scenario.start()
    for number in range(3):
        scenario.produce(two, V2, {"id": number, "name": "b"})
        scenario.settle(service)
    [reported] = [log for log in logs if log["event"] == "schema_change_refused"]
    assert (reported["change"], reported["schemas"], reported["schema_evolution"]) == (
        "column id: int is not widened to long",
        ("2",),
        "add_only",
    )
    assert reported["remedy"] == "write `schema_evolution: evolve`, or widen the column yourself"


def test_the_latest_schema_reads_values_without_a_frame_and_is_asked_for_again(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, value={"format": "avro", "source": "latest"})
    scenario.register(V1)
    for value in framed(1, WriterSchema("avro", V1), {"id": 1}):
        scenario.source.produce("a", 0, value[5:])
    service = scenario.start()
    scenario.settle(service)
    scenario.register(V2)
    scenario.clock.sleep(61)
    for _ in range(3):
        service.turn()
    for value in framed(1, WriterSchema("avro", V2), {"id": 2, "name": "b"}):
        scenario.source.produce("a", 0, value[5:])
    scenario.settle(scenario.start())
    assert scenario.rows() == [{"id": 1}, {"id": 2, "name": "b"}]


@needs("protobuf")
def test_records_of_a_message_are_read_whatever_the_first_one_of_their_file_is(tmp_path: Path) -> None:
    many = " ".join(f"int32 f{n} = {n};" for n in range(1, 1100))
    text = (
        f'syntax = "proto3"; message All {{ W a = 1; W b = 2; }} message E {{ int32 id = 1; }} message W {{ {many} }}'
    )
    scenario = Scenario(tmp_path, value={"format": "protobuf"}, dead_letters={"stop_above": 1.0})
    header = b"\0" + scenario.registry.register("protobuf", text, subject="a-value").to_bytes(4, "big")
    for indexes in (b"\x02\x02", b"\0"):
        scenario.source.produce("a", 0, header + indexes + b"\x08\x07")
    scenario.settle()
    assert scenario.rows() == [{"id": 7}]
    [dead_letter] = scenario.rows("n.t__dead_letters")
    assert (dead_letter["offset"], dead_letter["error_class"]) == (1, "unusable_schema")
    assert "the message All has more than 2000 fields" in dead_letter["message"]


def test_a_value_that_its_new_column_cannot_hold_is_never_lost_beside_a_damaged_record(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, dead_letters={"stop_above": 1.0})
    with_day = avro(id="int", day={"type": "int", "logicalType": "date"})
    one, two = scenario.register(avro(id="int")), scenario.register(with_day)
    scenario.produce(one, avro(id="int"), {"id": 1})
    scenario.settle()
    scenario.produce(two, avro(id="int", day="int"), {"id": 2, "day": 2_932_897})  # 10000-01-01
    scenario.source.produce("a", 0, b"\0" + one.to_bytes(4, "big"))
    scenario.produce(one, avro(id="int"), {"id": 3})
    scenario.settle(scenario.start())
    assert [row["id"] for row in scenario.rows()] == [1, 3]
    dead_letters = {row["offset"]: (row["error_class"], row["path"]) for row in scenario.rows("n.t__dead_letters")}
    assert dead_letters == {1: ("out_of_range", "day"), 2: ("malformed", "id")}
