"""Records whose fields have names that an adopted table's `schema.name-mapping.default` gives its columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from frazil.schema.evolve import new_schema
from frazil.schema.names import PROPERTY, aliases_of
from frazil.spec.settings import ColumnSpec, EnvelopeSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.tables.test_schemas import Scenario as AvroScenario
from tests.unit.ingest.tables.test_schemas import avro
from tests.unit.rows.test_shaped_service import Scenario
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario
from tests.unit.upsert.upsert_source import UpsertSource

Row = dict[str, Any]
COLUMNS = {
    "id": "long",
    "name": "string",
    "place": "struct<lat: double, lon: double>",
    "tags": "list<struct<k: string>>",
}
SCHEMA = new_schema((name, parse_type(word)) for name, word in COLUMNS.items())


def _mapping(schema: Schema, **names: list[str]) -> str:
    """The property, with these names for columns by their paths, dots as two underscores."""

    def entry(field: Any, path: str) -> Row:
        inner = getattr(field.field_type, "fields", ())
        if hasattr(field.field_type, "element_type"):
            kind = field.field_type
            element = {"field-id": kind.element_id, "names": ["element"]}
            element["fields"] = [entry(one, f"{path}__{one.name}") for one in kind.element_type.fields]
            return {"field-id": field.field_id, "names": [field.name], "fields": [element]}
        found = {"field-id": field.field_id, "names": names.get(path, [field.name])}
        return {**found, "fields": [entry(one, f"{path}__{one.name}") for one in inner]}

    return json.dumps([entry(field, field.name) for field in schema.fields])


NAMES = {"id": ["id", "record_id", "ID2"], "place__lat": ["latitude"], "tags__k": ["k", "key"]}


def _exists(scenario: Any, **names: list[str]) -> None:
    """The table is there, made by somebody else."""
    scenario.catalog.create("n.t", SCHEMA, {PROPERTY: _mapping(assign_fresh_schema_ids(SCHEMA), **(names or NAMES))}, 3)


_OTHERS = {"record_id": 1, "name": "a", "place": {"latitude": 1.5, "lon": 2.5}, "tags": [{"key": "x"}, {"k": "y"}]}
_OWN = {"id": 2, "name": "b", "place": {"lat": 3.5, "lon": 4.5}, "tags": [{"k": "z"}]}
_ROWS = [
    {"id": 1, "name": "a", "place": {"lat": 1.5, "lon": 2.5}, "tags": [{"k": "x"}, {"k": "y"}]},
    _OWN,
]


def _columns(scenario: Any) -> list[str]:
    return [name for name in scenario.catalog.load("n.t").schema.column_names if "." not in name]


def test_the_names_of_a_mapping_are_those_of_columns_at_every_depth() -> None:
    text = _mapping(SCHEMA, **NAMES)
    assert aliases_of(text, SCHEMA) == (
        (("id",), ("record_id", "ID2")),
        (("place", "lat"), ("latitude",)),
        (("tags", "element", "k"), ("key",)),
    )


@pytest.mark.parametrize("text", ["", "no json", "{}", "[1]", '[{"names": 5}]', '[{"field-id": 1, "names": ["name"]}]'])
def test_what_is_no_mapping_or_names_another_column_gives_no_names(text: str) -> None:
    assert aliases_of(text, SCHEMA) == ()


@pytest.mark.parametrize(
    "settings", [{}, {"exclude": (("other",),)}, {"schema_evolution": "freeze"}, {"unknown_fields": "drop"}], ids=str
)
def test_fields_of_json_go_to_the_columns_of_their_names(tmp_path: Path, settings: Row) -> None:
    scenario = Scenario(tmp_path, columns=(ColumnSpec(name="id", type=parse_type("long")),), **settings)
    _exists(scenario)
    for value in (_OTHERS, _OWN):
        scenario.source.produce("a", 0, json.dumps(value).encode())
    scenario.catch_up()
    assert (scenario.rows(), _columns(scenario)) == (_ROWS, list(COLUMNS))


def test_new_fields_beside_them_become_columns_and_a_declared_field_comes_first(tmp_path: Path) -> None:
    declared = ColumnSpec(name="name", type=parse_type("string"), field=("title",))
    scenario = Scenario(tmp_path, columns=(declared,))
    _exists(scenario, **NAMES, name=["name", "label"])
    scenario.source.produce(
        "a", 0, json.dumps({"ID2": 7, "title": "t", "label": "l", "place": {"latitude": 1, "alt": 2.5}}).encode()
    )
    scenario.catch_up()
    (row,) = scenario.rows()
    assert (row["id"], row["name"], row["label"], row["place"]) == (7, "t", "l", {"lat": 1.0, "lon": None, "alt": 2.5})


def test_a_record_with_values_under_two_names_is_a_bad_one(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("id",), dead_letters={"stop_above": 1.0})
    _exists(scenario)
    scenario.tell(("1", {"id": 1, "record_id": 1}), ("2", {"id": 2, "record_id": None}), ("3", {"ID2": 3}))
    assert [row["id"] for row in scenario.upsert_table("id")] == [2, 3]
    assert [kind for kind, _ in scenario.dead_letters()] == ["name_conflict"]


def test_fields_of_avro_go_to_the_columns_of_their_names_and_may_widen_them(tmp_path: Path) -> None:
    scenario = AvroScenario(tmp_path)
    scenario.catalog.create("n.t", new_schema([("id", parse_type("int"))]), {
        PROPERTY: '[{"field-id": 1, "names": ["record_id"]}]'
    }, 2)  # fmt: skip
    text = avro(record_id="long", more="string")
    scenario.produce(scenario.register(text), text, {"record_id": 2**40, "more": "m"})
    scenario.settle(scenario.start())
    assert scenario.rows() == [{"id": 2**40, "more": "m"}]


@pytest.mark.parametrize("key", ["id", "record_id"])
def test_an_upsert_table_finds_its_rows_by_keys_and_images_with_such_names(tmp_path: Path, key: str) -> None:
    scenario = UpsertSource(tmp_path)
    _exists(scenario)

    def told(op: str, number: int, **row: Any) -> tuple[Row, Row]:
        image = {key: number, **row}
        return {key: number}, {"op": op, "before": image if op == "d" else None, "after": None if op == "d" else image}

    scenario.say(told("c", 1, name="a"), told("c", 2, name="b"), told("c", 3, name="c"))
    scenario.say(told("u", 1, name="a2"), told("d", 2), ({key: 3}, None))
    assert [(row["id"], row["name"]) for row in scenario.by_id()] == [(1, "a2")]
    assert (_columns(scenario), scenario.dead_letters()) == (list(COLUMNS), [])


def test_an_upsert_table_takes_rows_and_tombstones_with_such_names(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS)
    _exists(scenario)
    scenario.tell(
        ('{"record_id": 1}', {"record_id": 1, "name": "a"}), ('{"record_id": 2}', {"record_id": 2, "name": "b"})
    )
    scenario.tell(('{"record_id": 1}', None), ('{"record_id": 2}', {"record_id": 2, "name": "c"}))
    assert [(row["id"], row["name"]) for row in scenario.upsert_table()] == [(2, "c")]
    assert _columns(scenario) == list(COLUMNS)


def test_a_large_value_that_was_not_sent_under_such_a_name_stays(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, envelope=EnvelopeSpec(kind="debezium"))
    _exists(scenario, name=["name", "title"])
    scenario.say(({"id": 1}, {"op": "c", "before": None, "after": {"id": 1, "title": "large"}}))
    scenario.say(({"id": 1}, {"op": "u", "before": None, "after": {"id": 1, "title": "__debezium_unavailable_value"}}))
    assert [(row["id"], row["name"]) for row in scenario.by_id()] == [(1, "large")]
