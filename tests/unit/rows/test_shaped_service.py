"""A whole service on the ports in memory: tables whose columns are made from nested records, over restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from frazil.decode.settings import WriterSchema
from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.spec import CatalogSpec, ColumnSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.models import Start
from frazil.spec.settings import FlattenSpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from frazil_testing.memory_registry import MemoryRegistry
from frazil_testing.twins import FakeClock, MemoryCatalog, MemoryJobs, MemorySource, StepWorkers, live_rows
from tests.unit.rows.test_writer_schemas import framed


class Scenario:
    """One topic, one table with these settings; every `run` is a process of its own, with no memory of the last."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.source, self.catalog = MemorySource(), MemoryCatalog(root, "p")
        self.source.create("a")
        self.jobs = MemoryJobs(self.source)
        given = {"name": "n.t", "topics": (TopicSelector(literal="a"),), "on_bad_record": "stop", **settings}
        self.spec = PipelineSpec(
            pipeline="p",
            kafka={},
            catalog=CatalogSpec(uri=""),
            tables=(TableSpec.model_validate(given),),
            path=root / "f",
            state_dir=root,
        )
        self.runs = 0
        self.registry = MemoryRegistry()
        self.schemas = Schemas(self.registry)

    def run(self, *records: dict[str, Any]) -> Table:
        for record in records:
            self.source.produce("a", 0, json.dumps(record).encode())
        return self.catch_up()

    def process(self, clock: FakeClock) -> Service:
        """Another one, which has looked at all that is there."""
        self.runs += 1
        parts = Services(
            self.source, self.catalog, self.jobs, clock, StepWorkers(clock), self.schemas, reader=self.source
        )
        service = Service(self.spec, parts, f"run-{self.runs}", lambda _: None)
        service.connect()
        return service

    def catch_up(self) -> Table:
        service = self.process(FakeClock())
        for _ in range(5000):
            if service.is_over(until_caught_up=True):
                break
            service.turn(until_caught_up=True)
        (table,) = service.tables
        return table

    def columns(self) -> dict[str, str | None]:
        state = self.catalog.load("n.t")
        assert state is not None
        return {field.name: field.doc for field in state.schema.fields}

    def rows(self) -> list[dict[str, Any]]:
        files = [file for snapshot in reversed(self.catalog.ancestors("n.t")) for file in snapshot.files]
        names = list(self.columns())
        rows = [row for file in files for row in pq.ParquetFile(file.path).read().to_pylist()]
        return [{name: row.get(name) for name in names} for row in rows]

    def dead_letters(self) -> list[tuple[str, str]]:
        """Class and message of each dead letter."""
        return sorted((row["error_class"], row["message"]) for row in live_rows(self.catalog, "n.t__dead_letters"))


def test_a_new_nested_field_gets_its_column_before_its_data_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, flatten=FlattenSpec(), column_case="snake")
    scenario.run({"userId": 1, "order": {"id": 7}})
    scenario.run({"userId": 2, "order": {"lineCount": 3}})
    scenario.run({"userId": 3, "order": {"id": 8, "lineCount": 4}})
    assert scenario.columns() == {
        "user_id": "field: userId",
        "order_id": "field: order.id",
        "order_line_count": "field: order.lineCount",
    }
    assert scenario.rows() == [
        {"user_id": 1, "order_id": 7, "order_line_count": None},
        {"user_id": 2, "order_id": None, "order_line_count": 3},
        {"user_id": 3, "order_id": 8, "order_line_count": 4},
    ]


def test_two_fields_that_would_share_a_column_stop_the_table_also_after_a_restart(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, flatten=FlattenSpec())
    scenario.run({"user": {"id": 1}})
    for _ in range(2):
        table = scenario.run({"user_id": 2})
        assert table.status.run_state is RunState.STOPPED
        assert table.status.reason.startswith("the fields user.id and user_id would share the column user_id: give")
        assert table.status.remedy.startswith("leave one of the fields out with `exclude`")
    assert scenario.rows() == [{"user_id": 1}]


def test_an_existing_table_and_a_declared_column_find_their_fields(tmp_path: Path) -> None:
    declared = (ColumnSpec(name="user_id", type=parse_type("string")), ColumnSpec(name="never", type=parse_type("int")))
    scenario = Scenario(tmp_path, flatten=FlattenSpec(), columns=declared, unknown_fields="drop")
    scenario.run({"user": {"id": "u1", "x": 1}}, {"user": {"id": "u2"}})
    scenario.run({"user": {"id": "u3"}})
    assert scenario.columns() == {"user_id": "field: user.id", "never": None}
    assert [row["user_id"] for row in scenario.rows()] == ["u1", "u2", "u3"]


def test_a_column_fed_by_name_and_one_that_is_left_out(tmp_path: Path) -> None:
    declared = (ColumnSpec(name="total", type=parse_type("decimal(9,2)"), field=("order", "total")),)
    scenario = Scenario(tmp_path, columns=declared, exclude=(("secret",),))
    table = scenario.run({"order": {"total": 1.25, "id": 1}, "secret": {"a": [1, "x"]}})
    assert (table.status.run_state, table.schema.dropped) == (RunState.WAITING, frozenset())
    assert [(str(row["total"]), row["order"]) for row in scenario.rows()] == [("1.25", {"id": 1})]


def test_schemas_of_keys_are_fetched_apart_and_keys_grow_like_values(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, key=ValueSpec(format="avro"), metadata={"key": "_key"})
    for names in (("id",), ("id", "part")):
        fields = [{"name": name, "type": "int"} for name in names]
        text = json.dumps({"type": "record", "name": "K", "fields": fields})
        number = scenario.registry.register("avro", text, subject="a-key")
        (key,) = framed(number, WriterSchema("avro", text), dict.fromkeys(names, 7))
        scenario.source.produce("a", 0, b'{"x": 1}', key=key)
        scenario.source.produce("a", 0, b'{"x": 2}')
        assert scenario.catch_up().status.run_state is RunState.WAITING
    assert scenario.rows() == [
        {"x": 1, "_key": {"id": 7}},
        {"x": 2, "_key": None},
        {"x": 1, "_key": {"id": 7, "part": 7}},
        {"x": 2, "_key": None},
    ]
    (newest, *_) = scenario.catalog.ancestors("n.t")
    assert newest.summary["frazil.p.schemas"] == "json"


def test_keys_that_contradict_each_other_stop_the_table_with_words_about_their_column(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, key=ValueSpec(format="json"), metadata={"key": "_key"})
    scenario.jobs = MemoryJobs(scenario.source, batch_size=1000)
    for n in range(1001):  # More than one Arrow batch holds: each of the two infers a type of its own.
        scenario.source.produce("a", 0, b'{"x": 1}', key=b"1" if n < 1000 else b'"x"')
    table = scenario.catch_up()
    assert (table.status.run_state, table.status.reason, table.status.where) == (
        RunState.STOPPED,
        'field _key: string "x" does not fit long',
        "topic a, partition 0, offset 1000",
    )
    assert table.status.remedy.startswith("write `key: {format: text}`")


@pytest.mark.parametrize("topic", [None, "a"])
def test_a_start_at_a_partition_that_is_not_there_stops_a_table_without_progress(
    tmp_path: Path, topic: str | None
) -> None:
    scenario = Scenario(tmp_path, start=Start(kind="offsets", offsets={topic: {0: 1, 3: 7}}))
    table = scenario.run({"n": 1}, {"n": 2})
    assert (table.status.run_state, table.status.where) == (RunState.STOPPED, "topic a, partition 3")
    assert table.status.reason == "`start` has an offset of partition 3, and the topic has 1"
    started = scenario.spec
    table_spec = started.tables[0].model_copy(update={"start": Start(kind="offsets", offsets={topic: {0: 1}})})
    scenario.spec = started.model_copy(update={"tables": (table_spec,)})
    scenario.catch_up()
    scenario.spec = started
    assert (scenario.run({"n": 3}).status.run_state, scenario.rows()) == (RunState.WAITING, [{"n": 2}, {"n": 3}])


@pytest.mark.parametrize(
    ("codec", "level", "found"),
    [
        ("", "", "1"),
        ("ZSTD", "", "1"),
        ("zstd", "7", "7"),
        ("snappy", "", None),
        ("gzip", "6", "6"),
        ("gzip", "", None),
    ],
)
def test_a_new_table_has_the_level_of_its_own_codec(tmp_path: Path, codec: str, level: str, found: str | None) -> None:
    prefix = "write.parquet.compression"
    properties = {f"{prefix}-codec": codec, f"{prefix}-level": level}
    scenario = Scenario(tmp_path, properties={name: text for name, text in properties.items() if text})
    assert scenario.run({"x": 1}).status.run_state is RunState.WAITING
    assert scenario.rows() == [{"x": 1}]
    state = scenario.catalog.load("n.t")
    assert state is not None
    assert state.properties.get(f"{prefix}-level") == found
    assert state.properties[f"{prefix}-codec"] == (codec or "zstd")
