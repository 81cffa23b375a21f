"""What plan reports of tables whose records name schemas of a registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.decode.settings import WriterSchema
from frazil.errors import UnavailableError
from frazil.ingest.tables.schemas import Schemas
from frazil.ops.plan import PlannedTable
from frazil.registry.port import SchemaKind
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from frazil_testing.memory_registry import MemoryRegistry
from tests.needs import needs
from tests.unit.ops.conftest import Scenario
from tests.unit.ops.test_plan import columns, plan, produce
from tests.unit.rows.test_writer_schemas import framed

_CITY = {"name": "city", "type": ["null", "string"]}


def _avro(kind: str, *more: dict[str, Any]) -> str:
    """A record with a number of this type and a nested record, which may have more fields."""
    at = {"type": "record", "name": "At", "fields": [{"name": "zip", "type": "string"}, *more]}
    return json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "id", "type": kind}, {"name": "at", "type": at}]}
    )


_OLD, _NEW = _avro("int"), _avro("long", _CITY)
_PROTO = 'syntax = "proto3"; message R { int64 id = 1; optional string name = 2; }'
_JSON = json.dumps({"properties": {"id": {"type": "integer"}, "day": {"type": "string", "format": "date"}}})


def _plan(scenario: Scenario, registry: MemoryRegistry, settings: str = "", form: str = "avro") -> PlannedTable:
    text = f"registry: {{url: http://r}}\ntables: {{s.a: {{topic: a, value: {{format: {form}}}{settings}}}}}\n"
    return plan(scenario, text, Schemas(registry))["s.a"]


def _record(schema_id: int, text: str, city: str | None = None) -> bytes:
    (value,) = framed(schema_id, WriterSchema("avro", text), {"id": 1, "at": {"zip": "z", "city": city}})
    return value


def test_a_new_table_has_what_all_the_schemas_of_its_records_have(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    one, two = registry.register("avro", _OLD), registry.register("avro", _NEW)
    produce(scenario, "a", _record(two, _NEW), _record(one, _OLD))
    table = _plan(scenario, registry)
    assert (table.action, table.problem, columns(table)) == (
        "create", None, [("id", "long", "registry"), ("at", "struct<zip: string, city: string>", "registry")]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("form", "text", "body", "found"),
    [
        pytest.param(
            "protobuf",
            _PROTO,
            b"\x00\x08\x01",
            [("id", "long", "registry"), ("name", "string", "registry")],
            marks=needs("protobuf"),
        ),
        pytest.param(
            "json_schema",
            _JSON,
            b'{"id": 1}',
            [("id", "long", "registry"), ("day", "date", "registry")],
            marks=needs("jsonschema"),
        ),
    ],
)
def test_a_schema_tells_of_columns_before_a_record_has_a_value_for_them(
    scenario: Scenario, form: SchemaKind, text: str, body: bytes, found: list[tuple[str, str, str]]
) -> None:
    registry = MemoryRegistry()
    produce(scenario, "a", b"\x00\x00\x00\x00" + bytes([registry.register(form, text)]) + body)
    assert columns(_plan(scenario, registry, form=form)) == found


@pytest.mark.parametrize(
    ("schema_evolution", "found", "refused"),
    [
        ("evolve", [("at.city", "string", "registry"), ("id", "long", "widened")], []),
        ("add_only", [("at.city", "string", "registry")], ["id: int is not widened to long"]),
        (
            "freeze",
            [],
            ["at.city: string is not added: `schema_evolution` is `freeze`", "id: int is not widened to long"],
        ),
    ],
)
def test_of_a_table_that_is_there_it_tells_what_a_new_schema_adds_widens_and_may_not(
    scenario: Scenario, schema_evolution: str, found: list[tuple[str, str, str]], refused: list[str]
) -> None:
    registry = MemoryRegistry()
    kinds = {"id": parse_type("int"), "at": parse_type("struct<zip: string>")}
    scenario.catalog.create("s.a", new_schema(kinds.items()), {}, 2)
    produce(scenario, "a", _record(registry.register("avro", _NEW), _NEW))
    table = _plan(scenario, registry, f", schema_evolution: {schema_evolution}")
    assert (sorted(columns(table)), table.bad) == (found, 0)
    assert list(table.refused) == [f"schema 1: column {what}" for what in refused]


def test_a_value_that_a_refused_change_leaves_without_a_place_is_a_bad_record(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    scenario.catalog.create(
        "s.a", new_schema([("id", parse_type("int")), ("at", parse_type("struct<zip: string>"))]), {}, 2
    )
    produce(scenario, "a", _record(registry.register("avro", _NEW), _NEW, "Berlin"))
    table = _plan(scenario, registry, ", schema_evolution: freeze")
    assert table.bad == 1
    assert table.problem is not None
    assert table.problem.message.startswith("field at.city: ")


def test_a_schema_that_the_registry_does_not_have_is_reported_with_its_record(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    one = registry.register("avro", _OLD)
    produce(scenario, "a", _record(one, _OLD), _record(9, _OLD))
    table = _plan(scenario, registry)
    assert (table.action, table.bad, [name for name, *_ in columns(table)]) == ("create", 1, ["id", "at"])
    assert table.problem is not None
    assert (table.problem.message, table.problem.where) == (
        "the schema registry has no schema 9", "topic a, partition 1, offset 0"
    )  # fmt: skip


def test_without_an_answer_of_the_registry_there_is_no_plan(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    produce(scenario, "a", _record(registry.register("avro", _OLD), _OLD))
    registry.is_down = True
    with pytest.raises(UnavailableError, match="the schema registry does not answer"):
        _plan(scenario, registry)


def test_keys_that_become_a_column_have_their_own_schema(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    key = json.dumps({"type": "record", "name": "K", "fields": [{"name": "desk", "type": "string"}]})
    one, two = registry.register("avro", _OLD), registry.register("avro", key)
    (raw,) = framed(two, WriterSchema("avro", key), {"desk": "d"})
    scenario.source.create("a", 2)
    scenario.source.produce("a", 0, _record(one, _OLD), key=raw)
    table = _plan(scenario, registry, ", key: {format: avro}, metadata: [key]")
    assert ("_key", "struct<desk: string>", "metadata") in columns(table)
