"""Fields that were renamed with an alias have one column, in whatever order records of their schemas come."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.renames import find_renames
from frazil.decode.settings import WriterSchema
from frazil.ingest.tables.state import RunState
from frazil.spec import ColumnSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.tables.test_schemas import Scenario
from tests.unit.rows.test_writer_schemas import decode, fields_of, framed, rows

LONG = parse_type("long")


def schema(name: str, *aliases: str) -> WriterSchema:
    """A record of a nested and a plain field, both called so and once called otherwise."""
    inner = {"type": "record", "name": "In", "fields": [{"name": name, "type": "long", "aliases": list(aliases)}]}
    fields = [{"name": name, "type": "long", "aliases": list(aliases)}, {"name": "in", "type": inner}]
    return WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": fields}))


SCHEMAS = {1: schema("a"), 2: schema("b", "a"), 3: schema("c", "b", "a")}
NAMES = {1: "a", 2: "b", 3: "c"}


def declared(**columns: str) -> tuple[ColumnSpec, ...]:
    return tuple(ColumnSpec(name=name, type=parse_type(kind)) for name, kind in columns.items())


def record(number: int) -> dict[str, Any]:
    return {NAMES[number]: number, "in": {NAMES[number]: number}}


def value(number: int) -> bytes:
    (raw,) = framed(number, SCHEMAS[number], record(number))
    return raw


def read_all(
    scenario: Scenario,
    schemas: Mapping[int, WriterSchema],
    records: Mapping[int, dict[str, Any]],
    order: Sequence[int],
    is_one_batch: bool,
) -> None:
    """Writes the record of each schema in this order, and reads them, all at once or each by itself."""
    for number in schemas:
        assert scenario.register(schemas[number].text) == number
    for number in order:
        (raw,) = framed(number, schemas[number], records[number])
        scenario.source.produce("a", 0, raw)
        if not is_one_batch:
            scenario.settle(scenario.start())
    service = scenario.start()
    scenario.settle(service)
    assert [(table.status.run_state, table.status.reason) for table in service.tables] == [(RunState.WAITING, "")]


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_a_first_batch_with_all_of_them_wants_the_oldest_name_alone(order: tuple[int, ...]) -> None:
    values = [value(number) for number in order]
    requested_fields = decode(values, (), SCHEMAS).requested_fields
    ((path, members),) = requested_fields.items()
    (field,) = members["in"].fields  # type: ignore[attr-defined]
    assert (path, set(members), members["a"], field.name) == ((), {"a", "in"}, LONG, "a")


@pytest.mark.parametrize("column", ["a", "b", "c"])
def test_whichever_name_the_column_has_they_are_all_in_it(column: str) -> None:
    fields = fields_of(**{column: "long", "in": f"struct<{column}: long>"})
    decoded = decode([value(number) for number in (1, 2, 3)], fields, SCHEMAS)
    assert decoded.requested_fields == {}
    assert rows(decoded, fields) == [{column: n, "in": {column: n}} for n in (1, 2, 3)]


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_a_table_has_one_column_in_whatever_order_its_records_come(
    tmp_path: Path, order: tuple[int, ...], is_one_batch: bool
) -> None:
    scenario = Scenario(tmp_path)
    read_all(scenario, SCHEMAS, {number: record(number) for number in SCHEMAS}, order, is_one_batch)
    state = scenario.catalog.load("n.t")
    assert state is not None
    (column,) = {field.name for field in state.schema.fields} - {"in"}
    assert column == ("a" if is_one_batch else NAMES[order[0]])
    assert [row[column] for row in scenario.rows()] == list(order)
    assert [row["in"][column] for row in scenario.rows()] == list(order)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_of_two_fields_with_one_former_name_the_first_has_its_column(
    tmp_path: Path, order: tuple[int, ...], is_one_batch: bool
) -> None:
    def fields(*named: tuple[str, list[str]]) -> list[dict[str, Any]]:
        return [{"name": name, "type": "string", "aliases": aliases} for name, aliases in named]

    def split(*named: tuple[str, list[str]]) -> WriterSchema:
        inner = {"type": "record", "name": "In", "fields": fields(*named)}
        whole = [*fields(*named), {"name": "in", "type": inner}]
        return WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": whole}))

    schemas = {1: split(("name", [])), 2: split(("first", ["name"]), ("last", ["name"]))}
    rows = {1: {"name": "a b"}, 2: {"first": "a", "last": "b"}}
    scenario = Scenario(tmp_path)
    read_all(scenario, schemas, {number: {**row, "in": row} for number, row in rows.items()}, order, is_one_batch)
    column = "name" if is_one_batch or order == (1, 2) else "first"
    found = {1: {column: "a b", "last": None}, 2: {column: "a", "last": "b"}}
    assert [{name: row.get(name) for name in (column, "last")} for row in scenario.rows()] == [found[n] for n in order]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_renamed_fields_of_records_in_lists_and_maps_have_one_column(
    tmp_path: Path, order: tuple[int, ...], is_one_batch: bool
) -> None:
    def schema_of(name: str, *aliases: str) -> WriterSchema:
        inner = {"type": "record", "name": "In", "fields": [{"name": name, "type": "long", "aliases": list(aliases)}]}
        fields = [{"name": "l", "type": {"type": "array", "items": ["null", inner]}},
                  {"name": "m", "type": {"type": "map", "values": "In"}}]  # fmt: skip
        return WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": fields}))

    schemas = {1: schema_of("a"), 2: schema_of("b", "a")}
    scenario = Scenario(tmp_path)
    records = {n: {"l": [{NAMES[n]: n}, None], "m": {"k": {NAMES[n]: n}}} for n in schemas}
    read_all(scenario, schemas, records, order, is_one_batch)
    column = "a" if is_one_batch else NAMES[order[0]]
    assert scenario.rows() == [{"l": [{column: n}, None], "m": [("k", {column: n})]} for n in order]


def test_what_one_schema_reports_holds_on_from_what_another_does() -> None:
    kinds: list[Any] = [parse_type(f"struct<{name}: long>") for name in "abc"]
    renames = find_renames([(kinds[0], {}), (kinds[2], {("c",): ("b",)}), (kinds[1], {("b",): ("a",)})])
    assert renames.names == {("a",): ("b", "c"), ("b",): ("a", "c"), ("c",): ("a", "b")}
    assert renames.first == {("b",): "a", ("c",): "a"}


def _held(*names: tuple[str, ...], kind: Any = "long") -> tuple[WriterSchema, dict[str, Any]]:
    """A schema of records in each other, outermost first, each name with its aliases, and a record with a value."""
    value: Any = 5
    for number, (name, *aliases) in reversed(list(enumerate(names))):
        field = {"name": name, "type": kind, "aliases": aliases}
        kind, value = {"type": "record", "name": f"L{number}", "fields": [field]}, {name: value}
    return WriterSchema("avro", json.dumps(kind)), value


_INSIDE = {
    1: _held(("a",), ("x",), ("p",)),
    2: _held(("b", "a"), ("x",), ("p",)),
    3: _held(("c", "b", "a"), ("y", "x"), ("q", "p")),
}


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_a_field_that_is_renamed_inside_of_a_renamed_one_keeps_its_column(
    tmp_path: Path, order: tuple[int, ...], is_one_batch: bool
) -> None:
    scenario = Scenario(tmp_path)
    schemas, records = ({number: held[n] for number, held in _INSIDE.items()} for n in (0, 1))
    read_all(scenario, schemas, records, order, is_one_batch)  # type: ignore[arg-type]
    first = records[1 if is_one_batch else order[0]]
    assert scenario.rows() == [first] * 3


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_renamed_value_that_a_union_gives_a_type_goes_to_its_branch(tmp_path: Path, order: tuple[int, ...]) -> None:
    held = {1: _held(("a",), ("x",), kind=["int", "string"]), 2: _held(("b", "a"), ("y", "x"), kind="int")}
    scenario = Scenario(tmp_path, columns=declared(a="struct<x: struct<int: int, string: string>>"))
    read_all(scenario, {n: one for n, (one, _) in held.items()}, {n: one for n, (_, one) in held.items()}, order, False)
    assert scenario.rows() == [{"a": {"x": {"int": 5, "string": None}}}] * 2


def test_names_inside_of_many_renamed_fields_are_few() -> None:
    names = [(f"new{n}", f"old{n}") for n in range(60)]
    schemas = (_held(*((old,) for _, old in names))[0], _held(*names)[0])
    (raw,) = framed(2, schemas[1], _held(*names)[1])
    requested_fields = decode([raw], (), dict(enumerate(schemas, 1))).requested_fields
    kind: Any = requested_fields[()]["old0"]
    for n in range(1, 60):
        (field,) = kind.fields
        assert field.name == f"old{n}"
        kind = field.field_type


def test_a_name_that_another_field_has_got_since_is_that_fields() -> None:
    # What was a is called b now, and a new a is there.
    swapped: Any = parse_type("struct<a: long, b: long>")
    one: Any = parse_type("struct<a: long>")
    renames = find_renames([(swapped, {("b",): ("a",)}), (one, {})])
    assert (renames.names, renames.first) == ({}, {})


def _record(name: str, *fields: dict[str, Any], **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields), **more})


@pytest.mark.parametrize("is_user_first", [True, False])
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_an_alias_names_no_field_of_another_record(tmp_path: Path, is_user_first: bool, is_one_batch: bool) -> None:
    scenario = Scenario(tmp_path)
    order = _record("Order", {"name": "id", "type": "int"})
    user = _record("User", {"name": "user_id", "type": "int", "aliases": ["id"]})
    sent = [(user, {"user_id": 77}), (order, {"id": 1})]
    for text, record in sent if is_user_first else reversed(sent):
        scenario.produce(scenario.register(text), text, record)
        if not is_one_batch:
            scenario.settle(scenario.start())
    scenario.settle(scenario.start())
    found = sorted((row.get("id") or 0, row.get("user_id") or 0) for row in scenario.rows())
    assert found == [(0, 77), (1, 0)]


def test_a_record_that_got_another_name_by_an_alias_keeps_the_columns_of_its_fields(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    old = _record("User", {"name": "id", "type": "int"})
    new = _record("Person", {"name": "user_id", "type": "int", "aliases": ["id"]}, aliases=["User"])
    for text, record in ((old, {"id": 1}), (new, {"user_id": 2})):
        scenario.produce(scenario.register(text), text, record)
        scenario.settle(scenario.start())
    assert scenario.rows() == [{"id": 1}, {"id": 2}]


def _around(outer: str, name: str, *aliases: str) -> WriterSchema:
    """A record with a struct of a field that may be renamed, and of another one."""
    inside = [{"name": name, "type": "long", "aliases": list(aliases)}, {"name": "k", "type": "long"}]
    kind = {"type": "record", "name": "In", "fields": inside}
    fields = [{"name": outer, "type": kind, "aliases": ["o"] if outer != "o" else []}]
    return WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": fields}))


_SELECTED = {1: _around("o", "a"), 2: _around("q", "b", "a")}
_SELECTED_ROWS = {1: {"o": {"a": 1, "k": -1}}, 2: {"q": {"b": 2, "k": -2}}}


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (2,)])
@pytest.mark.parametrize("is_one_batch", [True, False])
@pytest.mark.parametrize("path", [("o", "a"), ("q", "b"), ("o", "b")])
def test_a_field_is_left_out_under_each_of_its_names(
    tmp_path: Path, path: tuple[str, ...], order: tuple[int, ...], is_one_batch: bool
) -> None:
    scenario = Scenario(tmp_path, exclude=(path,))
    read_all(scenario, _SELECTED, _SELECTED_ROWS, order, is_one_batch)
    for number, row in zip(order, scenario.rows(), strict=True):
        (value,) = row.values()
        # Before the second schema is known, its names mean nothing in records of the first.
        known = (
            {"k": -number}
            if (is_one_batch or order[0] == 2 or path == ("o", "a"))
            else {"a": value.get("a"), "k": -number}
        )
        assert value == known


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (2,)])
@pytest.mark.parametrize("path", [("o", "a"), ("q", "b")])
def test_a_field_is_taken_under_each_of_its_names_and_gets_the_one_that_is_written(
    tmp_path: Path, path: tuple[str, ...], order: tuple[int, ...]
) -> None:
    scenario = Scenario(tmp_path, include=(path,))
    read_all(scenario, _SELECTED, _SELECTED_ROWS, order, is_one_batch=True)
    assert scenario.rows() == [{path[0]: {path[1]: number}} for number in order]
