"""Avro's logical types beside their type: ignored and reported, or read as meant where the pipeline file asks for it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.decode.avro.schema import find_misplaced, parse_avro, with_moved_logical_types
from frazil.ingest.tables.schemas import Schemas
from frazil.spec.settings import ValueSpec
from frazil_testing.memory_registry import MemoryRegistry
from tests.unit.ingest.tables.test_schemas import Scenario
from tests.unit.ops.conftest import Scenario as OpsScenario
from tests.unit.ops.conftest import scenario as ops_scenario
from tests.unit.ops.test_plan import columns, plan, produce

__all__ = ["ops_scenario"]
_MILLIS = {"logicalType": "timestamp-millis"}
_WORDS = (
    "field ts: the logicalType timestamp-millis is on the type long, where Avro ignores it; write `{}: {{format:"
    " avro, logical_types: lenient}}` to read it as meant, or correct the schema"
)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as logs:
        yield logs


def _record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


@pytest.mark.parametrize(
    ("field", "moved"),
    [
        ({"type": "long", **_MILLIS}, {"type": "long", **_MILLIS}),
        ({"type": ["null", "long"], **_MILLIS}, ["null", {"type": "long", **_MILLIS}]),
        ({"type": {"type": "long"}, **_MILLIS}, {"type": "long", **_MILLIS}),
        ({"type": {"type": {"type": "long"}, **_MILLIS}}, {"type": {"type": "long", **_MILLIS}, **_MILLIS}),
        ({"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "date"}),
        ({"type": "string", "logicalType": "uuid"}, {"type": "string", "logicalType": "uuid"}),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        ),
        (
            {"type": {"type": "fixed", "name": "F", "size": 4}, "logicalType": "decimal", "precision": 9},
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9},
        ),
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("place", ["top", "record", "list", "map"])
def test_a_logical_type_beside_its_type_is_found_and_moved(field: dict[str, Any], moved: Any, place: str) -> None:
    def schema(inner: dict[str, Any]) -> str:
        if place == "top":
            return _record({"name": "f", **inner})
        one: Any = {"type": "record", "name": "In", "fields": [{"name": "f", **inner}]}
        if place in ("list", "map"):
            word, key = ("array", "items") if place == "list" else ("map", "values")
            one = {"type": word, key: one}
        return _record({"name": "o", "type": one})

    path = {"top": "f", "record": "o.f", "list": "o.element.f", "map": "o.value.f"}[place]
    text = schema(field)
    kept = {key: value for key, value in field.items() if key != "type"}
    assert json.loads(with_moved_logical_types(text)) == json.loads(schema({**kept, "type": moved}))
    assert [one.path for one in find_misplaced(text)] == [path]
    assert parse_avro(with_moved_logical_types(text)).kind == "record"


@pytest.mark.parametrize(
    "field",
    [
        {"type": {"type": "long", **_MILLIS}},
        {"type": {"type": "long", "logicalType": "timestamp-micros"}, **_MILLIS},
        {"type": "string", **_MILLIS},
        {"type": "long", "logicalType": "parsecs"},
        {"type": "long", "logicalType": 5},
        {"type": "bytes", "logicalType": "decimal"},
        {"type": {"type": "array", "items": "long"}, **_MILLIS},
        {"type": {"type": "enum", "name": "E", "symbols": ["A"]}, "logicalType": "uuid"},
    ],
    ids=json.dumps,
)
def test_what_is_in_its_place_or_could_not_apply_is_left_alone(field: dict[str, Any]) -> None:
    text = _record({"name": "f", **field})
    assert (find_misplaced(text), with_moved_logical_types(text)) == ((), text)


_BESIDE = _record({"name": "ts", "type": "long", **_MILLIS})


def test_what_is_ignored_is_logged_once_for_each_schema(tmp_path: Path, logs: list[Any]) -> None:
    world = Scenario(tmp_path)
    number = world.register(_BESIDE)
    for n in range(3):
        world.produce(number, _BESIDE, {"ts": n})
        world.go()
    found = [log for log in logs if log["event"] == "logical_type_ignored"]
    assert [(log["topic"], log["field"], log["type"], log["logical_type"]) for log in found] == [
        ("a", "ts", "long", "timestamp-millis")
    ]
    assert [row["ts"] for row in world.rows()] == [0, 1, 2]


def test_a_table_reads_it_as_meant_where_the_file_reports_it(tmp_path: Path, logs: list[Any]) -> None:
    world = Scenario(tmp_path, value={"format": "avro", "logical_types": "lenient"})
    world.produce(world.register(_BESIDE), _BESIDE, {"ts": 1000})
    world.settle()
    assert world.rows() == [{"ts": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)}]
    assert not [log for log in logs if log["event"] == "logical_type_ignored"]


def test_two_tables_of_one_registry_may_read_it_differently() -> None:
    registry = MemoryRegistry()
    number = str(registry.register("avro", _BESIDE))
    schemas = Schemas(registry)
    settings = (ValueSpec(format="avro"), ValueSpec(format="avro", logical_types="lenient"))
    read = [schemas.fetch([number], "a", value)[number].text for value in settings]
    assert [text == _BESIDE for text in read] == [True, False]
    assert registry.asked == [f"id {number}"]


def test_plan_tells_what_a_schema_reports_in_vain(ops_scenario: OpsScenario) -> None:
    registry = MemoryRegistry()
    number = registry.register("avro", _BESIDE)
    produce(ops_scenario, "a", b"\0" + number.to_bytes(4, "big") + b"\2")
    text = "registry: {url: http://r}\ntables: {s.a: {topic: a, value: {format: avro%s}}}\n"
    table = plan(ops_scenario, text % "", Schemas(registry))["s.a"]
    assert (columns(table), table.warnings) == ([("ts", "long", "registry")], (_WORDS.format("value"),))
    table = plan(ops_scenario, text % ", logical_types: lenient", Schemas(registry))["s.a"]
    assert (columns(table), table.warnings) == ([("ts", "timestamptz", "registry")], ())
